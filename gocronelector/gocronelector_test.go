package gocronelector_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/gocronelector"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func TestElectorAgreesWithItsElectionAtAnyTime(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g, s, ttl := NewWithT(t), natstest.Start(t), 10*time.Second
		l := s.Link(t)
		e, err := election.NewElection("a", "jobs", s.Bucket(t, natstest.Connect(t, l), ttl, natstest.WithMarkers), election.WithSplay(0))
		g.Expect(err).NotTo(HaveOccurred())
		elector, ctx := gocronelector.New(e), context.Background()
		g.Expect(elector.IsLeader(ctx)).To(MatchError(election.ErrNotLeader))
		go func() { _ = e.Start(ctx) }()
		t.Cleanup(func() { _ = e.Shutdown(ctx) })

		led := 0
		for range 100 {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			if e.IsLeader() {
				led++
				g.Expect(elector.IsLeader(ctx)).To(Succeed())
			} else {
				g.Expect(elector.IsLeader(ctx)).To(MatchError(election.ErrNotLeader))
			}
			if led == 20 {
				l.Cut()
			}
		}
		g.Expect(led).To(BeNumerically(">", 20))
		g.Expect(led).To(BeNumerically("<", 60), "the leader stood down when it was cut off")
	})
}

func TestElectorWithoutAnElectionOrWithAnEndedContextRunsNothing(t *testing.T) {
	g := NewWithT(t)
	g.Expect(gocronelector.New(nil).IsLeader(context.Background())).To(MatchError(election.ErrNotLeader))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	g.Expect(gocronelector.New(nil).IsLeader(ctx)).To(MatchError(context.Canceled))
}
