package session

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

const (
	// expiryTTLs is after how many TTLs the server removes the record of a session that is not renewed.
	expiryTTLs = 4
	// verifyTime is how long after the answer to a renewal the consumer may take to deliver it. Then everything is to be read.
	verifyTime = 250 * time.Millisecond
	// slowRead is after how many TTLs, at least, everything is read although nothing asks for it: history may have gone back, and what was stored since have
	// sequences that were delivered before.
	slowRead = 20
	// readPause is the time from one read of everything to the next.
	readPause = 250 * time.Millisecond
	// claimsAtOnce bounds the writes of claims that are under way.
	claimsAtOnce = 256
	// proveDelay is how long a claim waits at most that only a later renewal proves, so that one renewal proves many; and calmDelay is how long it waits for
	// the next such claim once no claim is being written.
	proveDelay, calmDelay = 250 * time.Millisecond, 10 * time.Millisecond
)

// Rules are what never changes for a session.
type Rules struct {
	Name, Host   string
	PID          int
	Timing       timing.Timing
	ClaimsAtOnce int // takes the place of claimsAtOnce, unless it is 0; for tests

	Stepped      func(from, to Step)                // called at each step of the session, if it is set; for tests
	ClaimStepped func(c *Claim, from, to ClaimStep) // called at each step of a claim, if it is set; for tests

	*core.World
}

// Session is everything that a session knows. It must not be used by two goroutines at a time.
type Session struct {
	*Rules
	stored

	step       Step
	id         string
	secret     record.Secret
	opened     time.Time                   // when the record was sent that opened it
	openedAt   lease.Moment                // when that was acknowledged, or seen
	revision   uint64                      // of its last record that is known to be stored
	lease      *core.Lease                 // by the last renewal that is verified; nil before the first
	shown      *atomic.Pointer[core.Lease] // the same as others see it, see Show
	tries      []try                       // writes of its record that are not verified
	delivered  *try                        // the last renewal that was delivered, or that a read proves, if it is not verified yet
	waitsFor   uint64                      // it is once those gaps have ended: so many had been noticed when it was delivered
	passed     passed                      // by the last renewal that was delivered
	renewAt    time.Time                   // when to renew, or to open
	readAt     time.Time                   // when to read everything; zero for never
	readBegan  time.Time                   // when the last read of everything was begun
	readOver   uint64                      // the own revision that was known then
	readFor    uint64                      // the sequence that the read must show at least
	pruneAt    time.Time                   // when to forget sessions that are over
	slowReadAt time.Time                   // when to read everything though nothing asks for it
	reading    uint64                      // the read that is under way; 0 if none is
	missing    map[string]bool             // keys that were not shown or delivered, though they are known: the next read says whether they are gone
	settledBy  uint64                      // the own revision that the last write of the settled key demanded
	closing    bool                        // the process has closed it: all claims are to end
	limit      time.Time                   // when to give up the release of a session that is closing

	own      map[string]*Claim // of the keys that this process campaigns for
	list     []*Claim          // the same, in the order in which they came
	unproven unproven
	requests
	queue      []*Claim         // that wait because too many claims are written at a time
	admitted   int              // claims whose turn it is, and that have not decided yet
	leases     [4]*core.Lease   // of all terms that are in a state, see leaseFor
	latest     uint64           // the number of the latest term, at least
	stray      bool             // a claim of this session may be stored that the process does not hold
	oneByOne   bool             // the claims are released one by one, because the work of one goes on
	doubtful   map[string]doubt // attempts to take a claim that may have been applied; other claims of this session are copies
	unwanted   map[string]bool  // the claims that are being released though the process does not hold them
	closeAgain time.Time        // when to try again to release the session
	touched    []*Claim
	events     []core.Event
}

// try is a write of the session's own record.
type try struct {
	attempt  string
	sent     time.Time
	position uint64 // up to where everything was known then
	gaps     uint64 // how many gaps had been noticed then
	revision uint64 // by which it is stored, once that is known
	over     bool   // it was answered, or will not be
}

