package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// maxDoubtful is how many writes of unknown outcome a candidate remembers. Beyond it a candidate does not recognise a copy of itself any more.
const maxDoubtful = 4096

// doubt is what a candidate knows of its own writes: the last one that was applied, and those of unknown outcome, each of which may be
// applied, or not, or later. It outlives a run, because writes do.
//
// Every write has an id that nobody can guess. So a record of this candidate with an id that it never made is proof that another process has
// the same instance: a copy of this one, as of a virtual machine that was cloned, or resumed twice from a snapshot. A record of its own at
// another revision than that of the write proves as much, and so does one that no candidate wrote.
//
// A write is forgotten once it is known to have been applied, or that it cannot be any more: because a later write of its term was, or any that
// has a higher revision than the one that it demanded. A creation demands none, and may hit a free key at any time.
type doubt struct {
	attempt       string    // of the last write that is known to have been applied
	revision      uint64    // of that write
	bucketCreated time.Time // when the bucket was created where it was applied
	writes        map[string]doubtfulWrite
	forgot        bool // there were too many
	unanswered    bool // the last write was not answered, so that replies may not arrive
}

// doubtfulWrite is a write whose outcome is unknown.
type doubtfulWrite struct {
	sent    time.Time // just before it was sent
	over    uint64    // the revision that it demanded; 0 if it was a creation
	term    *Term     // that it was to renew or to release; nil if it was to win the key
	release bool      // of that term, or of a win that was not kept
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

// applied takes note of a write that was applied. The writes by which its term was to be renewed before it are not applied any more, nor are those
// that demanded a revision that is lower.
func (d *doubt) applied(r *record.Record, revision uint64, term *Term) {
	d.attempt, d.revision, d.bucketCreated = r.Attempt, revision, r.Bucket()
	delete(d.writes, r.Attempt)
	for attempt, w := range d.writes {
		if w.term == term && term != nil || w.over > 0 && w.over < revision {
			delete(d.writes, attempt)
		}
	}
}

// of reports whether the outcome of a write is unknown that was to renew or release the term.
func (d *doubt) of(term *Term) bool {
	for _, w := range d.writes {
		if w.term == term {
			return true
		}
	}
	return false
}

// before reports whether the outcome of a write is unknown that was made before the term began, and that may hold the key. A release does not, and
// is refused once anything was written since.
func (d *doubt) before(term *Term) bool {
	for _, w := range d.writes {
		if w.term != term && !w.release {
			return true
		}
	}
	return d.forgot
}

// none reports whether the outcome of every write is known.
func (d *doubt) none() bool { return len(d.writes) == 0 && !d.forgot }

// made reports whether a record of this candidate that was read is the last write that was applied, or one of unknown outcome. Any other is a read
// that is stale, or what a bucket has that lost its last writes: it holds the key like the record of another candidate.
func (d *doubt) made(s *record.State) bool {
	_, doubtful := d.writes[s.Record.Attempt]
	return !d.foreign(s) && (doubtful || d.forgot || s.Record.Attempt == d.attempt)
}

// shown reports whether what was read is the last write that is known to have been applied, at its revision.
func (d *doubt) shown(s *record.State) bool {
	return s.Held() && d.last(s) && !s.Unconditional
}

// last reports whether a record of this candidate that was read is that write.
func (d *doubt) last(s *record.State) bool {
	return s.Revision == d.revision && s.Record.Attempt == d.attempt
}

// foreign reports whether a record of this candidate that was read is proof that somebody else stored it: another process with the same
// instance, or somebody who stored an earlier write again, with which a candidate could take the key for its own that others hold. What is
// older than the last write that is known may be a write that was replaced since, as a replica shows that lags behind.
func (d *doubt) foreign(s *record.State) bool {
	newer := s.Revision >= d.revision && !d.last(s) || s.Record.Bucket().After(d.bucketCreated)
	if s.Unconditional {
		return newer
	}
	_, doubtful := d.writes[s.Record.Attempt]
	return newer && !doubtful && !d.forgot
}
