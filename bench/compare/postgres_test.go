//go:build linux

package compare

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkEvery is how often a candidate asks for the lock, and a holder whether its session lives, and how long it waits for an
// answer. PostgreSQL recommends none.
const checkEvery = time.Second

// postgresCandidate asks for a session's advisory lock, on a connection of its own. It leads from the moment at which it has the
// lock until a query on that connection fails; an orderly stop unlocks.
type postgresCandidate struct {
	place
	settings map[string]string
	sent     atomic.Int64
}

func startPostgres(s *stage) {
	if os.Getuid() != 0 {
		s.Skip("needs root, to run PostgreSQL as another user")
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		s.Skip("no user postgres:", err)
	}
	binaries, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(binaries) == 0 {
		s.Skip("no PostgreSQL is installed")
	}
	bin := filepath.Dir(slices.Max(binaries))
	uid, err := strconv.Atoi(account.Uid)
	s.check(err)
	gid, err := strconv.Atoi(account.Gid)
	s.check(err)
	dir, err := os.MkdirTemp("", "postgres")
	s.check(err)
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.check(os.Chown(dir, uid, gid))
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync").CombinedOutput(); err != nil {
		s.Fatalf("initdb: %v: %s", err, out)
	}
	hba, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	s.check(err)
	_, err = fmt.Fprintln(hba, "host all all 10.77.0.0/16 trust")
	s.check(err)
	s.check(hba.Close())
	host, port, err := net.SplitHostPort(s.freeAddress())
	s.check(err)
	s.endpoint = net.JoinHostPort(host, port)
	s.run(command("postgres", "-D", data, "-h", host, "-p", port, "-k", dir))
}

func newPostgres(_ context.Context, p place, c *comparison) (candidate, error) {
	return &postgresCandidate{place: p, settings: c.settings}, nil
}

func (c *postgresCandidate) campaign(ctx context.Context, report func(bool)) error {
	for ctx.Err() == nil {
		conn, err := c.connect(ctx)
		if err != nil {
			pause(ctx, checkEvery)
			continue
		}
		c.session(ctx, conn, report)
		_ = conn.Close(context.Background())
	}
	return nil
}

func (c *postgresCandidate) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig("postgres://postgres@" + c.endpoint + "/postgres?connect_timeout=5")
	if err != nil {
		return nil, err
	}
	for name, value := range c.settings {
		cfg.RuntimeParams[name] = value
	}
	return pgx.ConnectConfig(ctx, cfg)
}

// session goes on until a query fails or ctx ends.
func (c *postgresCandidate) session(ctx context.Context, conn *pgx.Conn, report func(bool)) {
	for got := false; !got; {
		err := c.query(conn, "SELECT pg_try_advisory_lock(hashtext($1))", c.key).Scan(&got)
		if err != nil || !got && !pause(ctx, checkEvery) {
			return
		}
	}
	report(true)
	for one := 0; pause(ctx, checkEvery); {
		if c.query(conn, "SELECT 1").Scan(&one) != nil {
			report(false)
			return
		}
	}
	report(false)
	var unlocked bool
	_ = c.query(conn, "SELECT pg_advisory_unlock(hashtext($1))", c.key).Scan(&unlocked)
}

// query is one row, which must come in time.
func (c *postgresCandidate) query(conn *pgx.Conn, sql string, args ...any) row {
	c.sent.Add(1)
	return func(into any) error {
		ctx, cancel := context.WithTimeout(context.Background(), checkEvery)
		defer cancel()
		return conn.QueryRow(ctx, sql, args...).Scan(into)
	}
}

type row func(into any) error

// Scan runs the query, and stores its only value.
func (r row) Scan(into any) error { return r(into) }

func (c *postgresCandidate) requests() int64 { return c.sent.Load() }
