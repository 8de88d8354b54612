package kv

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/timing"
)

func TestABucketNeedsATTLThatOutlastsTheLeasesOfItsHolders(t *testing.T) {
	g := NewWithT(t)
	for _, ttl := range []time.Duration{timing.MinTTL, 1234567 * time.Microsecond, 15 * time.Second, 47 * time.Minute} {
		lease := (ttl - timing.DefaultMargin(ttl)).Truncate(time.Millisecond) // as a record states it
		needed := Holder{Lease: lease}.neededTTL(0)
		g.Expect(needed).To(BeNumerically("~", ttl, 2*time.Millisecond), "the TTL that the bucket had")
		g.Expect(needed - timing.DefaultMargin(needed)).To(BeNumerically(">=", lease-time.Nanosecond))
	}
	const s = time.Second
	for _, c := range []struct{ lease, noted, needed time.Duration }{
		{0, 0, timing.MaxTTL}, {0, 15 * s, 15 * s}, // which states none
		{15 * s, 15 * s, 15 * s}, {14 * s, 15 * s, 15 * s}, // with a margin that is shorter than by default
		{9 * s, 15 * s, 10 * s}, {27 * s, 15 * s, 30 * s}, // the bucket has had another TTL too
	} {
		g.Expect(Holder{Lease: c.lease}.neededTTL(c.noted)).To(Equal(c.needed), "%v", c)
	}
}

func TestWhatIsNoElectionsIsToldFromRecordsAndNames(t *testing.T) {
	g := NewWithT(t)
	for key, group := range map[string]bool{"a.plan": true, "a.b.planner": true, "a.lists.x": true, "plan": false, "a.plans": false, "lists.x": false} {
		g.Expect(isGroupKey(key)).To(Equal(group), key)
	}
	for text, name := range map[string]bool{"web-1": true, "web 1": true, "": false, "{}": false, "[1]": false, "a\nb": false, " a": false, "\xff": false} {
		g.Expect(isName(text)).To(Equal(name), "%q", text)
	}
}
