package cli

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestABucketThatWasMadeOtherwiseIsNoneThatIsAskedFor(t *testing.T) {
	g := NewWithT(t)
	odd := differences(jetstream.KeyValueConfig{TTL: time.Minute, History: 5, Replicas: 1, LimitMarkerTTL: time.Minute},
		election.BucketConfig{TTL: time.Minute, Replicas: 1}, time.Second)
	g.Expect(odd).To(ConsistOf(
		ContainSubstring("history: 5, where 1"), ContainSubstring("expiry markers: for 1m0s, where for 1s"), ContainSubstring("changes: not republished"),
	))
}
