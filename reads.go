package election

import (
	"context"
	"errors"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/notify"
)

const (
	// unansweredReads is how many reads must be unanswered, each with an answered write after it, until reading counts as not permitted,
	// where the connection does not say. After a time without reading one is enough.
	unansweredReads = 2
	// maxRest is for how many TTLs a candidate that cannot read does not try to, at most; minRest is where it begins if the connection
	// does not say that reading is not permitted. The time doubles each time.
	minRest, maxRest = 4, 80
	// patientAnswers is for how many answers of the server the first reads wait in any case.
	patientAnswers = 4
)

// errUnreadable is returned in place of reading for as long as reading is known not to be permitted.
var errUnreadable = errors.New("the key cannot be read: the server does not answer, as when it is not permitted")

// readPermission is what a candidate knows of its permission to read the key.
type readPermission struct {
	answered   bool          // a read was answered once
	suspected  bool          // the last read was not answered
	unanswered int           // reads in a row that were not answered though the write that followed was
	until      time.Time     // no read before this
	rest       time.Duration // for how long it did not read the last time
}

// readKey reads what is stored under the key. The error is errUnreadable if reading is not permitted.
func (r *run) readKey(ctx context.Context) (kv.State, error) {
	p := &r.reads
	if time.Now().Before(p.until) {
		return kv.State{}, errUnreadable
	}
	before := r.bucket.LastError()
	s, err := r.bucket.Read(ctx, r.key)
	switch {
	case err == nil:
		r.requestSucceeded(readRequest)
		if s.Removal == kv.Gone && r.listener.SeesNoMarker() {
			s = r.bucket.ReadMarker(ctx, r.key, s)
		}
		*p = readPermission{answered: true}
		r.setUnreadable(false)
	case kv.Failure(err) != kv.FailedTimeout:
		p.suspected = false
	case r.bucket.ReadRefused(r.key, before):
		r.restFromReading(maxRest, err)
	default:
		p.suspected = true
	}
	return s, err
}

// readTimeout returns how long a read of a campaign may take: not long while no read was ever answered, because it may not be permitted,
// and then nobody answers.
func (r *run) readTimeout() time.Duration {
	info := r.info()
	if r.reads.answered {
		return info.RequestTimeout()
	}
	return min(info.RequestTimeout(), max(info.TTL/20, patientAnswers*info.took))
}

// readDue returns when a hint has the key be read; the zero time if there is none, or if reading is not permitted.
func (r *run) readDue() time.Time {
	if r.now.Load().unreadable {
		return time.Time{}
	}
	return r.listener.ReadDue()
}

// writeAnswered is called after a write: a server that answers the write, but did not answer the read before, may not permit reading.
func (r *run) writeAnswered(outcome kv.Outcome) {
	p := &r.reads
	if !p.suspected || outcome != kv.Applied && outcome != kv.Refused {
		return
	}
	p.suspected = false
	if p.unanswered++; p.unanswered >= unansweredReads || p.rest > 0 {
		r.restFromReading(minRest, errUnreadable)
	}
}

// restFromReading has the candidate do without reading for a while, of so many TTLs at least.
func (r *run) restFromReading(least time.Duration, err error) {
	ttl := r.info().TTL
	rest := min(max(least*ttl, 2*r.reads.rest), maxRest*ttl)
	r.reads = readPermission{answered: r.reads.answered, rest: rest, until: time.Now().Add(rest)}
	r.setUnreadable(true)
	r.log.Warn("Key cannot be read, campaigning without", "for", rest, "error", err)
}

// setUnreadable publishes whether the key is known not to be readable.
func (r *run) setUnreadable(unreadable bool) {
	if r.now.Load().unreadable != unreadable {
		r.update(func(s *snapshot) { s.unreadable = unreadable })
	}
}

// finding is what is stored under a key, for the candidate that holds it or did.
type finding int

const (
	unclear   finding = iota // not read, older than what is known, nothing at all, or the bare name that we write too
	ours                     // written by this candidate
	theirs                   // written by somebody else, over what was ours
	deleted                  // the marker of a removal, over what was ours
	displaced                // what the history of our own writes could not hold
	cloned                   // written as by this candidate, but by another process
	replaced                 // written by somebody else in a later bucket
)

// reason returns why a term ends with that finding; "" if it does not.
func (f finding) reason() Reason {
	return map[finding]Reason{theirs: ReasonOverwritten, deleted: ReasonDeleted, displaced: ReasonRewound, cloned: ReasonCloned, replaced: ReasonBucketReplaced}[f]
}

// readOwn reads the key that t holds.
func (r *run) readOwn(ctx context.Context, t *activeTerm) (kv.State, finding) {
	_, done := r.listener.BeginRead()
	s, err := r.readKey(ctx)
	if err != nil {
		done(s, err)
		r.log.Debug("Key not read", "error", err)
		return s, unclear
	}
	found := r.interpret(s, t)
	if found == unclear {
		err = notify.ErrUnclear
	}
	removed := r.wasRemoved(t, s.Revision)
	done(s, err)
	if found == theirs || found == replaced {
		r.sawLeader(leaderOf(s.Record, r.key, s.Revision, s.Written, t.TTL))
		if removed && found == theirs { // and another candidate was quicker than this read
			found = deleted
		}
	}
	return s, found
}

// interpret says what it means for t that s was read. A read may be stale, which its revision shows: only what is at least as new as our
// last write counts, or is stored in a bucket that is newer. What somebody else wrote, or we in another term, at a revision between the one that
// won and our own last write is no stale read: there the unbroken history has nothing but our own writes of this term. That nothing is stored
// proves nothing: a replica that lags far behind has no key either.
func (r *run) interpret(s kv.State, t *activeTerm) finding {
	rec := s.Record
	switch {
	case s.Removal == kv.Gone:
		return unclear
	case s.Removal == kv.Kept && rec.Instance == r.instanceID() && s.Revision >= t.revision:
		if r.doubt.foreign(s) {
			return cloned
		}
		return ours
	case s.Removal == kv.Kept && (rec.Instance == r.instanceID() && rec.Since.Equal(t.term.Since) || rec.Instance == "" && r.opts.PlainValue && rec.Name == r.name):
		return unclear
	case s.Removal == kv.Kept && rec.Bucket().After(t.bucket):
		return replaced
	case s.Removal == kv.Kept && s.Revision >= t.revision:
		return theirs
	case s.Revision >= t.revision:
		return deleted
	case s.Revision >= t.term.Number:
		return displaced
	}
	return unclear
}
