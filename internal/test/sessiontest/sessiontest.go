// Package sessiontest runs sessions against a real server on virtual time, for the tests of packages that look at them from outside.
package sessiontest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/session"
)

// The bucket of the sessions.
const (
	Bucket = "SESSIONS"
	TTL    = 10 * time.Second
)

// Fixture is a server on virtual time with a bucket for sessions that is older than any lease.
type Fixture struct {
	*testing.T
	*gomega.WithT
	Server *natstest.Server
	Bucket *election.Bucket // on a connection that nothing disturbs
}

// Run runs f with a fixture.
func Run(t *testing.T, f func(f *Fixture)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		x := &Fixture{T: t, WithT: gomega.NewWithT(t), Server: natstest.Start(t)}
		first := x.Open("first")
		time.Sleep(2 * TTL)
		x.Expect(first.Close(t.Context())).To(gomega.Succeed())
		x.Bucket = x.OpenBucket(x.Server.Link(t))
		f(x)
	})
}

// OpenBucket opens the bucket on a link.
func (f *Fixture) OpenBucket(l *faultproxy.Link) *election.Bucket {
	f.Helper()
	js, err := jetstream.New(natstest.Connect(f.T, l))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	bucket, err := election.OpenBucket(context.Background(), js, Bucket)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	return bucket
}

// Process is a process with a session.
type Process struct {
	*session.Session
	Link *faultproxy.Link
	f    *Fixture
}

// Open opens the session of a process that has a link of its own.
func (f *Fixture) Open(name string) *Process {
	f.Helper()
	l := f.Server.Link(f.T)
	js, err := jetstream.New(natstest.Connect(f.T, l))
	f.Expect(err).NotTo(gomega.HaveOccurred())
	s, err := session.Open(context.Background(), js, session.Config{Bucket: Bucket, Name: name, TTL: TTL, Storage: jetstream.MemoryStorage})
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Cleanup(func() {
		l.Heal()
		_ = s.Close(context.Background())
	})
	return &Process{s, l, f}
}

// Start campaigns for keys.
func (p *Process) Start(keys ...string) *Process {
	p.f.Helper()
	for _, key := range keys {
		e, err := p.Election(key)
		p.f.Expect(err).NotTo(gomega.HaveOccurred())
		go func() { _ = e.Start(context.Background()) }()
	}
	time.Sleep(100 * time.Millisecond)
	return p
}
