package standdown_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/settings"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// changeTTL changes the TTL of the bucket as an operator does, with other tools than those of this module.
func changeTTL(f *Fleet, to time.Duration) {
	f.Helper()
	js := f.JetStream()
	s, err := js.Stream(context.Background(), "KV_"+natstest.BucketName)
	f.Expect(err).NotTo(HaveOccurred())
	cfg := s.CachedInfo().Config
	cfg.MaxAge, cfg.Duplicates = to, min(cfg.Duplicates, to)
	_, err = js.UpdateStream(context.Background(), cfg)
	f.Expect(err).NotTo(HaveOccurred())
}

func TestWinnerWaitsForALeaseThatBeganUnderALongerTTL(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, since := range map[string]time.Duration{"just renewed": time.Millisecond, "renewed some time ago": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				a := candidate("a").Begin()
				After(Interval)
				b := candidate("b").Begin()
				After(Interval + since)
				a.Link.Cut()
				changeTTL(f, 2*time.Second)
				f.ExpectOneLeader(2*TTL, a, b)
				f.Expect(b.IsLeader()).To(BeTrue())
				f.Expect(b.Status().TTL).To(Equal(2 * time.Second))
			})
		})
	}
}

// The leader has loaded the bucket's info when it won. The followers were told nothing, as if the message to refresh had been lost: they learn of the longer
// TTL by what the leader's record says.
func TestNobodyTakesOverALeaseThatALongerTTLAllows(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, opts := range map[string][]election.Option{"three quarters of the TTL": nil, "a quarter of it": {settings.ShortInterval}} {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, leader cut off %v", name, cut), func(t *testing.T) {
				Run(t, func(f *Fleet) {
					a := f.Connected("a", opts...).Begin()
					After(Interval)
					b, c := f.Connected("b", opts...).Begin(), f.Connected("c", opts...).Begin()
					After(Interval)
					changeTTL(f, 6*TTL)
					a.Link.Cut()
					for !b.IsLeader() && !c.IsLeader() {
						f.ExpectOneLeader(time.Second, a, b, c)
					}
					leader, other := b, c
					if c.IsLeader() {
						leader, other = c, b
					}
					f.Expect(leader.Status().TTL).To(Equal(6 * TTL))
					if cut {
						for leader.Status().LeaseRemaining < 2*TTL { // until it has renewed
							After(time.Second)
						}
						leader.Link.Cut()
					}
					f.ExpectOneLeader(6*TTL, a, b, c)
					f.Expect(other.IsLeader()).To(Equal(cut))
				}, Republished)
			})
		}
	}
}

// The lease of a goes on although another candidate has led since, for a moment, and has released the key.
func TestLeaseThatBeganUnderALongerTTLIsRememberedAcrossATerm(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		b := f.Connected("b").Begin()
		After(Interval + time.Millisecond)
		a.Link.Cut()
		changeTTL(f, 2*time.Second)
		hasty := f.StrangerRelease()
		After(3 * time.Second) // the key has expired
		held := hasty
		held.Released, held.Secret, held.Successors = time.Time{}, [16]byte{}, nil
		f.Write(string(held.Encode())) // by somebody that knows nothing of the longer TTL
		After(time.Second)
		f.Replace(hasty)
		f.ExpectOneLeader(TTL, a, b)
	}, Republished)
}

// pretendExpiry stores what looks like the server's marker of an expiry.
func pretendExpiry(f *Fleet) {
	f.Helper()
	m := nats.NewMsg("$KV." + natstest.BucketName + "." + Key)
	m.Header.Set("Nats-Marker-Reason", "MaxAge")
	_, err := f.Server.Connect(f.T).RequestMsg(m, time.Second)
	f.Expect(err).NotTo(HaveOccurred())
}

func TestExpiryThatCannotBeOneIsNoReasonToLeadEarly(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a").Begin()
		After(Interval)
		b := candidate("b").Begin()
		After(2*Interval + time.Millisecond)
		a.Link.Cut()
		pretendExpiry(f)
		f.ExpectOneLeader(TTL, a, b)
		After(TTL)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}
