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

	"github.com/nats-io/nats.go"
	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

func TestLeadershipCountsOnlyFromTheWinnersNextSuccessfulCampaign(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.candidate("a").start()
		f.Expect(c.State()).To(Equal(election.LeaderElectState))
		f.Expect(c.IsLeader()).To(BeFalse())
		_, leads := c.Term()
		f.Expect(leads).To(BeFalse())

		after(interval - instant)
		f.Expect(c.State()).To(Equal(election.LeaderElectState))
		f.Expect(c.seen()).To(BeEmpty())

		after(instant)
		f.Expect(c.State()).To(Equal(election.LeaderState))
		f.Expect(c.IsLeader()).To(BeTrue())
		f.Expect(c.seen()).To(Equal([]string{"won 7.5s"}))
		term, leads := c.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(term.Valid()).To(BeTrue())
	})
}

func TestRenewalsAreOneRequestEachEveryThreeQuartersOfTheTTLWhateverTheBackoffSays(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.leading("a", election.WithBackoff(election.ConstantBackoff(time.Second)))
		var requests []time.Duration
		began := time.Now()
		c.link.OnRequest(func(link.Message) { requests = append(requests, time.Since(began)) })
		after(10 * interval)
		want := make([]time.Duration, 10)
		for i := range want {
			want[i] = time.Duration(i+1) * interval
		}
		f.Expect(requests).To(Equal(want))
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}

func TestOneLeaderAtATimeAmongManyThroughEveryKindOfFault(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var all []*candidate
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			all = append(all, f.candidate(name, election.WithSplay(5*time.Second)).start())
		}
		leader := func() *candidate {
			var found *candidate
			for _, c := range all {
				if c.IsLeader() {
					f.Expect(found).To(BeNil(), "two leaders")
					found = c
				}
			}
			return found
		}
		// Until watches each millisecond until somebody leads, other than old and within the bound.
		until := func(old *candidate, bound time.Duration) *candidate {
			for began := time.Now(); time.Since(began) <= bound; after(time.Millisecond) {
				if now := leader(); now != nil && now != old {
					return now
				}
			}
			f.Fatalf("no leader within %v", bound)
			return nil
		}
		const late = 400 * time.Millisecond // how late a server may expire a key
		crash := ttl + late + interval + interval
		now := until(nil, 5*time.Second+interval)
		terms := []election.Term{}
		for range 4 {
			term, _ := now.Term()
			terms = append(terms, term)
			f.Expect(now.Resign(context.Background())).To(Succeed())
			now = until(now, interval+time.Millisecond)

			now.link.Cut()
			dead := now
			now = until(dead, crash)
			dead.link.Heal()

			f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
			after(interval + time.Millisecond)
			now = until(now, crash)

			now.link.Stall()
			dead = now
			now = until(dead, crash)
			dead.link.Heal()
		}
		for i := range terms[1:] {
			f.Expect(terms[i].Compare(terms[i+1])).To(Equal(-1))
			f.Expect(terms[i].Token() < terms[i+1].Token()).To(BeTrue())
		}
	})
}

func TestCandidateThatIsStoppedDuringItsSplayWritesNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.candidate("a", election.WithSplay(time.Hour)).start()
		after(time.Millisecond)
		c.Stop()
		f.Expect(<-c.result).To(Succeed())
		after(time.Minute)
		f.Expect(f.record()).To(BeEmpty())
	})
}

func TestUnreachableServerAtTheStartIsWaitedForWithALogLine(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		c := f.candidate("a", election.WithLogger(log.logger()))
		c.link.Cut()
		c.start()
		after(time.Minute)
		f.Expect(c.State()).To(Equal(election.CandidateState))
		f.Expect(c.Status().LastError).NotTo(BeEmpty())
		f.Expect(log.count("Bucket cannot be reached, waiting for it")).To(Equal(1))
		c.link.Heal()
		after(5*time.Second + interval)
		f.Expect(c.IsLeader()).To(BeTrue())
		f.Expect(c.Status().LastError).To(BeEmpty())
	})
}

