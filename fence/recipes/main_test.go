package recipes

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

const ttl = time.Minute // so much longer than a test that no lease ends in one

var ctx = context.Background()

// TestMain ignores a goroutine of the client that a quick PublishAsync leaves behind: the goroutine reads its channel only when the
// last answer has come and the client has removed that channel, and then waits for ever (nats.go 1.55).
func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(20 * time.Second) // on a busy host
	natstest.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

// stage has two terms of one election that both lead, by their own account.
type stage struct {
	*testing.T
	*WithT
	server   *natstest.Server
	js       jetstream.JetStream
	old, now election.Term
}

func newStage(t *testing.T) *stage {
	s := &stage{T: t, WithT: NewWithT(t), server: natstest.Start(t)}
	var err error
	s.js, err = jetstream.New(s.server.Connect(t))
	s.Expect(err).NotTo(HaveOccurred())
	s.old = s.lead("old")
	// An operator purges the bucket by mistake: the leader notices by its next renewal, and the winner does not stand down.
	bucket, err := s.js.Stream(ctx, "KV_"+natstest.BucketName)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(bucket.Purge(ctx)).To(Succeed())
	s.now = s.lead("new")
	t.Cleanup(func() {
		s.Expect(s.old.Valid()).To(BeTrue(), "the test shows nothing of a fence once the lease has ended")
	})
	return s
}

func (s *stage) lead(name string) election.Term {
	bucket := fleettest.Unwatchable{KeyValue: s.server.Bucket(s.T, s.server.Connect(s.T), ttl)}
	e, err := election.NewElection(name, "billing", bucket, election.WithSplay(0), election.WithStandDown(0))
	s.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(ctx) }()
	s.Cleanup(func() { _ = e.Shutdown(ctx) })
	s.Eventually(e.IsLeader).Should(BeTrue())
	t, _ := e.Term()
	return t
}
