package claims

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
)

// A reader found it: another server led the stream, whose clock was behind by more than a lease, and all leaders seemed to have lost theirs.
func TestClockOfTheServerFollowsWhatItWrites(t *testing.T) {
	const ttl = 5 * time.Second
	for name, ahead := range map[string]time.Duration{"a clock that is ahead": time.Minute, "one that is behind": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			g, now := NewWithT(t), time.Now()
			k := NewKeys(kv.Info{SessionTTL: ttl, Read: now, Stream: &jetstream.StreamInfo{TimeStamp: now.Add(ahead)}})
			k.followClock(now)
			g.Expect(k.info.Now()).To(BeTemporally("~", now.Add(ahead), ttl/2), "what was stored before says nothing")
			k.Take(nil)
			k.followClock(now)
			g.Expect(k.info.Now()).To(BeTemporally("~", now, ttl/2))
		})
	}
}
