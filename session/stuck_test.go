package session_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/session"
)

// stuck dials connections to whose server nothing can be written while it is stuck, as if that did not read. The client's mutex is held meanwhile.
type stuck struct{ until atomic.Pointer[chan struct{}] }

type stuckConn struct {
	net.Conn
	s *stuck
}

func (s *stuck) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return stuckConn{c, s}, err
}

func (c stuckConn) Write(b []byte) (int, error) {
	if until := c.s.until.Load(); until != nil {
		<-*until
	}
	return c.Conn.Write(b)
}

// It runs on real time: who waits for a mutex keeps virtual time from going on.
func TestWorkEndsWithTheLeaseThoughNothingCanBeWrittenToTheServer(t *testing.T) {
	g, ctx := NewWithT(t), context.Background()
	var link stuck
	nc, err := nats.Connect(natstest.StartTCP(t).URL(), nats.SetCustomDialer(&link))
	g.Expect(err).NotTo(HaveOccurred())
	defer nc.Close()
	js, err := jetstream.New(nc)
	g.Expect(err).NotTo(HaveOccurred())
	s, err := session.Open(ctx, js, session.Config{Bucket: "S", Name: "a", TTL: time.Second, Storage: jetstream.MemoryStorage})
	g.Expect(err).NotTo(HaveOccurred())
	e, err := s.Election("k")
	g.Expect(err).NotTo(HaveOccurred())
	works, ended := make(chan struct{}), make(chan error)
	go func() {
		_ = e.Run(ctx, func(ctx context.Context, _ election.Term) error {
			close(works)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		})
	}()
	g.Eventually(works, time.Minute).Should(BeClosed())
	until := make(chan struct{})
	link.until.Store(&until)
	g.Eventually(ended, 30*time.Second).Should(Receive(BeAssignableToTypeOf(&election.TermEndedError{})))
	g.Expect(e.State()).To(Equal(election.CandidateState))
	g.Expect(s.Status().Open).To(BeFalse())
	link.until.Store(nil)
	close(until)
	g.Expect(s.Close(ctx)).To(Succeed())
}
