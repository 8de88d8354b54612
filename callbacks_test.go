package election_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestCallbacksRunInTheOrderOfTheirOptions(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
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
		a := f.leading("a", opts...)
		a.shutdown()
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
			onVirtualTime(t, func(f *fleet) {
				var log logged
				var calls []string
				a := f.leading("a", election.WithLogger(log.logger()),
					election.OnWon(misbehave), election.OnWon(func() { calls = append(calls, "won") }), election.OnWon(misbehave),
					election.OnLost(misbehave), election.OnLost(func() { calls = append(calls, "lost") }), election.OnLost(misbehave))
				f.Expect(calls).To(Equal([]string{"won"}))
				a.shutdown()
				f.Expect(calls).To(Equal([]string{"won", "lost"}))
				f.Expect(log.count(`msg="Callback `)).To(Equal(4))
				f.Expect(f.record()).To(ContainSubstring(`"released"`))
			})
		})
	}
}

func TestEveryOnWonRunsBeforeAnyOnLost(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, finish := f.Hanging()
		var calls []string
		note := func(call string) func() { return func() { calls = append(calls, call) } }
		a := f.leading("a",
			election.OnWon(hang), election.OnWon(note("won")),
			election.OnLost(note("lost 1")), election.OnLost(note("lost 2")))
		f.Write("stranger")
		after(interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(calls).To(BeEmpty())
		finish()
		synctest.Wait()
		f.Expect(calls).To(Equal([]string{"won", "lost 1", "lost 2"}))
	})
}

func TestOnWonAndOnLostAlternate(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		faults := []func(){
			func() { f.Write("stranger") },
			func() { f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed()) },
			func() { a.link.Cut(); after(ttl); a.link.Heal() },
			func() { f.Expect(a.Resign(context.Background())).To(Succeed()) },
		}
		for _, fault := range faults {
			fault()
			after(5 * ttl)
			f.Expect(a.IsLeader()).To(BeTrue())
		}
		a.shutdown()
		f.Expect(a.seen()).To(HaveLen(2 * (len(faults) + 1)))
		for i, event := range a.seen() {
			f.Expect(event).To(HavePrefix([]string{"won", "lost"}[i%2]))
		}
	})
}

func TestBlockedCallbackCostsNoLease(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, unblock := f.Hanging()
		var during []bool
		var a *candidate
		a = f.candidate("a", election.OnWon(func() { hang(); during = append(during, a.IsLeader()) }))
		a.start()
		b := f.candidate("b").start()
		for range 100 {
			after(time.Second)
			f.Expect(b.IsLeader()).To(BeFalse())
		}
		f.Expect(a.IsLeader()).To(BeTrue())
		unblock()
		synctest.Wait()
		f.Expect(during).To(Equal([]bool{true}))
	})
}

func TestCandidateCampaignsOnlyAfterItsCallbacksReturned(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, unblock := f.Hanging()
		a := f.leading("a", election.OnLost(hang))
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		after(5 * ttl)
		f.Expect(f.record()).To(BeEmpty())
		unblock()
		after(2*interval + ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestTermThatEndsBeforeOnWonIsNotAnnounced(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, unblock := f.Hanging()
		a := f.candidate("a", election.OnCampaign(func(s election.State) {
			if s == election.CandidateState {
				hang()
			}
		}))
		a.start()
		after(interval + time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Write("stranger")
		after(interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		unblock()
		synctest.Wait()
		f.Expect(a.seen()).To(BeEmpty())
	})
}

func TestFailingCallbackCostsNoLease(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, misbehave := range map[string]func(){"panic": func() { panic("oops") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				var log logged
				calls := 0
				misbehave := func() { calls++; misbehave() }
				a := f.leading("a", election.WithLogger(log.logger()), election.OnWon(misbehave), election.OnLost(misbehave),
					election.OnCampaign(func(election.State) { misbehave() }))
				after(3 * ttl)
				f.Expect(a.IsLeader()).To(BeTrue())
				a.shutdown()
				f.Expect(f.record()).To(ContainSubstring(`"released"`))
				f.Expect(calls).To(BeNumerically(">=", 6))
				f.Expect(log.count(`msg="Callback `)).To(Equal(calls))
			})
		})
	}
}

func TestOnCampaignReportsTheStateOfEachCampaign(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var a, b []election.State
		f.candidate("a", election.OnCampaign(func(s election.State) { a = append(a, s) })).start()
		f.unnotified("b", election.OnCampaign(func(s election.State) { b = append(b, s) })).start()
		after(2 * interval)
		f.Expect(a).To(Equal([]election.State{election.CandidateState, election.LeaderElectState, election.LeaderState}))
		f.Expect(b).To(Equal([]election.State{election.CandidateState, election.CandidateState, election.CandidateState}))
	})
}

func TestSlowOnCampaignDropsOnlyCampaigns(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, unblock := f.Hanging()
		calls := 0
		a := f.candidate("a", election.OnCampaign(func(election.State) { calls++; hang() }))
		a.start()
		after(100 * interval)
		unblock()
		synctest.Wait()
		f.Expect(calls).To(BeNumerically("<", 20))
		f.Expect(a.seen()).To(HaveLen(1))
	})
}

func TestShutdownReturnsAfterTheLastCallback(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		var running, stopped, late atomic.Bool
		b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(100*time.Millisecond)), election.OnCampaign(func(election.State) {
			running.Store(true)
			late.Store(stopped.Load())
			time.Sleep(time.Second)
			running.Store(false)
		})).start()
		after(500 * time.Millisecond)
		b.shutdown()
		stopped.Store(true)
		f.Expect(running.Load()).To(BeFalse())
		after(time.Minute)
		f.Expect(late.Load()).To(BeFalse())
	})
}
