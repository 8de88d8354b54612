package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// Candidate is everything that a candidate knows, and every decision that it makes. It must not be used by two goroutines at a time.
type Candidate struct {
	*Rules

	// What it knows.
	key       key       // what is stored under the key, as far as is known
	hints     hints     // notifications that were not followed by a read yet, whether notifications are trusted, and when to read
	reading   reading   // the present read, and whether reads are answered
	doubt     doubt     // its own writes, above all those of unknown outcome
	turn      turn      // when it is its turn to answer a vacancy
	others    roster    // the candidates that were seen, or the queue of a lock
	bucket    Bucket    // the identity of the bucket, and its durations
	longerTTL longerTTL // that the bucket had before
	trouble   trouble   // why the bucket cannot be used
	holds     Holds     // why it does not campaign
	metadata  metadata  // of its records
	requests  Requests  // those that failed
	reloaded  time.Time // when the bucket's info was last asked for again, or a reload was found needless

	// What it does.
	phase     phase
	stopping  bool          // the run is to end
	started   time.Time     // when the run began
	wait      wait          // for the next campaign, while it holds no key
	bid       *bid          // the present campaign; nil if there is none
	secret    record.Secret // of the term that is held, or that the next win begins; none until it is needed
	term      *Term         // nil while it holds no key
	try       *try          // the present try to renew; nil if there is none
	renewSoon bool          // a renewal has something new to write
	drain     *drain        // the end of the term; nil before
	lastTerm  *Term         // the term that is over, until it is decided when to campaign next

	// What it tells of itself.
	releasedAt time.Time     // when a release last named a successor
	untilNext  time.Duration // from the last campaign or renewal to the next
	next       bool          // it is to take over, see isNext
	wins       uint64        // terms in which it led
	losses     uint64        // terms in which it led that have ended

	op     Op    // what it does now; Op.Kind is None if that is to be decided
	then   stage // what takes the result of op; nil if op is the wait between two activities, which a notice may end
	events []Event
}

// stage is the step that follows an operation: it takes the result, and asks for another operation or for none. It is always a method of Candidate,
// never a closure, so that everything that a candidate knows is in its fields.
type stage func(c *Candidate, now time.Time, r Result)

// phase is what a candidate does on the whole: see the package comment.
type phase uint8

const (
	notRunning phase = iota
	campaigning
	leading   // or leader-elect
	draining  // leadership has ended, and the key is still held
	returning // the term is over, and callbacks or work have not returned
	finished
)

// New returns a candidate.
func New(rules *Rules) *Candidate { return &Candidate{Rules: rules} }

// Begin begins a run in a bucket whose info was loaded, see [Loaded], with a source of notifications, see [Joined]. A run ends with a [Finish].
// The time until the first campaign counts from since.
func (c *Candidate) Begin(now, since time.Time) {
	c.wait.preempted = since
	due := since.Add(c.Random(c.splay()))
	if splay := due.Sub(now); splay > c.bucket.Spread() && c.holds == 0 { // what holds it back is logged already
		c.log(Info, "First campaign comes after a random splay", "in", splay.Round(time.Millisecond))
	}
	c.beginCampaigning(now, due, 0)
}

// splay returns the time over which candidates spread their first campaigns. A candidate that is notified needs no more than to answer a vacancy, unless an
// option says so: few campaign before all others are notified of the first win.
func (c *Candidate) splay() time.Duration {
	if c.bucket.DefaultSplay && c.Source() != NoSource {
		return min(c.bucket.Splay, c.bucket.Spread())
	}
	return c.bucket.Splay
}

// ask has the shell do an operation. then takes the result.
func (c *Candidate) ask(op Op, then stage) { c.op, c.then = op, then }

// askWrite has the shell write the key over a revision, on whatever connection. Renewals and the write that wins have more to say, see writeRenewal
// and acquire.
func (c *Candidate) askWrite(limit time.Time, doing string, value []byte, over uint64, then stage) {
	c.ask(Op{Kind: Write, Doing: doing, Limit: limit, Value: value, Over: over, Reconnects: AnyReconnects}, then)
}

// waitFor waits for a while, which no notice cuts short.
func (c *Candidate) waitFor(now time.Time, d time.Duration, doing string, then stage) {
	c.ask(Op{Kind: Wait, Doing: doing, Due: now.Add(d), Until: now.Add(d)}, then)
}

// finish ends the run.
func (c *Candidate) finish(cloned bool) {
	c.phase = finished
	c.ask(Op{Kind: Finish, Cloned: cloned}, nil)
}

// agenda finds the next thing to do. Things are added in the order of their importance, and the first one whose time has come is done.
type agenda struct {
	now   time.Time
	do    func(*Candidate, time.Time) // the thing to do now; nil if the time has come for none
	until time.Time                   // when the time comes for the next thing; zero for never
	doing string                      // what the candidate does until then, in words
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

// agenda returns what a candidate between two activities may do now. It changes nothing.
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

// isIdle reports whether the candidate is between two activities.
func (c *Candidate) isIdle() bool { return c.op.Kind == None || c.op.Kind == Wait && c.then == nil }

// catchUp changes when a campaign or a renewal is due, after a notice or the result of an operation has given a reason to.
func (c *Candidate) catchUp(now time.Time) {
	switch {
	case !c.isIdle():
	case c.phase == campaigning:
		c.followHolds(now)
	case c.phase == leading && c.term.Lease.State != Follower:
		c.adjustRenewal(now)
	}
}

// Next returns the one thing to do now, and what there is to report before. The shell reports, does the thing, and calls Done.
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

// Done takes the result of the operation that Next returned.
func (c *Candidate) Done(now time.Time, r Result) {
	op, then := c.op, c.then
	c.op, c.then = Op{}, nil
	switch op.Kind {
	case Wait:
		if then != nil && !(op.Quiet && r.Quiet) && (op.Until.IsZero() || now.Before(op.Until)) { // the shell was woken too early
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

// idle is the stage after an operation that is all of an activity.
func (c *Candidate) idle(time.Time, Result) {}

// takeEvents returns what there is to report, once.
func (c *Candidate) takeEvents() []Event {
	c.setNext(c.isNext())
	events := c.events
	c.events = nil
	return events
}

// Waits returns the wait of a candidate between two activities, as it would be decided now. After a notice it may be shorter than the one that Next
// returned; if there is something to do now, its Until is not in the future. waits is false if the candidate does something else, or if its wait must
// not be cut short.
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

// earlier returns the earlier of two times; the zero time stands for never.
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
