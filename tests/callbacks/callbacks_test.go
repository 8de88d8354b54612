package callbacks_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestCallbacksRunInTheOrderOfTheirOptions(t *testing.T) {
	Run(t, func(f *Fleet) {
		var calls, campaigns []string
		var opts []election.Option
		for _, n := range []string{"1", "2", "3"} {
			opts = append(opts,
				election.OnWon(func() { calls = append(calls, "won "+n) }),
				election.OnLost(func() { calls = append(calls, "lost "+n) }),
				election.OnCampaign(func(s election.State) {
					if s == election.LeaderElectState {
						campaigns = append(campaigns, n) // changes of leadership are announced before
					}
				}))
		}
		a := f.Leading("a", opts...)
		a.End()
		f.Expect(calls).To(Equal([]string{
			"won 1", "won 2", "won 3", "lost 1", "lost 2", "lost 3",
		}))
		f.Expect(campaigns).To(Equal([]string{"1", "2", "3"}))
	})
}

func TestFailingCallbackDoesNotStopOthers(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, misbehave := range map[string]func(){
		"panic": func() { panic("oops") },
		"exit":  func() { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				var log Log
				var calls []string
				a := f.Leading("a", election.WithLogger(log.Logger()),
					election.OnWon(misbehave), election.OnWon(func() { calls = append(calls, "won") }), election.OnWon(misbehave),
					election.OnLost(misbehave), election.OnLost(func() { calls = append(calls, "lost") }), election.OnLost(misbehave))
				f.Expect(calls).To(Equal([]string{"won"}))
				a.End()
				f.Expect(calls).To(Equal([]string{"won", "lost"}))
				f.Expect(log.Count(`msg="Callback `)).To(Equal(4))
				f.Expect(f.Record()).To(ContainSubstring(`"released"`))
			})
		})
	}
}

func TestEveryOnWonRunsBeforeAnyOnLost(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, finish := f.Hanging()
		var calls []string
		note := func(call string) func() { return func() { calls = append(calls, call) } }
		a := f.Leading("a",
			election.OnWon(hang), election.OnWon(note("won")),
			election.OnLost(note("lost 1")), election.OnLost(note("lost 2")))
		f.Write("stranger")
		After(Interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(calls).To(BeEmpty())
		finish()
		synctest.Wait()
		f.Expect(calls).To(Equal([]string{"won", "lost 1", "lost 2"}))
	})
}

func TestOnWonAndOnLostAlternate(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		faults := []func(){
			func() { f.Write("stranger") },
			func() { f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed()) },
			func() { a.Link.Cut(); After(TTL); a.Link.Heal() },
			func() { f.Expect(a.Resign(context.Background())).To(Succeed()) },
		}
		for _, fault := range faults {
			fault()
			After(5 * TTL)
			f.Expect(a.IsLeader()).To(BeTrue())
		}
		a.End()
		f.Expect(a.Seen()).To(HaveLen(2 * (len(faults) + 1)))
		for i, event := range a.Seen() {
			f.Expect(event).To(HavePrefix([]string{"won", "lost"}[i%2]))
		}
	})
}

func TestBlockedCallbackCostsNoLease(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, unblock := f.Hanging()
		var during []bool
		var a *Candidate
		a = f.Candidate("a", election.OnWon(func() { hang(); during = append(during, a.IsLeader()) }))
		a.Begin()
		b := f.Candidate("b").Begin()
		for range 100 {
			After(time.Second)
			f.Expect(b.IsLeader()).To(BeFalse())
		}
		f.Expect(a.IsLeader()).To(BeTrue())
		unblock()
		synctest.Wait()
		f.Expect(during).To(Equal([]bool{true}))
	})
}

func TestCandidateCampaignsOnlyAfterItsCallbacksReturned(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, unblock := f.Hanging()
		a := f.Leading("a", election.OnLost(hang))
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
		After(5 * TTL)
		f.Expect(f.Record()).To(BeEmpty())
		unblock()
		After(2*Interval + TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestTermThatEndsBeforeOnWonIsNotAnnounced(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, unblock := f.Hanging()
		a := f.Candidate("a", election.OnCampaign(func(s election.State) {
			if s == election.CandidateState {
				hang()
			}
		}))
		a.Begin()
		After(Interval + time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Write("stranger")
		After(Interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		unblock()
		synctest.Wait()
		f.Expect(a.Seen()).To(BeEmpty())
	})
}

func TestFailingCallbackCostsNoLease(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, misbehave := range map[string]func(){"panic": func() { panic("oops") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				var log Log
				calls := 0
				misbehave := func() { calls++; misbehave() }
				a := f.Leading("a", election.WithLogger(log.Logger()), election.OnWon(misbehave), election.OnLost(misbehave),
					election.OnCampaign(func(election.State) { misbehave() }))
				After(3 * TTL)
				f.Expect(a.IsLeader()).To(BeTrue())
				a.End()
				f.Expect(f.Record()).To(ContainSubstring(`"released"`))
				f.Expect(calls).To(BeNumerically(">=", 6))
				f.Expect(log.Count(`msg="Callback `)).To(Equal(calls))
			})
		})
	}
}

func TestOnCampaignReportsTheStateOfEachCampaign(t *testing.T) {
	Run(t, func(f *Fleet) {
		var a, b []election.State
		f.Candidate("a", election.OnCampaign(func(s election.State) { a = append(a, s) })).Begin()
		f.Unnotified("b", election.OnCampaign(func(s election.State) { b = append(b, s) })).Begin()
		After(2 * Interval)
		f.Expect(a).To(Equal([]election.State{election.CandidateState, election.LeaderElectState, election.LeaderState}))
		f.Expect(b).To(Equal([]election.State{election.CandidateState, election.CandidateState, election.CandidateState}))
	})
}

func TestSlowOnCampaignDropsOnlyCampaigns(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, unblock := f.Hanging()
		calls := 0
		a := f.Candidate("a", election.OnCampaign(func(election.State) { calls++; hang() }))
		a.Begin()
		After(100 * Interval)
		unblock()
		synctest.Wait()
		f.Expect(calls).To(BeNumerically("<", 20))
		f.Expect(a.Seen()).To(HaveLen(1))
	})
}

func TestShutdownReturnsAfterTheLastCallback(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Leading("a")
		var running, stopped, late atomic.Bool
		b := f.Candidate("b", election.WithBackoff(election.ConstantBackoff(100*time.Millisecond)), election.OnCampaign(func(election.State) {
			running.Store(true)
			late.Store(stopped.Load())
			time.Sleep(time.Second)
			running.Store(false)
		})).Begin()
		After(500 * time.Millisecond)
		b.End()
		stopped.Store(true)
		f.Expect(running.Load()).To(BeFalse())
		After(time.Minute)
		f.Expect(late.Load()).To(BeFalse())
	})
}
