package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestStopDuringARenewalReleasesTheKey(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		a.link.DelayReplies(300 * time.Millisecond)
		after(interval)
		began := time.Now()
		go a.shutdown()
		synctest.Wait()
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.seen()).To(Equal([]string{"won 7.5s", "lost 15s"}))
		f.Expect(<-a.result).To(Succeed())
		f.Expect(time.Since(began)).To(BeNumerically("<=", 900*time.Millisecond), "three round trips: the renewal, a read, the release")
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestReleaseWaitsForTheWork(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithReleaseTimeout(5*ttl))
		var ended, returned time.Time
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			a.result <- a.Run(ctx, func(ctx context.Context, term election.Term) error {
				<-ctx.Done()
				ended = time.Now()
				time.Sleep(3 * ttl)
				f.Expect(term.Deadline()).To(BeTemporally(">", time.Now()), "the leader renews the lease")
				returned = time.Now()
				return nil
			})
		}()
		after(interval)
		b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
		cancel()
		synctest.Wait()
		f.Expect(ended).To(BeTemporally("==", time.Now()))
		f.Expect(a.IsLeader()).To(BeFalse())
		for !b.IsLeader() {
			f.Expect(b.State()).To(Equal(election.CandidateState))
			after(time.Millisecond)
		}
		f.Expect(returned).NotTo(BeZero())
		f.Expect(time.Since(returned)).To(BeNumerically("<=", 60*time.Millisecond))
		f.Expect(<-a.result).To(Succeed())
	})
}

func TestReleaseWaitsForCallbacks(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.OnLost(func() { time.Sleep(time.Second) }))
		go a.shutdown()
		after(time.Second - instant)
		f.Expect(f.record()).NotTo(ContainSubstring(`"released"`))
		after(instant)
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestKeyExpiresIfTheWorkDoesNotReturn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, unblock := f.Hanging()
		a := f.candidate("a", election.WithReleaseTimeout(3*time.Second)).run(func(context.Context, election.Term) error { hang(); return nil })
		after(interval)
		b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
		f.Expect(a.Resign(context.Background())).To(MatchError(ContainSubstring("expires")))
		f.Expect(f.record()).NotTo(ContainSubstring(`"released"`))
		after(ttl + 400*time.Millisecond)
		f.Expect(b.State()).To(Equal(election.LeaderElectState), "nobody renewed the key")
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())

		// While its work runs it does not campaign.
		b.shutdown()
		after(ttl)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		unblock()
		after(interval)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		a.shutdown()
	})
}

func TestOverwrittenKeyIsNotReleased(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		f.Write("stranger")
		f.Expect(a.Resign(context.Background())).To(MatchError(election.ErrNotLeader))
		f.Expect(f.record()).To(Equal("stranger"))
	})
}

func TestShutdownDoesNotWaitForAnUnreachableServer(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		a.link.Cut()
		began := time.Now()
		a.shutdown()
		f.Expect(time.Since(began)).To(BeNumerically("<=", 2500*time.Millisecond))
		f.Expect(a.seen()).To(Equal([]string{"won 7.5s", "lost 7.5s"}), "OnLost runs at once")
	})
}

func TestReleaseWithALostReplyIsRecognised(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		a.link.LoseReplies(once(toKeyReply))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestReleaseIsDeletedWhereThereAreNoMarkers(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		go a.shutdown()
		after(50*time.Millisecond - instant)
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
		after(instant)
		f.Expect(f.record()).To(BeEmpty())
	}, withoutMarkers)
}

func TestTakenReleaseIsNotDeleted(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
		a.shutdown()
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(f.record()).To(ContainSubstring(`"name":"b"`))
		after(ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, withoutMarkers)
}

func TestPlainCandidateWritesItsNameAndDeletesItsRelease(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("host-a.example.net", election.WithPlainValue())
		f.Expect(f.record()).To(Equal("host-a.example.net"))
		a.shutdown()
		f.Expect(f.record()).To(BeEmpty(), "a candidate of Choria can create the key")
	}, withoutMarkers)
}

func TestReleaseOfAPlainCandidateIsTakenAtOnce(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a", election.WithPlainValue()).start()
		after(interval)
		b := candidate("b", election.WithPlainValue()).start()
		after(3 * interval)
		f.Expect(b.Status().Leader.Name).To(Equal("a"))
		go a.shutdown()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(f.record()).To(Equal("b"))
	})
}

func TestIdleLeaderReleasesWithinAnyReleaseTimeout(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for range unlessShort(20, 3) {
			e, err := election.NewElection("a", key, f.Bucket, election.WithSplay(0), election.WithReleaseTimeout(0))
			f.Expect(err).NotTo(HaveOccurred())
			done := make(chan error)
			go func() { done <- e.Start(context.Background()) }()
			after(2 * interval)
			f.Expect(e.IsLeader()).To(BeTrue())
			e.Stop()
			f.Expect(<-done).To(Succeed())
			f.Expect(f.record()).To(ContainSubstring(`"released"`))
		}
	})
}

func TestResignOvertakenByASuccessorSucceeds(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
		a.link.LoseReplies(once(toKeyReply))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestDeadlineIsPastOnceTheKeyIsReleasedOrLost(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, refusal := range map[string]error{"released": nil, "lost": refusalNaming(1 << 40)} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a, bucket := f.faultyCandidate("a")
				a.start()
				after(2 * interval)
				term, leads := a.Term()
				f.Expect(leads).To(BeTrue())
				if refusal != nil {
					bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) { return 0, refusal })
					_, err := f.Bucket.Put(context.Background(), key, []byte("somebody else"))
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
	onVirtualTime(t, func(f *fleet) {
		finish := make(chan struct{})
		a := f.candidate("a", election.OnCampaign(func(s election.State) {
			if s == election.CandidateState {
				<-finish
			}
		}), election.WithReleaseTimeout(10*ttl)).start()
		after(time.Second)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = a.Resign(ctx)
		after(3 * interval) // it renews the key while the callback runs, and its stand-down has passed
		f.Expect(f.record()).To(ContainSubstring(`"name":"a"`))
		f.Expect(f.record()).NotTo(ContainSubstring(`"term"`))
		close(finish)
		after(instant)
	})
}