func TestStartReturnsNilOnceItsContextEndsAndMayBeCalledAgain(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.candidate("a")
		for range 3 {
			ctx, cancel := context.WithCancel(context.Background())
			c.startWith(ctx)
			after(interval)
			f.Expect(c.IsLeader()).To(BeTrue())
			f.Expect(c.Start(ctx)).To(MatchError(election.ErrAlreadyRunning))
			cancel()
			f.Expect(<-c.result).To(Succeed())
			f.Expect(c.IsLeader()).To(BeFalse())
			f.Expect(c.State()).To(Equal(election.UnknownState))
		}
		f.Expect(c.Status().Wins).To(BeEquivalentTo(3))
		f.Expect(c.Status().Losses).To(BeEquivalentTo(3))
	})
}

func TestStopIsFinalAndMayComeAtAnyTime(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		before := f.candidate("before")
		before.Stop()
		before.Stop()
		f.Expect(before.Start(context.Background())).To(MatchError(election.ErrStopped))
		f.Expect(f.record()).To(BeEmpty())

		c := f.leading("a")
		c.Stop()
		f.Expect(<-c.result).To(Succeed())
		c.Stop()
		f.Expect(c.Start(context.Background())).To(MatchError(election.ErrStopped))
	})
}

func TestStartWithAContextThatEndedWritesNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c := f.candidate("a")
		f.Expect(c.Start(ctx)).To(Succeed())
		f.Expect(f.record()).To(BeEmpty())
	})
}

func TestMetricsLogsAndStatusAgreeThatATermOfTheSameKeyIsLater(t *testing.T) {
	bucket := time.Unix(1_700_000_000, 0)
	earlier := election.Term{Bucket: bucket, Number: 9}
	for _, later := range []election.Term{
		{Bucket: bucket, Number: 10},
		{Bucket: bucket, Number: 1 << 40},
		{Bucket: bucket.Add(1), Number: 1},
	} {
		g := NewWithT(t)
		g.Expect(later.Compare(earlier)).To(Equal(1))
		g.Expect(earlier.Compare(later)).To(Equal(-1))
		g.Expect(later.Compare(later)).To(Equal(0))
		g.Expect(later.Token() > earlier.Token()).To(BeTrue())
	}
}

func TestTermsAreOrderedAcrossABucketThatWasDeletedAndMadeAgain(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.leading("a")
		for range 5 {
			f.write("intruder") // the revision grows
		}
		after(5 * ttl)
		before, _ := c.Term()
		f.Expect(before.Number).To(BeNumerically(">", 1))

		f.remake()
		after(3 * ttl)
		now, leads := c.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(now.Number).To(BeNumerically("<", before.Number))
		f.Expect(now.Compare(before)).To(Equal(1))
		f.Expect(now.Token() > before.Token()).To(BeTrue())
		f.Expect(before.Valid()).To(BeFalse())
	})
}

func TestResignHandsOverInOrderAndHoldsBackOneInterval(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.seen()).To(Equal([]string{"won 7.5s", "lost 7.5s"}))
		f.Expect(f.record()).To(ContainSubstring(`"released"`))

		// Nobody else is there, so it leads again, on its own release: without a stand-down, but not before its time.
		after(interval - instant)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		after(instant)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestResignIsRefusedToWhoDoesNotHoldTheKey(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		b := f.candidate("b")
		f.Expect(b.Resign(context.Background())).To(MatchError(election.ErrNotLeader))
		b.start()
		after(time.Second)
		f.Expect(b.Resign(context.Background())).To(MatchError(election.ErrNotLeader))
	})
}

