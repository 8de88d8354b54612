package kv

import (
	"errors"
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

	// Unconditional means that what is stored is no write of a candidate, which always demands the revision that it replaces. The answer of
	// a server, or of a program that was asked with the key for a reply subject, demands none. A handle whose connection is not known does
	// not show the difference.
	Unconditional bool
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
		s.Unconditional = !conditional(header)
	}
	return s
}

// conditional reports whether the header is that of a write which demands what revision it replaces, of its own key.
func conditional(header nats.Header) bool {
	return len(header.Values(jetstream.ExpectedLastSubjSeqHeader)) == 1 && len(header.Values(jetstream.ExpectedLastSubjSeqSubjHeader)) == 0
}

// errAnswerStored is the error of a read that finds the answer of a server stored under the key.
var errAnswerStored = errors.New("what is stored under the key is an answer of a server, which somebody had it send there: no record")

// answerStored reports whether the message that was read is a stored answer of a server: then the headers by which the server describes
// what it read stand beside those that describe what it once answered, and nobody can tell which is which.
func answerStored(header nats.Header) bool { return len(header.Values(jetstream.SequenceHeader)) > 1 }

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
