package kv

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/record"
)

// Removal is how a key became free.
type Removal uint8

// The removals.
const (
	Kept             Removal = iota // the key is not free: a record is stored
	Removed                         // deleted or purged by somebody
	Expired                         // by the server, at the end of the TTL
	RemovedOrExpired                // the source of notifications does not distinguish them
	Gone                            // nothing is stored under the key, not even a marker
)

// State is what is stored under a key, as it was read from the bucket.
type State struct {
	Read     time.Time // just before the request was sent; zero if the key has not been read
	Revision uint64    // 0 if nothing is stored
	Written  time.Time // by the server's clock
	Removal  Removal
	Record   record.Record // empty unless a record is stored
}

// Vacant reports whether the key may be taken.
func (s State) Vacant() bool {
	_, released := s.Record.IsRelease()
	return s.Removal != Kept || released
}

// Held reports whether a candidate holds the key.
func (s State) Held() bool { return !s.Read.IsZero() && !s.Vacant() }

// HeldBy reports whether the candidate of the given instance holds the key.
func (s State) HeldBy(instance string) bool { return s.Held() && s.Record.Instance == instance }

// stateOf returns the state that a message of the bucket's stream makes.
func stateOf(header nats.Header, revision uint64, written time.Time, value []byte) State {
	s := State{Revision: revision, Written: written, Removal: RemovalOf(header)}
	if s.Removal == Kept {
		s.Record = record.Parse(value, revision)
	}
	return s
}

// HeaderOperation is the header that a client of the bucket gives to a deletion or a purge.
const HeaderOperation = "KV-Operation"

// RemovalOf returns what the header of a message of the bucket's stream says about a removal.
func RemovalOf(header nats.Header) Removal {
	switch reason := header.Get(jetstream.MarkerReasonHeader); {
	case reason == "MaxAge":
		return Expired
	case reason != "", header.Get(HeaderOperation) != "":
		return Removed
	}
	return Kept
}
