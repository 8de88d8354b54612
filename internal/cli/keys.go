package cli

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/dial"
	"github.com/natscampaign/election/internal/timing"
)

// PlaceholderBucket takes the place of a bucket when a command validates a name and a key before it connects.
type PlaceholderBucket struct{ jetstream.KeyValue }

// Bucket returns an empty name.
func (PlaceholderBucket) Bucket() string { return "" }

// Host returns the name of this host.
func Host() string { return cmp.Or(dial.Host(), "unknown") }

// DefaultName returns the name of a candidate that is given none.
func DefaultName() string { return cmp.Or(dial.DefaultName(), "unknown-"+strconv.Itoa(os.Getpid())) }

// CheckTTL returns an error for a TTL that is too short or too long for elections.
func CheckTTL(ttl time.Duration) error {
	switch {
	case ttl < timing.MinTTL:
		return fmt.Errorf("--ttl %v is too short: servers expire keys up to %v late, so give at least %v, better 2s", ttl, timing.ExpiryLateness, timing.MinTTL)
	case ttl > timing.MaxTTL:
		return fmt.Errorf("--ttl %v is too long: after a crash there would be no leader for that time, so give at most 1h", ttl)
	}
	return nil
}
