package reports_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
)

func TestPausedCandidateReportsTheLeader(t *testing.T) {
	Run(t, func(f *Fleet) {
		var reported []string
		a, _ := f.LeaderWith("c")
		b := f.Connected("b", election.OnLeaderChange(func(l election.Leader) { reported = append(reported, l.Name) }))
		b.Pause()
		b.Begin()
		After(2 * Interval)
		f.Expect(a.Transfer(context.Background(), "c")).To(Succeed())
		After(TTL)
		f.Expect(b.Status().Leader.Name).To(Equal("c"))
		f.Expect(reported).To(ContainElement("c"))
	}, Republished)
}

func TestPausedCandidateDoesNotCampaignAndPausedLeaderLeadsOn(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		b := f.Connected("b")
		b.Pause()
		b.Begin()
		a.Pause()
		f.Expect(a.Status().Paused).To(BeTrue())
		After(3 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue(), "a leader leads on")
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(election.ErrNoCandidate), "a paused candidate is not ready")
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(3 * TTL)
		f.Expect(a.State()).To(Equal(election.CandidateState), "a paused candidate does not campaign")
		f.Expect(b.State()).To(Equal(election.CandidateState))
		b.Resume()
		After(2 * Interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(b.Status().Paused).To(BeFalse())
		f.Expect(a.IsLeader()).To(BeFalse())
	}, Republished)
}

func TestResumeBringsNoCampaignForward(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		a.Pause()
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(Instant)
		a.Resume()
		After(Interval - 2*Instant)
		f.Expect(a.State()).To(Equal(election.CandidateState), "it holds back one interval after it resigned")
		After(2 * Instant)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestPauseDuringACampaignHasTheWinnerGiveTheKeyBack(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		nc := f.Server.Connect(f.T)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		bucket := &Faulty{KeyValue: f.Bare(nc)}
		b := f.CandidateOn("b", nil, bucket, election.WithJetStream(js)).Begin()
		After(3 * Interval)
		operator := f.Operator()
		bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			f.Expect(operator.Pause(context.Background(), Key)).To(Succeed())
			bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
				return update()
			})
			return update()
		})
		a.End()
		After(TTL)
		f.Expect(b.Seen()).To(BeEmpty())
		f.Expect(b.State()).To(Equal(election.CandidateState))
	}, Republished)
}
