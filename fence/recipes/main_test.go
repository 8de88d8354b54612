package recipes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/natstest"
)

const ttl = time.Minute // so much longer than a test that no lease ends in one

var ctx = context.Background()

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

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
	// An operator's mistake, of which the leader learns by its next renewal; and a winner that was told not to wait for that.
	bucket, err := s.js.Stream(ctx, "KV_"+natstest.BucketName)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(bucket.Purge(ctx)).To(Succeed())
	s.now = s.lead("new")
	t.Cleanup(func() {
		s.Expect(s.old.Valid()).To(BeTrue(), "a lease that has ended shows nothing of a fence")
	})
	return s
}

func (s *stage) lead(name string) election.Term {
	bucket := deaf{s.server.Bucket(s.T, s.server.Connect(s.T), ttl)}
	e, err := election.NewElection(name, "billing", bucket, election.WithSplay(0), election.WithStandDown(0))
	s.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(ctx) }()
	s.Cleanup(e.Stop)
	s.Eventually(e.IsLeader).WithTimeout(20 * time.Second).Should(BeTrue())
	t, _ := e.Term()
	return t
}

// deaf is a bucket whose candidates hear of nothing between their campaigns.
type deaf struct{ jetstream.KeyValue }

var errDeaf = errors.New("deaf")

func (deaf) Watch(context.Context, string, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return nil, errDeaf
}

func (deaf) WatchAll(context.Context, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return nil, errDeaf
}

func (deaf) WatchFiltered(context.Context, []string, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return nil, errDeaf
}
