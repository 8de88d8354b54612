package lease_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
)

func TestLeaderStandsDownBeforeItsLeaseEndsWhenCutOff(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		term, _ := a.Term()
		After(time.Second)
		a.Link.Cut()
		f.Expect(term.Deadline()).To(BeTemporally("==", time.Now().Add(Lease-time.Second)))
		After(Lease - time.Second - Instant)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(term.Valid()).To(BeTrue())
		After(Instant)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(term.Valid()).To(BeFalse())
		f.Expect(a.State()).To(Equal(election.CandidateState))
		f.Expect(a.Seen()).To(Equal([]string{"won 7.5s", "lost 16.5s"}), "no later than the deadline")
		f.Expect(f.Record()).NotTo(BeEmpty(), "the key outlives the lease")
	})
}

func TestLeaseCountsFromTheSendingOfTheRenewal(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		const delay = 50 * time.Millisecond
		a.Link.DelayReplies(delay)
		After(Interval + delay)
		term, _ := a.Term()
		f.Expect(term.Deadline()).To(BeTemporally("==", time.Now().Add(Lease-delay)))
	})
}

func TestHangingRequestDoesNotExtendLeadership(t *testing.T) {
	Run(t, func(f *Fleet) {
		c, bucket := f.FaultyCandidate("a")
		ended := false
		hang, unblock := f.Hanging()
		c.BeginRun(func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			ended = true
			return nil
		})
		After(Interval)
		f.Expect(c.IsLeader()).To(BeTrue())
		bucket.OnUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
			hang() // beyond the end of its context
			return 0, context.Canceled
		})
		After(Lease - Instant)
		f.Expect(c.IsLeader()).To(BeTrue(), "while a renewal hangs")
		After(Instant)
		f.Expect(c.IsLeader()).To(BeFalse())
		f.Expect(ended).To(BeTrue(), "the work's context ended")
		f.Expect(c.Seen()).To(Equal([]string{"won 7.5s", "lost 16.5s"}))
		unblock()
		c.End()
	})
}

func TestLateAcknowledgementDoesNotExtendTheLease(t *testing.T) {
	Run(t, func(f *Fleet) {
		c, bucket := f.FaultyCandidate("a")
		c.Begin()
		After(Interval)
		bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			rev, err := update()
			time.Sleep(Lease) // a pause, of the process or of the network
			return rev, err
		})
		After(Interval + Lease)
		f.Expect(c.IsLeader()).To(BeFalse())
		f.Expect(c.Seen()).To(Equal([]string{"won 7.5s", "lost 16.5s"}))
	})
}

func TestDelayedRepliesNeverMakeTwoLeaders(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b := f.Candidate("b").Begin()
		a.Link.StallReplies()
		for range 60_000 {
			After(time.Millisecond)
			f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
		}
		f.Expect(b.IsLeader()).To(BeTrue())
		a.Link.Heal()
		for range 30_000 {
			After(time.Millisecond)
			f.Expect(a.IsLeader()).To(BeFalse())
		}
	})
}

func TestNoRenewalOutlastsTheLeaseOrBeginsInItsLastMoments(t *testing.T) {
	Run(t, func(f *Fleet) {
		c, bucket := f.FaultyCandidate("a")
		c.Begin()
		After(Interval)
		term, _ := c.Term()
		tries := 0
		bucket.OnUpdate(func(ctx context.Context, _ []byte, _ uint64, _ func() (uint64, error)) (uint64, error) {
			tries++
			ends, bounded := ctx.Deadline()
			f.Expect(bounded).To(BeTrue())
			f.Expect(ends).To(BeTemporally("<", term.Deadline()))
			f.Expect(time.Until(term.Deadline())).To(BeNumerically(">=", 25*time.Millisecond))
			return 0, context.DeadlineExceeded
		})
		After(Lease)
		f.Expect(c.IsLeader()).To(BeFalse())
		f.Expect(tries).To(BeNumerically(">", 5))
	})
}
