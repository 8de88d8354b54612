package session_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/session"
)

func TestWorkEndsWithTheLeaseThoughNothingCanBeWrittenToTheServer(t *testing.T) {
	g, ctx := NewWithT(t), context.Background()
	var link natstest.Stuck
	js, err := jetstream.New(natstest.StartTCP(t).Connect(t, nats.SetCustomDialer(&link)))
	g.Expect(err).NotTo(HaveOccurred())
	s, err := session.Open(ctx, js, session.Config{Bucket: "S", Name: "a", TTL: 5 * time.Second, Storage: jetstream.MemoryStorage})
	g.Expect(err).NotTo(HaveOccurred())
	e, err := s.Election("k")
	g.Expect(err).NotTo(HaveOccurred())
	works, ended := make(chan struct{}), make(chan error)
	begin := sync.OnceFunc(func() { close(works) })
	go func() {
		_ = e.Run(ctx, func(ctx context.Context, _ election.Term) error {
			begin()
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		})
	}()
	g.Eventually(works, time.Minute).Should(BeClosed())
	end := link.Begin()
	defer end()
	g.Eventually(ended, 30*time.Second).Should(Receive(BeAssignableToTypeOf(&election.TermEndedError{})))
	g.Expect(e.State()).To(Equal(election.CandidateState))
	g.Expect(s.Status().Open).To(BeFalse())
	end()
	g.Expect(s.Close(ctx)).To(Succeed())
}

// slow dials connections from which a kilobyte is read in a millisecond.
type slow struct{}

type slowConn struct{ net.Conn }

func (slow) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return slowConn{c}, err
}

func (c slowConn) Read(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return c.Conn.Read(b[:min(len(b), 1024)])
}

func TestSessionIsOpenedThoughThereIsMoreToReadThanARequestMayTake(t *testing.T) {
	g, ctx, server := NewWithT(t), context.Background(), natstest.StartTCP(t)
	connect := func(opts ...nats.Option) jetstream.JetStream {
		js, err := jetstream.New(server.Connect(t, opts...))
		g.Expect(err).NotTo(HaveOccurred())
		return js
	}
	js, cfg := connect(), session.Config{Bucket: "S", Name: "a", TTL: 5 * time.Second, Storage: jetstream.MemoryStorage}
	first, err := session.Open(ctx, js, cfg)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first.Close(ctx)).To(Succeed())
	released := record.Record{Name: "old", Instance: "old", Attempt: record.NewID(), Released: time.Now()}
	for i := range 5000 {
		_, err := js.PublishAsync(fmt.Sprint("$KV.S.c.old-", i), released.Encode(), jetstream.WithExpectLastSequencePerSubject(0))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Eventually(js.PublishAsyncComplete(), time.Minute).Should(BeClosed())
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := session.Open(within, connect(nats.SetCustomDialer(slow{})), cfg)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Close(ctx)).To(Succeed())
}
