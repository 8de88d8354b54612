package session

import (
	"maps"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
)

// closeOthers closes the sessions whose lease has lapsed, if they have claims of keys that this process campaigns for.
func (s *Session) closeOthers(now time.Time) (until time.Time) {
	if !s.Knows() {
		return time.Time{}
	}
	var due []string
	for id, o := range s.others {
		if o.named == 0 || o.status != open || !o.timed.Known() || o.closing {
			continue
		}
		if !o.refusedAt.IsZero() {
			if why := o.refusedAt.Add(readPause); now.Before(why) {
				until = earlier(until, why)
				continue
			}
			o.refusedAt = time.Time{} // the consumer has not told why: the record may have expired
			s.readBy(now, 0)
		}
		if at := s.lapses(now, o.timed, o.lease).Add(time.Duration(s.turn(now, id))*turnDelay + slewPrecision); now.Before(at) {
			until = earlier(until, at)
			continue
		}
		due = append(due, id)
	}
	slices.Sort(due)
	for _, id := range due {
		s.closeOther(now, id, s.others[id])
	}
	return until
}

// slewPrecision is by how much two readings of a clock may differ though it was not slewed in between.
const slewPrecision = time.Millisecond

// closeOther closes a session by a write over the last one of it that is known: the very renewal by which its lease was timed, or its release.
func (s *Session) closeOther(now time.Time, id string, o *other) {
	r := record.Record{Name: o.name, Instance: id, Attempt: s.NewID(), ClosedBy: s.id, Commitment: o.commitment, BucketCreated: s.created}
	if r.Name == "" {
		r.Name = id
	}
	o.closing = true
	over := o.revision
	op := Op{Key: SessionKey(id), Value: r.Encode(), Replaces: over, Expires: expiryTTLs * s.Timing.TTL, Limit: now.Add(s.Timing.RequestTimeout())}
	s.request(op, func(now time.Time, r *Result) {
		o.closing = false
		switch {
		case o.revision != over:
		case r.Outcome == core.Applied:
			o.revision = r.Revision
			o.close(s.moment(now), over)
			s.touchNaming(id)
		case (o.status == ended || r.Named && r.Last == 0) && o.named == 0 && !s.isNamed(id): // it has expired, or is to expire
			delete(s.others, id)
		default:
			o.refusedAt = now
		}
	})
}

// isNamed reports whether a claim names a session.
func (s *Session) isNamed(id string) bool {
	for _, c := range s.claims {
		if c.names(id) {
			return true
		}
	}
	return false
}

// maxPruned bounds how many records are made anew at a time.
const maxPruned = 64

// prune forgets other sessions that no claim names, unless they are open. A session that was released keeps its record for as long as claims name it; then
// one of the others has it expire.
func (s *Session) prune(now time.Time) {
	maps.DeleteFunc(s.doubtful, func(_ string, d doubt) bool { return now.Sub(d.ends) > 2*slowRead*s.Timing.TTL }) // what was applied was read since
	named := map[string]bool{}
	for _, c := range s.claims {
		if c.kind == claimed {
			named[c.owner] = true
		}
	}
	pruned := 0
	for _, id := range slices.Sorted(maps.Keys(s.others)) {
		o := s.others[id]
		gone := o.status == open && !o.isFresh(s.moment(now), s.Timing.TTL)
		switch {
		case named[id], o.closing:
		case (o.status == ended || gone) && s.turn(now, id) == 0: // its record is made anew, so that the server removes it
			if pruned++; pruned <= maxPruned {
				s.closeOther(now, id, o)
			}
		case o.status != open:
			delete(s.others, id)
		}
	}
}
