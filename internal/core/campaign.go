package core

import (
	"errors"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// A candidate that holds no key: when it campaigns, what a campaign does, and how a win becomes a term.
//
// A candidate that is notified seldom campaigns by itself: it waits for a hint, which has it read the key, and the read becomes a campaign if the
// key is vacant. A candidate that is not notified campaigns at intervals. Every campaign reads the key first, and then writes over exactly what was
// read.
//
// The word "lost" is for a campaign that did not win, for whatever reason; it counts for the Backoff.
//
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

const (
	// fallbackPoll is after how many TTLs, on average, a candidate campaigns although it is notified of renewals.
	fallbackPoll = 80
	// fallbackPollUnmarked is the same where expiries are not announced, and fallbackPollFailing for a candidate whose last write failed, which it says
	// until a write is answered.
	fallbackPollUnmarked, fallbackPollFailing = 8, 1
	// unmarkedReads is after how many TTLs a candidate that is notified reads the key where expiries are not announced: there forged renewals may hide
	// that the leader is gone, for no longer than a lease or two.
	unmarkedReads = 2
)

// wait is what a candidate knows while it waits for its next campaign.
type wait struct {
	due       time.Time // when to campaign next, unless the candidate relies on notifications
	lost      int       // campaigns lost in a row
	yields    time.Time // after a release in favour of others: until then they answer it, and this candidate does not
	fallback  time.Time // when to campaign although the candidate relies on notifications
	read      time.Time // when to read the key although it does; zero for never
	preempted time.Time // when a leader was last asked to hand over, or the run began
	held      bool      // something held this candidate back while it waited
	paused    bool      // an operator's pause was among what did
}

// bid is one campaign, from the read to its end; or a read for a hint, which becomes a campaign if the key is vacant.
type bid struct {
	began          time.Time
	hinted         bool // a hint is the only reason; no campaign was due
	vacancyKnown   bool // the key was notified, or read before, to be vacant
	answersVacancy bool // it tries to win a vacant key: if it fails, another try follows soon

	// What was read.
	state   *record.State
	err     error
	failure Failure
	turnAt  time.Time // when it is this candidate's turn to answer the vacancy that was read; zero if it is now

	// The write.
	acquisition  *acquisition
	second       bool    // it is the second one, over a first one that was not answered and applied late
	writeFailure Failure // of the first one, which was not answered

	bucketInDoubt bool   // the key was won, and the bucket's info could not be loaded
	abandonedWhy  string // why the key that was won is not kept
	abandonedErr  error
}

// beginCampaigning has the candidate campaign first at the given time, after so many campaigns lost in a row.
func (c *Candidate) beginCampaigning(now, due time.Time, lost int) {
	c.phase = campaigning
	c.setNext(false)
	c.forget(now)
	c.metadata.refused = false // the bucket may take larger records by now
	c.wait = wait{due: due, lost: lost, preempted: c.wait.preempted}
	c.turn.pending = false
	c.waitAgain(now)
}

// waitAgain has the candidate wait for the next campaign. It chooses when the candidate campaigns although it is notified.
func (c *Candidate) waitAgain(now time.Time) {
	poll := time.Duration(fallbackPoll)
	switch {
	case c.writeFailed(): // it finds out soon that what kept it from writing is over
		poll = fallbackPollFailing
	case c.bucket.MarkerTTL <= 0:
		poll = fallbackPollUnmarked
	}
	c.wait.fallback = now.Add(c.bucket.TTL*poll/2 + c.Random(c.bucket.TTL*poll))
	if c.isUnknown() {
		c.wait.fallback = earlier(c.wait.fallback, now.Add(c.Random(c.bucket.TTL)))
	}
	if c.wait.read = (time.Time{}); c.bucket.MarkerTTL <= 0 {
		c.wait.read = now.Add(c.bucket.TTL*unmarkedReads + c.Random(c.bucket.Interval))
	}
	c.bid, c.drain = nil, nil
}

// followHolds takes note of what holds this candidate back. When nothing does any more, it puts the next campaign off at random, because the same
// may have held many candidates back.
func (c *Candidate) followHolds(now time.Time) {
	w := &c.wait
	switch {
	case c.holds != 0:
		w.held, w.paused = true, w.paused || c.holds&PausedByOperator != 0
	case !w.held:
	case w.paused && !c.key.occupied: // the pause held all candidates back, and nobody leads: they answer as they answer a vacancy
		w.due, w.held, w.paused = later(w.yields, now.Add(c.Random(c.bucket.Spread()))), false, false
	default:
		w.due, w.held, w.paused = later(w.due, now.Add(c.Random(c.splay()))), false, false
	}
}

// whileCampaigning lists what a candidate may do while it holds no key.
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
		if at := c.wait.read; c.Source() != NoSource && at.Before(c.key.lastWrite.firstSeen.Add(c.bucket.TTL)) { // otherwise a campaign is due
			a.add(at, (*Candidate).followHint)
		}
	}
	a.add(c.renewalOverdue(), (*Candidate).missRenewal)
	a.add(c.stalledAt(), (*Candidate).checkStalled)
	if c.holds&BucketUnusable == 0 {
		a.add(c.readDue(), (*Candidate).followHint)
	}
}

