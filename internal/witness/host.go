package witness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// HostVariable is the environment variable that names the witness of a host, as in unix:///run/election/witness.sock.
const HostVariable = "ELECTION_WITNESS"

// HostSocket returns the path of the socket of the host's witness; empty if the environment names none.
func HostSocket() (path string, err error) {
	text := os.Getenv(HostVariable)
	switch {
	case text == "":
		return "", nil
	case !Supported:
		return "", ErrUnsupported
	}
	path, ok := strings.CutPrefix(text, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("%s is %q, and is to name a socket by its whole path: as in %s=unix:///run/election/witness.sock", HostVariable, text, HostVariable)
	}
	return path, nil
}

// answerTimeout is how long a witness may take to answer a program before that is logged. The program waits on.
const answerTimeout = 5 * time.Second

// OfHost returns what tells the witness of the host that listens on the given socket. A witness that is not there yet is waited for.
func OfHost(path string, log *slog.Logger) *Teller {
	return NewTeller(nil, func(ctx context.Context) (Link, error) { return join(ctx, path, log) }, log)
}

// refusal is the error of a witness that refuses a program, with its reason.
type refusal struct{ reason string }

func (r *refusal) Error() string { return "the witness refuses this program: " + r.reason }

// join connects to the witness of a host, and returns once the witness watches this process. Before that the witness is told no secret.
func join(ctx context.Context, path string, log *slog.Logger) (link Link, err error) {
	dialled, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w: start election-cli witness with this socket, or correct %s", err, HostVariable)
	}
	conn := dialled.(*net.UnixConn)
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })() // which cancels it when the witness has answered
	if err := introduce(conn); err != nil && !errors.Is(err, syscall.EPIPE) {        // which has an answer, too
		return nil, err
	}
	late := time.AfterFunc(answerTimeout, func() {
		log.Warn("The witness of the host does not answer: until it does, a leader that dies is replaced when its lease is over", "socket", path)
	})
	defer late.Stop()
	reader := bufio.NewReaderSize(conn, maxMessageBytes)
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("%s does not answer as a witness does: %w", path, err)
	}
	var a answer
	switch err := json.Unmarshal(line, &a); {
	case err != nil:
		return nil, fmt.Errorf("%s does not answer as a witness does: correct %s: %w", path, HostVariable, err)
	case a.Refused != "":
		return nil, &refusal{a.Refused}
	}
	return joined{conn, reader}, nil
}

// joined is the connection to a witness that watches this process.
type joined struct {
	*net.UnixConn
	reader *bufio.Reader
}

// Read reads what has not been read yet.
func (j joined) Read(b []byte) (int, error) { return j.reader.Read(b) }

const (
	// acceptDelay is the pause after a program that could not connect, as when this process has no descriptor left for it.
	acceptDelay = time.Second
	// helloTimeout is how long a program may take to say which process it is.
	helloTimeout = 10 * time.Second
	// writeTimeout is how long an answer may take to write. There is room for it, unless the program reads nothing.
	writeTimeout = time.Second
	// warnInterval is the time from one warning of a refusal to the next: whoever may connect can have as many refusals as he likes.
	warnInterval = 10 * time.Second
)

// Host is the witness of all programs of a host.
type Host struct {
	keeper   Keeper
	ledger   ledger
	warnedAt atomic.Int64 // in Unix nanoseconds
}

// NewHost returns the witness of a host, which connects by dial while a program leads. It takes terms in buckets of the given prefixes of the
// JetStream API; none is the default prefix.
func NewHost(dial Dial, prefixes []string, log *slog.Logger) *Host {
	h := &Host{keeper: Keeper{releaser: releaser{dial: dial, log: log}, prefixes: map[string]bool{}}}
	for _, prefix := range append([]string{""}, prefixes...) {
		h.keeper.prefixes[prefixOf(prefix)] = true
	}
	return h
}

// Serve keeps the terms of every program that connects to a socket, until ctx ends.
func (h *Host) Serve(ctx context.Context, socket *net.UnixListener) error {
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	for {
		conn, err := socket.AcceptUnix()
		switch {
		case err == nil:
			go h.serve(ctx, conn)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			h.keeper.releaser.log.Warn("A program cannot connect to the witness, trying again", "error", err)
			_ = timeutil.Pause(ctx, acceptDelay)
		}
	}
}

// serve keeps the terms of one program.
func (h *Host) serve(ctx context.Context, conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	user, err := peerUser(conn)
	if err != nil {
		h.warn("A program that connected is not watched: if it dies, it is replaced when its lease is over", "error", err)
		return
	}
	account, err := h.ledger.open(user)
	defer account.close()
	var p *Process
	if err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
		p, err = meet(conn)
		_ = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		h.warn("A program that connected is not watched: if it dies, it is replaced when its lease is over", "user", user, "error", err)
		reply(conn, answer{err.Error()})
		return
	}
	defer p.Close()
	reply(conn, answer{})
	var once sync.Once // the reasons repeat, and the program may read nothing
	h.keeper.keep(ctx, conn, p, account, func(err error) {
		once.Do(func() {
			h.warn("A term of a program is left to its lease", "user", user, "error", err)
			reply(conn, answer{err.Error()})
		})
	})
}

// reply writes an answer to a program. What cannot be written is lost.
func reply(conn *net.UnixConn, a answer) {
	if line, err := encode(a); err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, _ = conn.Write(line)
	}
}

// warn logs a refusal.
func (h *Host) warn(message string, attributes ...any) {
	level, now := slog.LevelDebug, time.Now().UnixNano()
	if last := h.warnedAt.Load(); now-last >= int64(warnInterval) && h.warnedAt.CompareAndSwap(last, now) {
		level = slog.LevelWarn
	}
	h.keeper.releaser.log.Log(context.Background(), level, message, attributes...)
}

// readRefusals calls log with the reason for which a witness leaves a term to its lease, until the connection ends.
func readRefusals(link io.Reader, log func(reason string)) {
	lines := bufio.NewScanner(link)
	lines.Buffer(nil, maxMessageBytes)
	for lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) == nil && a.Refused != "" {
			log(a.Refused)
		}
	}
}
