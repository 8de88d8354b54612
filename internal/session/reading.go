package session

import (
	"maps"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// slowRead is after how many TTLs, at least, everything is read although nothing asks for it: history may have gone back, and what was stored since have
	// sequences that were delivered before.
	slowRead = 20
	// readPause is the time from one read of everything to the next.
	readPause = 250 * time.Millisecond
)

// reads is what a session knows about its reads of everything.
type reads struct {
	at       time.Time // when to read; zero for never
	atLeast  uint64    // the sequence that the read must show at least
	slowAt   time.Time // when to read though nothing asks for it
	underWay uint64    // the request of the read that is under way; 0 if none is

	// Of the last read:
	began     time.Time
	ownBefore uint64          // the revision of the own record that was known when the read began
	missing   map[string]bool // keys that were not shown or delivered, though they are known: the next read says whether they are gone
}

// cancel forgets that a read is due, and the one that is under way.
func (r *reads) cancel() { r.at, r.atLeast, r.underWay = time.Time{}, 0, 0 }

// startAnew has the session read everything anew, because something may have been missed or history may have gone back: then a consumer does not deliver what
// has a sequence that it delivered before.
func (s *Session) startAnew(now time.Time) {
	s.forget()
	s.delivered, s.passed = nil, passed{}
	s.reads.cancel()
	s.readBy(timeutil.Later(now, s.reads.began.Add(readPause)), s.revision)
	s.touchAll()
}

// historyWentBack has everything read anew: a write was given a sequence that another had before.
func (s *Session) historyWentBack(now time.Time, key string, sequence uint64) {
	s.log(core.Warn, "Something was missed, or history of the bucket has gone back", "key", key, "sequence", sequence, "before", s.position)
	s.startAnew(now)
}

// MayHaveMissed says that the consumer of the bucket may have missed something, or has ended.
func (s *Session) MayHaveMissed(now time.Time) {
	if s.step == Open {
		s.startAnew(now)
	}
}

// readBy has everything be read at the given time at the latest. The read must show everything up to the given sequence.
func (s *Session) readBy(at time.Time, atLeast uint64) {
	s.reads.at, s.reads.atLeast = earlier(s.reads.at, at), max(s.reads.atLeast, atLeast)
}

// readIfDue reads everything, by a consumer that is made anew, if that is due.
func (s *Session) readIfDue(now time.Time) (until time.Time) {
	due := s.reads.at
	if s.position > 0 {
		due = earlier(due, s.reads.slowAt)
	}
	if due.IsZero() || s.reads.underWay != 0 {
		return time.Time{}
	}
	if t := s.awaited(); t != nil && s.step == Open { // the read would not prove it, and the consumer that may deliver it would end
		due = timeutil.Later(due, t.sent.Add(s.Timing.RequestTimeout()/4))
	}
	if now.Before(due) {
		return due
	}
	s.reads.began, s.reads.ownBefore, s.reads.at = now, s.revision, now.Add(readPause) // if it fails, unless a renewal is verified soon
	op := s.request(Op{Kind: Follow, AtLeast: s.reads.atLeast, Limit: now.Add(s.Timing.RequestTimeout())}, nil)
	s.reads.underWay = op
	s.waiting[op] = func(now time.Time, r *Result) {
		if s.reads.underWay == op { // else another consumer has taken its place, or is to
			s.reads.underWay = 0
			switch {
			case r.Outcome == core.Applied:
				s.read(now, r)
			case s.step == Opening: // of an empty bucket nothing is delivered: the write that was to open it was lost
				s.enter(NotOpen)
				s.renewAt = now
			}
		}
	}
	return time.Time{}
}

