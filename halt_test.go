package election_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestPausedElectionKeepsItsLeaderAndGetsNoOther(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b", "c")
		o := f.operator()
		f.Expect(o.Pause(context.Background(), key)).To(Succeed())
		f.Expect(o.Paused(context.Background())).To(Equal([]string{key}))
		after(time.Second)
		f.Expect(others["b"].Status().Paused).To(BeTrue(), "candidates are told at once")
		after(5 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue(), "the leader leads on")
		f.Expect(a.seen()).To(HaveLen(1))
		a.Stop()
		late := f.hearing("late").start() // reads it when it starts
		unheard := f.candidate("unheard").start()
		after(5 * ttl)
		for _, c := range []*candidate{others["b"], others["c"], late, unheard} {
			f.Expect(c.State()).To(Equal(election.CandidateState))
			f.Expect(c.seen()).To(BeEmpty())
		}
		f.Expect(o.Resume(context.Background(), key)).To(Succeed())
		f.Expect(o.Paused(context.Background())).To(BeEmpty())
		after(2*ttl + 2*interval)
		leaders := 0
		for _, c := range []*candidate{others["b"], others["c"], late, unheard} {
			if c.IsLeader() {
				leaders++
			}
		}
		f.Expect(leaders).To(Equal(1))
	}, republished)
}

func TestCandidateThatIsNotToldOfAPauseGivesTheKeyBack(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		b := f.candidate("b", election.WithSplay(0)).start() // without WithJetStream nobody can tell it
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		c := f.candidate("c").start()
		after(interval)
		f.Expect(f.operator().Pause(context.Background(), key)).To(Succeed())
		b.link.Cut()
		after(5 * ttl)
		f.Expect(c.seen()).To(BeEmpty())
		f.Expect(c.Status().Paused).To(BeTrue())
		_, err := c.Leader(context.Background())
		f.Expect(err).To(MatchError(election.ErrNoLeader))
	})
}

func TestPauseOfOneElectionLeavesTheOthersAlone(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b")
		f.Expect(f.operator().Pause(context.Background(), "other")).To(Succeed())
		f.Expect(f.operator().Pause(context.Background(), "other")).To(Succeed(), "twice is once")
		after(time.Second)
		a.Stop()
		after(time.Second)
		f.Expect(others["b"].IsLeader()).To(BeTrue())
		f.Expect(f.operator().Pause(context.Background(), "a b")).To(MatchError(election.ErrInvalidOption))
	}, republished)
}
