package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// What a read, and a write that the server refuses, prove about the key that this candidate holds.
//
// The rule: a term ends only by proof that the key was lost, or at the deadline. So every read and every refusal is first turned into what it
// proves, a finding, and whatever proves nothing leaves the term as it is until the next try.

// finding is what a read of the key, or a refusal, proves to the candidate that holds the key, or held it until now.
type finding uint8

const (
	unclear     finding = iota // not read, older than what is known, nothing at all, or the bare name that we write too
	ours                       // written by this candidate
	theirs                     // written by another candidate over our record
	removed                    // our record was removed
	rewound                    // what cannot be there unless the history of the bucket was rewound
	cloned                     // written in this candidate's name and instance by another process
	laterBucket                // written by another candidate in a later bucket of this name
)

// reason returns why a term ends with that finding; "" if it does not.
func (f finding) reason() Reason {
	return [...]Reason{theirs: Overwritten, removed: Deleted, rewound: Rewound, cloned: Cloned, laterBucket: BucketReplaced}[f]
}

// interpretRead takes in what was read of the key that is held, and says what it proves.
func (c *Candidate) interpretRead(now time.Time, t *Term, r *Result) finding {
	s := &r.State
	if r.Err != nil {
		c.finishRead(now, s, r.Err, false)
		c.log(Debug, "Key not read", "error", r.Err)
		return unclear
	}
	found := c.interpret(s, t)
	removedBefore := c.wasRemoved(t, s.Revision)
	c.finishRead(now, s, nil, found == unclear)
	if found == theirs || found == laterBucket {
		c.reportHolder(&s.Record, s.Revision, s.Written)
		if removedBefore && found == theirs { // and another candidate was quicker than this read
			return removed
		}
	}
	return found
}

// interpret says what it proves that s was read. A read may be stale: it shows an older revision than our last write. So only a revision
// that is at least our own proves something, with two exceptions: a record of a later bucket, and what only a rewound history can have.
func (c *Candidate) interpret(s *record.State, t *Term) finding {
	rec := &s.Record
	switch {
	case s.Removal == record.Gone: // a replica that lags far behind has no key either
		return unclear
	case s.Removal == record.Kept && rec.Instance == c.Instance && s.Revision >= t.revision:
		if c.doubt.foreign(s) {
			return cloned
		}
		return ours
	case s.Removal == record.Kept && rec.Instance == c.Instance && rec.Since.Equal(t.Since): // an earlier write of this term: a stale read
		return unclear
	case s.Removal == record.Kept && rec.Instance == "" && c.Plain && rec.Name == c.Name: // nobody can tell which write a bare name is
		return unclear
	case s.Removal == record.Kept && rec.Bucket().After(t.bucketReported):
		return laterBucket
	case s.Removal == record.Kept && s.Revision >= t.revision:
		return theirs
	case s.Revision >= t.revision:
		return removed
	case s.Revision >= t.Number:
		// From the write that won to our last write, an unbroken history has nothing but our writes of this term. This is none of them, so it is
		// no stale read.
		return rewound
	}
	return unclear
}

// wasRemoved reports whether a removal of our record was notified, at the given revision or an earlier one.
func (c *Candidate) wasRemoved(t *Term, revision uint64) bool {
	return t.revision < c.key.removal.revision && c.key.removal.revision <= revision
}

// refusal is the answer of a server that refused a write, because another revision was stored than the write was made over.
type refusal struct {
	err   error
	last  uint64 // the sequence of what is stored, 0 if nothing is; if the answer names it
	named bool   // the answer does
}

func refusalOf(r *Result) refusal { return refusal{r.Err, r.Last, r.Named} }

// isBelow reports whether the refusal proves that our last write is gone, without a read: the history was rewound.
func (f *refusal) isBelow(t *Term) bool { return f.named && 0 < f.last && f.last < t.revision }

// resolve says what a refused renewal or release means: by the sequence that the refusal names, if it names one, and by a read of the key. What is proven by
// neither is asked again soon, by the next try.
func (c *Candidate) resolve(now time.Time, t *Term, f *refusal, r *Result) finding {
	found := c.interpretRead(now, t, r)
	switch s := &r.State; {
	case found != unclear, !f.named:
		return found
	case f.last == 0: // nothing is stored
		return removed
	case f.last > t.revision && r.Err != nil && c.doubt.none(): // not read, but another than this candidate wrote that revision
		if c.wasRemoved(t, f.last) {
			return removed
		}
		return theirs
	case r.Err == nil && s.Removal == record.Gone && !c.doubt.of(t) && !c.doubt.ofBefore(t): // our record was replaced, and the read shows nothing else
		return removed
	}
	return unclear
}

// adopt takes in a write of ours that was read, and returns it if it extends the lease: its outcome was unknown, and it was a renewal of this term.
// Otherwise only its revision is taken over.
func (c *Candidate) adopt(t *Term, s *record.State) (w ownWrite, extends bool) {
	if d, doubtful := c.doubt.writes[s.Record.Attempt]; doubtful && d.term == t {
		return ownWrite{&s.Record, s.Revision, d.sent}, true
	}
	t.revision = s.Revision
	c.doubt.applied(&s.Record, s.Revision, nil)
	return ownWrite{}, false
}

// ownWrite is a write of this candidate's own that is known to have been applied.
type ownWrite struct {
	record   *record.Record
	revision uint64
	sent     time.Time // just before it was sent
}
