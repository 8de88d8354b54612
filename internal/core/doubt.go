package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// A candidate's own writes: which of the records that it reads did it write itself?
//
// Every write has an id that nobody can guess. So a record that bears this candidate's instance, and an id that this candidate never made, proves
// that another process uses the same instance: a copy of this one, as of a virtual machine that was cloned, or resumed twice from a snapshot.
// A known id at another revision than that of its write proves the same, and so does a record that was not written conditionally.
//
// A write of unknown outcome was not answered: it may have been applied, or not, or may yet be applied. The candidate remembers such a write until
// it is known to have been applied, or cannot be applied any more: because a later write of its term was applied, or any write with a higher
// revision than the one that it was to replace. A creation replaces none, and may be applied whenever the key is free.

// maxDoubtful is how many writes of unknown outcome a candidate remembers. With more, it does not recognise a copy of itself any more.
const maxDoubtful = 4096

// doubt is what a candidate knows of its own writes: the last one that is known to have been applied, and those of unknown outcome. It outlives a
// run, because writes do.
type doubt struct {
	attempt       string                   // the id of the last write that is known to have been applied
	revision      uint64                   // the revision of that write
	bucketCreated time.Time                // when the bucket of that write was created
	writes        map[string]doubtfulWrite // of unknown outcome, by id
	forgot        bool                     // there were more than maxDoubtful
}

// doubtfulWrite is a write whose outcome is unknown.
type doubtfulWrite struct {
	sent    time.Time // just before it was sent
	over    uint64    // the revision that it was to replace; 0 if it was a creation
	term    *Term     // the term that it was to renew or to release; nil if it was to win the key
	release bool      // it was to release that term, or a win that was not kept
}

// add takes note of a write whose outcome is unknown, and that was to replace the given revision.
func (d *doubt) add(r *record.Record, sent time.Time, over uint64, term *Term) {
	if d.writes == nil {
		d.writes = map[string]doubtfulWrite{}
	}
	if len(d.writes) >= maxDoubtful {
		d.writes, d.forgot = map[string]doubtfulWrite{}, true
	}
	d.writes[r.Attempt] = doubtfulWrite{sent, over, term, !r.Released.IsZero()}
}

// applied takes note of a write that was applied. Earlier writes of its term cannot be applied any more, nor can writes that were to replace a lower
// revision.
func (d *doubt) applied(r *record.Record, revision uint64, term *Term) {
	d.attempt, d.revision, d.bucketCreated = r.Attempt, revision, r.Bucket()
	delete(d.writes, r.Attempt)
	for attempt, w := range d.writes {
		if w.term == term && term != nil || w.over > 0 && w.over < revision {
			delete(d.writes, attempt)
		}
	}
}

// of reports whether there is a write of unknown outcome that was to renew or release the term.
func (d *doubt) of(term *Term) bool {
	for _, w := range d.writes {
		if w.term == term {
			return true
		}
	}
	return false
}

// ofBefore reports whether there is a write of unknown outcome from before the term that may hold the key. A release does not hold it.
func (d *doubt) ofBefore(term *Term) bool {
	for _, w := range d.writes {
		if w.term != term && !w.release {
			return true
		}
	}
	return d.forgot
}

// none reports whether the outcome of every write is known.
func (d *doubt) none() bool { return len(d.writes) == 0 && !d.forgot }

// isOurs reports whether a record that bears this candidate's instance is the last write that was applied, or one of unknown outcome. Any other
// record comes from a stale read, or from a bucket that lost its last writes: then it holds the key like the record of another candidate.
func (d *doubt) isOurs(s *record.State) bool {
	_, doubtful := d.writes[s.Record.Attempt]
	return !d.foreign(s) && (doubtful || d.forgot || s.Record.Attempt == d.attempt)
}

// isLastApplied reports whether what was read is the last write that is known to have been applied, and still holds the key.
func (d *doubt) isLastApplied(s *record.State) bool {
	return s.Held() && d.isLast(s) && !s.Unconditional
}

// isLast reports whether what was read has the id and the revision of the last write that is known to have been applied.
func (d *doubt) isLast(s *record.State) bool {
	return s.Revision == d.revision && s.Record.Attempt == d.attempt
}

// foreign reports whether somebody else has certainly stored a record that bears this candidate's instance: a copy of this process, or somebody
// who stored an earlier write of this candidate again, so that the candidate would take the key for its own.
func (d *doubt) foreign(s *record.State) bool {
	_, doubtful := d.writes[s.Record.Attempt]
	inNewerBucket := s.Record.Bucket().After(d.bucketCreated)
	switch {
	case d.isLast(s) && !inNewerBucket:
		return false
	case s.Revision < d.revision && !inNewerBucket: // a lagging replica may show an earlier write of ours
		return false
	case s.Unconditional: // no candidate writes so
		return true
	}
	return !doubtful && !d.forgot
}
