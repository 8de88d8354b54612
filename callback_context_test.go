package election_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestCallbacksAddUpAndAreCalledInTheOrderInWhichTheyWereGiven(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var calls, campaigns []string
		var opts []election.Option
		for _, n := range []string{"1", "2", "3"} {
			opts = append(opts,
				election.OnWon(func() { calls = append(calls, "won "+n) }),
				election.OnWonContext(func(context.Context, election.Term) error { calls = append(calls, "won in context "+n); return nil }),
				election.OnLost(func() { calls = append(calls, "lost "+n) }),
				election.OnLostContext(func(context.Context, election.Term) error { calls = append(calls, "lost in context "+n); return nil }),
				election.OnCampaign(func(s election.State) {
					if s == election.LeaderElectState {
						campaigns = append(campaigns, n) // a change of leadership comes first
					}
				}))
		}
		a := f.leading("a", opts...)
		a.Stop()
		f.Expect(calls).To(Equal([]string{
			"won 1", "won in context 1", "won 2", "won in context 2", "won 3", "won in context 3",
			"lost 1", "lost in context 1", "lost 2", "lost in context 2", "lost 3", "lost in context 3",
		}))
		f.Expect(campaigns).To(Equal([]string{"1", "2", "3"}))
	})
}

func TestCallbackThatPanicsEndsItsGoroutineOrFailsKeepsNoOtherFromBeingCalled(t *testing.T) {
	for name, misbehave := range map[string]func() error{
		"panic": func() error { panic("oops") },
		"exit":  func() error { runtime.Goexit(); return nil },
		"error": func() error { return errors.New("oops") },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				var log logged
				var calls []string
				bad := func(context.Context, election.Term) error { return misbehave() }
				a := f.leading("a", election.WithLogger(log.logger()),
					election.OnWonContext(bad), election.OnWon(func() { calls = append(calls, "won") }), election.OnWonContext(bad),
					election.OnLostContext(bad), election.OnLost(func() { calls = append(calls, "lost") }), election.OnLostContext(bad))
				f.Expect(calls).To(Equal([]string{"won"}))
				a.Stop()
				f.Expect(calls).To(Equal([]string{"won", "lost"}))
				f.Expect(log.count(`msg="Callback `)).To(Equal(4))
				f.Expect(f.record()).To(ContainSubstring(`"released"`))
			})
		})
	}
}

func TestEveryCallbackHearsOfAWinBeforeAnyHearsOfItsLoss(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, letGo := f.hanging()
		var calls []string
		note := func(call string) func() { return func() { calls = append(calls, call) } }
		a := f.leading("a",
			election.OnWon(hang), election.OnWon(note("won")),
			election.OnLost(note("lost 1")), election.OnLost(note("lost 2")))
		f.write("intruder")
		after(interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(calls).To(BeEmpty())
		letGo()
		synctest.Wait()
		f.Expect(calls).To(Equal([]string{"won", "lost 1", "lost 2"}))
	})
}

func TestContextOfAWinEndsWithLeadershipAndIsThatOfItsLoss(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var won, lost context.Context
		var terms []election.Term
		var left time.Duration
		a := f.leading("a",
			election.OnWonContext(func(ctx context.Context, t election.Term) error {
				won, terms = ctx, append(terms, t)
				return ctx.Err()
			}),
			election.OnLostContext(func(ctx context.Context, t election.Term) error {
				lost, terms, left = ctx, append(terms, t), time.Until(t.Deadline())
				return nil
			}))
		term, _ := a.Term()
		f.Expect(won.Err()).NotTo(HaveOccurred())
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(context.Cause(won)).To(MatchError(election.ErrNotLeader))
		f.Expect(lost).To(BeIdenticalTo(won))
		f.Expect(terms).To(Equal([]election.Term{term, term}))
		f.Expect(left).To(BeNumerically(">", 0), "given up, and not lost")
	})
}

func TestCallbackThatBreaksOffWhenLeadershipEndsIsNotCalledAFailure(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		a := f.leading("a", election.WithLogger(log.logger()),
			election.OnWonContext(func(ctx context.Context, _ election.Term) error {
				<-ctx.Done()
				return fmt.Errorf("broken off: %w", ctx.Err())
			}))
		a.Stop()
		f.Expect(log.count("Callback failed")).To(BeZero())
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}
