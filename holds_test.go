package election_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
)

func TestPausedCandidateReportsTheLeader(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var reported []string
		a, _ := f.leaderWith("c")
		b := f.connected("b", election.OnLeaderChange(func(l election.Leader) { reported = append(reported, l.Name) }))
		b.Pause()
		b.start()
		after(2 * interval)
		f.Expect(a.Transfer(context.Background(), "c")).To(Succeed())
		after(ttl)
		f.Expect(b.Status().Leader.Name).To(Equal("c"))
		f.Expect(reported).To(ContainElement("c"))
	}, republished)
}

func TestPausedCandidateDoesNotCampaignAndPausedLeaderLeadsOn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b")
		b.Pause()
		b.start()
		a.Pause()
		f.Expect(a.Status().Paused).To(BeTrue())
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue(), "a leader leads on")
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(election.ErrNoCandidate), "a paused candidate is not ready")
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(3 * ttl)
		f.Expect(a.State()).To(Equal(election.CandidateState), "a paused candidate does not campaign")
		f.Expect(b.State()).To(Equal(election.CandidateState))
		b.Resume()
		after(2 * interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(b.Status().Paused).To(BeFalse())
		f.Expect(a.IsLeader()).To(BeFalse())
	}, republished)
}

func TestResumeBringsNoCampaignForward(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		a.Pause()
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(instant)
		a.Resume()
		after(interval - 2*instant)
		f.Expect(a.State()).To(Equal(election.CandidateState), "it holds back one interval after it resigned")
		after(2 * instant)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestPauseDuringACampaignHasTheWinnerGiveTheKeyBack(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		nc := f.Server.Connect(f.T)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		bucket := &faulty{KeyValue: f.Bare(nc)}
		b := f.candidateOn("b", nil, bucket, election.WithJetStream(js)).start()
		after(3 * interval)
		operator, err := admin.New(f.Open(f.Server.Connect(f.T)))
		f.Expect(err).NotTo(HaveOccurred())
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			f.Expect(operator.Pause(context.Background(), key)).To(Succeed())
			bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
				return update()
			})
			return update()
		})
		a.shutdown()
		after(ttl)
		f.Expect(b.seen()).To(BeEmpty())
		f.Expect(b.State()).To(Equal(election.CandidateState))
	}, republished)
}