// read takes everything that is stored.
func (s *Session) read(now time.Time, r *Result) {
	if r.Position < s.position { // it is of a replica that is behind: what the consumer delivers from now on is, too
		s.startAnew(now)
		return
	}
	anew := !s.created.Equal(r.Created)
	if anew { // nothing that is known is of this bucket
		s.forget()
		s.settled = false
	}
	s.reads.atLeast, s.reads.at, s.created = 0, time.Time{}, r.Created
	var own *Change
	stored := make(map[string]*Change, len(r.Changes))
	for i := range r.Changes {
		if ch := &r.Changes[i]; ch.Key == SessionKey(s.id) {
			own = ch
		}
		stored[r.Changes[i].Key] = &r.Changes[i]
	}
	s.correct(now, stored, r.Position, anew)
	s.position = 0 // the consumer may be behind: it is no contradiction if several changes of a key are seen at once
	for i := range r.Changes {
		if ch := &r.Changes[i]; ch.Key != SessionKey(s.id) && !s.isBehind(ch, r.Position) { // the own record may be shown twice, if it is renewed meanwhile
			s.apply(now, ch)
		}
	}
	for id, o := range s.others { // also those that claims name which were not known
		if o.status == open && o.revision <= r.Position && stored[SessionKey(id)] == nil {
			s.reads.missing[SessionKey(id)] = true
		}
	}
	if len(s.reads.missing) > 0 {
		s.readBy(now.Add(readPause), 0)
	}
	if s.revision > r.Position { // it was answered while everything was read, and the consumer may not deliver it
		s.readBy(now.Add(verifyTime), s.revision)
	}
	s.position, s.gaps.open, s.delivered = r.Position, nil, nil
	s.reads.slowAt = now.Add(s.Timing.TTL*slowRead + s.Random(s.Timing.TTL*slowRead))
	switch {
	case own != nil:
		s.ownRead(now, own)
	case s.step == Open && anew:
		s.lose(now, core.BucketReplaced, "its record is gone")
		return
	case s.step == Open: // the server says more for certain when the session is renewed
		s.renewAt = now
	case s.step == Opening: // the write that was to open it was not applied, and may be later
		s.enter(NotOpen)
		s.renewAt = now
	}
	s.gaps.distrust()
	s.touchAll()
}

// ownRead takes the own record that a read shows. It proves a renewal, unless the read lacks a claim that the process holds.
func (s *Session) ownRead(now time.Time, own *Change) {
	s.ownSeen(now, own)
	switch {
	case s.delivered == nil:
	case s.lacksOwn():
		s.delivered, s.renewAt = nil, earlier(s.renewAt, now.Add(calmDelay))
	case own.Revision > s.reads.ownBefore: // what was stored while everything was read may be left out, so that only the renewal counts that was known before
		s.delivered, s.renewAt = s.storedBy(s.reads.ownBefore), earlier(s.renewAt, now.Add(calmDelay))
	}
	s.verify(now)
}

// lacksOwn reports whether the last read did not show a claim that the process holds: it may have been lost before the own record was stored, and the next read
// says.
func (s *Session) lacksOwn() bool {
	for key := range s.reads.missing {
		if claimed, is := ClaimOf(key); is {
			if c := s.own[claimed]; c != nil && c.term != nil {
				return true
			}
		}
	}
	return false
}

// isBehind reports whether a change in a read is what an own claim has replaced: the read is of a replica that is behind.
func (s *Session) isBehind(ch *Change, position uint64) bool {
	key, _ := ClaimOf(ch.Key)
	c := s.own[key]
	return c != nil && c.term != nil && position < c.term.Number && ch.Revision <= c.replaced
}

// correct forgets what a read shows not to be stored though it was known: a record has expired, or was stored in a history that was lost. What is stored
// later than the read shows may be right. What is missing is gone if the bucket was made anew, or if it is missing from the next read, too: the server leaves
// out what is replaced before it comes to that, and may end the read before it has noticed by what.
func (s *Session) correct(now time.Time, stored map[string]*Change, position uint64, anew bool) {
	missing := map[string]bool{}
	isGone := func(key string) bool {
		if anew || s.reads.missing[key] {
			return true
		}
		missing[key] = true
		return false
	}
	for _, key := range slices.Sorted(maps.Keys(s.claims)) {
		c := s.claims[key]
		if own := s.own[key]; own != nil && own.term != nil && own.term.Number > position { // the read is of a replica that is behind
			continue
		}
		switch ch := stored[ClaimKey(key)]; {
		case c.revision > position, c.kind == unclaimed, c.kind == foreign && c.revision == 0 && !anew: // the last is gone already
		case ch != nil && (ch.Revision > c.revision || ch.Revision == c.revision && ch.Record.Attempt == c.attempt): // what is stored is applied next
		case ch != nil: // in a history that has gone back, though the revision may be the same
			c.revision = 0
		case !isGone(ClaimKey(key)):
		default: // its owner may not know yet; and since the last read others may have come and gone
			own := s.own[key]
			if own != nil {
				s.count(c, -1)
			}
			*c = storedClaim{kind: foreign, seen: s.moment(now)}
			if own != nil {
				own.seen(now, c)
			}
		}
	}
	for id, o := range s.others {
		switch ch := stored[SessionKey(id)]; {
		case o.revision > position:
		case ch != nil && ch.Revision >= o.revision:
		case ch != nil:
			o.revision = 0
		case o.status == open && isGone(SessionKey(id)):
			o.status, o.closedAt, o.overAt = vanished, s.moment(now), now
		}
	}
	s.reads.missing = missing
}
