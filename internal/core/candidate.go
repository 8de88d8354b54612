package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// Candidate is everything that a candidate knows, and every decision that it makes. It must not be used by two goroutines at a time.
type Candidate struct {
	*Rules

	key      key           // what is stored under the key, as far as is known
	hints    hints         // what was notified and not read yet, how far notifications are trusted, and when to read
	reading  reading       // whether reads arrive
	doubt    doubt         // own writes of unknown outcome
	turn     turn          // when it is to answer a vacancy
	others   roster        // candidates that were seen, or the queue of a lock
	bucket   Bucket        // which one it is, and its durations
	trouble  trouble       // why the bucket cannot be used
	holds    Holds         // why it does not campaign
	metadata metadata      // of its records
	requests Requests      // that failed
	secret   record.Secret // of the term that the next win begins, or of the one that is held; none until it is needed

	phase    phase
	stopping bool // the run is to end
	started  time.Time
	wait     wait   // while it holds no key
	bid      *bid   // the present campaign; nil if there is none
	term     *Term  // nil while it holds no key
	try      *try   // the present try to renew; nil if there is none
	drain    *drain // the end of the term; nil before
	lastTerm *Term  // the term before, while it is decided when to campaign next

	reloaded   time.Time     // when the bucket's info was last to be loaded again
	releasedAt time.Time     // when a release last named a successor
	untilNext  time.Duration // from the last campaign or renewal to the next
	renewSoon  bool          // there is something new to be written by a renewal
	wins       uint64        // terms led
	losses     uint64        // terms led that ended

	op     Op    // what it does now; none if that is to be decided
	then   stage // what comes after it; nil if it waits for nothing in particular: then a notice may give it something to do
	events []Event
}

// stage is what comes after an operation: it takes the result, and asks for the next operation or none. It is a method of Candidate and no
// closure, so that everything that a candidate knows is in its fields.
type stage func(c *Candidate, now time.Time, r Result)

// phase is what a candidate does on the whole.
type phase uint8

const (
	notRunning phase = iota
	campaigning
	leading
	draining  // its leadership has ended, and it holds the key still
	returning // the term is over, and callbacks or work go on
	finished
)

// New returns a candidate.
func New(rules *Rules) *Candidate { return &Candidate{Rules: rules} }

// Begin begins a run in a bucket that was loaded, see [Loaded], with a source of notifications, see [Joined]. A run ends with a [Finish].
// The time until the first campaign counts from since.
func (c *Candidate) Begin(now, since time.Time) {
	c.wait.preempted = since
	due := since.Add(c.Random(c.bucket.Splay))
	if splay := due.Sub(now); splay > 0 {
		c.log(Info, "First campaign comes after a random splay", "in", splay.Round(time.Millisecond))
	}
	c.beginCampaigning(now, due, 0)
}

// ask has the shell do an operation.
func (c *Candidate) ask(op Op, then stage) { c.op, c.then = op, then }

// waitFor waits for a while, whatever happens.
func (c *Candidate) waitFor(now time.Time, d time.Duration, doing string, then stage) {
	c.ask(Op{Kind: Wait, Doing: doing, Due: now.Add(d), Until: now.Add(d)}, then)
}

// finish ends the run.
func (c *Candidate) finish(cloned bool) {
	c.phase = finished
	c.ask(Op{Kind: Finish, Cloned: cloned}, nil)
}

// agenda is what a candidate may do, in order: the first thing whose time has come is done.
type agenda struct {
	now   time.Time
	do    func(*Candidate, time.Time) // nil if it is the time for nothing
	until time.Time                   // when that changes; zero if it does not
	doing string                      // in words, what it does until then
	due   time.Time                   // see Op.Due
}

// add adds something to do at the given time; never if that is zero.
func (a *agenda) add(at time.Time, do func(*Candidate, time.Time)) {
	switch {
	case at.IsZero() || a.do != nil:
	case !a.now.Before(at):
		a.do = do
	default:
		a.until = earlier(a.until, at)
	}
}

// agenda returns what the candidate may do now, while it waits for nothing in particular. It changes nothing.
func (c *Candidate) agenda(now time.Time) (a agenda) {
	a.now = now
	switch c.phase {
	case campaigning:
		c.whileCampaigning(&a)
	case leading:
		c.whileLeading(&a)
	case draining:
		a.add(now, (*Candidate).whileDraining)
	}
	return a
}

// isRunning reports whether a run has begun and has not ended.
func (c *Candidate) isRunning() bool { return c.phase != notRunning && c.phase != finished }

// isIdle reports whether the candidate does nothing in particular, or waits until it is to do something.
func (c *Candidate) isIdle() bool { return c.op.Kind == None || c.op.Kind == Wait && c.then == nil }

// catchUp has the agenda follow what has changed, by a notice or by what came of the last operation.
func (c *Candidate) catchUp(now time.Time) {
	switch {
	case !c.isIdle():
	case c.phase == campaigning:
		c.followHolds(now)
	case c.phase == leading && c.term.Lease.State != Follower:
		c.adjustRenewal(now)
	}
}

// Next returns the one thing to do now, and what there is to report before it is done. The shell does it and calls Done.
func (c *Candidate) Next(now time.Time) (Op, []Event) {
	for c.op.Kind == None {
		c.catchUp(now)
		a := c.agenda(now)
		if a.do == nil {
			c.ask(Op{Kind: Wait, Doing: a.doing, Due: a.due, Until: a.until}, nil)
			break
		}
		a.do(c, now)
	}
	return c.op, c.takeEvents()
}

// Done takes what came of the operation that Next returned.
func (c *Candidate) Done(now time.Time, r Result) {
	op, then := c.op, c.then
	c.op, c.then = Op{}, nil
	switch op.Kind {
	case Wait:
		if then != nil && !(op.Quiet && r.Quiet) && (op.Until.IsZero() || now.Before(op.Until)) { // it was woken too early
			c.ask(op, then)
			return
		}
	case Read:
		c.readAnswered(now, &r)
	case Load:
		c.loaded(now, r.Bucket, r.Err, r.Failure)
	}
	if then != nil {
		then(c, now, r)
	}
}

// idle is a stage after which nothing in particular is to be done.
func (c *Candidate) idle(time.Time, Result) {}

// takeEvents returns the events that were not taken yet.
func (c *Candidate) takeEvents() []Event {
	events := c.events
	c.events = nil
	return events
}

// Waits returns what a candidate waits for that waits for nothing in particular, as it is known now: the time until which it does is not in the
// future if there is something to do. It returns false if the candidate does something else, or is not to be woken before its time.
func (c *Candidate) Waits(now time.Time) (op Op, waits bool) {
	if c.op.Kind == None || !c.isIdle() {
		return Op{}, false
	}
	a := c.agenda(now)
	if a.do != nil {
		a.until = now
	}
	return Op{Kind: Wait, Doing: a.doing, Due: a.due, Until: a.until}, true
}

// earlier returns the earlier of two times, of which the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
