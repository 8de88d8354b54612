package session

import (
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
	gapsBefore uint64                      // how many gaps had been noticed when it was delivered: it counts once all of them have ended
	passed     passed                      // by the last renewal that was delivered
	renewAt    time.Time                   // when to renew, or to open
	pruneAt    time.Time                   // when to forget sessions that are over
	settledBy  uint64                      // the own revision that the last write of the settled key demanded
	closing    bool                        // the process has closed it: all claims are to end
	limit      time.Time                   // when to give up the release of a session that is closing

	reads    reads
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
		reads:    reads{missing: map[string]bool{}},
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
		s.delivered, s.gapsBefore = &renewal, s.gaps.noticed
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
	if t == nil || s.gaps.anyOf(s.gapsBefore) {
		return
	}
	s.delivered = nil
	for i := range s.tries { // an earlier one, if it is not answered yet, was not applied, or is known to be older
		if s.tries[i].attempt == t.attempt {
			s.tries = append([]try(nil), s.tries[i+1:]...)
			break
		}
	}
	if len(s.reads.missing) == 0 && now.Before(s.reads.at) {
		s.reads.at = time.Time{}
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
	s.id, s.lease, s.tries, s.delivered, s.renewAt = "", nil, nil, nil, now
	s.reads.cancel()
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
		delete(s.reads.missing, ch.Key)
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
		delete(s.reads.missing, ch.Key)
		c.known = s.leadersBefore(now, &before, c, &ch.Record)
		s.stray = s.stray || c.names(s.id)
	}
	if c.kind == claimed && c.owner != s.id && s.others[c.owner] == nil {
		s.others[c.owner] = &other{}
		if s.position > 0 { // its session has expired, or never was, if a read does not show it either
			s.reads.missing[SessionKey(c.owner)] = true
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
