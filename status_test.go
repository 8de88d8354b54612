package election_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestStatusOfAFollowerNeverGoesBack(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(10 * interval)
		before := b.Status().Leader.Revision
		b.link.LoseRequests(toKey) // so that no campaign reads it again soon
		b.link.Disconnect()
		for range 200 {
			after(10 * time.Millisecond)
			f.Expect(b.Status().Leader.Revision).To(BeNumerically(">=", before))
		}
	})
}

func TestStatusDoesNotGiveALeaderThatLetGoAnotherTTL(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(5 * interval)
		b.link.LoseRequests(toKey)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(time.Second)
		if l := b.Status().Leader; l != nil {
			f.Expect(l.Expires).To(BeTemporally("<", time.Now().Add(ttl-1500*time.Millisecond)))
		}
	})
}
