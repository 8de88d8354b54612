package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestKeyIsReleasedOnlyAfterTheWorkHasReturnedAndIsKeptUntilThen(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithReleaseTimeout(5*ttl))
		var told, returned time.Time
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			a.result <- a.Run(ctx, func(ctx context.Context, term election.Term) error {
				<-ctx.Done()
				told = time.Now()
				time.Sleep(3 * ttl)
				f.Expect(term.Deadline()).To(BeTemporally(">", time.Now()), "the lease is kept alive")
				returned = time.Now()
				return nil
			})
		}()
		after(interval)
		b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
		cancel()
		synctest.Wait()
		f.Expect(told).To(BeTemporally("==", time.Now()))
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

func TestKeyIsReleasedOnlyAfterCallbacksHaveReturned(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.OnLost(func() { time.Sleep(time.Second) }))
		go a.Stop()
		after(time.Second - instant)
		f.Expect(f.record()).NotTo(ContainSubstring(`"released"`))
		after(instant)
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestKeyIsLeftToExpireIfTheWorkDoesNotReturn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithReleaseTimeout(3*time.Second))
		hang, letGo := f.hanging()
		go func() {
			a.result <- a.Run(context.Background(), func(context.Context, election.Term) error { hang(); return nil })
		}()
		f.Cleanup(a.Stop)
		after(interval)
		b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
		f.Expect(a.Resign(context.Background())).To(MatchError(ContainSubstring("expires")))
		f.Expect(f.record()).NotTo(ContainSubstring(`"released"`))
		after(ttl + 400*time.Millisecond)
		f.Expect(b.State()).To(Equal(election.LeaderElectState), "nobody renewed it")
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())

		// While its work runs it does not stand.
		b.Stop()
		after(ttl)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		letGo()
		after(interval)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		a.Stop()
	})
}

func TestKeyThatSomebodyTookIsNotReleased(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		f.write("intruder")
		f.Expect(a.Resign(context.Background())).To(MatchError(election.ErrNotLeader))
		f.Expect(f.record()).To(Equal("intruder"))
	})
}

func TestStopDoesNotHangOnAServerThatIsGone(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		a.link.Cut()
		began := time.Now()
		a.Stop()
		f.Expect(time.Since(began)).To(BeNumerically("<=", 2500*time.Millisecond))
		f.Expect(a.seen()).To(Equal([]string{"won 7.5s", "lost 7.5s"}), "at once")
	})
}

func TestReleaseWhoseReplyWasLostIsRecognised(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		a.link.LoseReplies(once(toKeyReply))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestReleaseIsClearedForThoseThatKnowOnlyCreateWhereThereAreNoMarkers(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		go a.Stop()
		after(50*time.Millisecond - instant)
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
		after(instant)
		f.Expect(f.record()).To(BeEmpty())
	}, withoutMarkers)
}

func TestReleaseThatSomebodyTookIsNotCleared(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
		a.Stop()
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(f.record()).To(ContainSubstring(`"name":"b"`))
		after(ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, withoutMarkers)
}

func TestPlainCandidateWritesItsBareNameAndItsReleaseAsARecordThatItDeletes(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("host-a.example.net", election.WithPlainValue())
		f.Expect(f.record()).To(Equal("host-a.example.net"))
		a.Stop()
		f.Expect(f.record()).To(BeEmpty(), "a candidate of Choria can create the key")
	}, withoutMarkers)
}

func TestReleaseOfAPlainCandidateIsTakenOverAtOnce(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a", election.WithPlainValue()).start()
		after(interval)
		b := candidate("b", election.WithPlainValue()).start()
		after(3 * interval)
		f.Expect(b.Status().Leader.Name).To(Equal("a"))
		go a.Stop()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(f.record()).To(Equal("b"))
	})
}

func TestNothingToWaitForIsReleasedWithinAnyReleaseTimeout(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for range 20 {
			e, err := election.NewElection("a", key, f.bucket, election.WithSplay(0), election.WithReleaseTimeout(0))
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

func TestResignationThatASuccessorOvertookIsASuccess(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
		a.link.LoseReplies(once(toKeyReply))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}
