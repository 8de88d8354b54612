package election_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/test/natstest"
)

// warm returns a candidate that records whether it is next, in order with its other callbacks.
func (f *fleet) warm(name string, opts ...election.Option) *candidate {
	f.Helper()
	var c *candidate
	note := func(next bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, fmt.Sprint(next))
	}
	l := f.Server.Link(f.T)
	c = f.candidateOn(name, l, f.Open(natstest.Connect(f.T, l)), append([]election.Option{election.OnNext(func(next bool) { note(next) })}, opts...)...)
	return c
}

// order returns the recorded events without their times.
func (c *candidate) order() (order []string) {
	for _, e := range c.seen() {
		var what string
		_, _ = fmt.Sscan(e, &what)
		order = append(order, what)
	}
	return order
}

func TestCandidateThatTheLeaderNamesIsNextUntilItHasLed(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.warm("a").start()
		after(interval)
		b := f.warm("b").start()
		f.Expect(b.Status().Next).To(BeFalse(), "the leader does not know it yet")
		after(interval)
		f.Expect(b.order()).To(Equal([]string{"true"}))
		f.Expect(b.Status().Next).To(BeTrue())
		f.Expect(a.Status().Next).To(BeFalse())
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(b.order()).To(Equal([]string{"true", "won"}), "it is not told to forget what it has prepared")
		f.Expect(b.Status().Next).To(BeFalse())
		after(2 * interval)
		f.Expect(a.order()).To(Equal([]string{"won", "lost", "true"}))
		f.Expect(b.Resign(context.Background())).To(Succeed())
		after(2 * interval)
		f.Expect(b.order()).To(Equal([]string{"true", "won", "lost", "false", "true"}))
	}, republished)
}

func TestOnlyOneCandidateIsNextAndItTakesOverAfterAReleaseAndACrash(t *testing.T) {
	for name, leave := range map[string]func(*candidate){"release": (*candidate).shutdown, "crash": func(c *candidate) { c.link.Cut() }} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.warm("a").start()
				after(interval)
				var others []*candidate
				for i := range 5 {
					others = append(others, f.warm(fmt.Sprint("b", i)).start())
				}
				after(3 * interval)
				next := func() (all []*candidate) {
					for _, c := range others {
						if c.Status().Next {
							all = append(all, c)
						}
					}
					return all
				}
				f.Expect(next()).To(HaveLen(1))
				first := next()[0]
				leave(a)
				after(ttl + interval)
				f.Expect(first.IsLeader()).To(BeTrue())
				after(ttl + interval)
				f.Expect(next()).To(HaveLen(1), "the new leader names another")
				for _, c := range others {
					f.Expect(c.Status().Next).To(Equal(c == next()[0]))
				}
			}, republished)
		})
	}
}

func TestCandidateThatCannotTakeOverIsNotNext(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.connected("a").start()
		after(interval)
		b := f.warm("b").start()
		after(interval)
		b.Pause()
		after(instant)
		f.Expect(b.order()).To(Equal([]string{"true", "false"}))
		b.Resume()
		after(interval)
		f.Expect(b.order()).To(Equal([]string{"true", "false", "true"}))
		b.shutdown()
		f.Expect(b.order()).To(Equal([]string{"true", "false", "true", "false"}))
	}, republished)
}

func TestEachCandidateThatWasNextIsToldOfTheEndBeforeStartReturns(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.warm("b").start()
		after(interval)
		a.shutdown()
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
		b.Stop()
		f.Expect(<-b.result).To(Succeed())
		f.Expect(b.order()).To(Equal([]string{"true", "won", "lost", "false"}))
	}, republished)
}

func TestCandidateThatStopsLeavesItsPlaceToAnother(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.connected("a").start()
		after(interval)
		b := f.warm("b").start()
		after(2 * time.Second)
		f.Expect(b.Status().Next).To(BeTrue())
		c := f.warm("c").start()
		after(2 * time.Second)
		next, other := b, c
		if c.Status().Next {
			next, other = c, b
		}
		begun := time.Now()
		next.shutdown()
		f.Expect(time.Since(begun)).To(BeNumerically("<", instant))
		after(2 * time.Second)
		f.Expect(other.Status().Next).To(BeTrue())
	}, republished)
}

func TestNobodyIsNextForALock(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.connected("a", settings.ByChance).start()
		after(interval)
		b := f.warm("b", settings.ByChance).start()
		after(4 * interval)
		f.Expect(b.order()).To(BeEmpty())
	}, republished)
}

func TestCallbackThatIsSlowIsToldOnlyOfTheLatest(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.connected("a").start()
		after(interval)
		callback, release := f.Hanging()
		first := true
		b := f.warm("b", election.OnNext(func(bool) {
			if first {
				first = false
				callback()
			}
		})).start()
		after(interval)
		b.Pause()
		after(time.Second)
		b.Resume()
		after(2 * interval)
		f.Expect(b.order()).To(Equal([]string{"true"}))
		release()
		after(instant)
		f.Expect(b.order()).To(Equal([]string{"true"}))
	}, republished)
}
