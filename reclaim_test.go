package election_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
)

// What follows is about the stand-down that a candidate owes which takes over a write of its own: that of the write at least.

// hasty are options of a candidate that leads as soon as it may, and finds soon what it has written.
var hasty = []election.Option{election.WithStandDown(0), election.WithCampaignInterval(ttl / 5)}

// neverTogether expects that two candidates never lead together, and that the second does in the end.
func (f *fleet) neverTogether(a, b *candidate) {
	f.Helper()
	for range 3 * ttl / (5 * time.Millisecond) {
		after(5 * time.Millisecond)
		f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
	}
	f.Expect(b.IsLeader()).To(BeTrue())
}

func TestDeletionThatWasHeardIsRememberedByWhoeverTakesOverItsOwnWin(t *testing.T) {
	for name, disturb := range map[string]func(*candidate){
		"its reply was lost": func(b *candidate) { b.link.LoseReplies(once(toKeyReply)) },
		"its reply was lost, and it was not read at once": func(b *candidate) {
			b.link.LoseReplies(once(toKeyReply))
			b.link.LoseRequests(once(func(m link.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") }))
		},
		"the replies to it and to the write over it were lost": func(b *candidate) {
			first, second := once(toKeyReply), once(toKeyReply)
			b.link.LoseReplies(func(m link.Message) bool { return first(m) || second(m) })
		},
		"the bucket could not be looked at": func(b *candidate) {
			b.link.LoseRequests(once(func(m link.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") }))
		},
		"the release of it was lost": func(b *candidate) {
			time.AfterFunc(time.Second, func() {
				b.link.LoseRequests(toKey)
				go func() { _ = b.Resign(context.Background()) }()
			})
			time.AfterFunc(4*time.Second, b.link.Heal)
		},
		"the release of it was lost after a renewal": func(b *candidate) {
			time.AfterFunc(2500*time.Millisecond, func() {
				b.link.LoseRequests(toKey)
				go func() { _ = b.Resign(context.Background()) }()
			})
			time.AfterFunc(5500*time.Millisecond, b.link.Heal)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
				a := candidate("a").start()
				b := candidate("b", hasty...).start()
				after(3*interval + instant) // just after a renewal
				f.Expect(a.IsLeader()).To(BeTrue())
				a.link.LoseRequests(nil)
				disturb(b)
				f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
				f.neverTogether(a, b)
			})
		})
	}
}

func TestStandDownThatWasPassedOnIsRememberedByWhoeverTakesOverItsOwnWin(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(2*interval + instant) // just after a renewal
		a.link.LoseRequests(nil)
		f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
		after(time.Second)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		c := candidate("c", hasty...).start()
		after(time.Second)
		c.link.LoseReplies(once(toKeyReply))
		b.Stop() // and passes on what is left
		f.neverTogether(a, c)
	})
}
