package election

import (
	"context"
	"errors"
	"time"

	"github.com/natscampaign/election/internal/kv"
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
	return min(info.RequestTimeout(), max(info.Timing.TTL/20, patientAnswers*info.Took))
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
	ttl := r.info().Timing.TTL
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