// New returns a session that is not open yet.
func New(rules *Rules) *Session {
	return &Session{
		Rules:    rules,
		stored:   stored{claims: map[string]*storedClaim{}, others: map[string]*other{}},
		own:      map[string]*Claim{},
		unproven: unproven{claims: map[*Claim]struct{}{}},
		doubtful: map[string]doubt{},
		unwanted: map[string]bool{},
		missing:  map[string]bool{},
		requests: requests{waiting: map[uint64]func(time.Time, *Result){}},
	}
}

// ID returns the id of the session; "" while none is open or being opened.
func (s *Session) ID() string { return s.id }

// Step returns what the session does at present.
func (s *Session) Step() Step { return s.step }

// Secret returns what releases the session. It is for a witness of this process.
func (s *Session) Secret() record.Secret { return s.secret }

// Touched returns, once, the claims that are to decide again.
func (s *Session) Touched() []*Claim {
	touched := s.touched
	s.touched = nil
	for _, c := range touched {
		c.touched = false
	}
	return touched
}

// Show has the terms of all claims last as long as the last renewal lets them. The driver calls it once the touched claims have looked again: before, a term
// that is over would be seen to last longer. It returns false if others have seen the lease run out meanwhile: then the session is over, and there is more to
// decide.
func (s *Session) Show(now time.Time) bool {
	if s.lease == nil {
		return true
	}
	before := s.shown.Load()
	if before != s.lease && before.Left(now, s.Boot) <= 0 {
		s.lose(now, core.Deadline, "the lease was over when its renewal was to be shown")
		return false
	}
	s.shown.Store(s.lease)
	return true
}

// touch has a claim decide again.
func (s *Session) touch(c *Claim) {
	if !c.touched {
		c.touched = true
		s.touched = append(s.touched, c)
	}
}

func (s *Session) touchAll() {
	for _, c := range s.list {
		s.touch(c)
	}
}

// Events returns what there is to log of the session, once.
func (s *Session) Events() []core.Event {
	events := s.events
	s.events = nil
	return events
}

func (s *Session) log(level core.Level, message string, attrs ...any) {
	s.events = append(s.events, core.Event{Kind: core.Logged, Level: level, Message: message, Attrs: attrs})
}

// Others returns how many other sessions are open, as far as this one knows.
func (s *Session) Others() (n int) {
	for _, o := range s.others {
		if o.status == open && (o.written.IsZero() || s.newest.Sub(o.written) <= expiryTTLs*s.Timing.TTL) {
			n++
		}
	}
	return n
}

// Left returns how much is left of the lease of all claims.
func (s *Session) Left(now time.Time) time.Duration {
	if s.lease == nil {
		return 0
	}
	return s.lease.Left(now, s.Boot)
}

// leads reports whether the session may lead keys: it is open, and its lease lasts.
func (s *Session) leads(now time.Time) bool { return s.Left(now) > 0 }

// Knows reports whether the session knows what is stored in the bucket.
func (s *Session) Knows() bool { return s.step == Open && s.position > 0 }

// Close ends the leadership of all claims and, once their work has returned, the session: one write releases all of them. The caller has each claim stop, too.
func (s *Session) Close(now time.Time) {
	s.closing = true
	s.limit = now.Add(s.Timing.ReleaseTimeout + timing.RequestTimeout)
	for _, c := range s.list {
		c.endLeadership(now, core.Stopped)
	}
	s.touchAll()
}

// Next returns the requests to make now, and when to ask again; the zero time if only something that happens can change the answer.
func (s *Session) Next(now time.Time) (ops []Op, until time.Time) {
	switch s.step {
	case NotOpen:
		if s.closing {
			s.enter(Released)
			break
		}
		until = s.open(now)
	case Open, Opening, Releasing:
		until = s.goOn(now)
	}
	return s.requests.take(), until
}

