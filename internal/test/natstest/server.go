package natstest

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/kv"
)

// ErrStopped is returned by InProcessConn while the server is stopped.
var ErrStopped = errors.New("natstest: the server is stopped")

// Server is a NATS server with JetStream within this process. A test can stop and resume
// it; the addresses for its clients stay the same.
type Server struct {
	opts    server.Options
	storage jetstream.StorageType

	mu      sync.Mutex
	running *server.Server // nil while stopped
}

// Start runs a server that keeps buckets in memory and accepts connections by InProcessConn
// only. It works within a bubble and outside. Stop loses all its buckets. The changes to
// its options, such as users with permissions, apply before it starts.
func Start(t testing.TB, changes ...func(*server.Options)) *Server {
	t.Helper()
	opts := server.Options{ServerName: "memory", DontListen: true}
	for _, change := range changes {
		change(&opts)
	}
	return start(t, jetstream.MemoryStorage, opts)
}

// StartTCP runs a server that keeps buckets in files and listens on the loopback
// interface. It keeps its port and files through every Restart. Outside bubbles only.
func StartTCP(t testing.TB) *Server {
	t.Helper()
	return start(t, jetstream.FileStorage, server.Options{ServerName: "tcp", Host: "127.0.0.1", Port: FreePort(t)})
}

// StartNode runs a server with options of its own, such as users or a leaf node, on a free port of the loopback interface until the test
// ends. Its data is in a folder of the test. Outside bubbles only.
func StartNode(t testing.TB, name string, opts *server.Options) *server.Server {
	t.Helper()
	opts.ServerName, opts.Host, opts.Port, opts.NoLog, opts.NoSigs, opts.StoreDir = name, "127.0.0.1", server.RANDOM_PORT, true, true, t.TempDir()
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatalf("natstest: server %s: %v", name, err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if err := begin(s); err != nil {
		t.Fatalf("natstest: server %s: %v", name, err)
	}
	return s
}

func start(t testing.TB, storage jetstream.StorageType, opts server.Options) *Server {
	t.Helper()
	opts.JetStream = true
	opts.StoreDir = t.TempDir()
	opts.NoLog, opts.NoSigs = true, true
	s := &Server{opts: opts, storage: storage}
	t.Cleanup(s.Stop)
	s.Resume(t)
	return s
}

// Name returns the name of the server, as a stream's cluster information shows it.
func (s *Server) Name() string { return s.opts.ServerName }

// Stop shuts the server down if it runs, and returns when it has ended. It disconnects
// the clients, which cannot connect again until Resume.
func (s *Server) Stop() {
	if running := s.swap(nil); running != nil {
		running.Shutdown()
		running.WaitForShutdown()
	}
}

// Resume runs the server again after Stop, and returns when it accepts connections.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	if s.isRunning() {
		t.Fatalf("natstest: server %s is already running", s.Name())
	}
	running, err := ListenAgain(s.run)
	if err != nil {
		t.Fatalf("natstest: server %s: %v", s.Name(), err)
	}
	s.swap(running)
}

// ListenAgain starts a server on a port on which one has listened before, and tries again while the port is in use: a process that a test started while the other
// one listened listens, too, until it runs its program.
func ListenAgain[S any](start func() (S, error)) (S, error) {
	for began := time.Now(); ; {
		s, err := start()
		if err == nil || !strings.Contains(err.Error(), "address already in use") || time.Since(began) > patience {
			return s, err
		}
	}
}

// run runs a server until it accepts connections, or says why it cannot.
func (s *Server) run() (*server.Server, error) {
	opts := s.opts // a copy, because the server changes its options
	running, err := server.NewServer(&opts)
	if err != nil {
		return nil, err
	}
	if err := begin(running); err != nil {
		running.Shutdown()
		running.WaitForShutdown()
		return nil, err
	}
	return running, nil
}

// begin starts a server, and returns when it accepts connections, or why it cannot.
func begin(s *server.Server) error {
	var log fatalLog
	s.SetLogger(&log, false, false)
	s.Start()
	for began := time.Now(); !s.ReadyForConnections(pollInterval); {
		if failure := log.Load(); failure != nil || time.Since(began) > patience {
			return fmt.Errorf("it is not ready after %v: %v", time.Since(began), failure)
		}
	}
	return nil
}

// Restart stops the server, keeps it down for a while, and resumes it.
func (s *Server) Restart(t testing.TB, down time.Duration) {
	t.Helper()
	s.Stop()
	time.Sleep(down)
	s.Resume(t)
}

