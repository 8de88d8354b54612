package core

import (
	"time"

	"github.com/natscampaign/election/internal/timing"
)

const (
	// fallbackPoll is after how many TTLs, on average, a candidate campaigns although it is notified of renewals.
	fallbackPoll = 80
	// fallbackPollUnmarked is the same where expiries are not announced, and fallbackPollFailing for a candidate whose last write failed, which it says
	// until a write succeeds.
	fallbackPollUnmarked, fallbackPollFailing = 8, 1
	// unmarkedReads is after how many TTLs a candidate that is notified reads the key where expiries are not announced: there forged renewals may hide
	// that the leader is gone, for no longer than a lease or two.
	unmarkedReads = 2
)

// waiting is the role of a candidate that holds no key, between two campaigns. It lasts from one term to the next.
//
// A candidate that is notified seldom campaigns by itself: it waits for a hint, which has it read the key, and the read becomes a campaign if the
// key is vacant. A candidate that is not notified campaigns at intervals.
type waiting struct {
	step      Step
	due       time.Time // when to campaign next, unless the candidate relies on notifications
	failed    int       // campaigns in a row that did not win, for whatever reason
	from      time.Time // what the Backoff's answer counts from
	yields    time.Time // after a release in favour of others: until then they bid for it, and this candidate does not
	fallback  time.Time // when to campaign although the candidate relies on notifications
	read      time.Time // when to read the key although it does; zero for never
	preempted time.Time // when a leader was last asked to hand over, or the run began
	held      bool      // something held this candidate back while it waited
	paused    bool      // an operator's pause was among what did
}

// wait has the candidate campaign first at the given time.
func (c *Candidate) wait(now, due time.Time) role {
	c.setNextLeader(false)
	c.forget(now)
	c.lean = whole // the bucket may take larger records by now
	c.turn.pending = false
	c.waiting = waiting{due: due, preempted: c.waiting.preempted}
	return c.waitAgain(now)
}

// waitAgain has the candidate wait for its next campaign. It chooses when the candidate campaigns although it is notified.
func (c *Candidate) waitAgain(now time.Time) role {
	w, poll := &c.waiting, time.Duration(fallbackPoll)
	switch {
	case c.writeFailed: // it finds out soon that what kept it from writing is over
		poll = fallbackPollFailing
	case c.bucket.MarkerTTL <= 0:
		poll = fallbackPollUnmarked
	}
	w.fallback = now.Add(c.bucket.TTL*poll/2 + c.Random(c.bucket.TTL*poll))
	if c.isUnknown() {
		w.fallback = earlier(w.fallback, now.Add(c.Random(c.bucket.TTL)))
	}
	if w.read = (time.Time{}); c.bucket.MarkerTTL <= 0 {
		w.read = now.Add(c.bucket.TTL*unmarkedReads + c.Random(c.bucket.Interval))
	}
	w.step = WaitingCampaign
	return w
}

// waitAfterFailure has the candidate wait after so many campaigns in a row that failed. The Backoff says how long, counted from the given time.
func (c *Candidate) waitAfterFailure(from time.Time, failed int) role {
	w := &c.waiting
	w.failed, w.from, w.step = failed, from, WaitingBackoff
	return w
}

func (w *waiting) at() Step { return w.step }

func (w *waiting) next(c *Candidate, now time.Time) Op {
	switch w.step {
	case WaitingBackoff:
		return Op{Kind: AskBackoff, Failed: w.failed}
	case WaitingBucket:
		return c.loadOp(now, WhileRuns)
	case WaitingWithdrawal:
		r := c.newRecord(now)
		r.Withdrawn = true
		return c.refusedWriteOp(now, r)
	}
	w.followHolds(c, now)
	p := w.errands(c, now)
	return Op{Kind: Wait, Due: p.due, Until: p.until}
}

func (w *waiting) done(c *Candidate, now time.Time, r Result) role {
	switch w.step {
	case WaitingBackoff:
		w.due = later(w.from.Add(c.timeToNext(r)), now.Add(timing.MinPause))
		return c.waitAgain(now)
	case WaitingBucket:
		w.step = WaitingCampaign
		return w
	case WaitingWithdrawal:
		c.log(Debug, "Withdrawn", "answer", r.Err)
		return finished{}
	}
	switch w.errands(c, now).first {
	case withdraw:
		return w.withdraw(c)
	case reload:
		return w.reload(c, now)
	case takeOver: // reads the key, and writes over it if the lease of its holder has lapsed
		c.turn.takeover = now.Add(c.bucket.Spread()) // the next try, if this one fails
		return c.bid(now, true)
	case campaign:
		c.report(Event{Kind: Campaigned, State: Follower})
		return c.bid(now, false)
	case readHint:
		return c.bid(now, true)
	case preempt:
		w.preempt(c, now)
	case renewalOverdue:
		c.renewalIsOverdue(now)
	case sourceStalled:
		c.checkStalled(now)
	}
	return w
}

// errand is what ends the wait for the next campaign.
type errand uint8

// The errands: see waiting.errands for which comes first.
const (
	noErrand       errand = iota
	withdraw              // the run is to end
	reload                // load the bucket's info, which may say that nothing holds this candidate back any more
	takeOver              // the lease of the holder has lapsed
	campaign              // it is time to
	preempt               // ask a leader of lower priority to hand over
	readHint              // a notification is a reason to read the key
	renewalOverdue        // the holder has not renewed in time
	sourceStalled         // the source has not reported in time what this candidate knows
)