// open opens a session. Nobody can have had its id, so there is nothing to wait for.
func (s *Session) open(now time.Time) (until time.Time) {
	if now.Before(s.renewAt) {
		return s.renewAt
	}
	s.id, s.secret, s.revision, s.lease, s.tries, s.passed, s.settled = s.NewID(), s.NewSecret(), 0, nil, nil, passed{}, false
	s.enter(Opening)
	s.opened = now
	clear(s.doubtful)
	s.forget()
	s.write(now)
	return time.Time{}
}

// goOn does what is due of an open session.
func (s *Session) goOn(now time.Time) (until time.Time) {
	until = s.opened.Add(s.Timing.LeaseTime())
	if s.lease != nil {
		until = s.lease.Ends(now, s.Boot)
	}
	if !now.Before(until) {
		s.lose(now, core.Deadline, "the lease is over")
		return now
	}
	until = earlier(until, s.readIfDue(now))
	if s.step != Open {
		return until
	}
	if s.closing {
		until = earlier(until, s.releaseIfQuiet(now))
	}
	if s.step == Open {
		until = earlier(until, s.renewIfDue(now))
		until = earlier(until, s.closeOthers(now))
		until = earlier(until, s.settle(now))
	}
	return until
}

// renewIfDue renews the session if that is due.
func (s *Session) renewIfDue(now time.Time) (until time.Time) {
	if s.awaited() != nil {
		return time.Time{}
	}
	due := s.renewAt
	if at := s.provesAt(); !at.IsZero() {
		due = earlier(due, at)
	}
	if now.Before(due) {
		return due
	}
	s.write(now)
	return time.Time{}
}

// unproven are the claims that only a later renewal proves.
type unproven struct {
	claims      map[*Claim]struct{}
	first, last time.Time // when the first and the last of them were taken
}

func (u *unproven) add(c *Claim) {
	if len(u.claims) == 0 {
		u.first = c.takenAt
	}
	u.claims[c], u.last = struct{}{}, c.takenAt
}

// provesAt returns when to renew because there are claims that only a later renewal proves; the zero time if there are none.
func (s *Session) provesAt() (at time.Time) {
	u := &s.unproven
	if len(u.claims) == 0 {
		return time.Time{}
	}
	at = u.first.Add(proveDelay)
	if s.claimsUnderWay == 0 {
		at = earlier(at, u.last.Add(calmDelay))
	}
	if n := len(s.tries); n > 0 { // the last renewal has not been delivered yet; another one would replace it
		last := s.tries[n-1].sent
		if !last.Before(u.last) {
			return time.Time{}
		}
		at = timeutil.Later(at, last.Add(proveDelay))
	}
	return at
}

// write writes the record of the session: it opens or renews it.
func (s *Session) write(now time.Time) {
	r := s.sessionRecord()
	timeout := s.Timing.RequestTimeout()
	if left := s.Left(now); left > 0 {
		timeout = max(timing.MinTry, min(timeout, left/2))
	}
	s.tries = append(s.tries, try{attempt: r.Attempt, sent: now, position: s.position, gaps: s.gaps.noticed})
	s.renewAt = now.Add(s.Timing.Interval)
	op := Op{Key: SessionKey(s.id), Value: r.Encode(), Replaces: s.revision, Expires: expiryTTLs * s.Timing.TTL, Limit: now.Add(timeout)}
	id, attempt := s.id, r.Attempt
	s.request(op, func(now time.Time, r *Result) {
		if s.id == id {
			s.written(now, attempt, r)
		}
	})
}

