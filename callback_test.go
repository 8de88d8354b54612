package election_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestOnWonAndOnLostAlternateThroughWinsAndLossesOfEveryKind(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		faults := []func(){
			func() { f.write("intruder") },
			func() { f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed()) },
			func() { a.link.Cut(); after(ttl); a.link.Heal() },
			func() { f.Expect(a.Resign(context.Background())).To(Succeed()) },
		}
		for _, fault := range faults {
			fault()
			after(5 * ttl)
			f.Expect(a.IsLeader()).To(BeTrue())
		}
		a.Stop()
		f.Expect(a.seen()).To(HaveLen(2 * (len(faults) + 1)))
		for i, event := range a.seen() {
			f.Expect(event).To(HavePrefix([]string{"won", "lost"}[i%2]))
		}
	})
}

func TestCallbackThatBlocksCostsNeitherTheLeaseNorTheAnswerOfIsLeader(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, letGo := f.hanging()
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
		letGo()
		synctest.Wait()
		f.Expect(during).To(Equal([]bool{true}))
	})
}

func TestCandidateDoesNotStandAgainBeforeTheCallbacksOfItsLastTermHaveReturned(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, letGo := f.hanging()
		a := f.leading("a", election.OnLost(hang))
		f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
		after(5 * ttl)
		f.Expect(f.record()).To(BeEmpty())
		letGo()
		after(2*interval + ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestTermThatEndedBeforeItCouldBeAnnouncedIsNotAnnounced(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, letGo := f.hanging()
		a := f.candidate("a", election.OnCampaign(func(s election.State) {
			if s == election.CandidateState {
				hang()
			}
		}))
		a.start()
		after(interval + time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.write("intruder")
		after(interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		letGo()
		synctest.Wait()
		f.Expect(a.seen()).To(BeEmpty())
	})
}

func TestCallbackThatPanicsOrEndsItsGoroutineCostsNothing(t *testing.T) {
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
				a.Stop()
				f.Expect(f.record()).To(ContainSubstring(`"released"`))
				f.Expect(calls).To(BeNumerically(">=", 6))
				f.Expect(log.count(`msg="Callback `)).To(Equal(calls))
			})
		})
	}
}

func TestEveryMethodMayBeCalledFromInsideEveryCallback(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var a *candidate
		var calls sync.Map
		everything := func(where string) {
			calls.Store(where, true)
			a.IsLeader()
			a.State()
			a.Status()
			a.Term()
			_, _ = a.Leader(context.Background())
			_ = a.Start(context.Background())
			_ = a.Resign(context.Background())
		}
		a = f.candidate("a",
			election.OnWon(func() { everything("won") }),
			election.OnLost(func() { everything("lost") }),
			election.OnCampaign(func(election.State) { everything("campaign") }),
			election.WithDebug(func(string, ...any) { everything("debug") }))
		a.start()
		after(10 * interval)
		for _, where := range []string{"campaign", "debug"} {
			_, called := calls.Load(where)
			f.Expect(called).To(BeTrue(), where)
		}
		a.Stop()
	})
}

func TestStopAndResignFromInsideACallbackOrTheWorkDoNotWaitForIt(t *testing.T) {
	type where = func(f *fleet, do func(*candidate)) *candidate
	for place, run := range map[string]where{
		"OnWon": func(f *fleet, do func(*candidate)) *candidate {
			var a *candidate
			a = f.candidate("a", election.OnWon(func() { do(a) }))
			return a.start()
		},
		"OnLost": func(f *fleet, do func(*candidate)) *candidate {
			var a *candidate
			a = f.candidate("a", election.OnLost(func() { do(a) }))
			a.start()
			after(interval)
			go func() { _ = a.Resign(context.Background()) }()
			return a
		},
		"OnCampaign": func(f *fleet, do func(*candidate)) *candidate {
			var a *candidate
			a = f.candidate("a", election.OnCampaign(func(s election.State) {
				if s == election.LeaderState {
					do(a)
				}
			}))
			return a.start()
		},
		"work": func(f *fleet, do func(*candidate)) *candidate {
			a := f.candidate("a")
			go func() {
				a.result <- a.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
					do(a)
					<-ctx.Done()
					return nil
				})
			}()
			return a
		},
	} {
		for name, do := range map[string]func(*candidate){
			"Stop":   func(a *candidate) { a.Stop() },
			"Resign": func(a *candidate) { _ = a.Resign(context.Background()) },
		} {
			t.Run(name+" in "+place, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					a := run(f, do)
					for began := time.Now(); !strings.Contains(f.record(), `"released"`); after(100 * time.Millisecond) {
						f.Expect(time.Since(began)).To(BeNumerically("<", 3*interval), "released")
					}
					f.Expect(a.IsLeader()).To(BeFalse())
					if name == "Stop" {
						f.Expect(<-a.result).To(Succeed())
					}
					a.Stop()
				})
			})
		}
	}
}

func TestOnCampaignIsCalledForEachCampaignWithTheStateItIsMadeIn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var a, b []election.State
		f.candidate("a", election.OnCampaign(func(s election.State) { a = append(a, s) })).start()
		f.deafCandidate("b", election.OnCampaign(func(s election.State) { b = append(b, s) })).start()
		after(2 * interval)
		f.Expect(a).To(Equal([]election.State{election.CandidateState, election.LeaderElectState, election.LeaderState}))
		f.Expect(b).To(Equal([]election.State{election.CandidateState, election.CandidateState, election.CandidateState}))
	})
}

func TestSlowOnCampaignDropsCampaignsButNoChangeOfLeadership(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, letGo := f.hanging()
		calls := 0
		a := f.candidate("a", election.OnCampaign(func(election.State) { calls++; hang() }))
		a.start()
		after(100 * interval)
		letGo()
		synctest.Wait()
		f.Expect(calls).To(BeNumerically("<", 20))
		f.Expect(a.seen()).To(HaveLen(1))
	})
}

func TestStopReturnsAfterEveryCallbackAndNoneIsCalledLater(t *testing.T) {
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
		b.Stop()
		stopped.Store(true)
		f.Expect(running.Load()).To(BeFalse())
		after(time.Minute)
		f.Expect(late.Load()).To(BeFalse())
	})
}

func TestStopAndResignFromInsideALogHandlerDoNotDeadlock(t *testing.T) {
	for reason, provoke := range map[string]func(*fleet, *candidate){
		"deadline":    func(_ *fleet, a *candidate) { a.link.Stall() },
		"stopped":     func(_ *fleet, a *candidate) { go a.Stop() },
		"resigned":    func(_ *fleet, a *candidate) { go func() { _ = a.Resign(context.Background()) }() },
		"overwritten": func(f *fleet, _ *candidate) { f.write("intruder") },
	} {
		for name, call := range map[string]func(*candidate){
			"Stop":   func(a *candidate) { a.Stop() },
			"Resign": func(a *candidate) { _ = a.Resign(context.Background()) },
		} {
			t.Run(name+" when "+reason, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					var a *candidate
					var returned atomic.Bool
					a = f.candidate("a", election.WithDebug(func(_ string, v ...any) {
						if strings.Contains(v[0].(string), "reason="+reason) && strings.Contains(v[0].(string), "state=candidate") {
							call(a)
							returned.Store(true)
						}
					})).start()
					after(interval)
					provoke(f, a)
					after(3 * ttl)
					f.Expect(returned.Load()).To(BeTrue())
					a.Stop()
				})
			})
		}
	}
}

func TestDebugFunctionThatPanicsCostsTheProcessNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.WithDebug(func(string, ...any) { panic("oops") }))
		a.Stop()
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}
