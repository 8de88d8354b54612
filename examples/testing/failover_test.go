// Package testing_test tests a program that uses an election: on virtual time, against a real server in the process of the test. It
// imports public packages only, so you can copy it. docs/TESTING.md explains it.
package testing_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

const (
	ttl     = 10 * time.Second
	moment  = 50 * time.Millisecond // more than a handover takes
	instant = time.Millisecond      // how often a test looks
)

// replica is the program under test: it works while it leads.
type replica struct {
	candidate *election.Election
	working   atomic.Bool
}

func (r *replica) run(ctx context.Context) error {
	return r.candidate.Run(ctx, func(ctx context.Context, _ election.Term) error {
		r.working.Store(true)
		defer r.working.Store(false)
		<-ctx.Done()
		return nil
	})
}

func TestAnotherReplicaWorksWithinTheTTLAfterTheLeaderIsCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		a, b := f.start("a"), f.start("b")
		f.settle(a)
		f.cables["a"].cut.Store(true) // for the others a has crashed; a must find out by itself
		within(t, ttl, func() bool { return b.working.Load() })
		if a.working.Load() || a.candidate.IsLeader() {
			t.Error("two replicas work")
		}
	})
}

func TestAnotherReplicaWorksAtOnceAfterAResignation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		a, b := f.start("a"), f.start("b")
		f.settle(a)
		if err := a.candidate.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		within(t, moment, func() bool { return b.working.Load() })
	})
}

func TestAReplicaStopsAtOnceWhenItsKeyIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		a, b := f.start("a"), f.start("b")
		f.settle(a)
		if err := f.bucket("operator").Delete(t.Context(), "billing"); err != nil {
			t.Fatal(err)
		}
		within(t, moment, func() bool { return !a.working.Load() })
		within(t, ttl+time.Second, func() bool { return a.working.Load() || b.working.Load() })
	})
}

// within waits until something is true, for no longer than d.
func within(t *testing.T, d time.Duration, isTrue func() bool) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(instant) {
		synctest.Wait() // until everybody has done all that can be done now
		if isTrue() {
			t.Log("after", time.Since(begin))
			return
		}
		if time.Since(begin) > d {
			t.Fatalf("not within %v", d)
		}
	}
}

// fleet is a server, and the connections to it.
type fleet struct {
	*testing.T
	server *server.Server
	cables map[string]*cable // by name of the replica
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	s, err := server.NewServer(&server.Options{JetStream: true, DontListen: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return &fleet{t, s, map[string]*cable{}}
}

// start starts a replica, which ends with the test.
func (f *fleet) start(name string) *replica {
	f.Helper()
	e, err := election.NewElection(name, "billing", f.bucket(name), election.WithSplay(0))
	if err != nil {
		f.Fatal(err)
	}
	r := &replica{candidate: e}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
	synctest.Wait() // the first to start wins
	return r
}

// settle waits until a replica works, and all have seen renewals of its lease.
func (f *fleet) settle(leader *replica) {
	f.Helper()
	within(f.T, ttl, func() bool { return leader.working.Load() })
	time.Sleep(ttl)
}

// bucket opens the bucket by a new connection.
func (f *fleet) bucket(name string) *election.Bucket {
	f.Helper()
	c := &cable{server: f.server}
	f.cables[name] = c
	nc, err := nats.Connect("", nats.InProcessServer(c), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.PingInterval(ttl/6))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		f.Fatal(err)
	}
	// File storage takes time that is not virtual: in memory.
	b, err := election.CreateBucket(f.Context(), js, election.BucketConfig{Name: "ELECTIONS", TTL: ttl, Storage: jetstream.MemoryStorage})
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// cable connects a client with the server. When it is cut, all that either of them sends vanishes, and neither notices.
type cable struct {
	server *server.Server
	cut    atomic.Bool
}

// InProcessConn makes a cable a nats.InProcessConnProvider.
func (c *cable) InProcessConn() (net.Conn, error) {
	if c.cut.Load() {
		return nil, errors.New("the cable is cut")
	}
	conn, err := c.server.InProcessConn()
	return &end{conn, c}, err
}

// end is the client's end of a connection.
type end struct {
	net.Conn
	cable *cable
}

func (e *end) Read(b []byte) (int, error) {
	for {
		if n, err := e.Conn.Read(b); err != nil || !e.cable.cut.Load() {
			return n, err
		}
	}
}

func (e *end) Write(b []byte) (int, error) {
	if e.cable.cut.Load() {
		return len(b), nil
	}
	return e.Conn.Write(b)
}

// bubble runs f on virtual time. Everything that f uses must be made and closed in f.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	// The first server of a process starts a clock, which would never end in a bubble.
	ats.Register()
	defer ats.Unregister()
	// Timers and channels that client and server keep in pools must not be used on both sides of a bubble's border.
	emptyPools()
	defer emptyPools()
	// With -race, Go 1.26 crashes if two goroutines of a bubble select on due timers at once.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, f)
}

// emptyPools empties each sync.Pool, whose content survives one garbage collection.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}