// written takes what came of a write of the session's record.
func (s *Session) written(now time.Time, attempt string, r *Result) {
	t := s.try(attempt)
	if t == nil { // it was verified before the answer came
		return
	}
	t.over = true
	switch {
	case r.Outcome == core.Applied:
		s.loseLater(now, *t, r.Revision)
		if r.Revision <= s.position && r.Revision != t.revision {
			s.revision = 0
			s.historyWentBack(now, SessionKey(s.id), r.Revision)
		}
		t.revision = r.Revision
		s.stand(now, r.Revision)
		s.readBy(now.Add(verifyTime), r.Revision)
	case s.step == Opening && (r.Outcome == core.Refused || r.Outcome == core.Failed):
		s.enter(NotOpen)
		s.renewAt = now.Add(s.Timing.RequestTimeout()/4 + s.Random(s.Timing.RequestTimeout()/4))
	case r.Outcome == core.Refused && r.Named && r.Last == 0:
		s.lose(now, core.BucketReplaced, "its record is gone")
	case r.Outcome == core.Refused && r.Named && r.Last < s.revision:
		s.lose(now, core.Rewound, "history of the bucket has gone back")
	case r.Outcome == core.Refused: // an earlier try was applied late, or the session is over
		s.readBy(now, s.revision)
		s.renewAt = now.Add(s.pause(now))
	default:
		s.renewAt = now.Add(s.pause(now))
		if s.step == Opening {
			s.readBy(now, 0)
		}
	}
}

// pause returns the time from a renewal that failed to the next.
func (s *Session) pause(now time.Time) time.Duration {
	longest := s.Timing.RequestTimeout() / 4
	if s.lease == nil {
		return longest
	}
	return max(timing.MinPause, min(longest, s.Left(now)/8))
}

// stand takes note that a record of the session is stored: it is open.
func (s *Session) stand(now time.Time, revision uint64) {
	s.revision = max(s.revision, revision)
	if s.step != Opening {
		return
	}
	s.enter(Open)
	s.openedAt = s.moment(now)
	s.readBy(now, revision)
}

func (s *Session) try(attempt string) *try {
	for i := range s.tries {
		if s.tries[i].attempt == attempt {
			return &s.tries[i]
		}
	}
	return nil
}

// storedBy returns the write that stored a revision; nil if it is verified, or none is known to have.
func (s *Session) storedBy(revision uint64) *try {
	for _, t := range s.tries {
		if t.revision == revision && revision > 0 {
			return &t
		}
	}
	return nil
}

// awaited returns the last write of the session's record if it has neither been answered nor delivered; nil otherwise.
func (s *Session) awaited() *try {
	if n := len(s.tries); n > 0 && !s.tries[n-1].over && s.tries[n-1].revision == 0 {
		return &s.tries[n-1]
	}
	return nil
}

// renewal returns the write by which this session stored its record; nil if somebody else wrote it.
func (s *Session) renewal(ch *Change) *try {
	if ch.Unconditional || ch.Record.ClosedBy != "" {
		return nil
	}
	return s.try(ch.Record.Attempt)
}

// ownSeen takes what is stored of this session. Everything that was stored before is known, is told together with it, or is in a gap.
func (s *Session) ownSeen(now time.Time, ch *Change) {
	if ch.Revision < s.revision || s.step == Released {
		return
	}
	s.newest = timeutil.Later(s.newest, ch.Written)
	t := s.renewal(ch)
	switch {
	case s.step == Releasing && ch.Record.Secret == s.secret && ch.Record.ClosedBy == "": // the answer to the release is late
		s.finish(now, core.Ending{How: core.KeyReleased})
	case t != nil:
		s.stand(now, ch.Revision)
		s.loseLater(now, *t, ch.Revision)
		s.passed, t.revision = passed{t.position, ch.Revision}, ch.Revision
		renewal := *t
		s.delivered, s.waitsFor = &renewal, s.gaps.noticed
		if s.gaps.endAt(t.gaps); len(s.gaps.open) > 0 { // the next one ends them, if nothing else does
			s.renewAt = earlier(s.renewAt, now.Add(min(time.Duration(len(s.tries))*calmDelay, s.pause(now))))
		}
	case ch.Revision == s.revision: // it was verified before
	case ch.Record.Instance == s.id && ch.Record.ClosedBy == "" && ch.Record.Released.IsZero():
		s.lose(now, core.Cloned, "another process uses its id")
	default:
		words := "another session closed it"
		if ch.Record.ClosedBy == "" {
			words = "its record was overwritten, though not by a session"
		}
		s.lose(now, core.Overwritten, words)
	}
}