func TestResignReturnsWhenItsContextEndsAndGoesOn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, letGo := f.hanging()
		a := f.leading("a", election.OnLost(hang))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f.Expect(a.Resign(ctx)).To(MatchError(context.DeadlineExceeded))
		f.Expect(f.record()).NotTo(ContainSubstring(`"released"`))
		letGo()
		synctest.Wait()
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestRunDoesTheWorkOncePerTermAndReturnsWhatItReturned(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.candidate("a")
		failure := errors.New("out of paper")
		terms := 0
		go func() {
			c.result <- c.Run(context.Background(), func(ctx context.Context, term election.Term) error {
				terms++
				f.Expect(term.Valid()).To(BeTrue())
				if terms == 3 {
					return failure
				}
				<-ctx.Done()
				f.Expect(context.Cause(ctx)).To(MatchError(election.ErrNotLeader))
				f.Expect(term.Valid()).To(BeFalse())
				return errors.New("of no interest")
			})
		}()
		after(interval)
		f.Expect(terms).To(Equal(1))
		f.write("intruder")
		after(interval + ttl + interval + interval)
		f.Expect(terms).To(Equal(2))
		f.Expect(c.Resign(context.Background())).To(Succeed())
		after(interval)
		f.Expect(<-c.result).To(MatchError(failure))
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
		f.Expect(c.seen()).To(Or(HaveLen(4), HaveLen(6)), "the third term may have been too short to be announced")
	})
}

func TestRunTakesItForAResignationWhenTheWorkWasToldThatItDoesNotLead(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.candidate("a")
		terms := 0
		go func() {
			c.result <- c.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
				if terms++; terms == 1 {
					return fmt.Errorf("the database refused it: %w", election.ErrNotLeader)
				}
				<-ctx.Done()
				return nil
			})
		}()
		after(interval + instant)
		f.Expect(terms).To(Equal(1))
		f.Expect(c.IsLeader()).To(BeFalse())
		f.Expect(f.record()).To(ContainSubstring(`"released"`), "others need not wait for it to expire")
		after(interval - 2*instant)
		f.Expect(c.State()).To(Equal(election.CandidateState), "it holds back")
		after(ttl)
		f.Expect(terms).To(Equal(2))
		f.Expect(c.IsLeader()).To(BeTrue())
		c.Stop()
		f.Expect(<-c.result).To(Succeed())
	})
}

func TestRunReturnsNilOnceStoppedAndTheWorkHasReturned(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.candidate("a")
		returned := false
		go func() {
			c.result <- c.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
				<-ctx.Done()
				time.Sleep(3 * ttl) // longer than the release timeout
				returned = true
				return ctx.Err()
			})
		}()
		after(interval)
		c.Stop()
		f.Expect(returned).To(BeTrue())
		f.Expect(<-c.result).To(Succeed())
	})
}

func TestPanicInTheWorkReleasesTheKeyAndIsReturned(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.candidate("a")
		go func() {
			c.result <- c.Run(context.Background(), func(context.Context, election.Term) error { panic("paper jam") })
		}()
		f.Expect(<-c.result).To(MatchError(ContainSubstring("paper jam")))
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestRunWithoutWorkIsRefused(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.Expect(f.candidate("a").Run(context.Background(), nil)).To(MatchError(election.ErrInvalidOption))
	})
}

func TestStatusTellsWhoLeadsAndEncodesAsJSON(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.WithMetadata(map[string]string{"zone": "eu"}))
		b := f.candidate("b").start()
		after(time.Second)

		s := a.Status()
		f.Expect(s.State).To(Equal(election.LeaderState))
		f.Expect(s.IsLeader).To(BeTrue())
		f.Expect(s.Leader.Name).To(Equal("a"))
		f.Expect(s.Bucket).To(Equal(natstest.BucketName))
		f.Expect(s.LeaseRemaining).To(Equal(lease - time.Second))
		f.Expect(s.TTL).To(Equal(ttl))
		f.Expect(s.CampaignInterval).To(Equal(interval))
		f.Expect(s.Wins).To(BeEquivalentTo(1))

		s = b.Status()
		f.Expect(s.IsLeader).To(BeFalse())
		f.Expect(s.Leader.Name).To(Equal("a"))
		f.Expect(s.Leader.Metadata).To(Equal(map[string]string{"zone": "eu"}))
		f.Expect(s.Leader.Expires.Sub(s.Leader.Renewed)).To(Equal(ttl))
		term, _ := a.Term()
		f.Expect(s.Term).To(Equal(term.Number))
		leader, err := b.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(leader).To(Equal(*s.Leader))
		var back election.Status
		f.Expect(roundTrip(s, &back)).To(Succeed())
		f.Expect(back.Leader.Name).To(Equal("a"))
		f.Expect(back.State).To(Equal(election.CandidateState))

		a.Stop()
		_, err = b.Leader(context.Background())
		f.Expect(err).To(MatchError(election.ErrNoLeader))
	})
}

