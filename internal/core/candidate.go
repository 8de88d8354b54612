package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// Candidate is everything that a candidate knows, and every decision that it makes. It must not be used by two goroutines at a time.
type Candidate struct {
	*Rules

	// What it knows.
	key         key       // what is stored under the key, as far as is known
	hints       hints     // notifications that were not followed by a read yet, whether notifications are trusted, and when to read
	reading     reading   // the present read, and whether reads are answered
	doubt       doubt     // its own writes, above all those of unknown outcome
	turn        turn      // when it is its turn to bid for a vacancy
	others      roster    // the candidates that were seen, or the queue of a lock
	bucket      Bucket    // the identity of the bucket, and its durations
	longerTTL   longerTTL // that the bucket had before
	holds       Holds     // why it does not campaign
	metadata    metadata  // of its records
	lean        lean      // what they leave out
	infoAskedAt time.Time // when the bucket's info was last asked for again, or that was found needless
	writeFailed bool      // the last write failed, other than by a refusal

	// What it does.
	role     role // nil before the run and after it
	waiting  waiting
	stopping bool          // the run is to end
	started  time.Time     // when the run began
	secret   record.Secret // of the term that is held, or that the next win begins; none until it is needed
	term     *Term         // nil while it holds no key

	// What it tells of itself.
	releasedAt time.Time     // when a release last named a successor
	untilNext  time.Duration // from the last campaign or renewal to the next
	nextLeader bool          // it is to take over, see isNext
	termsLed   uint64        // terms in which it led
	termsEnded uint64        // terms in which it led that have ended

	op     Op // what it does now; Op.Kind is None if that is to be decided
	step   Step
	events []Event
}

// New returns a candidate.
func New(rules *Rules) *Candidate { return &Candidate{Rules: rules} }

// Begin begins a run in a bucket whose info was loaded, see [Loaded], with a source of notifications, see [Joined]. A run ends with a [Finish].
// The time until the first campaign counts from since.
func (c *Candidate) Begin(now, since time.Time) {
	c.waiting.preempted = since
	due := since.Add(c.Random(c.splay()))
	if splay := due.Sub(now); splay > c.bucket.Spread() && c.holds == 0 { // what holds it back is logged already
		c.log(Info, "First campaign comes after a random splay", "in", splay.Round(time.Millisecond))
	}
	c.role = c.wait(now, due)
}

// splay returns the time over which candidates spread their first campaigns. A candidate that is notified needs no more than to bid for a vacancy, unless an
// option says so: few campaign before all others are notified of the first win.
func (c *Candidate) splay() time.Duration {
	if c.bucket.DefaultSplay && c.Source() != NoSource {
		return min(c.bucket.Splay, c.bucket.Spread())
	}
	return c.bucket.Splay
}

// Next returns the one thing to do now, and what there is to report before. The driver reports, does the thing, and calls Done.
func (c *Candidate) Next(now time.Time) (Op, []Event) {
	for c.op.Kind == None {
		c.beginStep(now)
		if r, known := c.known(now); known {
			c.goOn(now, r)
		}
	}
	return c.op, c.takeEvents()
}

// beginStep begins the present step or, if that is a wait, finds out how long it is now.
func (c *Candidate) beginStep(now time.Time) {
	c.enter(c.role.at())
	c.op = c.role.next(c, now)
	c.enter(c.role.at()) // a candidate that waits may be held back by now
}

// enter takes note of the present step.
func (c *Candidate) enter(step Step) {
	before := c.step
	if c.step = step; step != before && c.Stepped != nil {
		c.Stepped(before, step)
	}
}

// known returns what comes of the present operation, if that is known without doing it.
func (c *Candidate) known(now time.Time) (r Result, known bool) {
	switch op := &c.op; op.Kind {
	case Wait: // if callbacks and work are waited for, they may have returned by now
		return r, !op.Quiet && !op.Until.IsZero() && !now.Before(op.Until)
	case Read:
		return Result{Err: errUnreadable, Failure: Unreadable}, now.Before(c.reading.until)
	case AskBackoff:
		return r, !c.HasBackoff
	}
	return r, false
}

// Done takes the result of the operation that Next returned.
func (c *Candidate) Done(now time.Time, r Result) {
	switch c.op.Kind {
	case Read:
		c.readAnswered(now, &r)
	case Load:
		c.loaded(now, r.Bucket, r.Err, r.Failure)
	}
	c.goOn(now, r)
}

// goOn passes the result of the present operation to the role.
func (c *Candidate) goOn(now time.Time, r Result) {
	c.op = Op{}
	c.role = c.role.done(c, now, r)
}

// Waits returns the wait of a candidate that waits. After a notice it may be shorter than the one that Next returned; if there is something to do now, its
// Until is not in the future. waits is false if the candidate does something else.
func (c *Candidate) Waits() (op Op, waits bool) { return c.op, c.op.Kind == Wait }

// waitAnew finds out how long the present wait is now, if the candidate waits.
func (c *Candidate) waitAnew(now time.Time) {
	if c.op.Kind == Wait {
		c.beginStep(now)
	}
}

// Doing says in words what the candidate does.
func (c *Candidate) Doing() string { return c.step.String() }

// Step returns the present step.
func (c *Candidate) Step() Step { return c.step }

// isRunning reports whether a run has begun and has not ended.
func (c *Candidate) isRunning() bool { return c.role != nil && c.role.at() != Finished }

// campaigns reports whether the candidate holds no key, and would take it: it waits for its next campaign, or makes one.
func (c *Candidate) campaigns() bool {
	switch c.role.(type) {
	case *waiting, *bidding:
		return true
	}
	return false
}

// takeEvents returns what there is to report, once.
func (c *Candidate) takeEvents() []Event {
	c.setNextLeader(c.isNext())
	events := c.events
	c.events = nil
	return events
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
