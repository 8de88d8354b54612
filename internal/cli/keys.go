package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// PlaceholderBucket takes the place of a bucket when a command validates a name and a key before it connects.
type PlaceholderBucket struct{ jetstream.KeyValue }

// Bucket returns an empty name.
func (PlaceholderBucket) Bucket() string { return "" }

// Host returns the name of this host, at most 200 bytes of it.
func Host() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return fmt.Sprintf("%.200s", host)
}

// DefaultName returns a unique name for a candidate, which contains the host and the process id.
func DefaultName() string {
	unique := nuid.Next()
	return fmt.Sprintf("%s-%d-%s", Host(), os.Getpid(), unique[len(unique)-6:])
}

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

// CheckKey returns an error if key is not a valid key of an election. With pattern, wildcards are valid as well.
func CheckKey(key string, pattern bool) error {
	if pattern {
		return AsFlagError(validate.Pattern(key))
	}
	return AsFlagError(validate.Key(key))
}
