package processes

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/cli/embedded"
)

// pollInterval is the time from one question to a server to the next, while the drill waits for the server.
const pollInterval = 50 * time.Millisecond

// Server is one server of a drill. Its process may be down; its data remains.
type Server struct {
	child
	Name         string
	port         int // for clients
	routeAddress string
	routes       []string
	config       string // the file with its configuration
	folder       string // of its data
	log, stderr  string
	program      string // a nats-server program; empty for the server that is built into this program
	monitor      monitor

	configuring sync.Mutex              // held while the server starts, and while it reloads its configuration
	loaded      time.Time               // when it loaded its configuration last, as it says itself
	caughtUp    atomic.Pointer[Process] // the process that has caught up with the other servers; nil if none has
}

// address returns the address for clients.
func (s *Server) address() string {
	return net.JoinHostPort(embedded.Loopback, strconv.Itoa(s.port))
}

// Start runs the server with its earlier data, and returns when it accepts connections.
func (s *Server) Start(ctx context.Context) error {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	p, err := start(ctx, RoleServer, s.Name, s.stderr, serverConfig{File: s.config, Program: s.program}, func(io.Reader) {})
	if err != nil {
		return err
	}
	if err := s.awaitLoaded(ctx, p, time.Time{}); err != nil {
		p.kill()
		return err
	}
	s.attach(p)
	return nil
}

// awaitLoaded waits until the server accepts connections and has loaded its configuration after the given time, by the server's clock. It returns
// an error if that takes too long, or if the process has ended by itself.
func (s *Server) awaitLoaded(ctx context.Context, p *Process, before time.Time) error {
	timeout := time.NewTimer(readyTimeout)
	defer timeout.Stop()
	for {
		if loaded := s.monitor.loaded(); loaded.After(before) && s.monitor.accepts() {
			s.loaded = loaded
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case <-p.exited:
			return p.UnexpectedExit()
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return fmt.Errorf("%s did not load its configuration within %v: see %s", s.Name, readyTimeout, s.log)
		}
	}
}

// reload has the server load its configuration again, if it is up.
func (s *Server) reload() error {
	p := s.Process()
	if p == nil {
		return nil
	}
	if err := p.signal(signalReload); err != nil {
		return p.UnexpectedExit() // no error if another fault took the server down
	}
	return s.awaitLoaded(context.Background(), p, s.loaded)
}

// CaughtUp returns an error if the server is up and has not caught up with the other servers since it was started.
func (s *Server) CaughtUp() error {
	p := s.Process()
	if p == nil || p == s.caughtUp.Load() {
		return nil
	}
	if !s.monitor.healthy() {
		return fmt.Errorf("%s has not caught up", s.Name)
	}
	s.caughtUp.Store(p)
	return nil
}

// bucketFolder is where the server stores the bucket; backupFolder has the backup.
func (s *Server) bucketFolder() string {
	return filepath.Join(s.folder, "jetstream", "$G", "streams", "KV_"+Bucket)
}

func (s *Server) backupFolder() string { return s.folder + ".older" }

// BackUpBucket copies the bucket's files. It suspends the server meanwhile, so that the files belong to one moment.
func (s *Server) BackUpBucket() error {
	p := s.Process()
	if p == nil {
		return fmt.Errorf("%s is down", s.Name)
	}
	if err := os.RemoveAll(s.backupFolder()); err != nil {
		return err
	}
	if err := p.Suspend(); err != nil {
		return err
	}
	err := os.CopyFS(s.backupFolder(), os.DirFS(s.bucketFolder()))
	return cmp.Or(err, p.Continue())
}

// RestoreBucket replaces the bucket's files with the backup. The server must be down.
func (s *Server) RestoreBucket() error {
	if err := os.RemoveAll(s.bucketFolder()); err != nil {
		return err
	}
	return os.Rename(s.backupFolder(), s.bucketFolder())
}
