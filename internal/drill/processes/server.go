package processes

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/wakeup"
)

// Server is one server of a drill. Its process may be down; its data remains.
type Server struct {
	Name         string
	port         int // for clients
	routeAddress string
	routes       []string
	config       string // the file with its configuration
	folder       string // of its data
	log, stderr  string
	program      string // a nats-server program; empty for the server that is built into this program
	monitor      string // with a program: the address on which the server describes itself

	configuring sync.Mutex    // held while the server starts, and while it reloads its configuration
	reloaded    chan struct{} // receives after each reload

	mu       sync.Mutex
	process  *Process // nil while it is down
	caughtUp bool     // since it was started
	up       []history.Span
}

// address returns the address for clients.
func (s *Server) address() string {
	return net.JoinHostPort(embedded.Loopback, strconv.Itoa(s.port))
}

// Start runs the server with its earlier data.
func (s *Server) Start(ctx context.Context) error {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	s.setCaughtUp(false)
	p, err := start(ctx, RoleServer, s.Name, s.stderr, serverConfig{Name: s.Name, Config: s.config, Program: s.program, Address: s.address(), Monitor: s.monitor}, s.readOutput)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	s.up = append(s.up, history.Span{From: host.Clock()})
	return nil
}

// readOutput reads the lines that the server's process writes.
func (s *Server) readOutput(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch lines.Text() {
		case caughtUpLine:
			s.setCaughtUp(true)
		case reloadedLine:
			wakeup.Send(s.reloaded)
		}
	}
}

func (s *Server) setCaughtUp(caughtUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caughtUp = caughtUp
}

// CaughtUp returns an error if the server is up and has not caught up with the other servers since it was started.
func (s *Server) CaughtUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && !s.caughtUp {
		return fmt.Errorf("%s has not caught up", s.Name)
	}
	return nil
}

// Kill kills the server's process and waits until it is gone.
func (s *Server) Kill() {
	if p := s.detach(); p != nil {
		p.kill()
	}
}

// Shutdown shuts the server down in order and waits until its process is gone.
func (s *Server) Shutdown() {
	if p := s.detach(); p != nil {
		p.shutdown()
	}
}

// detach returns the process and marks the server as down; nil if it was down.
func (s *Server) detach() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.process
	s.process = nil
	if p != nil {
		s.up[len(s.up)-1].To = host.Clock()
	}
	return p
}

// UnexpectedExit returns an error if the server's process has ended and the drill did not ask for that.
func (s *Server) UnexpectedExit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.UnexpectedExit()
}

// Uptimes returns the times in which the server was up, until now.
func (s *Server) Uptimes(now time.Duration) []history.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	spans := append([]history.Span(nil), s.up...)
	for i := range spans {
		if spans[i].To == 0 {
			spans[i].To = now
		}
	}
	return spans
}

// bucketFolder is where the server stores the bucket; backupFolder has the backup.
func (s *Server) bucketFolder() string {
	return filepath.Join(s.folder, "jetstream", "$G", "streams", "KV_"+Bucket)
}

func (s *Server) backupFolder() string { return s.folder + ".older" }

// BackUpBucket copies the bucket's files. It suspends the server meanwhile, so that the files belong to one moment.
func (s *Server) BackUpBucket() error {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
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
