package core

import (
	"errors"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

const (
	// fallbackPoll is after how many TTLs on average a candidate campaigns though it is notified of renewals.
	fallbackPoll = 80
	// fallbackPollUnmarked is the same where expiries are not announced, because there a forged renewal may hide that the leader is gone,
	// and for a candidate whose last write failed, which shows that until a write is answered.
	fallbackPollUnmarked = 8
)

// wait is how long a candidate waits for its next campaign.
type wait struct {
	due       time.Time // of the next campaign, unless the candidate relies on notifications
	lost      int       // campaigns lost in a row
	yields    time.Time // until then others answer its release, if it has given the key up for them
	fallback  time.Time // of the slow campaign beneath notifications
	preempted time.Time // when a leader was last asked to hand over, or the run began
	held      bool      // something held this candidate back while it waited
	paused    bool      // that was an operator
}

// A campaign goes on so:
//
//	campaign, followHint or takeOver
//	                        ── (read) ── saw ── decide ─┬─ somebody holds the key: announce, or nothing
//	                                                    ├─ somebody holds it whose lease has lapsed: contest
//	                                                    ├─ others come first: awaitTurn
//	                                                    ├─ it cannot be read: createUnread
//	                                                    └─ it is vacant: contest
//
//	acquire ─┬─ applied ── won ── (load: in which bucket?) ── keep ── the term begins, or abandon ── bidEnds
//	         ├─ refused, or failed ── bidFailed ── bidEnds ── the wait for the next campaign
//	         └─ not answered ── (read) ── writeAgain ── acquire, if that write was applied; or bidFailed

// bid is one campaign, from the read to its end; or a read on account of a notification, which becomes a campaign if the key is vacant.
type bid struct {
	began        time.Time
	hinted       bool // only a notification is the reason
	vacancy      bool // a vacancy is the reason, notified or read before
	state        *record.State
	err          error
	failure      Failure
	second       bool // the write that is to win is made a second time, over the first, which was applied late
	answers      bool // it answers a vacancy: if it fails it is made again soon
	acquisition  *acquisition
	turn         time.Time // of this candidate, which comes later; zero if others do not come before it
	writeFailure Failure   // of the write whose outcome is unknown
	unkept       string    // why the key was not kept that was won
	cause        error
}

// beginCampaigning has the candidate campaign first at the given time, after so many campaigns lost in a row.
func (c *Candidate) beginCampaigning(now, due time.Time, lost int) {
	c.phase = campaigning
	c.forget(now)
	c.metadata.refused = false // the bucket may take larger records by now
	c.wait = wait{due: due, lost: lost, preempted: c.wait.preempted}
	c.turn.pending = false
	c.waitAgain(now)
}

// waitAgain has the candidate wait for the next campaign.
func (c *Candidate) waitAgain(now time.Time) {
	poll := time.Duration(fallbackPoll)
	if c.bucket.MarkerTTL <= 0 || c.writeFailed() {
		poll = fallbackPollUnmarked
	}
	c.wait.fallback = now.Add(c.bucket.TTL*poll/2 + c.Random(c.bucket.TTL*poll))
	c.bid, c.drain = nil, nil
}

// followHolds takes note of what holds this candidate back. It spreads the campaigns of candidates that nothing holds back any more: many may have
// been released at once.
func (c *Candidate) followHolds(now time.Time) {
	w := &c.wait
	switch {
	case c.holds != 0:
		w.held, w.paused = true, w.paused || c.holds&PausedByOperator != 0
	case !w.held:
	case w.paused && !c.key.occupied: // all candidates waited: they answer as they do a vacancy
		w.due, w.held, w.paused = later(w.yields, now.Add(c.Random(c.bucket.Spread()))), false, false
	default:
		w.due, w.held, w.paused = later(w.due, now.Add(c.Random(c.bucket.Splay))), false, false
	}
}

// whileCampaigning lists what a candidate does that holds no key.
func (c *Candidate) whileCampaigning(a *agenda) {
	if c.stopping {
		a.add(a.now, (*Candidate).withdraw)
		return
	}
	if c.holds != 0 {
		a.doing, a.due = "waiting until nothing holds it back", time.Time{}
		a.add(c.reloadDue(), (*Candidate).reload)
	} else {
		campaign := c.nextCampaign()
		a.doing, a.due = "waiting for its next campaign", campaign
		a.add(c.takeoverDue(a.now), (*Candidate).takeOver)
		a.add(campaign, (*Candidate).campaign)
		a.add(c.preemptionDue(), (*Candidate).preempt)
	}
	a.add(c.renewalOverdue(), (*Candidate).missRenewal)
	a.add(c.stalledAt(), (*Candidate).checkStalled)
	if c.holds&BucketUnusable == 0 {
		a.add(c.readDue(), (*Candidate).followHint)
	}
}

// nextCampaign returns when to campaign. A campaign is due at the given time, unless somebody else holds the key and is there: a
// candidate that relies on notifications then waits for the slow campaign beneath them, or until the key must have expired.
func (c *Candidate) nextCampaign() time.Time {
	due := c.wait.due
	rely := c.wait.lost >= OpeningCampaigns && c.Source() != NoSource
	if rely && c.key.occupied && !c.isHolder() {
		due = later(due, earlier(c.wait.fallback, c.key.lastWrite.firstSeen.Add(c.bucket.TTL+timing.ExpiryLateness+c.turn.afterExpiry)))
	}
	return due
}

// withdraw makes an attempt that is always refused, and that tells those who record attempts that this candidate, which announced itself,
// does not wait any more.
func (c *Candidate) withdraw(now time.Time) {
	if !c.Connected || !c.hasAnnounced() {
		c.finish(false)
		return
	}
	r := c.newRecord(now)
	r.Withdrawn = true
	c.askNever(now, "withdrawing", r, (*Candidate).withdrawn)
}

func (c *Candidate) withdrawn(_ time.Time, r Result) {
	c.log(Debug, "Withdrawn", "answer", r.Err)
	c.finish(false)
}

// preemptionDue returns when to ask the leader to hand over to this candidate; the zero time if there is no reason to.
func (c *Candidate) preemptionDue() time.Time {
	h := &c.key.holder
	if !c.Preempts || !c.Connected || !c.key.occupied || h.term == 0 || h.instance == c.Instance || h.priority >= c.Priority {
		return time.Time{}
	}
	return c.wait.preempted.Add(c.bucket.Interval)
}

// preempt asks the leader to hand over to this candidate. It does not wait for the answer: the release tells.
func (c *Candidate) preempt(now time.Time) {
	c.wait.preempted = now
	h := &c.key.holder
	c.log(Info, "Asking a leader of lower priority to hand over", "leader", h.name, "priority", h.priority)
	c.report(Event{Kind: Preempt, Instance: h.instance, Message: h.name})
}

// campaign tries to win the key because it is time to.
func (c *Candidate) campaign(now time.Time) {
	c.report(Event{Kind: Campaigned, State: Follower})
	c.bid = &bid{began: now}
	c.readForBid(now, (*Candidate).bidRead)
}

// followHint reads the key because a notification is a reason to.
func (c *Candidate) followHint(now time.Time) {
	c.bid = &bid{began: now, hinted: true}
	c.readForBid(now, (*Candidate).bidRead)
}

// readForBid has the key read.
func (c *Candidate) readForBid(now time.Time, then stage) {
	c.bid.vacancy = c.turn.pending || c.hints.hint != nil && c.hints.hint.vacant()
	c.turn.pending = false
	c.readKey(now, c.campaignReadLimit(now), Always, then)
}

func (c *Candidate) bidRead(now time.Time, r Result) { c.saw(now, &r, (*Candidate).decide) }

// saw takes what was read into the bid, reports the leader, and goes on.
func (c *Candidate) saw(now time.Time, r *Result, then stage) {
	b := c.bid
	b.state, b.err, b.failure = &r.State, r.Err, r.Failure
	c.finishRead(now, b.state, r.Err, false)
	switch {
	case r.Err != nil:
		if r.Failure != Unreadable {
			c.requestFailed(now, ReadRequest, r.Err, r.Failure)
		}
		c.log(Debug, "Key not read", "error", r.Err)
	case b.state.Held():
		c.sawLeader(&b.state.Record, b.state.Revision, b.state.Written)
	default:
		c.sawNobody()
	}
	if b.state.Record.Bucket().After(c.bucket.Created) { // the bucket was made again, as a record in it says, or the server reports another time
		c.load(now.Add(timing.RequestTimeout), Always, then)
		return
	}
	then(c, now, Result{})
}

// decide is what a campaign does once the key was read: whether it makes a write that may win, and over what.
func (c *Candidate) decide(now time.Time, _ Result) {
	if c.bid.failure.missing() && c.mayAskAgain(now) || c.bid.err == nil && c.outlived(now) { // the bucket may be gone; or its TTL may be another by now, or none
		c.checkBucket(now, Always, (*Candidate).decideInBucket)
		return
	}
	c.decideInBucket(now, Result{})
}

// mayAskAgain reports whether the bucket's info was not loaded again just now.
func (c *Candidate) mayAskAgain(now time.Time) bool {
	return now.Sub(c.reloaded) >= c.bucket.RequestTimeout()
}

func (c *Candidate) decideInBucket(now time.Time, _ Result) {
	b, s := c.bid, c.bid.state
	ours := s.HeldBy(c.Instance)
	switch {
	case ours && c.doubt.foreign(s):
		c.finish(true)
	case c.holds != 0:
		c.bidEnds(now, false)
	case ours && !c.doubt.isOurs(s): // a stale read
		c.bidEnds(now, !b.hinted)
	case b.err != nil && b.hinted:
		c.bidEnds(now, false)
	case b.err != nil && c.doubt.unanswered:
		// A candidate that neither reads the key nor receives the reply to its creation would hold the key without knowing, again and again,
		// and nobody could lead.
		c.askNever(now, "asking whether replies arrive", c.newRecord(now), (*Candidate).repliesArrive)
	case b.err != nil: // reading may fail for good where writing does not
		c.createUnread(now)
	case s.Held() && !ours && c.hasLapsed(now, s):
		c.contest(now)
	case s.Held() && !ours:
		c.announce(now)
	case b.hinted && (c.wasHolder(s) || s.Removal == record.Gone && !b.vacancy):
		c.bidEnds(now, false) // until its next campaign is due
	case s.Vacant() && s.Removal != record.Gone && (b.hinted || c.yieldsTo(s)) && now.Before(c.answerAt(now, s)):
		c.awaitTurn(now)
	default:
		c.contest(now)
	}
}

// announce makes an attempt that is refused, unless what was read is gone meanwhile: those who record attempts see this candidate.
func (c *Candidate) announce(now time.Time) {
	b, lost := c.bid, c.wait.lost
	if c.writeFailed() { // the leader may not have seen its attempt
		lost = 0
	}
	if !c.shouldAnnounce(now, b.hinted, lost) {
		c.bidEnds(now, !b.hinted)
		return
	}
	b.acquisition = c.creation(now, &b.state.Record, b.state.Read)
	c.acquire(now)
}

// awaitTurn leaves a vacancy to candidates that come before this one. A candidate that waits for a lock announces itself.
func (c *Candidate) awaitTurn(now time.Time) {
	b := c.bid
	b.turn = c.answerAt(now, b.state)
	if c.Order == ByArrival && c.shouldAnnounce(now, b.hinted, c.wait.lost) {
		b.acquisition = c.creation(now, &b.state.Record, b.state.Read)
		c.acquire(now)
		return
	}
	c.bidEnds(now, false)
}

// createUnread creates the key without having read it.
func (c *Candidate) createUnread(now time.Time) {
	predecessor := c.key.holder.record()
	c.bid.acquisition = c.creation(now, &predecessor, time.Time{})
	c.acquire(now)
}

func (c *Candidate) repliesArrive(now time.Time, r Result) {
	c.writeAnswered(now, r.Outcome)
	if c.doubt.unanswered = r.Outcome == Unknown; c.doubt.unanswered {
		c.requestFailed(now, WriteRequest, r.Err, r.Failure)
		c.log(Debug, "Key not created, because no reply arrives", "error", r.Err)
		c.bidFailed(now, c.bid.failure)
		return
	}
	c.createUnread(now)
}

// contest makes the write that may win the vacant key, over exactly what was read: an update of a release, of a marker or of a late write of
// this candidate's own, or a creation where nothing is stored.
func (c *Candidate) contest(now time.Time) {
	b := c.bid
	if b.hinted {
		c.report(Event{Kind: Campaigned, State: Follower})
	}
	if c.Order == ByArrival { // before the win, so that the attempts of all who come from then on are seen
		c.recordAttempts(true)
	}
	b.acquisition, b.answers = c.acquisitionOver(now, b.state), true
	c.acquire(now)
}

// acquired is called when the write that may win the key has returned.
func (c *Candidate) acquired(now time.Time, r Result) {
	b, a := c.bid, c.bid.acquisition
	if r.Failure == TooLarge && c.shrinkMetadata(now, a.written, r.Err) {
		c.acquire(now)
		return
	}
	a.acknowledged, a.revision, a.reconnects = now, r.Revision, r.Reconnects
	if a.written.Leads {
		a.written.Term = a.revision
	}
	c.writeAnswered(now, r.Outcome)
	c.doubt.unanswered = r.Outcome == Unknown
	switch r.Outcome {
	case Applied:
		c.metadataStored(a.written)
		c.doubt.applied(a.written, a.revision, nil)
		c.key.highest = max(c.key.highest, a.revision) // whatever has a lower revision from now on is of a rewound history
		c.won(now)
		return
	case Refused:
		c.requestSucceeded(WriteRequest)
		c.log(Debug, "Campaign lost")
	default:
		level := Debug
		if r.Failure == Otherwise && !c.writeFailed() { // the first in a row for which the server has a reason, such as a full account
			level = Warn
		}
		c.requestFailed(now, WriteRequest, r.Err, r.Failure)
		c.log(level, "Campaign failed", "reason", r.Failure.String(), "error", r.Err)
	}
	if r.Outcome == Unknown {
		c.doubt.add(a.written, a.sent, a.over, nil)
	}
	if r.Outcome != Unknown || b.second {
		c.bidFailed(now, r.Failure)
		return
	}
	b.writeFailure = r.Failure
	c.readForBid(now, (*Candidate).bidReadBack)
}

func (c *Candidate) bidReadBack(now time.Time, r Result) { c.saw(now, &r, (*Candidate).writeAgain) }

// writeAgain goes on after a write of unknown outcome that was to win the key. If that write is what was read, the candidate takes the key over it by
// a second one.
func (c *Candidate) writeAgain(now time.Time, _ Result) {
	b, s := c.bid, c.bid.state
	if b.err == nil && s.HeldBy(c.Instance) {
		if c.doubt.foreign(s) {
			c.finish(true)
			return
		}
		if c.doubt.isOurs(s) {
			b.second = true
			b.acquisition = c.acquisitionOver(now, s)
			c.acquire(now)
			return
		}
	}
	c.bidFailed(now, b.writeFailure)
}

// bidFailed ends a campaign that did not win.
func (c *Candidate) bidFailed(now time.Time, failure Failure) {
	if (failure.missing() || failure == Timeout) && c.mayAskAgain(now) {
		c.checkBucket(now, Always, (*Candidate).bidLost)
		return
	}
	c.bidLost(now, Result{})
}

func (c *Candidate) bidLost(now time.Time, _ Result) {
	if c.bid.answers {
		c.answerFailed(now)
		c.recordAttempts(false)
	}
	c.bidEnds(now, c.bid.turn.IsZero())
}

// bidEnds has the candidate wait for its next campaign, or its turn. It counts as a campaign unless only a hint had it read the key.
func (c *Candidate) bidEnds(now time.Time, campaigned bool) {
	switch {
	case campaigned:
		c.wait.lost++
		c.askBackoff(now, c.wait.lost, (*Candidate).campaignDue)
		return
	case !c.bid.hinted:
		c.wait.due = c.bid.began.Add(c.bucket.Interval)
	case !c.key.occupied: // the campaign is long due of a candidate that relied on notifications: it is spread
		c.wait.due = later(c.wait.due, later(c.bid.turn, c.bid.began.Add(c.turn.afterExpiry)))
	}
	if !c.bid.turn.IsZero() {
		c.answerBy(c.bid.turn)
	}
	c.waitAgain(now)
}

func (c *Candidate) campaignDue(now time.Time, r Result) {
	c.wait.due = later(c.bid.began.Add(c.timeToNext(r)), now.Add(timing.MinPause))
	c.waitAgain(now)
}

// askBackoff asks for the time to the next campaign of a candidate that lost the given number in a row.
func (c *Candidate) askBackoff(now time.Time, lost int, then stage) {
	if c.HasBackoff {
		c.ask(Op{Kind: AskBackoff, Doing: "asking its Backoff", Lost: lost}, then)
		return
	}
	then(c, now, Result{})
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

// won is called when the write that wins was applied. The bucket's info is loaded again unless a release proves it: the bucket may have been
// deleted and made again, with another TTL, since the info was loaded.
func (c *Candidate) won(now time.Time) {
	a := c.bid.acquisition
	if c.bucket.Created.IsZero() || !a.verified(&c.bucket) || !c.Connected || c.bucket.Read.Before(c.hints.connectedAt) {
		c.ask(Op{Kind: Load, Doing: "checking the bucket of the key that it won", Limit: now.Add(c.bucket.RequestTimeout())}, (*Candidate).wonIn)
		return
	}
	c.keep(now)
}

func (c *Candidate) wonIn(now time.Time, r Result) {
	a := c.bid.acquisition
	if r.Err != nil {
		c.reloaded = now
		c.hold(BucketUnusable, true) // others, who can lead, are to get the key
		c.abandon(now, "the bucket's info cannot be loaded", r.Err, r.Failure)
		return
	}
	if revision := c.key.removal.revision; a.over == 0 && revision > a.removalBefore && revision < a.revision {
		a.removed = true // which was notified only after the write was sent
	}
	c.keep(now)
}

// keep begins the term that was won, unless this candidate may not lead by now.
func (c *Candidate) keep(now time.Time) {
	if why := c.holds.reason(); why != "" { // which came while the write was under way
		c.abandon(now, why, nil, NoFailure)
		return
	}
	a := c.bid.acquisition
	c.requestSucceeded(WriteRequest)
	t := c.newTerm(now, a)
	if a.reason == Lapsed {
		c.key.holderEnded = true
	}
	c.wrote(now, a.revision, a.written)
	c.sawLeader(a.written, a.revision, a.sent.Round(0))
	c.stateChanged(LeaderElect, a.reason, t)
	c.bid = nil
	c.beginTerm(now, t, a.queue)
}

// abandon releases an acquisition on which this candidate has not led, with all of its stand-down. Where a callback does not
// return soon the key is left to expire.
func (c *Candidate) abandon(now time.Time, why string, cause error, failure Failure) {
	c.bid.unkept, c.bid.cause = why, cause
	limit := now.Add(c.bucket.RequestTimeout())
	if failure == Unfit { // where a release might never expire
		c.ask(Op{Kind: Delete, Doing: "abandoning the key that it won", Limit: limit, Over: c.bid.acquisition.revision}, (*Candidate).abandonedUnfit)
		return
	}
	c.ask(Op{Kind: Wait, Doing: "abandoning the key that it won", Due: limit, Until: limit, Quiet: true}, (*Candidate).abandonNow)
}

func (c *Candidate) abandonedUnfit(now time.Time, r Result) {
	c.logAbandoned(r.Err)
	c.abandoned(now)
}

func (c *Candidate) logAbandoned(err error) {
	c.log(Warn, "Key won, but not kept", "why", c.bid.unkept, "cause", c.bid.cause, "error", err)
}

// errCallbacksLate is why a key is not released on which this candidate has not led.
var errCallbacksLate = errors.New("a callback has not returned in time")

func (c *Candidate) abandonNow(now time.Time, r Result) {
	if !r.Quiet {
		c.logAbandoned(errCallbacksLate)
		c.abandoned(now)
		return
	}
	a := c.bid.acquisition
	rec := c.newRecord(a.sent)
	rec.Won, rec.Released, rec.StandDownMs = string(a.reason), now.Round(0), record.Milliseconds(a.standDown(&c.bucket))
	rec.Commitment, rec.Predecessors, rec.Secret = c.secret.Commitment(), a.predecessors, c.secret
	a.written = rec
	c.writeAbandonment(now)
}

func (c *Candidate) writeAbandonment(now time.Time) {
	a := c.bid.acquisition
	c.ask(Op{
		Kind: Write, Doing: "abandoning the key that it won", Limit: now.Add(c.bucket.RequestTimeout()), Value: a.written.Encode(), Over: a.revision, Reconnects: AnyReconnects,
	}, (*Candidate).abandonmentWritten)
}

func (c *Candidate) abandonmentWritten(now time.Time, r Result) {
	a := c.bid.acquisition
	if r.Failure == TooLarge && a.written.Metadata != nil {
		a.written.Metadata = nil
		c.writeAbandonment(now)
		return
	}
	if r.Outcome == Unknown {
		c.doubt.add(a.written, a.sent, a.revision, nil)
	}
	c.logAbandoned(r.Err)
	c.deleteRelease(now, r.Revision)
}

// abandoned ends a campaign that won the key, and did not keep it.
func (c *Candidate) abandoned(now time.Time) {
	c.secret = record.Secret{}
	c.recordAttempts(false)
	c.bidEnds(now, true)
}
