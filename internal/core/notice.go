package core

import (
	"time"
)

// A Notice is something that a candidate learns while it does something else.
type Notice interface {
	apply(c *Candidate, now time.Time)
}

// Notice takes a notice, and returns what the candidate has to report. Afterwards [Candidate.Waits] may be another. There is nothing to report of
// [NewRun], [EndRun], [NewRules] and [SetMetadata].
func (c *Candidate) Notice(now time.Time, n Notice) []Event {
	n.apply(c, now)
	c.waitAnew(now)
	return c.takeEvents()
}

func (n *Notification) apply(c *Candidate, now time.Time) { c.notified(now, n) }

// Attempt is what another candidate published to write the key.
type Attempt struct{ Value *Value }

func (n Attempt) apply(c *Candidate, now time.Time) { c.attempted(now, n.Value.Record()) }

// SourceChanged says that a source of notifications was started, or may have missed something.
type SourceChanged struct {
	Source string
	Spread bool // all candidates notice it at the same time
}

func (n SourceChanged) apply(c *Candidate, now time.Time) {
	var within time.Duration
	if n.Spread {
		within = c.bucket.TTL / 4
	}
	c.sourceChanged(now, n.Source, within)
}

// SourceLost says that the source of notifications is stalled, and that there is no other yet.
type SourceLost struct{}

func (SourceLost) apply(c *Candidate, _ time.Time) {
	c.hints.source = NoSource
	c.forgetTiming()
}

// Joined says what is known of the source of notifications when a candidate begins to receive them.
type Joined struct {
	Source      string
	Created     time.Time // when the bucket was created that it reports of
	ConnectedAt time.Time // when the connection was last made again; zero if it was not
}

func (n Joined) apply(c *Candidate, _ time.Time) {
	if !c.hints.bucketCreated.Equal(n.Created) { // revisions begin anew
		c.key.highest = 0
	}
	c.hints.source, c.hints.bucketCreated, c.hints.connectedAt = n.Source, n.Created, n.ConnectedAt
	c.forgetTiming()
}

// SourceMoved says that the source of notifications reports of another bucket now, which was created at the given time: revisions begin anew.
type SourceMoved struct{ Created time.Time }

func (n SourceMoved) apply(c *Candidate, _ time.Time) {
	c.hints.bucketCreated, c.key.highest = n.Created, 0
	c.forgetTiming()
}

// Reconnected says that the connection was made again: what was known before may be outdated.
type Reconnected struct{ At time.Time }

func (n Reconnected) apply(c *Candidate, _ time.Time) {
	c.hints.connectedAt = n.At
	c.forgetTiming()
}

// Loaded says what the server answered when the bucket's info was loaded.
type Loaded struct {
	Bucket  Bucket
	Err     error
	Failure Failure
}

func (n Loaded) apply(c *Candidate, now time.Time) { c.loaded(now, n.Bucket, n.Err, n.Failure) }

// Hold places or removes a hold.
type Hold struct {
	Why Holds
	On  bool
}

func (n Hold) apply(c *Candidate, _ time.Time) { c.hold(n.Why, n.On) }

// Stop ends the run.
type Stop struct{}

func (Stop) apply(c *Candidate, now time.Time) {
	c.stopping = true
	if c.term != nil {
		c.endLeadership(now, c.term, Stopped)
	}
}

// End ends a term, unless it has ended.
type End struct {
	Term *Term
	Why  Reason
}

func (n End) apply(c *Candidate, now time.Time) { c.endLeadership(now, n.Term, n.Why) }

// SetMetadata changes the metadata of the records.
type SetMetadata struct{ Metadata map[string]string }

func (n SetMetadata) apply(c *Candidate, _ time.Time) {
	c.metadata.set, c.lean = n.Metadata, whole
	if c.term != nil {
		c.term.renewSoon = true
	}
}

// ReleaseExpected says that a leader will have released the key to this candidate at the given time.
type ReleaseExpected struct{ At time.Time }

func (n ReleaseExpected) apply(c *Candidate, now time.Time) { c.releaseExpected(now, n.At) }

// NewRules takes the place of the rules: another process uses the instance that this candidate had, and may go on with it.
type NewRules struct{ Rules *Rules }

func (n NewRules) apply(c *Candidate, _ time.Time) {
	before := *c
	*c = before.afterRun(n.Rules)
	// The run goes on, but writes of the old instance are no longer this candidate's own.
	c.reading, c.stopping, c.infoAskedAt = before.reading, before.stopping, before.infoAskedAt
	c.reading.repliesDoubtful = false
	c.releasedAt, c.events, c.writeFailed = before.releasedAt, before.events, before.writeFailed
	c.doubt, c.key = doubt{}, key{}
	c.key.carryOver(&before.key, before.Instance)
}

// afterRun returns what remains of a candidate when a run ends, under the given rules: its own writes, and what it knew of holders and their
// leases. These outlive the run.
func (c *Candidate) afterRun(rules *Rules) Candidate {
	l := Candidate{
		Rules: rules, doubt: c.doubt, holds: c.holds, metadata: c.metadata, bucket: c.bucket, longerTTL: c.longerTTL, started: c.started, untilNext: c.untilNext,
		termsLed: c.termsLed, termsEnded: c.termsEnded, writeFailed: c.writeFailed, hints: hints{bucketCreated: c.hints.bucketCreated},
	}
	l.key.carryOver(&c.key, "")
	l.key.removal, l.key.passedOn, l.key.passedStandDown = incident{}, incident{}, 0 // they may be outdated when the next run begins
	return l
}

// NewRun says that a run is to begin. What the candidate knew of its own writes, and of holders and their leases, remains.
type NewRun struct {
	Rules   *Rules
	Started time.Time
}

func (n NewRun) apply(c *Candidate, _ time.Time) {
	*c = c.afterRun(n.Rules)
	c.started = n.Started
}

// EndRun says that the run has ended.
type EndRun struct{}

func (EndRun) apply(c *Candidate, _ time.Time) { *c = c.afterRun(c.Rules) }