// nextCampaign returns when to campaign. While another candidate holds the key, a candidate that relies on notifications waits until the key must
// have expired, or for the fallback.
func (c *Candidate) nextCampaign() time.Time {
	due := c.wait.due
	relies := c.wait.lost >= OpeningCampaigns && c.Source() != NoSource
	if relies && c.key.occupied && !c.isHolder() {
		due = later(due, earlier(c.wait.fallback, c.key.lastWrite.firstSeen.Add(c.bucket.TTL+timing.ExpiryLateness+c.turn.afterExpiry)))
	}
	return due
}

// withdraw ends the run. A candidate that waits in the queue of a lock, or that the leader names as the next, first makes an attempt that is always refused:
// it tells the holder, which records attempts, that this candidate does not wait any more.
func (c *Candidate) withdraw(now time.Time) {
	if !c.Connected || !c.hasAnnounced() && !c.isNamed() {
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
	c.bid.vacancyKnown = c.turn.pending || c.hints.hint != nil && c.hints.hint.vacant()
	c.turn.pending = false
	c.readKey(now, c.campaignReadLimit(now), Always, then)
}

func (c *Candidate) bidRead(now time.Time, r Result) { c.saw(now, &r, (*Candidate).decide) }

// saw takes what was read into the bid, and reports the leader. then follows.
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
	if b.state.Record.Bucket().After(c.bucket.Created) { // the bucket was made again, or the server reports another time of creation
		c.load(now.Add(timing.RequestTimeout), Always, then)
		return
	}
	then(c, now, Result{})
}

// decide goes on once the key was read. If the read suggests that the bucket has changed, the bucket's info is loaded first.
func (c *Candidate) decide(now time.Time, _ Result) {
	mayBeGone := c.bid.failure.missing() && c.mayCheckBucket(now)
	mayHaveOtherTTL := c.bid.err == nil && c.outlived(now)
	if mayBeGone || mayHaveOtherTTL {
		c.checkBucket(now, Always, (*Candidate).decideInBucket)
		return
	}
	c.decideInBucket(now, Result{})
}

// mayCheckBucket reports whether the bucket's info may be loaded again: it was not loaded again just now.
func (c *Candidate) mayCheckBucket(now time.Time) bool {
	return now.Sub(c.reloaded) >= c.bucket.RequestTimeout()
}

