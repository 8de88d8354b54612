package cli

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestEachDifferenceOfAnExistingBucketIsListed(t *testing.T) {
	g := NewWithT(t)
	found := differences(jetstream.KeyValueConfig{TTL: time.Minute, History: 5, Replicas: 1, LimitMarkerTTL: time.Minute},
		election.BucketConfig{TTL: time.Minute, Replicas: 1}, time.Second)
	g.Expect(found).To(ConsistOf(
		ContainSubstring("history: 5 instead of 1"), ContainSubstring("expiry markers: 1m0s instead of 1s"), ContainSubstring("changes: not republished instead of republished"),
	))
}
