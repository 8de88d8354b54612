package handover_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestReleaseGoesToTheHighestPriority(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		high := f.Connected("high", election.WithPriority(2)).Begin()
		After(Interval)
		f.Connected("low", election.WithPriority(-1)).Begin()
		f.Connected("middle", election.WithPriority(1)).Begin()
		f.Connected("none").Begin() // which the leader sees last
		After(3 * Interval)
		a.End()
		After(Instant)
		f.Expect(high.IsLeader()).To(BeTrue())
		l, err := high.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Priority).To(Equal(2))
	}, Republished)
}

func TestCrashGoesToTheHighestPriority(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		leader := f.Connected("a").Begin()
		After(Interval)
		all := []*Candidate{}
		for i := range 12 {
			all = append(all, f.Connected(fmt.Sprint("c", i), election.WithPriority(i/3)).Begin())
		}
		After(3 * Interval)
		for level := 3; level >= 0; level-- {
			leader.Link.Cut()
			After(2 * TTL)
			var next *Candidate
			for i, c := range all {
				if s := c.State(); s == election.LeaderElectState || s == election.LeaderState {
					f.Expect(i/3).To(Equal(level), "after the crash of %v", leader.Status().Name)
					next = c
				}
			}
			f.Expect(next).NotTo(BeNil())
			for i, c := range all { // only the leader of each priority remains, and crashes next
				if i/3 == level && c != next {
					c.End()
				}
			}
			After(2 * TTL)
			f.Expect(next.IsLeader()).To(BeTrue())
			leader = next
		}
	}, Republished)
}

// The campaigns of the lower priority are due during the spread: the renewal of the leader that crashed is overdue then.
func TestCandidateWhoseCampaignIsDueLeavesACrashToAHigherPriority(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		leader := f.Connected("leader").Begin()
		After(Interval)
		var gone []*Candidate
		for priority := range 5 { // the highest priorities answer first, and nobody has one of them any more
			gone = append(gone, f.Connected(fmt.Sprint("gone-", priority), election.WithPriority(priority+2)).Begin())
		}
		high := f.Connected("high", election.WithPriority(1)).Begin()
		for i := range 20 {
			f.Connected(fmt.Sprint("low-", i)).Begin()
		}
		After(3 * Interval)
		for _, c := range gone {
			c.End()
		}
		leader.Link.Cut()
		After(2 * TTL)
		f.Expect(high.State()).To(Equal(election.LeaderState))
	}, Republished)
}

func TestEqualPrioritiesCostNoTime(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, priority := range []int{-5, 0, 5} {
		t.Run(fmt.Sprint(priority), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a", election.WithPriority(priority)).Begin()
				After(Interval)
				b := f.Connected("b", election.WithPriority(priority)).Begin()
				After(3 * Interval)
				a.End()
				After(Instant)
				f.Expect(b.IsLeader()).To(BeTrue())
				c := f.Connected("c", election.WithPriority(priority)).Begin()
				After(3 * Interval)
				f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
				After(ExpirySpread)
				f.Expect(c.State()).To(Equal(election.LeaderElectState))
			}, Republished)
		})
	}
}

func TestPreemptionTakesOverFromALowerPriority(t *testing.T) {
	Run(t, func(f *Fleet) {
		var order []string
		a := f.Connected("a", election.OnLost(func() { order = append(order, "a lost") })).Begin()
		After(Interval)
		patient := f.Connected("patient", election.WithPriority(9)).Begin()
		b := f.Connected("b", election.WithPriority(5), election.WithPreemption(), election.OnWon(func() { order = append(order, "b won") })).Begin()
		After(Interval - time.Second)
		f.Expect(a.IsLeader()).To(BeTrue(), "b has campaigned for less than an interval")
		After(2 * time.Second)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(order).To(Equal([]string{"a lost", "b won"}))
		After(10 * TTL)
		f.Expect(b.IsLeader()).To(BeTrue(), "a candidate without preemption leaves the leader alone")
		f.Expect(patient.Seen()).To(BeEmpty())
	}, Republished)
}

func TestPreemptionSparesALeaderThatDoesNotAnswer(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a") // which does not know its connection, and so receives no requests
		b := f.Connected("b", election.WithPriority(5), election.WithPreemption()).Begin()
		After(10 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Seen()).To(HaveLen(1))
		f.Expect(b.Seen()).To(BeEmpty())
		a.End()
		After(Interval)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}
