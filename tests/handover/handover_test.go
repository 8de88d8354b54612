package handover_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestResignReleasesTheKeyAndHoldsBackOneInterval(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.Seen()).To(Equal([]string{"won 7.5s", "lost 7.5s"}))
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))

		// There is no other candidate, so this one takes its own release: without a stand-down, but after one interval.
		After(Interval - Instant)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		After(Instant)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestResignOfAFollowerIsRefused(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Leading("a")
		b := f.Candidate("b")
		f.Expect(b.Resign(context.Background())).To(MatchError(election.ErrNotLeader))
		b.Begin()
		After(time.Second)
		f.Expect(b.Resign(context.Background())).To(MatchError(election.ErrNotLeader))
	})
}

func TestResignGoesOnAfterItsContextEnds(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, unblock := f.Hanging()
		a := f.Leading("a", election.OnLost(hang))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f.Expect(a.Resign(ctx)).To(MatchError(context.DeadlineExceeded))
		f.Expect(f.Record()).NotTo(ContainSubstring(`"released"`))
		unblock()
		synctest.Wait()
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
	})
}

func TestResignedCandidateTakesTheReleaseOfItsSuccessor(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a, b := f.LeaderAndFollower(candidate)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(Spread)
		f.Expect(b.IsLeader()).To(BeTrue())
		After(200 * time.Millisecond)
		b.End()
		After(Spread)
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
			Run(t, func(f *Fleet) {
				all := []*Candidate{f.Connected("a", option).Begin()}
				After(Interval)
				for _, other := range []string{"b", "c"} {
					all = append(all, f.Connected(other, option).Begin())
				}
				vacant, wins := 0, 0
				for range minutes * 60 {
					After(time.Second)
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
			}, Republished)
		})
	}
}

func TestRelinquishWithoutASuccessorLeadsOn(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a", election.WithRelinquish("20s")).Begin()
		After(Interval)
		After(10 * time.Minute)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Seen()).To(HaveLen(1))
	}, Republished)
}

func TestResignedLeaderTakesItsReleaseAfterOneInterval(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a").Begin()
		After(Interval)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(Interval - Instant)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		After(Spread)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}
