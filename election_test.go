package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestLeadershipCountsOnlyFromTheWinnersNextSuccessfulCampaign(t *testing.T) {
	Run(t, func(f *Fleet) {
		c := f.Candidate("a").Begin()
		f.Expect(c.State()).To(Equal(election.LeaderElectState))
		f.Expect(c.IsLeader()).To(BeFalse())
		_, leads := c.Term()
		f.Expect(leads).To(BeFalse())

		After(Interval - Instant)
		f.Expect(c.State()).To(Equal(election.LeaderElectState))
		f.Expect(c.Seen()).To(BeEmpty())

		After(Instant)
		f.Expect(c.State()).To(Equal(election.LeaderState))
		f.Expect(c.IsLeader()).To(BeTrue())
		f.Expect(c.Seen()).To(Equal([]string{"won 7.5s"}))
		term, leads := c.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(term.Valid()).To(BeTrue())
	})
}

func TestAtMostOneCandidateLeadsThroughEveryFault(t *testing.T) {
	Run(t, func(f *Fleet) {
		var all []*Candidate
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			all = append(all, f.Candidate(name, election.WithSplay(5*time.Second)).Begin())
		}
		leader := func() *Candidate {
			var found *Candidate
			for _, c := range all {
				if c.IsLeader() {
					f.Expect(found).To(BeNil(), "two leaders")
					found = c
				}
			}
			return found
		}
		// until returns the next leader other than old, which must lead within the bound.
		until := func(old *Candidate, bound time.Duration) *Candidate {
			for began := time.Now(); time.Since(began) <= bound; After(time.Millisecond) {
				if now := leader(); now != nil && now != old {
					return now
				}
			}
			f.Fatalf("no leader within %v", bound)
			return nil
		}
		const late = 400 * time.Millisecond // how late a server may expire a key
		crash := TTL + late + Interval + Interval
		now := until(nil, 5*time.Second+Interval)
		terms := []election.Term{}
		for range UnlessShort(4, 2) {
			term, _ := now.Term()
			terms = append(terms, term)
			f.Expect(now.Resign(context.Background())).To(Succeed())
			now = until(now, Interval+time.Millisecond)

			now.Link.Cut()
			dead := now
			now = until(dead, crash)
			dead.Link.Heal()

			f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
			After(Interval + time.Millisecond)
			now = until(now, crash)

			now.Link.Stall()
			dead = now
			now = until(dead, crash)
			dead.Link.Heal()
		}
		for i := range terms[1:] {
			f.Expect(terms[i].Compare(terms[i+1])).To(Equal(-1))
			f.Expect(terms[i].Token() < terms[i+1].Token()).To(BeTrue())
		}
	})
}

func TestCandidateStoppedDuringItsSplayWritesNothing(t *testing.T) {
	Run(t, func(f *Fleet) {
		c := f.Candidate("a", election.WithSplay(time.Hour)).Begin()
		After(time.Millisecond)
		c.End()
		f.Expect(<-c.Result).To(Succeed())
		After(time.Minute)
		f.Expect(f.Record()).To(BeEmpty())
	})
}

func TestStartWaitsForAnUnreachableServer(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		c := f.Candidate("a", election.WithLogger(log.Logger()))
		c.Link.Cut()
		c.Begin()
		After(time.Minute)
		f.Expect(c.State()).To(Equal(election.CandidateState))
		f.Expect(c.Status().LastError).NotTo(BeEmpty())
		f.Expect(log.Count("Bucket cannot be reached, waiting for it")).To(Equal(1))
		c.Link.Heal()
		After(5*time.Second + Interval)
		f.Expect(c.IsLeader()).To(BeTrue())
		f.Expect(c.Status().LastError).To(BeEmpty())
	})
}

func TestStartReturnsNilWhenItsContextEndsAndMayBeCalledAgain(t *testing.T) {
	Run(t, func(f *Fleet) {
		c := f.Candidate("a")
		for range 3 {
			ctx, cancel := context.WithCancel(context.Background())
			c.BeginWith(ctx)
			After(Interval)
			f.Expect(c.IsLeader()).To(BeTrue())
			f.Expect(c.Start(ctx)).To(MatchError(election.ErrAlreadyRunning))
			cancel()
			f.Expect(<-c.Result).To(Succeed())
			f.Expect(c.IsLeader()).To(BeFalse())
			f.Expect(c.State()).To(Equal(election.UnknownState))
		}
		f.Expect(c.Status().Wins).To(BeEquivalentTo(3))
		f.Expect(c.Status().Losses).To(BeEquivalentTo(3))
	})
}