// errands are what a candidate that waits may have to do: which is due, and when the next one is.
type errands struct {
	now   time.Time
	first errand    // whose time has come
	until time.Time // when the time comes for the next one; zero for never
	due   time.Time // see Op.Due
}

// add adds an errand at the given time; never if that is zero.
func (p *errands) add(at time.Time, e errand) {
	switch {
	case at.IsZero():
	case p.now.Before(at), p.first != noErrand:
		p.until = earlier(p.until, at)
	default:
		p.first, p.until = e, p.now
	}
}

// errands returns what there is to do, the most urgent first. It changes nothing.
func (w *waiting) errands(c *Candidate, now time.Time) errands {
	p := errands{now: now}
	if c.stopping {
		p.add(now, withdraw)
		return p
	}
	if c.holds != 0 {
		p.add(c.reloadDue(), reload)
	} else {
		p.due = w.nextCampaign(c)
		p.add(c.takeoverDue(now), takeOver)
		p.add(p.due, campaign)
		p.add(w.preemptionDue(c), preempt)
		if c.Source() != NoSource && w.read.Before(c.key.lastWrite.firstSeen.Add(c.bucket.TTL)) { // otherwise a campaign is due
			p.add(w.read, readHint)
		}
	}
	p.add(c.renewalDue(), renewalOverdue)
	p.add(c.stalledAt(), sourceStalled)
	if c.holds&bucketUnusable == 0 {
		p.add(c.readDue(), readHint)
	}
	return p
}

// nextCampaign returns when to campaign. While another candidate holds the key, a candidate that relies on notifications waits until the key must
// have expired, or for the fallback.
func (w *waiting) nextCampaign(c *Candidate) time.Time {
	relies := w.failed >= OpeningCampaigns && c.Source() != NoSource
	if relies && c.key.occupied && !c.isHolder() {
		expired := c.key.lastWrite.firstSeen.Add(c.bucket.TTL + timing.ExpiryLateness)
		if c.bucket.MarkerTTL > 0 { // an expiry is announced: this is for what never expires, and for an announcement that was missed
			expired = c.expiredBy()
		}
		return later(w.due, earlier(w.fallback, expired.Add(c.turn.afterExpiry)))
	}
	return w.due
}

// followHolds takes note of what holds this candidate back. When nothing does any more, it puts the next campaign off at random, because the same
// may have held many candidates back.
func (w *waiting) followHolds(c *Candidate, now time.Time) {
	if c.holds != 0 {
		w.step, w.held, w.paused = WaitingHeld, true, w.paused || c.holds&PausedByOperator != 0
		return
	}
	w.step = WaitingCampaign
	switch {
	case !w.held:
	case w.paused && !c.key.occupied: // the pause held all candidates back, and nobody leads: they bid as they bid for a vacancy
		w.due, w.held, w.paused = later(w.yields, now.Add(c.Random(c.bucket.Spread()))), false, false
	default:
		w.due, w.held, w.paused = later(w.due, now.Add(c.Random(c.splay()))), false, false
	}
}

// withdraw ends the run. A candidate that waits in the queue of a lock, or that the leader names as the next, first makes an attempt that is always refused:
// it tells the holder, which records attempts, that this candidate does not wait any more.
func (w *waiting) withdraw(c *Candidate) role {
	if !c.Connected || !c.hasAnnounced() && !c.isNamed() {
		return finished{}
	}
	w.step = WaitingWithdrawal
	return w
}

// preemptionDue returns when to ask the leader to hand over to this candidate; the zero time if there is no reason to.
func (w *waiting) preemptionDue(c *Candidate) time.Time {
	h := &c.key.holder
	if !c.Preempts || !c.Connected || !c.key.occupied || h.term == 0 || h.instance == c.Instance || h.priority >= c.Priority {
		return time.Time{}
	}
	return w.preempted.Add(c.bucket.Interval)
}

// preempt asks the leader to hand over to this candidate. It does not wait for the answer: the release tells.
func (w *waiting) preempt(c *Candidate, now time.Time) {
	w.preempted = now
	h := &c.key.holder
	c.log(Info, "Asking a leader of lower priority to hand over", "leader", h.name, "priority", h.priority)
	c.report(Event{Kind: Preempt, Instance: h.instance, Name: h.name})
}

// timeToNext returns the time from one campaign to the next: what a Backoff says, else one interval.
func (c *Candidate) timeToNext(r Result) time.Duration {
	pause := c.bucket.Interval
	if c.HasBackoff && r.Err == nil {
		pause = min(max(r.Delay, timing.MinPause), c.bucket.TTL)
	}
	c.untilNext = pause
	return pause
}

// reload has a candidate that is held back load the bucket's info, unless the info cannot tell anything new.
func (w *waiting) reload(c *Candidate, now time.Time) role {
	c.infoAskedAt = now
	if c.holds&(PausedByOperator|bucketUnusable) != 0 || c.Source() == NoSource {
		w.step = WaitingBucket
	}
	return w
}

// reloadDue returns when a candidate that is held back is to load the bucket's info. It may not learn otherwise that an operator has resumed the
// election, or that the connection was closed.
func (c *Candidate) reloadDue() time.Time {
	switch {
	case c.holds&BucketUnfit != 0: // which an operator mends sooner or later
		return c.infoAskedAt.Add(c.bucket.Interval)
	case c.holds&BucketGone != 0:
		return c.infoAskedAt.Add(c.bucket.RequestTimeout())
	}
	return later(c.bucket.Read, c.infoAskedAt).Add(c.bucket.Interval)
}
