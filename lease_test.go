package election_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestLeaderStandsDownBeforeItsLeaseEndsWhenCutOff(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		term, _ := a.Term()
		after(time.Second)
		a.link.Cut()
		f.Expect(term.Deadline()).To(BeTemporally("==", time.Now().Add(lease-time.Second)))
		after(lease - time.Second - instant)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(term.Valid()).To(BeTrue())
		after(instant)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(term.Valid()).To(BeFalse())
		f.Expect(a.State()).To(Equal(election.CandidateState))
		f.Expect(a.seen()).To(Equal([]string{"won 7.5s", "lost 16.5s"}), "no later than the deadline")
		f.Expect(f.record()).NotTo(BeEmpty(), "the key outlives the lease")
	})
}

func TestLeaseCountsFromTheSendingOfTheRenewal(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		const delay = 50 * time.Millisecond
		a.link.DelayReplies(delay)
		after(interval + delay)
		term, _ := a.Term()
		f.Expect(term.Deadline()).To(BeTemporally("==", time.Now().Add(lease-delay)))
	})
}

func TestHangingRequestDoesNotExtendLeadership(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c, bucket := f.faultyCandidate("a")
		ended := false
		hang, unblock := f.Hanging()
		c.run(func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			ended = true
			return nil
		})
		after(interval)
		f.Expect(c.IsLeader()).To(BeTrue())
		bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
			hang() // beyond the end of its context
			return 0, context.Canceled
		})
		after(lease - instant)
		f.Expect(c.IsLeader()).To(BeTrue(), "while a renewal hangs")
		after(instant)
		f.Expect(c.IsLeader()).To(BeFalse())
		f.Expect(ended).To(BeTrue(), "the work's context ended")
		f.Expect(c.seen()).To(Equal([]string{"won 7.5s", "lost 16.5s"}))
		unblock()
		c.shutdown()
	})
}

func TestLateAcknowledgementDoesNotExtendTheLease(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c, bucket := f.faultyCandidate("a")
		c.start()
		after(interval)
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			rev, err := update()
			time.Sleep(lease) // a pause, of the process or of the network
			return rev, err
		})
		after(interval + lease)
		f.Expect(c.IsLeader()).To(BeFalse())
		f.Expect(c.seen()).To(Equal([]string{"won 7.5s", "lost 16.5s"}))
	})
}

func TestDelayedRepliesNeverMakeTwoLeaders(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b").start()
		a.link.StallReplies()
		for range 60_000 {
			after(time.Millisecond)
			f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
		}
		f.Expect(b.IsLeader()).To(BeTrue())
		a.link.Heal()
		for range 30_000 {
			after(time.Millisecond)
			f.Expect(a.IsLeader()).To(BeFalse())
		}
	})
}

func TestNoRenewalOutlastsTheLeaseOrBeginsInItsLastMoments(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c, bucket := f.faultyCandidate("a")
		c.start()
		after(interval)
		term, _ := c.Term()
		tries := 0
		bucket.onUpdate(func(ctx context.Context, _ []byte, _ uint64, _ func() (uint64, error)) (uint64, error) {
			tries++
			ends, bounded := ctx.Deadline()
			f.Expect(bounded).To(BeTrue())
			f.Expect(ends).To(BeTemporally("<", term.Deadline()))
			f.Expect(time.Until(term.Deadline())).To(BeNumerically(">=", 25*time.Millisecond))
			return 0, context.DeadlineExceeded
		})
		after(lease)
		f.Expect(c.IsLeader()).To(BeFalse())
		f.Expect(tries).To(BeNumerically(">", 5))
	})
}
