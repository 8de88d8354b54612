package election_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
	. "github.com/natscampaign/election/internal/test/fleettest"
)

// A write as by a copy of the leader's process, which a machine that was cloned runs.
func TestLeaderWithACopyStandsDownAndTakesAnotherInstance(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		var log Log
		a := candidate("a", election.WithLogger(log.Logger())).Begin()
		After(Interval)
		before := a.Status().Instance
		r := f.Stored()
		r.Attempt = record.NewID()
		f.Replace(r)
		After(Instant)
		After(Interval) // at the latest by the renewal that is refused
		f.Expect(a.State()).To(Equal(election.CandidateState))
		f.Expect(a.Seen()).To(HaveLen(2), "won and lost")
		f.Expect(a.Status().Instance).NotTo(Equal(before))
		f.Expect(log.Count("reason=cloned")).To(Equal(1))
		f.Expect(log.Count("Another process writes as this very candidate")).To(Equal(1))
		After(3 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue(), "it goes on as another candidate")
	})
}

// It needs -race to fail. A transfer that is under way looks for its target while the candidate begins to campaign as another instance.
func TestTransferIsSafeWhileItsCandidateTakesAnotherInstance(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		var findReady func(ctx context.Context, to string) error
		var transfers sync.WaitGroup
		a := candidate("a", election.WithDebug(func(format string, args ...any) {
			if strings.Contains(fmt.Sprintf(format, args...), "going on as another instance") {
				transfers.Go(func() {
					for range 3000 { // without a wait in which time passes
						_ = findReady(context.Background(), "b")
					}
				})
			}
		})).Begin()
		After(Interval)
		candidate("b").Begin()
		After(Interval)
		findReady = election.FindReady(a.Election)
		before, r := a.Status().Instance, f.Stored()
		r.Attempt = record.NewID()
		f.Replace(r)
		After(Interval)
		f.Expect(a.Status().Instance).NotTo(Equal(before))
		transfers.Wait()
	})
}

func TestCandidateWithTheInstanceOfTheLeaderTakesAnother(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a").Begin()
		After(Interval)
		b := candidate("a")
		election.SetInstance(b.Election, a.Status().Instance)
		b.Begin()
		After(Instant)
		f.Expect(b.Status().Instance).NotTo(Equal(a.Status().Instance))
		f.ExpectOneLeader(2*TTL, a, b)
		f.Expect(a.IsLeader()).To(BeTrue(), "the leader is not disturbed")
		a.End()
		After(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestTwoCopiesOfOneCandidateNeverLeadTogetherForLongerThanAnInterval(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.Connected("a"), f.Connected("a")
		election.SetInstance(b.Election, a.Status().Instance)
		a.Begin()
		b.Begin()
		f.ExpectOneLeader(5*TTL, a, b)
		f.Expect(a.Status().Instance).NotTo(Equal(b.Status().Instance))
		f.Expect(a.IsLeader() || b.IsLeader()).To(BeTrue())
	}, Republished)
}

// One who has another process store given bytes may store what a candidate wrote before.
func TestOwnRecordThatSomebodyStoresAgainWinsNothing(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Unnotified("a", election.WithStandDown(0)).Begin()
		After(2*Interval + time.Second)
		last := f.Stored()
		a.Link.Cut()
		b := f.Connected("b").Begin()
		After(3 * TTL)
		a.Link.Heal()
		After(2 * TTL)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.AwaitWrite()
		b.Link.Cut() // just after it has renewed its lease
		f.Replace(last)
		f.ExpectOneLeader(TTL, a, b)
		After(2 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

// A late write of a candidate's own is no write of a copy.
func TestOwnLateWriteIsNoCopy(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, bucket := f.FaultyCandidate("a")
		lost := false
		bucket.OnUpdate(func(ctx context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			revision, err := update()
			if !lost {
				lost = true
				return 0, context.DeadlineExceeded // it was applied, and the reply was lost
			}
			return revision, err
		})
		a.Begin()
		instance := a.Status().Instance
		After(4 * TTL)
		f.Expect(lost).To(BeTrue())
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().Instance).To(Equal(instance))
	})
}

// The reply to a renewal comes after the deadline: the record is the candidate's own all the same.
func TestOwnWriteThatIsAcknowledgedAfterTheDeadlineIsNoCopy(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, bucket := f.FaultyCandidate("a")
		a.Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		instance, late := a.Status().Instance, false
		bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			if !late {
				late = true
				defer time.Sleep(Lease + time.Second)
			}
			return update()
		})
		After(5 * TTL)
		f.Expect(late).To(BeTrue())
		f.Expect(a.Seen()).To(HaveLen(3), "won, lost, and won again")
		f.Expect(a.Status().Instance).To(Equal(instance))
	})
}