func TestEverythingOverRealTCPWithAServerThatRestarts(t *testing.T) {
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	nc := s.Connect(t, nats.ReconnectBufSize(-1))
	bucket := s.Bucket(t, nc, 2*time.Second, natstest.WithMarkers)
	lost := make(chan struct{}, 1)
	e, err := election.NewElection("a", key, bucket, election.WithSplay(0), election.WithStandDown(0), election.OnLost(func() { lost <- struct{}{} }))
	g.Expect(err).NotTo(HaveOccurred())
	done := make(chan error, 1)
	go func() { done <- e.Start(context.Background()) }()
	g.Eventually(e.IsLeader, "5s", "1ms").Should(BeTrue())
	before, _ := e.Term()
	s.Restart(t, 100*time.Millisecond)
	g.Consistently(lost, "3s", "10ms").ShouldNot(Receive())
	now, leads := e.Term()
	g.Expect(leads).To(BeTrue())
	g.Expect(now).To(Equal(before))
	e.Stop()
	g.Expect(<-done).To(Succeed())
	g.Expect(lost).To(Receive())
	entry, err := bucket.Get(context.Background(), key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(entry.Value())).To(ContainSubstring(`"released"`))
}

func TestRunReturnsNilThoughTheWorkSawTheContextEndFirst(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for range 100 {
			c := f.candidate("a")
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				c.result <- c.Run(ctx, func(context.Context, election.Term) error {
					<-ctx.Done() // not the one it was given
					return ctx.Err()
				})
			}()
			after(interval)
			cancel()
			f.Expect(<-c.result).To(Succeed())
		}
	})
}

func TestStopWhileTheServerWasNeverReachedEndsTheElection(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		a.link.Cut()
		ctx, cancel := context.WithCancel(context.Background())
		a.startWith(ctx)
		after(time.Second)
		cancel()
		f.Expect(<-a.result).To(Succeed())
		f.Expect(a.State()).To(Equal(election.UnknownState))
	})
}

func TestWorkThatEndsItsGoroutineReleasesTheKeyAndIsReturnedAsAnError(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		go func() {
			a.result <- a.Run(context.Background(), func(context.Context, election.Term) error { runtime.Goexit(); return nil })
		}()
		f.Expect(<-a.result).To(MatchError(ContainSubstring("ended its goroutine")))
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestStatusOfAFollowerForgetsAnErrorOnceARequestSucceeded(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		b := f.candidate("b")
		b.link.Cut()
		b.start()
		after(10 * time.Second)
		f.Expect(b.Status().LastError).NotTo(BeEmpty())
		b.link.Heal()
		after(2 * ttl)
		f.Expect(b.Status().LastError).To(BeEmpty())
	})
}

func TestStatusOfALeaderElectNamesItAndNoDeadLeader(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b").start()
		a.link.Cut()
		for b.State() != election.LeaderElectState {
			after(time.Millisecond)
		}
		f.Expect(b.Status().Leader.Name).To(Equal("b"))
		f.Expect(b.Status().Term).To(BeZero(), "its leadership does not count yet")
	})
}

func TestStatusIsACopy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.WithMetadata(map[string]string{"zone": "eu"}))
		a.Status().Leader.Metadata["zone"] = "us"
		after(interval)
		f.Expect(f.record()).To(ContainSubstring(`"zone":"eu"`))
	})
}

func TestLeaderHasNoTermBeforeItsLeadershipCounts(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithStandDown(3*ttl)).start()
		after(2 * ttl)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		l, err := a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Term).To(BeZero())
		after(ttl)
		l, err = a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		term, _ := a.Term()
		f.Expect(l.Term).To(Equal(term.Number))
	})
}