// loseLater ends the terms that are later than a renewal which was sent after they were won: history has gone back.
func (s *Session) loseLater(now time.Time, t try, revision uint64) {
	if s.latest <= revision {
		return
	}
	for _, c := range s.list {
		if c.term != nil && c.term.Number > revision && !t.sent.Before(c.takenAt) {
			c.lost(now, core.Rewound)
		}
	}
}

// passed says that the consumer had come to a position before the own renewal of a revision was sent.
type passed struct{ position, revision uint64 }

// verify extends the lease by the renewal that was delivered, if it has not been verified yet: the claims that the session had when it was stored are still its
// own, or it knows that they are not.
func (s *Session) verify(now time.Time) {
	t := s.delivered
	if t == nil || s.gaps.anyOf(s.waitsFor) {
		return
	}
	s.delivered = nil
	for i := range s.tries { // an earlier one, if it is not answered yet, was not applied, or is known to be older
		if s.tries[i].attempt == t.attempt {
			s.tries = append([]try(nil), s.tries[i+1:]...)
			break
		}
	}
	if len(s.missing) == 0 && now.Before(s.readAt) {
		s.readAt = time.Time{}
	}
	if len(s.tries) == 0 {
		s.renewAt = t.sent.Add(s.Timing.Interval)
	}
	length := s.Timing.LeaseTime()
	next := &core.Lease{Timing: &s.Timing, State: core.Follower, Deadline: t.sent.Add(length)}
	if s.lease == nil {
		next.Lease = lease.New(lease.Of(t.sent), length, s.Started, s.Clocks())
	} else {
		next.Lease = s.lease.Renew(lease.Of(t.sent), length, s.Clocks())
	}
	if next.Left(now, s.Boot) <= 0 || s.lease != nil && !s.leads(now) { // what comes after the deadline counts for nothing
		return
	}
	first := s.lease == nil
	if s.lease = next; first {
		s.shown, s.leases = &atomic.Pointer[core.Lease]{}, [4]*core.Lease{}
		s.shown.Store(next)
		s.touchAll()
	}
	if len(s.unproven.claims) > 0 {
		for _, c := range s.list {
			if c.term != nil && !c.proven && !t.sent.Before(c.takenAt) {
				c.proven = true
				delete(s.unproven.claims, c)
				s.touch(c)
			}
		}
		s.unproven.first = now // those that are left were taken since that renewal was sent
	}
	s.releaseAllUnwanted(now)
	if !now.Before(s.pruneAt) {
		s.pruneAt = now.Add(s.Timing.TTL)
		s.prune(now)
	}
}

// lose ends the session, and every term of its claims at once. Another one is opened.
func (s *Session) lose(now time.Time, why core.Reason, words string) {
	s.log(core.Warn, "Session is over", "session", s.id, "reason", string(why), "because", words)
	s.others[s.id] = &other{name: s.Name, commitment: s.secret.Commitment(), named: s.naming(s.id)}
	s.id, s.lease, s.tries, s.delivered, s.readAt, s.readFor, s.reading, s.renewAt = "", nil, nil, nil, time.Time{}, 0, 0, now
	s.forget()
	if s.closing {
		s.enter(Released)
	} else {
		s.enter(NotOpen)
	}
	for _, c := range s.list {
		c.lost(now, why)
	}
	s.touchAll()
}

