package record

import (
	"math"
	"time"
)

// NeverRevision is a revision that no key reaches: the server refuses a write over it, whenever the write arrives.
const NeverRevision = math.MaxInt64

// Removal is how a key became free.
type Removal uint8

// The removals.
const (
	Kept             Removal = iota // it was not removed: a record is stored, which may be a release, also as what a deletion carries; also where nothing was read
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
	Record   Record // empty unless a record is stored

	// Unconditional means that what is stored is no write of a candidate, which always demands the revision that it replaces. The answer of
	// a server, or of a program that was asked with the key for a reply subject, demands none. A handle whose connection is not known does
	// not show the difference.
	Unconditional bool

	// Replaced is the revision that this write replaced, which the server checked when it stored the write; 0 if it replaced nothing, or
	// where Unconditional. A handle whose connection is not known does not show it.
	Replaced uint64
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