// decideInBucket decides whether the campaign makes a write that may win, and over what.
func (c *Candidate) decideInBucket(now time.Time, _ Result) {
	b, s := c.bid, c.bid.state
	ours := s.HeldBy(c.Instance)
	switch {
	case ours && c.doubt.foreign(s): // another process uses this instance
		c.finish(true)
	case c.holds != 0:
		c.bidEnds(now, false)
	case b.err == nil && s.Held() && c.outlived(now):
		c.contest(now)
	case ours && !c.doubt.isOurs(s): // a stale read
		c.bidEnds(now, !b.hinted)

	// Not read.
	case b.err != nil && b.hinted:
		c.bidEnds(now, false)
	case b.err != nil && c.doubt.unanswered:
		// A candidate that can neither read the key nor receive the reply to its creation would win without knowing it, again and again, and
		// nobody could lead. So it first makes a write that is always refused, and looks whether the refusal arrives.
		c.askNever(now, "asking whether replies arrive", c.newRecord(now), (*Candidate).repliesArrive)
	case b.err != nil: // a candidate that may not read can still campaign
		c.createUnread(now)

	// Another candidate holds the key.
	case s.Held() && !ours && c.hasLapsed(now, s):
		c.contest(now)
	case s.Held() && !ours:
		c.announce(now)

	// The key is vacant, or has a late write of this candidate's own.
	case b.hinted && c.wasHolder(s): // the key is left to others until the next campaign is due
		c.waitAgain(now)
	case b.hinted && s.Removal == record.Gone && !b.vacancyKnown: // the hint told of no vacancy, and such a read proves nothing
		c.bidEnds(now, false)
	case s.Vacant() && s.Removal != record.Gone && (b.hinted || c.yieldsTo(s)) && !c.wasHolder(s) && now.Before(c.answerAt(now, s)):
		c.awaitTurn(now)
	default:
		c.contest(now)
	}
}

// announce makes an attempt although another candidate holds the key, if that is due: the leader records attempts, and so learns of this candidate.
// The attempt is refused, unless the key has become free since it was read.
func (c *Candidate) announce(now time.Time) {
	b, lost := c.bid, c.wait.lost
	if c.writeFailed() { // the leader may not have seen its attempt
		lost = 0
	}
	if !c.shouldAnnounce(now, b.hinted, lost) {
		c.bidEnds(now, !b.hinted)
		return
	}
	c.makeAnnouncement(now)
}

// makeAnnouncement makes an attempt where something was read to be stored: a write that is to be refused.
func (c *Candidate) makeAnnouncement(now time.Time) {
	b := c.bid
	b.acquisition = c.creation(now, &b.state.Record, b.state.Read)
	b.acquisition.announces = true
	c.acquire(now)
}

