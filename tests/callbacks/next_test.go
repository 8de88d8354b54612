package callbacks_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/settings"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// warm returns a candidate that records whether it is next, in order with its other callbacks.
func warm(f *Fleet, name string, opts ...election.Option) *Candidate {
	f.Helper()
	var c *Candidate
	l := f.Server.Link(f.T)
	c = f.CandidateOn(name, l, f.Open(natstest.Connect(f.T, l)), append([]election.Option{election.OnNext(func(next bool) { c.Saw(fmt.Sprint(next)) })}, opts...)...)
	return c
}

// order returns the recorded events without their times.
func order(c *Candidate) (order []string) {
	for _, e := range c.Seen() {
		var what string
		_, _ = fmt.Sscan(e, &what)
		order = append(order, what)
	}
	return order
}

func TestCandidateThatTheLeaderNamesIsNextUntilItHasLed(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := warm(f, "a").Begin()
		After(Interval)
		b := warm(f, "b").Begin()
		f.Expect(b.Status().Next).To(BeFalse(), "the leader does not know it yet")
		After(Interval)
		f.Expect(order(b)).To(Equal([]string{"true"}))
		f.Expect(b.Status().Next).To(BeTrue())
		f.Expect(a.Status().Next).To(BeFalse())
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(Instant)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(order(b)).To(Equal([]string{"true", "won"}), "it is not told to forget what it has prepared")
		f.Expect(b.Status().Next).To(BeFalse())
		After(2 * Interval)
		f.Expect(order(a)).To(Equal([]string{"won", "lost", "true"}))
		f.Expect(b.Resign(context.Background())).To(Succeed())
		After(2 * Interval)
		f.Expect(order(b)).To(Equal([]string{"true", "won", "lost", "false", "true"}))
	}, Republished)
}

func TestOnlyOneCandidateIsNextAndItTakesOverAfterAReleaseAndACrash(t *testing.T) {
	for name, leave := range map[string]func(*Candidate){"release": (*Candidate).End, "crash": func(c *Candidate) { c.Link.Cut() }} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := warm(f, "a").Begin()
				After(Interval)
				var others []*Candidate
				for i := range 5 {
					others = append(others, warm(f, fmt.Sprint("b", i)).Begin())
				}
				After(3 * Interval)
				next := func() (all []*Candidate) {
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
				After(TTL + Interval)
				f.Expect(first.IsLeader()).To(BeTrue())
				After(TTL + Interval)
				f.Expect(next()).To(HaveLen(1), "the new leader names another")
				for _, c := range others {
					f.Expect(c.Status().Next).To(Equal(c == next()[0]))
				}
			}, Republished)
		})
	}
}

func TestCandidateThatCannotTakeOverIsNotNext(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Connected("a").Begin()
		After(Interval)
		b := warm(f, "b").Begin()
		After(Interval)
		b.Pause()
		After(Instant)
		f.Expect(order(b)).To(Equal([]string{"true", "false"}))
		b.Resume()
		After(Interval)
		f.Expect(order(b)).To(Equal([]string{"true", "false", "true"}))
		b.End()
		f.Expect(order(b)).To(Equal([]string{"true", "false", "true", "false"}))
	}, Republished)
}

func TestEachCandidateThatWasNextIsToldOfTheEndBeforeStartReturns(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		b := warm(f, "b").Begin()
		After(Interval)
		a.End()
		After(Instant)
		f.Expect(b.IsLeader()).To(BeTrue())
		b.Stop()
		f.Expect(<-b.Result).To(Succeed())
		f.Expect(order(b)).To(Equal([]string{"true", "won", "lost", "false"}))
	}, Republished)
}

func TestCandidateThatStopsLeavesItsPlaceToAnother(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Connected("a").Begin()
		After(Interval)
		b := warm(f, "b").Begin()
		After(2 * time.Second)
		f.Expect(b.Status().Next).To(BeTrue())
		c := warm(f, "c").Begin()
		After(2 * time.Second)
		next, other := b, c
		if c.Status().Next {
			next, other = c, b
		}
		begun := time.Now()
		next.End()
		f.Expect(time.Since(begun)).To(BeNumerically("<", Instant))
		After(2 * time.Second)
		f.Expect(other.Status().Next).To(BeTrue())
	}, Republished)
}

func TestNobodyIsNextForALock(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Connected("a", settings.ByChance).Begin()
		After(Interval)
		b := warm(f, "b", settings.ByChance).Begin()
		After(4 * Interval)
		f.Expect(order(b)).To(BeEmpty())
	}, Republished)
}

func TestCallbackThatIsSlowIsToldOnlyOfTheLatest(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Connected("a").Begin()
		After(Interval)
		callback, release := f.Hanging()
		first := true
		b := warm(f, "b", election.OnNext(func(bool) {
			if first {
				first = false
				callback()
			}
		})).Begin()
		After(Interval)
		b.Pause()
		After(time.Second)
		b.Resume()
		After(2 * Interval)
		f.Expect(order(b)).To(Equal([]string{"true"}))
		release()
		After(Instant)
		f.Expect(order(b)).To(Equal([]string{"true"}))
	}, Republished)
}
