package handover_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestStopDuringARenewalReleasesTheKey(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		a.Link.DelayReplies(300 * time.Millisecond)
		After(Interval)
		began := time.Now()
		go a.End()
		synctest.Wait()
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.Seen()).To(Equal([]string{"won 7.5s", "lost 15s"}))
		f.Expect(<-a.Result).To(Succeed())
		f.Expect(time.Since(began)).To(BeNumerically("<=", 900*time.Millisecond), "three round trips: the renewal, a read, the release")
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
	})
}

func TestReleaseWaitsForTheWork(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Candidate("a", election.WithReleaseTimeout(5*TTL))
		var ended, returned time.Time
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			a.Result <- a.Run(ctx, func(ctx context.Context, term election.Term) error {
				<-ctx.Done()
				ended = time.Now()
				time.Sleep(3 * TTL)
				f.Expect(term.Deadline()).To(BeTemporally(">", time.Now()), "the leader renews the lease")
				returned = time.Now()
				return nil
			})
		}()
		After(Interval)
		b := f.Candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).Begin()
		cancel()
		synctest.Wait()
		f.Expect(ended).To(BeTemporally("==", time.Now()))
		f.Expect(a.IsLeader()).To(BeFalse())
		for !b.IsLeader() {
			f.Expect(b.State()).To(Equal(election.CandidateState))
			After(time.Millisecond)
		}
		f.Expect(returned).NotTo(BeZero())
		f.Expect(time.Since(returned)).To(BeNumerically("<=", 60*time.Millisecond))
		f.Expect(<-a.Result).To(Succeed())
	})
}

func TestReleaseWaitsForCallbacks(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a", election.OnLost(func() { time.Sleep(time.Second) }))
		go a.End()
		After(time.Second - Instant)
		f.Expect(f.Record()).NotTo(ContainSubstring(`"released"`))
		After(Instant)
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
	})
}

func TestKeyExpiresIfTheWorkDoesNotReturn(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, unblock := f.Hanging()
		a := f.Candidate("a", election.WithReleaseTimeout(3*time.Second)).BeginRun(func(context.Context, election.Term) error { hang(); return nil })
		After(Interval)
		b := f.Candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).Begin()
		f.Expect(a.Resign(context.Background())).To(MatchError(ContainSubstring("expires")))
		f.Expect(f.Record()).NotTo(ContainSubstring(`"released"`))
		After(TTL + 400*time.Millisecond)
		f.Expect(b.State()).To(Equal(election.LeaderElectState), "nobody renewed the key")
		After(Interval)
		f.Expect(b.IsLeader()).To(BeTrue())

		// While its work runs it does not campaign.
		b.End()
		After(TTL)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		unblock()
		After(Interval)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		a.End()
	})
}

func TestOverwrittenKeyIsNotReleased(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		f.Write("stranger")
		f.Expect(a.Resign(context.Background())).To(MatchError(election.ErrNotLeader))
		f.Expect(f.Record()).To(Equal("stranger"))
	})
}

func TestShutdownDoesNotWaitForAnUnreachableServer(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		a.Link.Cut()
		began := time.Now()
		a.End()
		f.Expect(time.Since(began)).To(BeNumerically("<=", 2500*time.Millisecond))
		f.Expect(a.Seen()).To(Equal([]string{"won 7.5s", "lost 7.5s"}), "OnLost runs at once")
	})
}

func TestReleaseWithALostReplyIsRecognised(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		a.Link.LoseReplies(faultproxy.Once(ToKeyReply))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
	})
}

func TestReleaseIsDeletedWhereThereAreNoMarkers(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		go a.End()
		After(50*time.Millisecond - Instant)
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
		After(Instant)
		f.Expect(f.Record()).To(BeEmpty())
	}, WithoutMarkers)
}

func TestTakenReleaseIsNotDeleted(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b := f.Candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).Begin()
		a.End()
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(f.Record()).To(ContainSubstring(`"name":"b"`))
		After(TTL)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, WithoutMarkers)
}

func TestPlainCandidateWritesItsNameAndDeletesItsRelease(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("host-a.example.net", election.WithPlainValue())
		f.Expect(f.Record()).To(Equal("host-a.example.net"))
		a.End()
		f.Expect(f.Record()).To(BeEmpty(), "a candidate of Choria can create the key")
	}, WithoutMarkers)
}

func TestReleaseOfAPlainCandidateIsTakenAtOnce(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a", election.WithPlainValue()).Begin()
		After(Interval)
		b := candidate("b", election.WithPlainValue()).Begin()
		After(3 * Interval)
		f.Expect(b.Status().Leader.Name).To(Equal("a"))
		go a.End()
		After(Spread)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(f.Record()).To(Equal("b"))
	})
}

func TestIdleLeaderReleasesWithinAnyReleaseTimeout(t *testing.T) {
	Run(t, func(f *Fleet) {
		for range UnlessShort(20, 3) {
			e, err := election.NewElection("a", Key, f.Bucket, election.WithSplay(0), election.WithReleaseTimeout(0))
			f.Expect(err).NotTo(HaveOccurred())
			done := make(chan error)
			go func() { done <- e.Start(context.Background()) }()
			After(2 * Interval)
			f.Expect(e.IsLeader()).To(BeTrue())
			e.Stop()
			f.Expect(<-done).To(Succeed())
			f.Expect(f.Record()).To(ContainSubstring(`"released"`))
		}
	})
}

func TestResignOvertakenByASuccessorSucceeds(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b := f.Candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).Begin()
		a.Link.LoseReplies(faultproxy.Once(ToKeyReply))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestDeadlineIsPastOnceTheKeyIsReleasedOrLost(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, refusal := range map[string]error{"released": nil, "lost": RefusalNaming(1 << 40)} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a, bucket := f.FaultyCandidate("a")
				a.Begin()
				After(2 * Interval)
				term, leads := a.Term()
				f.Expect(leads).To(BeTrue())
				if refusal != nil {
					bucket.OnUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) { return 0, refusal })
					_, err := f.Bucket.Put(context.Background(), Key, []byte("somebody else"))
					f.Expect(err).NotTo(HaveOccurred())
				}
				err := a.Resign(context.Background())
				f.Expect(err == nil).To(Equal(refusal == nil))
				f.Expect(term.Deadline()).To(BeTemporally("<=", time.Now()))
			})
		})
	}
}

func TestLeaderElectThatResignsNeverShowsATerm(t *testing.T) {
	Run(t, func(f *Fleet) {
		finish := make(chan struct{})
		a := f.Candidate("a", election.OnCampaign(func(s election.State) {
			if s == election.CandidateState {
				<-finish
			}
		}), election.WithReleaseTimeout(10*TTL)).Begin()
		After(time.Second)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = a.Resign(ctx)
		After(3 * Interval) // it renews the key while the callback runs, and its stand-down has passed
		f.Expect(f.Record()).To(ContainSubstring(`"name":"a"`))
		f.Expect(f.Record()).NotTo(ContainSubstring(`"term"`))
		close(finish)
		After(Instant)
	})
}