// awaitTurn leaves a vacancy to the candidates that come before this one. A candidate for a lock announces itself, so as to get into the queue.
func (c *Candidate) awaitTurn(now time.Time) {
	b := c.bid
	b.turnAt = c.answerAt(now, b.state)
	if c.Order == ByArrival && c.shouldAnnounce(now, b.hinted, c.wait.lost) {
		c.makeAnnouncement(now)
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

// contest makes the write that may win the key, over exactly what was read: an update of a release, of a marker, of a lapsed holder's record or of
// a late write of this candidate's own, or a creation where nothing is stored.
func (c *Candidate) contest(now time.Time) {
	b := c.bid
	if b.hinted {
		c.report(Event{Kind: Campaigned, State: Follower})
	}
	if c.Order == ByArrival { // before the win, so that no attempt of a candidate that comes after it is missed
		c.recordAttempts(true)
	}
	b.acquisition, b.answersVacancy = c.acquisitionOver(now, b.state), true
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
		c.key.highest = max(c.key.highest, a.revision) // from now on, a lower revision is one of a rewound history
		c.reading.refusedBy = incident{}
		c.won(now)
		return
	case Refused:
		c.requestSucceeded(WriteRequest)
		c.log(Debug, "Campaign lost")
		if a.readAt.IsZero() && a.over == 0 {
			c.creationRefused(now, &r)
			if a.over = c.outlivedUnread(now); a.over > 0 {
				a.unproven = true // after a history that went back another write may have that revision
				c.acquire(now)
				return
			}
		}
	default:
		level := Debug
		if r.Failure == Otherwise && !c.writeFailed() { // the first in a row that the server rejects for a reason of its own, such as a full account
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

// writeAgain goes on after a write that was to win the key and was not answered. If the read shows that write, the candidate writes over it, once.
// The lease counts from the second write.
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
	if (failure.missing() || failure == Timeout) && c.mayCheckBucket(now) {
		c.checkBucket(now, Always, (*Candidate).bidLost)
		return
	}
	c.bidLost(now, Result{})
}

func (c *Candidate) bidLost(now time.Time, _ Result) {
	if c.bid.answersVacancy {
		c.answerFailed(now)
		c.recordAttempts(false)
	}
	c.bidEnds(now, c.bid.turnAt.IsZero())
}

// bidEnds has the candidate wait for its next campaign, or for its turn. lost says whether the bid counts as a lost campaign, after which the Backoff
// sets the next one. It does not if it was only a read for a hint, or leaves the vacancy to candidates that come before this one.
func (c *Candidate) bidEnds(now time.Time, lost bool) {
	switch {
	case lost:
		c.wait.lost++
		c.askBackoff(now, c.wait.lost, (*Candidate).campaignDue)
		return
	case !c.bid.hinted:
		c.wait.due = c.bid.began.Add(c.bucket.Interval)
	case !c.key.occupied: // a candidate that relied on notifications is overdue to campaign, as all others are: put it off at random
		c.wait.due = later(c.wait.due, later(c.bid.turnAt, c.bid.began.Add(c.turn.afterExpiry)))
	}
	if !c.bid.turnAt.IsZero() {
		c.answerBy(c.bid.turnAt)
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

// won is called when the write that wins was applied. Since the bucket's info was loaded, the bucket may have been deleted and made again, with
// another TTL. So the info is loaded again, unless the release that was replaced proves that the bucket is the same.
func (c *Candidate) won(now time.Time) {
	a := c.bid.acquisition
	if c.bucket.Created.IsZero() || !a.inBucket(&c.bucket) || !c.Connected || c.bucket.Read.Before(c.hints.connectedAt) {
		c.ask(Op{Kind: Load, Doing: "checking the bucket of the key that it won", Limit: now.Add(c.bucket.RequestTimeout())}, (*Candidate).wonIn)
		return
	}
	c.keep(now)
}

func (c *Candidate) wonIn(now time.Time, r Result) {
	a := c.bid.acquisition
	switch r.Failure {
	case NoFailure:
	case Gone, Unfit, Ended:
		c.reloaded = now
		c.hold(BucketUnusable, true) // other candidates can lead, and are to get the key
		c.abandon(now, "the bucket cannot be used", r.Err, r.Failure)
		return
	default: // the API of JetStream is busy, say: nothing speaks against the bucket, and the renewals ask again
		c.log(Info, "Bucket's info not loaded, key kept all the same", "error", r.Err)
		c.bid.bucketInDoubt = true
	}
	if revision := c.key.removal.revision; a.over == 0 && revision > a.removalBefore && revision < a.revision {
		a.removed = true // a removal before the win was notified only after the write was sent
	}
	c.keep(now)
}

// keep begins the term that was won, unless something has come to hold this candidate back while the write was under way.
func (c *Candidate) keep(now time.Time) {
	if why := c.holds.reason(); why != "" {
		c.abandon(now, why, nil, NoFailure)
		return
	}
	a := c.bid.acquisition
	c.requestSucceeded(WriteRequest)
	t := c.newTerm(now, a)
	t.bucketInDoubt, t.AtOnce = c.bid.bucketInDoubt, t.AtOnce && !c.bid.bucketInDoubt
	if a.reason == Lapsed {
		c.key.holderEnded = true
	}
	c.wrote(now, a.revision, a.written)
	c.sawLeader(a.written, a.revision, a.sent.Round(0))
	c.stateChanged(LeaderElect, a.reason, t)
	c.bid = nil
	c.beginTerm(now, t, a.queue)
}

// abandon gives up a win on which this candidate has not led. It writes a release that passes on the whole stand-down. If a callback does not
// return soon, the key is left to expire.
func (c *Candidate) abandon(now time.Time, why string, cause error, failure Failure) {
	c.bid.abandonedWhy, c.bid.abandonedErr = why, cause
	limit := now.Add(c.bucket.RequestTimeout())
	if failure == Unfit { // in such a bucket a release might never expire
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
	c.log(Warn, "Key won, but not kept", "why", c.bid.abandonedWhy, "cause", c.bid.abandonedErr, "error", err)
}

// errCallbacksLate is why a win that was abandoned is left to expire.
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
	c.askRelease(now.Add(c.bucket.RequestTimeout()), "abandoning the key that it won", a.written, a.revision, (*Candidate).abandonmentWritten)
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
	c.deleteRelease(now, a.written, r.Revision)
}

// abandoned ends a campaign that won the key, and did not keep it.
func (c *Candidate) abandoned(now time.Time) {
	c.secret = record.Secret{}
	c.recordAttempts(false)
	c.bidEnds(now, true)
}
