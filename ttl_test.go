package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
)

// changeTTL changes the TTL of the bucket as an operator does, with other tools than those of this module.
func (f *fleet) changeTTL(to time.Duration) {
	f.Helper()
	js, err := jetstream.New(f.Server.Connect(f.T))
	f.Expect(err).NotTo(HaveOccurred())
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
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := candidate("a").start()
				after(interval)
				b := candidate("b").start()
				after(interval + since)
				a.link.Cut()
				f.changeTTL(2 * time.Second)
				f.expectOneLeader(2*ttl, a, b)
				f.Expect(b.IsLeader()).To(BeTrue())
				f.Expect(b.Status().TTL).To(Equal(2 * time.Second))
			})
		})
	}
}

// The lease of a goes on although another candidate has led since, for a moment, and has released the key.
func TestLeaseThatBeganUnderALongerTTLIsRememberedAcrossATerm(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b").start()
		after(interval + time.Millisecond)
		a.link.Cut()
		f.changeTTL(2 * time.Second)
		hasty := f.strangerRelease()
		after(3 * time.Second) // the key has expired
		held := hasty
		held.Released, held.Secret, held.Successors = time.Time{}, [16]byte{}, nil
		f.Write(string(held.Encode())) // by somebody that knows nothing of the longer TTL
		after(time.Second)
		f.replace(hasty)
		f.expectOneLeader(ttl, a, b)
	}, republished)
}

// pretendExpiry stores what looks like the server's marker of an expiry.
func (f *fleet) pretendExpiry() {
	f.Helper()
	m := nats.NewMsg("$KV." + natstest.BucketName + "." + key)
	m.Header.Set("Nats-Marker-Reason", "MaxAge")
	_, err := f.Server.Connect(f.T).RequestMsg(m, time.Second)
	f.Expect(err).NotTo(HaveOccurred())
}

func TestExpiryThatCannotBeOneIsNoReasonToLeadEarly(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(2*interval + time.Millisecond)
		a.link.Cut()
		f.pretendExpiry()
		f.expectOneLeader(ttl, a, b)
		after(ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}
