package judge

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/natscampaign/election/internal/timeutil"
)

// ChangeKind is how the key changed.
type ChangeKind int

// How the key changed.
const (
	ByWrite      ChangeKind = iota // a write, maybe a deletion
	ByExpiry                       // the TTL
	ByLateExpiry                   // an expiry that was under way when the record was written
	ByRecreation                   // the bucket was deleted and recreated
	BySequence                     // the bucket lost its content and its sequence
	ByRewind                       // the bucket went back to an earlier state
)

// Change is a change of the key.
type Change struct {
	At            time.Time
	Before, After *Entry // nil: nothing
	Kind          ChangeKind
	BucketCreated time.Time
	Seq           uint64 // to which history was rewound
}

// resets reports whether the bucket lost all its content.
func (m Change) resets() bool { return m.Kind == ByRecreation || m.Kind == BySequence }

// rewinds reports whether the bucket lost its last writes.
func (m Change) rewinds() bool { return m.Kind == ByRewind }

// Content is what a candidate's record says, as far as it matters here.
type Content struct {
	Name        string    `json:"name"`
	Instance    string    `json:"instance"`
	Attempt     string    `json:"attempt"`
	Since       time.Time `json:"since"`
	Term        uint64    `json:"term"`
	Won         string    `json:"won"`
	Bucket      time.Time `json:"bucket"`
	Reported    time.Time `json:"bucket_reported"`
	Released    time.Time `json:"released"`
	StandDownMs int64     `json:"stand_down_ms"`
	LeaseMs     int64     `json:"lease_ms"`
	Successors  []string  `json:"successors"`
	IDs         []string  `json:"successor_ids"`
	Queue       []string  `json:"queue"` // ids of those that wait for a lock
}

// ParseContent reads a value under the key. What is no record has a name alone.
func ParseContent(value []byte) (c Content) {
	if json.Unmarshal(value, &c) != nil || c.Attempt == "" {
		return Content{Name: string(value)}
	}
	return c
}

// bucket returns when the bucket was created, by what its server said last to the writer.
func (c Content) bucket() time.Time { return timeutil.Later(c.Bucket, c.Reported) }

// Write is one request to change the key, and its outcome.
type Write struct {
	By          *Ledger // nil: an operator or a stranger, whose writes demand nothing
	Conditional bool    // a stranger's write demands what it replaces, as those of candidates do
	Copies      bool    // a stranger stores a release of somebody's term, or somebody's record again
	Of          *Write  // the write of that record; nil if it is none of a candidate
	Never       bool    // what is written never expires
	Deletes     bool    // a deletion carries what is written: a client creates the key over it
	Create      bool
	Remove      bool
	Purge       bool
	Value       []byte
	Content     Content
	Expect      uint64 // the revision that the write demands; for a create, of the marker that the client saw
	CannotRead  bool   // a create whose client cannot read the marker of a removal
	Sent        time.Time

	Replaced      *Entry        // what was under the key before
	Applied       time.Time     // zero if it was not applied
	BucketCreated time.Time     // of the bucket in which it was applied
	LongestTTL    time.Duration // that the bucket had had by then
	Revision      uint64
	Acknowledged  time.Time // when its call returned without an error; zero if it did not

	// What the judge notes when the write is sent, and when it is known.
	notified         *Entry // the last entry of which the writer had been notified
	notifiedAt       time.Time
	notifiedPrevious *Entry        // the entry of the notification before
	read             *Entry        // the record that the writer had last read
	readRemoval      *Entry        // the removal that the writer had read, and no record since
	gapAt            time.Time     // when the writer had last learned, before it sent this, that it may have missed notifications
	standDownLeft    time.Duration // of a leader-elect that renews
	sawRemoval       bool          // whether that leader-elect had been notified of a removal
	knownAt          time.Time     // when the writer learned that the write was applied; zero if it did not
}

// Releases reports whether the write is a release.
func (q *Write) Releases() bool { return !q.Content.Released.IsZero() }

// givesUp reports whether the write is a release or a removal.
func (q *Write) givesUp() bool { return q.Remove || q.Releases() }

// Name returns the name of the writer, for the journal.
func (q *Write) Name() string {
	if q.By == nil {
		return ""
	}
	return q.By.Name
}

// Verb returns what the write does, for the journal.
func (q *Write) Verb() string {
	switch {
	case q.Remove && q.Purge:
		return "purge"
	case q.Remove:
		return "delete"
	case q.Create:
		return "create"
	case q.Releases():
		return "release"
	}
	return "update"
}

// Entry is a record or the marker of a removal under the key.
type Entry struct {
	Op       jetstream.KeyValueOp
	Expired  bool // a marker that the server put
	Revision uint64
	Value    []byte
	Stamped  time.Time // by the server's clock
	Write    *Write    // nil for the server
}

// IsMarker reports whether the entry is the marker of a removal.
func (e *Entry) IsMarker() bool { return e != nil && e.Op != jetstream.KeyValuePut }

// IsFree reports whether a client that creates keys takes the key for free: the entry is a marker, or what a deletion carries.
func (e *Entry) IsFree() bool { return e.IsMarker() || e != nil && e.Write != nil && e.Write.Deletes }

// By returns the candidate that wrote the entry, or nil.
func (e *Entry) By() *Ledger {
	if e == nil || e.Write == nil {
		return nil
	}
	return e.Write.By
}

// isForeign reports whether a candidate recognises the entry as none of its present term: a copy of its own record looks like a read that is stale.
func (e *Entry) isForeign(l *Ledger) bool {
	if e == nil || e.Write == nil || e.Write.By == l {
		return false
	}
	return !e.Write.Copies || l.term == nil || e.Write.Content.termOf() != l.term.win.Content.termOf()
}

// isStrangersRelease reports whether a stranger stored what looks like a release.
func (e *Entry) isStrangersRelease() bool {
	return e != nil && e.Write != nil && e.Write.Copies && e.Write.Releases()
}

// isRelease reports whether a candidate released the key by this record.
func (e *Entry) isRelease() bool { return e.By() != nil && e.Write.Releases() }

// isLateReleaseOver reports whether an entry is a release that was sent before the write of the same candidate that it replaced: it is of
// an earlier term and was applied late, and anybody may take the key over it.
func (e *Entry) isLateReleaseOver(before *Entry) bool {
	return e.isRelease() && e.By() == before.By() && e.Write.Sent.Before(before.Write.Sent)
}
