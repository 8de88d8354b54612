package callbacks_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestCallbackMayCallEveryMethod(t *testing.T) {
	Run(t, func(f *Fleet) {
		var a *Candidate
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
		a = f.Candidate("a",
			election.OnWon(func() { everything("won") }),
			election.OnLost(func() { everything("lost") }),
			election.OnCampaign(func(election.State) { everything("campaign") }),
			election.WithDebug(func(string, ...any) { everything("debug") }))
		a.Begin()
		After(10 * Interval)
		for _, where := range []string{"campaign", "debug"} {
			_, called := calls.Load(where)
			f.Expect(called).To(BeTrue(), where)
		}
		a.End()
	})
}

func TestStopAndResignInsideACallbackDoNotWaitForIt(t *testing.T) {
	natstest.SkipIfShort(t)
	type where = func(f *Fleet, do func(*Candidate)) *Candidate
	for place, run := range map[string]where{
		"OnWon": func(f *Fleet, do func(*Candidate)) *Candidate {
			var a *Candidate
			a = f.Candidate("a", election.OnWon(func() { do(a) }))
			return a.Begin()
		},
		"OnLost": func(f *Fleet, do func(*Candidate)) *Candidate {
			var a *Candidate
			a = f.Candidate("a", election.OnLost(func() { do(a) }))
			a.Begin()
			After(Interval)
			go func() { _ = a.Resign(context.Background()) }()
			return a
		},
		"OnCampaign": func(f *Fleet, do func(*Candidate)) *Candidate {
			var a *Candidate
			a = f.Candidate("a", election.OnCampaign(func(s election.State) {
				if s == election.LeaderState {
					do(a)
				}
			}))
			return a.Begin()
		},
		"work": func(f *Fleet, do func(*Candidate)) *Candidate {
			a := f.Candidate("a")
			return a.BeginRun(func(ctx context.Context, _ election.Term) error {
				do(a)
				<-ctx.Done()
				return nil
			})
		},
	} {
		for name, do := range map[string]func(*Candidate){
			"Stop": func(a *Candidate) { a.Stop() },
			"Resign": func(a *Candidate) {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_ = a.Resign(ctx)
			},
		} {
			t.Run(name+" in "+place, func(t *testing.T) {
				Run(t, func(f *Fleet) {
					a := run(f, do)
					for began := time.Now(); !strings.Contains(f.Record(), `"released"`); After(100 * time.Millisecond) {
						f.Expect(time.Since(began)).To(BeNumerically("<", 3*Interval), "the key is released")
					}
					f.Expect(a.IsLeader()).To(BeFalse())
					if name == "Stop" {
						f.Expect(<-a.Result).To(Succeed())
					}
					a.End()
				})
			})
		}
	}
}

func TestResignInsideTheWorkReturnsNil(t *testing.T) {
	Run(t, func(f *Fleet) {
		result := make(chan error, 1)
		a := f.Candidate("a")
		a.BeginRun(func(ctx context.Context, _ election.Term) error {
			began := time.Now()
			result <- a.Resign(ctx)
			f.Expect(time.Since(began)).To(BeZero())
			f.Expect(a.IsLeader()).To(BeFalse())
			f.Expect(f.Record()).NotTo(ContainSubstring(`"released"`), "the release waits for the work")
			return nil
		})
		After(Interval)
		f.Expect(result).To(Receive(BeNil()))
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
	})
}

func TestResignInsideOnWonReturnsAnErrorInBoundedTime(t *testing.T) {
	Run(t, func(f *Fleet) {
		result := make(chan error, 1)
		var took time.Duration
		var a *Candidate
		a = f.Candidate("a", election.OnWon(func() {
			if began := time.Now(); took == 0 {
				result <- a.Resign(context.Background())
				took = time.Since(began)
			}
		}))
		a.Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeFalse(), "leadership ends at once")
		After(2 * TTL) // the release timeout and one TTL
		f.Expect(result).To(Receive(HaveOccurred()))
		f.Expect(took).To(BeNumerically(">", 0))
		f.Expect(f.Record()).NotTo(ContainSubstring(`"released"`), "a callback had not returned in time")
		After(2*TTL + Interval)
		f.Expect(a.IsLeader()).To(BeTrue(), "the candidate campaigns again")
	})
}

func TestLogHandlerMayStopAndResign(t *testing.T) {
	natstest.SkipIfShort(t)
	for reason, provoke := range map[string]func(*Fleet, *Candidate){
		"deadline":    func(_ *Fleet, a *Candidate) { a.Link.Stall() },
		"stopped":     func(_ *Fleet, a *Candidate) { go a.End() },
		"resigned":    func(_ *Fleet, a *Candidate) { go func() { _ = a.Resign(context.Background()) }() },
		"overwritten": func(f *Fleet, _ *Candidate) { f.Write("stranger") },
	} {
		for name, call := range map[string]func(*Candidate){
			"Stop":   func(a *Candidate) { a.Stop() },
			"Resign": func(a *Candidate) { _ = a.Resign(context.Background()) },
		} {
			t.Run(name+" when "+reason, func(t *testing.T) {
				Run(t, func(f *Fleet) {
					var a *Candidate
					var returned atomic.Bool
					a = f.Candidate("a", election.WithDebug(func(_ string, v ...any) {
						if strings.Contains(v[0].(string), "reason="+reason) && strings.Contains(v[0].(string), "state=candidate") {
							call(a)
							returned.Store(true)
						}
					})).Begin()
					After(Interval)
					provoke(f, a)
					After(3 * TTL)
					f.Expect(returned.Load()).To(BeTrue())
					a.End()
				})
			})
		}
	}
}

func TestPanickingDebugFunctionCostsNothing(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a", election.WithDebug(func(string, ...any) { panic("oops") }))
		a.End()
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
	})
}

func TestLogHandlerOfHealthChecksMayStopAndResign(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, call := range map[string]func(*Candidate){
		"Stop":   func(a *Candidate) { a.Stop() },
		"Resign": func(a *Candidate) { _ = a.Resign(context.Background()) },
	} {
		for _, line := range []string{"Healthy", "Health check failed", "Unhealthy"} {
			t.Run(name+" at "+line, func(t *testing.T) {
				Run(t, func(f *Fleet) {
					var d Disk
					var a *Candidate
					var returned atomic.Bool
					a = f.Candidate("a", election.WithHealthCheck(d.Check), election.WithDebug(func(_ string, v ...any) {
						if strings.HasPrefix(v[0].(string), line) {
							call(a)
							returned.Store(true)
						}
					}))
					a.Begin()
					After(Interval)
					d.Full.Store(true)
					After(TTL)
					f.Expect(returned.Load()).To(BeTrue())
					a.End()
				})
			})
		}
	}
}

func TestTransferInsideTheWorkReturnsAtOnce(t *testing.T) {
	Run(t, func(f *Fleet) {
		b := f.Connected("b")
		a := f.Connected("a")
		transferred := make(chan error, 1)
		go func() {
			_ = a.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
				time.Sleep(Interval)
				transferred <- a.Transfer(ctx, "b")
				<-ctx.Done()
				return nil
			})
		}()
		f.Cleanup(a.End)
		After(Interval / 2)
		b.Begin()
		After(2*Interval + time.Second)
		f.Expect(<-transferred).To(Succeed())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}
