package election_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestReleaseGoesToTheHighestPriority(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		high := f.hearing("high", election.WithPriority(2)).start()
		after(interval)
		f.hearing("low", election.WithPriority(-1)).start()
		f.hearing("middle", election.WithPriority(1)).start()
		f.hearing("none").start() // is heard last
		after(3 * interval)
		a.Stop()
		after(instant)
		f.Expect(high.IsLeader()).To(BeTrue())
		l, err := high.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Priority).To(Equal(2))
	}, republished)
}

func TestCrashGoesToTheHighestPriorityThatIsLeft(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		leader := f.hearing("a").start()
		after(interval)
		all := []*candidate{}
		for i := range 12 {
			all = append(all, f.hearing(fmt.Sprint("c", i), election.WithPriority(i/3)).start())
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
			for i, c := range all { // of each level but one is lost with the leader
				if i/3 == level && c != next {
					c.Stop()
				}
			}
			after(2 * ttl)
			f.Expect(next.IsLeader()).To(BeTrue())
			leader = next
		}
	}, republished)
}

func TestPriorityCostsNoTimeWhereNobodyHasAnother(t *testing.T) {
	for _, priority := range []int{-5, 0, 5} {
		t.Run(fmt.Sprint(priority), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.hearing("a", election.WithPriority(priority)).start()
				after(interval)
				b := f.hearing("b", election.WithPriority(priority)).start()
				after(3 * interval)
				a.Stop()
				after(instant)
				f.Expect(b.IsLeader()).To(BeTrue())
				c := f.hearing("c", election.WithPriority(priority)).start()
				after(3 * interval)
				f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
				after(10 * time.Millisecond)
				f.Expect(c.State()).To(Equal(election.LeaderElectState))
			}, republished)
		})
	}
}

func TestPreemptionTakesOverFromALowerPriorityInOrder(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var order []string
		a := f.hearing("a", election.OnLost(func() { order = append(order, "a lost") })).start()
		after(interval)
		patient := f.hearing("patient", election.WithPriority(9)).start()
		b := f.hearing("b", election.WithPriority(5), election.WithPreemption(), election.OnWon(func() { order = append(order, "b won") })).start()
		after(interval - time.Second)
		f.Expect(a.IsLeader()).To(BeTrue(), "b has not stood for an interval")
		after(2 * time.Second)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(order).To(Equal([]string{"a lost", "b won"}))
		after(10 * ttl)
		f.Expect(b.IsLeader()).To(BeTrue(), "of an equal or higher priority nothing is asked, and the patient one asks nothing")
		f.Expect(patient.seen()).To(BeEmpty())
	}, republished)
}

func TestPreemptionNeverTakesTheKeyFromALeaderThatDoesNotHandOver(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a") // without WithJetStream it cannot be asked
		b := f.hearing("b", election.WithPriority(5), election.WithPreemption()).start()
		after(10 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(1))
		f.Expect(b.seen()).To(BeEmpty())
		a.Stop()
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}
