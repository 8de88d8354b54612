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

// mayAllowLonger reports whether the bucket may allow longer leases by now than this candidate knows: a record states one that was written since the info
// was loaded. Nobody need have told this candidate of a TTL that was made longer.
func (c *Candidate) mayAllowLonger(now time.Time, r *record.Record) bool {
	return r.Lease() > c.believed(now, r) && !c.knowsTTLOf(c.key.lastWrite.firstSeen)
}

// knowsTTLOf reports whether the bucket's info was loaded after a write was first seen, at the given time: then this candidate knows the TTL by which
// the write was made.
func (c *Candidate) knowsTTLOf(seen time.Time) bool { return !c.bucket.Read.Before(seen) }

// Holds are the reasons for which a candidate does not campaign: they hold it back. They have nothing to do with holding the key.
type Holds uint8

// The reasons.
const (
	Paused           Holds = 1 << iota // Pause was called
	PausedByOperator                   // an operator has paused the election, for all candidates
	NotHealthy                         // the health checks fail
	BucketGone                         // the bucket is gone, or the connection is closed for good
	BucketUnfit                        // the bucket is wrong for elections, or for this candidate's options

	bucketUnusable = BucketGone | BucketUnfit
)

// Against says in words why a candidate with these holds does not keep a key that it has won, and why its term ends; "" if it keeps the key.
func (h Holds) Against() (words string, why Reason) {
	switch {
	case h&PausedByOperator != 0:
		return "the election is paused", Resigned
	case h&Paused != 0:
		return "the candidate is paused", Resigned
	case h&NotHealthy != 0:
		return "the candidate is not healthy", Unhealthy
	case h&bucketUnusable != 0:
		return "the bucket cannot be used", Unhealthy
	}
	return "", ""
}

// hold places or removes the hold for one reason, and reports whether that changes it.
func (c *Candidate) hold(why Holds, on bool) (changed bool) {
	before := c.holds
	if c.holds |= why; !on {
		c.holds &^= why
	}
	return c.holds != before
}

// loadOp returns a request for the bucket's info.
func (c *Candidate) loadOp(now time.Time, scope Scope) Op {
	c.infoAskedAt = now
	return Op{Kind: Load, Limit: now.Add(c.bucket.RequestTimeout()), Scope: scope}
}

// loaded takes note of what the server says about the bucket.
func (c *Candidate) loaded(now time.Time, b Bucket, err error, failure Failure) {
	if failure == Canceled { // nobody waited for the answer
		return
	}
	if err != nil {
		if failure == Timeout {
			c.report(Event{Kind: Suspect})
		}
		c.setUsable(failure, err)
		return
	}
	if b.Read.Before(c.bucket.Read) { // the answer to a later request came first
		return
	}
	c.setUsable(NoFailure, nil)
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
		if _, tries := c.role.(*renewing); c.term != nil && !tries { // a try may yet show a renewal that was applied
			c.adapt(now, c.term)
		}
	}
	if c.isRunning() && !c.hints.bucketCreated.Equal(b.Created) {
		c.report(Event{Kind: Remake})
	}
}

// setUsable takes note of whether the bucket can be used, and logs each change once. A bucket that cannot be used holds this candidate back until it
// can be. Before the candidate campaigns there is nothing to hold back: the error ends the run.
func (c *Candidate) setUsable(failure Failure, err error) {
	var unusable Holds
	switch failure {
	case NoFailure:
	case Gone:
		unusable = BucketGone
	case Unfit:
		unusable = BucketUnfit
	default:
		return // it says nothing about the bucket
	}
	if !c.isRunning() {
		return
	}
	before := c.holds & bucketUnusable
	c.holds = c.holds&^bucketUnusable | unusable
	switch {
	case unusable == before:
	case unusable == 0:
		c.log(Info, "Bucket can be used again", "bucket", c.BucketName)
	case unusable == BucketGone:
		c.log(Warn, "Bucket is gone, waiting for it", "bucket", c.BucketName, "error", err)
	default:
		c.log(Warn, "Bucket is not fit for elections any more, waiting until it is", "bucket", c.BucketName, "error", err)
	}
}