func TestStopIsFinal(t *testing.T) {
	Run(t, func(f *Fleet) {
		before := f.Candidate("before")
		before.End()
		before.End()
		f.Expect(before.Start(context.Background())).To(MatchError(election.ErrStopped))
		f.Expect(f.Record()).To(BeEmpty())

		c := f.Leading("a")
		c.End()
		f.Expect(<-c.Result).To(Succeed())
		c.End()
		f.Expect(c.Start(context.Background())).To(MatchError(election.ErrStopped))
	})
}

func TestStopReturnsAtOnceWhileACallbackHangs(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, unblock := f.Hanging()
		a := f.Leading("a", election.OnWon(hang))
		began := time.Now()
		a.Stop()
		f.Expect(time.Since(began)).To(BeZero())
		f.Expect(a.IsLeader()).To(BeFalse())
		After(time.Second)
		f.Expect(a.Result).NotTo(Receive(), "Start waits for the callback")
		unblock()
		f.Expect(<-a.Result).To(Succeed())
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
	})
}

func TestShutdownWaitsForTheRunOrForItsContext(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, unblock := f.Hanging()
		a := f.Leading("a", election.OnWon(hang))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		f.Expect(a.Shutdown(ctx)).To(MatchError(context.DeadlineExceeded))
		f.Expect(time.Since(began)).To(Equal(time.Second))
		time.AfterFunc(2*time.Second, unblock)
		f.Expect(a.Shutdown(context.Background())).To(Succeed())
		f.Expect(time.Since(began)).To(Equal(3 * time.Second))
		f.Expect(f.Record()).To(ContainSubstring(`"released"`), "the key is released before Shutdown returns")
		f.Expect(a.Shutdown(ctx)).To(Succeed(), "nothing runs any more")
	})
}

func TestStartWithAnEndedContextWritesNothing(t *testing.T) {
	Run(t, func(f *Fleet) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c := f.Candidate("a")
		f.Expect(c.Start(ctx)).To(Succeed())
		f.Expect(f.Record()).To(BeEmpty())
	})
}

func TestTermSurvivesAServerRestart(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	nc := s.Connect(t, nats.ReconnectBufSize(-1))
	bucket := s.Bucket(t, nc, time.Minute, natstest.WithMarkers)
	lost := make(chan struct{}, 1)
	e, err := election.NewElection("a", Key, bucket, election.WithSplay(0), election.WithStandDown(0),
		election.WithCampaignInterval(100*time.Millisecond), election.OnLost(func() { lost <- struct{}{} }))
	g.Expect(err).NotTo(HaveOccurred())
	done := make(chan error, 1)
	go func() { done <- e.Start(context.Background()) }()
	g.Eventually(e.IsLeader, "20s", "1ms").Should(BeTrue())
	before, _ := e.Term()
	revision := func() (uint64, error) {
		entry, err := bucket.Get(context.Background(), Key)
		if err != nil {
			return 0, err
		}
		return entry.Revision(), nil
	}
	s.Stop()
	s.Resume(t)
	var last uint64
	g.Eventually(func() (err error) { last, err = revision(); return err }, "20s", "10ms").Should(Succeed())
	g.Eventually(revision, "20s", "10ms").Should(BeNumerically(">", last), "the lease is renewed")
	g.Expect(lost).NotTo(Receive())
	now, leads := e.Term()
	g.Expect(leads).To(BeTrue())
	g.Expect(now).To(Equal(before))
	e.Stop()
	g.Expect(<-done).To(Succeed())
	g.Expect(lost).To(Receive())
	entry, err := bucket.Get(context.Background(), Key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(entry.Value())).To(ContainSubstring(`"released"`))
}

func TestStartReturnsThoughTheServerWasNeverReached(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a")
		a.Link.Cut()
		ctx, cancel := context.WithCancel(context.Background())
		a.BeginWith(ctx)
		After(time.Second)
		cancel()
		f.Expect(<-a.Result).To(Succeed())
		f.Expect(a.State()).To(Equal(election.UnknownState))
	})
}
