package election_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestReleaseGoesToTheHighestPriority(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		high := f.connected("high", election.WithPriority(2)).start()
		after(interval)
		f.connected("low", election.WithPriority(-1)).start()
		f.connected("middle", election.WithPriority(1)).start()
		f.connected("none").start() // which the leader sees last
		after(3 * interval)
		a.shutdown()
		after(instant)
		f.Expect(high.IsLeader()).To(BeTrue())
		l, err := high.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Priority).To(Equal(2))
	}, republished)
}

func TestCrashGoesToTheHighestPriority(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		leader := f.connected("a").start()
		after(interval)
		all := []*candidate{}
		for i := range 12 {
			all = append(all, f.connected(fmt.Sprint("c", i), election.WithPriority(i/3)).start())
		}
		after(3 * interval)
		for level := 3; level >= 0; level-- {
			leader.link.Cut()
			after(2 * ttl)
			var next *candidate
			for i, c := range all {
				if s := c.State(); s == election.LeaderElectState || s == election.LeaderState {
					f.Expect(i/3).To(Equal(level), "after the crash of %v", leader.Status().Name)
					next = c
				}
			}
			f.Expect(next).NotTo(BeNil())
			for i, c := range all { // only the leader of each priority remains, and crashes next
				if i/3 == level && c != next {
					c.shutdown()
				}
			}
			after(2 * ttl)
			f.Expect(next.IsLeader()).To(BeTrue())
			leader = next
		}
	}, republished)
}

// The campaigns of the lower priority are due during the spread: the renewal of the leader that crashed is overdue then.
func TestCandidateWhoseCampaignIsDueLeavesACrashToAHigherPriority(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		leader := f.connected("leader").start()
		after(interval)
		var gone []*candidate
		for priority := range 5 { // the highest priorities answer first, and nobody has one of them any more
			gone = append(gone, f.connected(fmt.Sprint("gone-", priority), election.WithPriority(priority+2)).start())
		}
		high := f.connected("high", election.WithPriority(1)).start()
		for i := range 20 {
			f.connected(fmt.Sprint("low-", i)).start()
		}
		after(3 * interval)
		for _, c := range gone {
			c.shutdown()
		}
		leader.link.Cut()
		after(2 * ttl)
		f.Expect(high.State()).To(Equal(election.LeaderState))
	}, republished)
}

func TestEqualPrioritiesCostNoTime(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, priority := range []int{-5, 0, 5} {
		t.Run(fmt.Sprint(priority), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a", election.WithPriority(priority)).start()
				after(interval)
				b := f.connected("b", election.WithPriority(priority)).start()
				after(3 * interval)
				a.shutdown()
				after(instant)
				f.Expect(b.IsLeader()).To(BeTrue())
				c := f.connected("c", election.WithPriority(priority)).start()
				after(3 * interval)
				f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
				after(expirySpread)
				f.Expect(c.State()).To(Equal(election.LeaderElectState))
			}, republished)
		})
	}
}

func TestPreemptionTakesOverFromALowerPriority(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var order []string
		a := f.connected("a", election.OnLost(func() { order = append(order, "a lost") })).start()
		after(interval)
		patient := f.connected("patient", election.WithPriority(9)).start()
		b := f.connected("b", election.WithPriority(5), election.WithPreemption(), election.OnWon(func() { order = append(order, "b won") })).start()
		after(interval - time.Second)
		f.Expect(a.IsLeader()).To(BeTrue(), "b has campaigned for less than an interval")
		after(2 * time.Second)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(order).To(Equal([]string{"a lost", "b won"}))
		after(10 * ttl)
		f.Expect(b.IsLeader()).To(BeTrue(), "a candidate without preemption leaves the leader alone")
		f.Expect(patient.seen()).To(BeEmpty())
	}, republished)
}

func TestPreemptionSparesALeaderThatDoesNotAnswer(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a") // which does not know its connection, and so receives no requests
		b := f.connected("b", election.WithPriority(5), election.WithPreemption()).start()
		after(10 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(1))
		f.Expect(b.seen()).To(BeEmpty())
		a.shutdown()
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}
