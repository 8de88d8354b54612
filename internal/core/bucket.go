package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// Bucket is what a candidate knows of its bucket, and the durations that follow from it.
type Bucket struct {
	timing.Timing
	Created    time.Time     // the identity of the bucket; zero if the bucket does not say
	Read       time.Time     // when the request was sent
	Took       time.Duration // how long the server took to answer
	MarkerTTL  time.Duration // how long the marker of an expiry is stored; 0 if expiries are not announced
	LongestTTL time.Duration // that the bucket has had, if it says so
	Pinned     bool          // Created comes from the metadata, which no server changes by itself
	Paused     bool          // an operator has paused the election
	Remembers  bool          // a release never expires, unless it is a lock's
}

// mostLeft returns how long a lease of the given length may last that was renewed just now, by a clock of this candidate that may be slewed or is not;
// 0 stands for a length that is not known.
func (b *Bucket) mostLeft(lease time.Duration, unslewed bool) time.Duration {
	return max(b.TTL, timing.LapseTime(lease, b.TTL, unslewed))
}

// longerTTL is a TTL that the bucket had before it was made shorter.
type longerTTL struct {
	ttl   time.Duration
	until time.Time // leases that it allowed have ended by then
}

// believed returns the length of the lease that a record states, if the bucket allows so long a lease or has allowed it; else the longest that it has
// allowed, as far as this candidate knows. So a forged record delays nobody for longer than a lease.
func (c *Candidate) believed(now time.Time, r *record.Record) time.Duration {
	longest := max(c.bucket.TTL, c.bucket.LongestTTL)
	if now.Before(c.longerTTL.until) {
		longest = max(longest, c.longerTTL.ttl)
	}
	return min(r.Lease(), longest)
}

// Holds are the reasons for which a candidate does not campaign.
type Holds uint8

// The reasons.
const (
	Paused           Holds = 1 << iota // Pause was called
	PausedByOperator                   // an operator has paused the election, for all candidates
	NotHealthy                         // the health checks fail
	BucketUnusable                     // the bucket is gone or unfit, or its info could not be loaded when this candidate had won the key
)

// reason says in words why a candidate with these holds may not keep a key that it has won; "" if it may.
func (h Holds) reason() string {
	switch {
	case h&PausedByOperator != 0:
		return "the election is paused"
	case h&Paused != 0:
		return "the candidate is paused"
	case h&NotHealthy != 0:
		return "the candidate is not healthy"
	}
	return ""
}

// hold places or removes the hold for one reason, and reports whether that changes it.
func (c *Candidate) hold(why Holds, on bool) (changed bool) {
	before := c.holds
	if c.holds |= why; !on {
		c.holds &^= why
	}
	return c.holds != before
}

// trouble is why the bucket cannot be used any more.
type trouble uint8

// The troubles of a bucket.
const (
	noTrouble trouble = iota
	bucketGone
	bucketUnfit
)

// load asks for the bucket's info. The answer is taken in, by loaded, before then is called.
func (c *Candidate) load(limit time.Time, scope Scope, then stage) {
	c.ask(Op{Kind: Load, Doing: "loading the bucket's info", Limit: limit, Scope: scope}, then)
}

// checkBucket loads the bucket's info again, because something has happened that a change of the bucket would explain.
func (c *Candidate) checkBucket(now time.Time, scope Scope, then stage) {
	c.reloaded = now
	c.load(now.Add(c.bucket.RequestTimeout()), scope, then)
}

// loaded takes note of what the server says about the bucket.
func (c *Candidate) loaded(now time.Time, b Bucket, err error, failure Failure) {
	if failure == Canceled { // nobody waited for the answer
		return
	}
	if err != nil {
		c.requestFailed(now, InfoRequest, err, failure)
		c.setTrouble(failure, err)
		return
	}
	if b.Read.Before(c.bucket.Read) { // the answer to a later request came first
		return
	}
	c.requestSucceeded(InfoRequest)
	c.setTrouble(NoFailure, nil)
	c.hold(BucketUnusable, false)
	if c.hold(PausedByOperator, b.Paused) {
		if b.Paused {
			c.log(Info, "Election paused by an operator")
		} else {
			c.log(Info, "Election resumed by an operator")
		}
	}
	before := c.bucket
	c.bucket = b
	if !b.Created.Equal(before.Created) { // its revisions are other writes
		c.reading.refusedBy = incident{}
	}
	if b.TTL < before.TTL && (before.TTL >= c.longerTTL.ttl || !now.Before(c.longerTTL.until)) {
		c.longerTTL = longerTTL{before.TTL, now.Add(2 * before.TTL)} // a leader that does not know yet renews once more at most
	}
	if before.TTL != 0 && before.Timing != b.Timing {
		c.log(Info, "Durations of the bucket have changed", "ttl", b.TTL, "before", before.TTL, "interval", b.Interval)
		c.turn.afterExpiry = min(c.turn.afterExpiry, b.Spread())
		if c.term != nil && c.try == nil { // a try may yet show a renewal that was applied
			c.adapt(now, c.term)
		}
	}
	if c.isRunning() && !c.hints.bucketCreated.Equal(b.Created) {
		c.report(Event{Kind: Remake})
	}
}

// setTrouble takes note of whether the bucket can be used, and logs each change once. A bucket that cannot be used holds this candidate back until it
// can be. Before the candidate campaigns there is nothing to hold back: the error ends the run.
func (c *Candidate) setTrouble(failure Failure, err error) {
	var now trouble
	switch failure {
	case NoFailure:
	case Gone:
		now = bucketGone
	case Unfit:
		now = bucketUnfit
	default:
		return // it says nothing about the bucket
	}
	if !c.isRunning() {
		return
	}
	before := c.trouble
	c.trouble = now
	if now != noTrouble {
		c.hold(BucketUnusable, true)
	}
	switch {
	case now == before:
	case now == noTrouble:
		c.requests = Requests{} // the requests that failed meanwhile failed because of the bucket
		c.log(Info, "Bucket can be used again", "bucket", c.BucketName)
	case now == bucketGone:
		c.log(Warn, "Bucket is gone, waiting for it", "bucket", c.BucketName, "error", err)
	default:
		c.log(Warn, "Bucket is not fit for elections any more, waiting until it is", "bucket", c.BucketName, "error", err)
	}
}

// reloadDue returns when a candidate that is held back is to load the bucket's info. It may not learn otherwise that an operator has resumed the
// election, or that the connection was closed.
func (c *Candidate) reloadDue() time.Time {
	switch {
	case c.trouble == bucketUnfit: // which an operator mends sooner or later
		return c.reloaded.Add(c.bucket.Interval)
	case c.holds&BucketUnusable != 0:
		return c.reloaded.Add(c.bucket.RequestTimeout())
	}
	return later(c.bucket.Read, c.reloaded).Add(c.bucket.Interval)
}

// reload loads the bucket's info for a candidate that is held back, unless the info cannot tell anything new.
func (c *Candidate) reload(now time.Time) {
	if c.holds&(PausedByOperator|BucketUnusable) != 0 || c.Source() == NoSource {
		c.checkBucket(now, WhileRuns, (*Candidate).idle)
		return
	}
	c.reloaded = now
}
