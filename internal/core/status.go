package core

import "time"

// Source returns the source of notifications; "" before and after a run. It is NoSource while the source is stalled, and while the candidate cannot
// read the key, because a notification is of use only as a reason to read.
func (c *Candidate) Source() string {
	if c.reading.resting && c.hints.source != "" {
		return NoSource
	}
	return c.hints.source
}

// Doing says in words what a candidate does: its [Step], or that of a claim of a session.
type Doing interface {
	String() string
	WithRole() string // the same, after the role that the step belongs to
}

// Status is what a candidate tells of itself.
type Status struct {
	Bucket     Bucket // the zero Bucket until it was reached
	Holds      Holds
	Source     string
	Step       Doing
	Started    time.Time
	UntilNext  time.Duration // from the last campaign or renewal to the next
	TermsLed   uint64        // terms in which it led
	TermsEnded uint64        // and those of them that have ended
	Ready      bool          // it would be notified of a vacancy, and bid for it: it is a standby
	Standby    bool          // it would take over: nothing holds it back, and its last write did not fail
	Next       bool          // the leader's last record names it as the one that takes over
}

// Status returns what the candidate tells of itself.
func (c *Candidate) Status() Status {
	free := c.campaigns() && c.holds == 0 && !c.writeFailed
	return Status{
		Bucket: c.bucket, Holds: c.holds, Source: c.Source(), Started: c.started, Step: c.step, UntilNext: c.untilNext, TermsLed: c.termsLed, TermsEnded: c.termsEnded,
		Ready: free && c.Source() != NoSource, Standby: free, Next: free && c.nextLeader,
	}
}

// isNext reports whether this candidate is to take over, as the record of the leader says that was read or notified last. While nobody holds the key, or this
// candidate does, it is what it was before.
func (c *Candidate) isNext() bool {
	switch {
	case !c.isRunning():
		return false
	case !c.campaigns():
		return c.nextLeader
	case c.stopping, c.holds != 0:
		return false
	case c.key.occupied && !c.isHolder(): // else nobody is known to say
		return c.isNamed()
	}
	return c.nextLeader
}

// setNextLeader takes note of whether this candidate is to take over, and reports a change.
func (c *Candidate) setNextLeader(next bool) {
	if next != c.nextLeader {
		c.nextLeader = next
		c.report(Event{Kind: NextChanged, On: next})
	}
}

// isNamed reports whether the record of the leader that was read or notified last names this candidate as the one that takes over.
func (c *Candidate) isNamed() bool {
	return c.key.occupied && !c.isHolder() && c.key.holder.successor == c.Instance
}

// Term returns the term in which the candidate holds the key; nil if there is none.
func (c *Candidate) Term() *Term { return c.term }

// ReleasedAt returns when a release last named a successor.
func (c *Candidate) ReleasedAt() time.Time { return c.releasedAt }

// Took returns how long the server took for its last answer about the bucket.
func (c *Candidate) Took() time.Duration { return c.bucket.Took }

// SourceOverdue reports whether the source still has not reported something that it was reported as stalled for.
func (c *Candidate) SourceOverdue() bool { return c.hints.overdue }