// startAnew has the session read everything anew, because something may have been missed or history may have gone back: then a consumer does not deliver what
// has a sequence that it delivered before.
func (s *Session) startAnew(now time.Time) {
	s.forget()
	s.delivered = nil
	s.readAt, s.readFor, s.reading, s.passed = timeutil.Later(now, s.readBegan.Add(readPause)), s.revision, 0, passed{}
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
	s.readAt, s.readFor = earlier(s.readAt, at), max(s.readFor, atLeast)
}

// readIfDue reads everything, by a consumer that is made anew, if that is due.
func (s *Session) readIfDue(now time.Time) (until time.Time) {
	due := s.readAt
	if s.position > 0 {
		due = earlier(due, s.slowReadAt)
	}
	if due.IsZero() || s.reading != 0 {
		return time.Time{}
	}
	if t := s.awaited(); t != nil && s.step == Open { // the read would not prove it, and the consumer that may deliver it would end
		due = timeutil.Later(due, t.sent.Add(s.Timing.RequestTimeout()/4))
	}
	if now.Before(due) {
		return due
	}
	s.readBegan, s.readOver, s.readAt = now, s.revision, now.Add(readPause) // if it fails, unless a renewal is verified soon
	op := s.request(Op{Kind: Follow, AtLeast: s.readFor, Limit: now.Add(s.Timing.RequestTimeout())}, nil)
	s.reading = op
	s.waiting[op] = func(now time.Time, r *Result) {
		if s.reading == op { // else another consumer has taken its place, or is to
			s.reading = 0
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
	s.readFor, s.readAt, s.created = 0, time.Time{}, r.Created
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
			s.missing[SessionKey(id)] = true
		}
	}
	if len(s.missing) > 0 {
		s.readBy(now.Add(readPause), 0)
	}
	if s.revision > r.Position { // it was answered while everything was read, and the consumer may not deliver it
		s.readBy(now.Add(verifyTime), s.revision)
	}
	s.position, s.gaps.open, s.delivered = r.Position, nil, nil
	s.slowReadAt = now.Add(s.Timing.TTL*slowRead + s.Random(s.Timing.TTL*slowRead))
	switch {
	case own != nil:
		switch s.ownSeen(now, own); {
		case s.delivered == nil:
		case s.lacksOwn():
			s.delivered, s.renewAt = nil, earlier(s.renewAt, now.Add(calmDelay))
		case own.Revision > s.readOver: // what was stored while everything was read may be left out, so that only the renewal counts that was known before
			s.delivered, s.renewAt = s.storedBy(s.readOver), earlier(s.renewAt, now.Add(calmDelay))
		}
		s.verify(now)
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

// lacksOwn reports whether the last read did not show a claim that the process holds: it may have been lost before the own record was stored, and the next read
// says.
func (s *Session) lacksOwn() bool {
	for key := range s.missing {
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
		if anew || s.missing[key] {
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
	s.missing = missing
}

// Seen takes what the consumer has delivered: one change after the other, in the order in which they were stored.
func (s *Session) Seen(now time.Time, ch *Change) {
	if s.position > 0 {
		s.gaps.notice(s.position+1, ch.Revision)
		s.gaps.end(ch.Replaced)
	}
	switch {
	case ch.Key != SessionKey(s.id):
		s.apply(now, ch)
	case s.position == 0: // what was stored before is not known yet: a read tells it
		if t := s.renewal(ch); t != nil { // else it is over, or somebody else wrote
			t.revision = ch.Revision
			s.stand(now, ch.Revision)
		}
	default: // everything before it has been delivered
		s.ownSeen(now, ch)
	}
	if s.position > 0 {
		s.position = max(s.position, ch.Revision)
	}
	s.verify(now)
}

// apply takes one change of another key than this session's.
func (s *Session) apply(now time.Time, ch *Change) {
	at := s.moment(now)
	if key, is := ClaimOf(ch.Key); is {
		s.claimSeen(now, key, ch)
		return
	}
	if id, is := SessionOf(ch.Key); is {
		o := s.others[id]
		if o == nil {
			o = &other{}
			s.others[id] = o
		}
		if s.contradicts(now, ch, o.revision) {
			return
		}
		delete(s.missing, ch.Key)
		o.written, s.newest = ch.Written, timeutil.Later(s.newest, ch.Written)
		before := o.status
		if o.take(id, ch, at); o.status != before || o.status != open {
			s.touchNaming(id)
		}
		return
	}
	if ch.Key == settledKey && !ch.Unconditional && !s.settled {
		s.settled = true
		s.touchAll()
	}
}

// contradicts reports whether a change replaced what cannot have been stored, by what is known: then history has gone back, and what was stored since may not
// have been delivered. A change that replaced a later revision than the known one need not be a contradiction, for a consumer leaves out what is replaced
// before it comes to that. But what it had passed before an own renewal was sent was not replaced by then.
func (s *Session) contradicts(now time.Time, ch *Change, known uint64) bool {
	leftOut := ch.Replaced > known && (ch.Replaced > s.passed.position || ch.Revision < s.passed.revision)
	if s.position == 0 || ch.Unconditional || ch.Revision <= known || ch.Replaced == known || leftOut || known == 0 || ch.Replaced == 0 {
		return false
	}
	s.historyWentBack(now, ch.Key, ch.Revision)
	return true
}

// claimSeen takes what is stored under the key of a claim.
func (s *Session) claimSeen(now time.Time, key string, ch *Change) {
	c := s.stored.claim(key)
	if s.contradicts(now, ch, c.revision) {
		return
	}
	own := s.own[key]
	if own != nil {
		s.count(c, -1)
	}
	before := *c
	news := c.take(ch, s.moment(now), s.created)
	if news {
		delete(s.missing, ch.Key)
		c.known = s.leadersBefore(now, &before, c, &ch.Record)
		s.stray = s.stray || c.names(s.id)
	}
	if c.kind == claimed && c.owner != s.id && s.others[c.owner] == nil {
		s.others[c.owner] = &other{}
		if s.position > 0 { // its session has expired, or never was, if a read does not show it either
			s.missing[SessionKey(c.owner)] = true
			s.readBy(now.Add(readPause), ch.Revision)
		}
	}
	if own != nil {
		s.count(c, 1)
	}
	if news && own != nil {
		own.seen(now, c)
		s.touch(own)
	}
}

// count counts the claims that name another session, of the keys that this process campaigns for.
func (s *Session) count(c *storedClaim, by int) {
	if o := s.others[c.owner]; o != nil && c.kind == claimed {
		o.named += by
	}
}

// naming returns how many claims name a session, of the keys that this process campaigns for.
func (s *Session) naming(id string) (n int) {
	for _, c := range s.list {
		if s.claim(c.key).names(id) {
			n++
		}
	}
	return n
}

// touchNaming touches the claims that name a session.
func (s *Session) touchNaming(id string) {
	for _, c := range s.list {
		if s.claim(c.key).names(id) {
			s.touch(c)
		}
	}
}

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

// settle writes that the bucket is older than any lease of an earlier bucket of its name, once it is: this session's record has been stored in it for so
// long. The write demands that it still is.
func (s *Session) settle(now time.Time) (until time.Time) {
	if s.settled || s.settledBy == s.revision || !s.Knows() || !s.leads(now) {
		return time.Time{}
	}
	if due := s.lapses(now, s.openedAt, 0); now.Before(due) {
		return due
	}
	s.settledBy = s.revision // it is refused if a renewal comes first, and tried again after the next one
	r := s.newRecord(now)
	op := Op{Key: settledKey, Value: r.Encode(), While: SessionKey(s.id), Own: s.revision, Limit: now.Add(s.Timing.RequestTimeout())}
	s.request(op, func(time.Time, *Result) {})
	return time.Time{}
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
