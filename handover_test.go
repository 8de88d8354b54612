package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestResignReleasesTheKeyAndHoldsBackOneInterval(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.seen()).To(Equal([]string{"won 7.5s", "lost 7.5s"}))
		f.Expect(f.record()).To(ContainSubstring(`"released"`))

		// There is no other candidate, so this one takes its own release: without a stand-down, but after one interval.
		after(interval - instant)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		after(instant)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestResignOfAFollowerIsRefused(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		b := f.candidate("b")
		f.Expect(b.Resign(context.Background())).To(MatchError(election.ErrNotLeader))
		b.start()
		after(time.Second)
		f.Expect(b.Resign(context.Background())).To(MatchError(election.ErrNotLeader))
	})
}

func TestResignGoesOnAfterItsContextEnds(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, unblock := f.Hanging()
		a := f.leading("a", election.OnLost(hang))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f.Expect(a.Resign(ctx)).To(MatchError(context.DeadlineExceeded))
		f.Expect(f.record()).NotTo(ContainSubstring(`"released"`))
		unblock()
		synctest.Wait()
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestResignedCandidateTakesTheReleaseOfItsSuccessor(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * interval)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
		after(200 * time.Millisecond)
		b.shutdown()
		after(spread)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestRelinquishHandsOverOnSchedule(t *testing.T) {
	natstest.SkipIfShort(t)
	const minutes = 30 // successors are chosen at random: one of the three is never chosen in 2 of 2^30 runs
	for name, option := range map[string]election.Option{
		"period":   election.WithRelinquish("1m"),
		"schedule": election.WithRelinquish("* * * * *"),
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				all := []*candidate{f.connected("a", option).start()}
				after(interval)
				for _, other := range []string{"b", "c"} {
					all = append(all, f.connected(other, option).start())
				}
				vacant, wins := 0, 0
				for range minutes * 60 {
					after(time.Second)
					leaders := 0
					for _, c := range all {
						if c.IsLeader() {
							leaders++
						}
					}
					if leaders == 0 {
						vacant++
					}
				}
				for _, c := range all {
					f.Expect(c.Status().Wins).To(BeNumerically(">=", 1))
					wins += int(c.Status().Wins)
				}
				f.Expect(wins).To(BeNumerically("~", minutes, 2), "one per minute")
				f.Expect(vacant).To(BeZero())
			}, republished)
		})
	}
}

func TestRelinquishWithoutASuccessorLeadsOn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a", election.WithRelinquish("20s")).start()
		after(interval)
		after(10 * time.Minute)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(1))
	}, republished)
}

func TestResignedLeaderTakesItsReleaseAfterOneInterval(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(interval - instant)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		after(spread)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}
