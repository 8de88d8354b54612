package election_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestCallbackMayCallEveryMethod(t *testing.T) {
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
		a.shutdown()
	})
}

func TestStopAndResignInsideACallbackDoNotWaitForIt(t *testing.T) {
	natstest.SkipIfShort(t)
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
			return a.run(func(ctx context.Context, _ election.Term) error {
				do(a)
				<-ctx.Done()
				return nil
			})
		},
	} {
		for name, do := range map[string]func(*candidate){
			"Stop": func(a *candidate) { a.Stop() },
			"Resign": func(a *candidate) {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_ = a.Resign(ctx)
			},
		} {
			t.Run(name+" in "+place, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					a := run(f, do)
					for began := time.Now(); !strings.Contains(f.record(), `"released"`); after(100 * time.Millisecond) {
						f.Expect(time.Since(began)).To(BeNumerically("<", 3*interval), "the key is released")
					}
					f.Expect(a.IsLeader()).To(BeFalse())
					if name == "Stop" {
						f.Expect(<-a.result).To(Succeed())
					}
					a.shutdown()
				})
			})
		}
	}
}

func TestResignInsideTheWorkReturnsNil(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		result := make(chan error, 1)
		a := f.candidate("a")
		a.run(func(ctx context.Context, _ election.Term) error {
			began := time.Now()
			result <- a.Resign(ctx)
			f.Expect(time.Since(began)).To(BeZero())
			f.Expect(a.IsLeader()).To(BeFalse())
			f.Expect(f.record()).NotTo(ContainSubstring(`"released"`), "the release waits for the work")
			return nil
		})
		after(interval)
		f.Expect(result).To(Receive(BeNil()))
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestResignInsideOnWonReturnsAnErrorInBoundedTime(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		result := make(chan error, 1)
		var took time.Duration
		var a *candidate
		a = f.candidate("a", election.OnWon(func() {
			if began := time.Now(); took == 0 {
				result <- a.Resign(context.Background())
				took = time.Since(began)
			}
		}))
		a.start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeFalse(), "leadership ends at once")
		after(2 * ttl) // the release timeout and one TTL
		f.Expect(result).To(Receive(HaveOccurred()))
		f.Expect(took).To(BeNumerically(">", 0))
		f.Expect(f.record()).NotTo(ContainSubstring(`"released"`), "a callback had not returned in time")
		after(2*ttl + interval)
		f.Expect(a.IsLeader()).To(BeTrue(), "the candidate campaigns again")
	})
}

func TestLogHandlerMayStopAndResign(t *testing.T) {
	natstest.SkipIfShort(t)
	for reason, provoke := range map[string]func(*fleet, *candidate){
		"deadline":    func(_ *fleet, a *candidate) { a.link.Stall() },
		"stopped":     func(_ *fleet, a *candidate) { go a.shutdown() },
		"resigned":    func(_ *fleet, a *candidate) { go func() { _ = a.Resign(context.Background()) }() },
		"overwritten": func(f *fleet, _ *candidate) { f.Write("stranger") },
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
					a.shutdown()
				})
			})
		}
	}
}

func TestPanickingDebugFunctionCostsNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.WithDebug(func(string, ...any) { panic("oops") }))
		a.shutdown()
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestLogHandlerOfHealthChecksMayStopAndResign(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, call := range map[string]func(*candidate){
		"Stop":   func(a *candidate) { a.Stop() },
		"Resign": func(a *candidate) { _ = a.Resign(context.Background()) },
	} {
		for _, line := range []string{"Healthy", "Health check failed", "Unhealthy"} {
			t.Run(name+" at "+line, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					var d disk
					var a *candidate
					var returned atomic.Bool
					a = f.candidate("a", election.WithHealthCheck(d.check), election.WithDebug(func(_ string, v ...any) {
						if strings.HasPrefix(v[0].(string), line) {
							call(a)
							returned.Store(true)
						}
					}))
					a.start()
					after(interval)
					d.full.Store(true)
					after(ttl)
					f.Expect(returned.Load()).To(BeTrue())
					a.shutdown()
				})
			})
		}
	}
}

func TestTransferInsideTheWorkReturnsAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		b := f.connected("b")
		a := f.connected("a")
		transferred := make(chan error, 1)
		go func() {
			_ = a.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
				time.Sleep(interval)
				transferred <- a.Transfer(ctx, "b")
				<-ctx.Done()
				return nil
			})
		}()
		f.Cleanup(a.shutdown)
		after(interval / 2)
		b.start()
		after(2*interval + time.Second)
		f.Expect(<-transferred).To(Succeed())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}