// Reload changes options of the server while it runs, such as the permissions of its users.
func (s *Server) Reload(t testing.TB, changes ...func(*server.Options)) {
	t.Helper()
	for _, change := range changes {
		change(&s.opts)
	}
	opts := s.opts
	if err := s.current().ReloadOptions(&opts); err != nil {
		t.Fatalf("natstest: server %s: %v", s.Name(), err)
	}
}

// URL returns the address for clients of a server that listens.
func (s *Server) URL() string {
	return "nats://" + s.address()
}

func (s *Server) address() string {
	return fmt.Sprintf("%s:%d", s.opts.Host, s.opts.Port)
}

// InProcessConn connects to the running server. With it, a Server is a
// nats.InProcessServer, whether it listens or not.
func (s *Server) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil, ErrStopped
	}
	return s.running.InProcessConn()
}

// Link returns a new link to the server: by TCP if that listens, else in process. The
// test's Cleanup closes it.
func (s *Server) Link(t testing.TB) *faultproxy.Link {
	t.Helper()
	dial := s.InProcessConn
	if !s.opts.DontListen {
		dial = func() (net.Conn, error) { return net.DialTimeout("tcp", s.address(), patience) }
	}
	l := faultproxy.New(dial)
	t.Cleanup(l.Close)
	return l
}

// Connect opens a client connection that only Stop disturbs, with the defaults of the
// function [Connect].
func (s *Server) Connect(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	if s.opts.DontListen {
		opts = append([]nats.Option{nats.InProcessServer(s)}, opts...)
		return connect(t, "", opts...)
	}
	return connect(t, s.URL(), opts...)
}

// Bucket creates the bucket BucketName, or opens it if it exists, with a history of one
// and the storage of the server. With a TTL of zero, keys never expire.
func (s *Server) Bucket(t testing.TB, nc *nats.Conn, ttl time.Duration, opts ...func(*jetstream.KeyValueConfig)) jetstream.KeyValue {
	t.Helper()
	return s.bucket(t, nc, ttl, patience, opts...)
}

func (s *Server) bucket(t testing.TB, nc *nats.Conn, ttl, wait time.Duration, opts ...func(*jetstream.KeyValueConfig)) jetstream.KeyValue {
	t.Helper()
	cfg := jetstream.KeyValueConfig{Bucket: BucketName, TTL: ttl, History: 1, Storage: s.storage}
	for _, opt := range opts {
		opt(&cfg)
	}
	return bucket(t, nc, cfg, wait)
}

// fatalLog is a server's logger that keeps the reason why the server cannot run.
type fatalLog struct{ atomic.Value }

func (l *fatalLog) Fatalf(format string, v ...any) { l.Store(fmt.Sprintf(format, v...)) }
func (*fatalLog) Errorf(string, ...any)            {}
func (*fatalLog) Warnf(string, ...any)             {}
func (*fatalLog) Noticef(string, ...any)           {}
func (*fatalLog) Debugf(string, ...any)            {}
func (*fatalLog) Tracef(string, ...any)            {}

func (s *Server) swap(next *server.Server) (previous *server.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	previous, s.running = s.running, next
	return previous
}

// current returns the server that runs, or nil.
func (s *Server) current() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

func (s *Server) isRunning() bool { return s.current() != nil }

// The following methods read the state of a server in a cluster from within, because its
// answers to requests depend on that very state.

// isCurrent reports whether the server is up to date with the cluster's leader.
func (s *Server) isCurrent() bool {
	running := s.current()
	return running != nil && running.JetStreamIsCurrent()
}

func (s *Server) leadsCluster() bool {
	running := s.current()
	return running != nil && running.JetStreamIsLeader()
}

// knownPeers returns how many servers take part, if this server is the cluster's leader.
func (s *Server) knownPeers() int {
	if running := s.current(); running != nil {
		return len(running.JetStreamClusterPeers())
	}
	return 0
}

// hasRoutes returns nil if the server has that many connections to other servers.
func (s *Server) hasRoutes(want int) error {
	got := 0
	if running := s.current(); running != nil {
		got = running.NumRoutes()
	}
	if got != want {
		return fmt.Errorf("server %s has %d routes, not %d", s.Name(), got, want)
	}
	return nil
}

func (s *Server) leadsStream(bucket string) bool {
	running := s.current()
	return running != nil && running.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, kv.StreamName(bucket))
}

// FreePort returns a loopback port on which nothing listens. No other test, in this process
// or another, receives it until this test has ended.
func FreePort(t testing.TB) int {
	t.Helper()
	p, err := host.ReservePort()
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	t.Cleanup(p.Release)
	return p.Number
}
