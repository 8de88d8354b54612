package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/natscampaign/election"
)

// Unbound stands in for a bucket while there is no connection, so that name and key can be judged at once.
type Unbound struct{ jetstream.KeyValue }

// Bucket returns no name.
func (Unbound) Bucket() string { return "" }

// DefaultName returns a name that says which process of which host it is, and that no other process has.
func DefaultName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	unique := nuid.Next()
	return fmt.Sprintf("%.200s-%d-%s", host, os.Getpid(), unique[len(unique)-6:])
}

// CheckTTL refuses TTLs that elections cannot have.
func CheckTTL(ttl time.Duration) error {
	switch {
	case ttl < time.Second:
		return fmt.Errorf("--ttl %v is too short: servers expire keys up to 350ms late, so give at least 1s, better 2s", ttl)
	case ttl > time.Hour:
		return fmt.Errorf("--ttl %v is too long: nobody would lead for that time after a crash, so give at most 1h", ttl)
	}
	return nil
}

// CheckKey refuses what cannot be the key of an election, before anything is begun. It may be a pattern if that is of use.
func CheckKey(key string, pattern bool) error {
	plain := key
	if pattern {
		plain = withoutWildcards(key)
	}
	_, err := election.NewElection("name", plain, Unbound{})
	if err != nil && pattern {
		return fmt.Errorf("%q is neither a key nor a pattern of keys: use letters, digits, and - _ = / with single dots between them, * for any one part, or > for all the rest", key)
	}
	return InFlags(err)
}

// withoutWildcards returns a key that is as well formed as the pattern. A wildcard that is no part of its own stays, for
// it stands for nothing but itself.
func withoutWildcards(pattern string) string {
	parts := strings.Split(pattern, ".")
	for i, part := range parts {
		if part == "*" || part == ">" && i == len(parts)-1 {
			parts[i] = "x"
		}
	}
	return strings.Join(parts, ".")
}
