package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// bidding is the role of a candidate that makes one campaign, or reads the key because of a hint, which becomes a campaign if the key is vacant. Every
// campaign reads the key first, and then writes over exactly what was read. What a candidate does that may not read is in reading.go.
type bidding struct {
	step         Step
	began        time.Time
	hinted       bool // a hint is the only reason; no campaign was due
	vacancyKnown bool // the key was notified, or read before, to be vacant
	contests     bool // it tries to win a key that is vacant or lapsed: if it fails, another try follows soon

	// What was read.
	state   *record.State
	err     error
	failure Failure
	turnAt  time.Time // when it is this candidate's turn to bid for the vacancy that was read; zero if it is now

	// The write.
	acquisition  *acquisition
	second       bool    // it is the second one, over a first one that was not answered and applied late
	writeFailure Failure // of the first one, which was not answered
	readBack     bool    // the key was read because of that
}

// bid begins a campaign, or a read because of a hint.
func (c *Candidate) bid(now time.Time, hinted bool) role {
	known := c.turn.pending || c.hints.hint != nil && c.hints.hint.vacant()
	c.turn.pending = false
	return &bidding{step: BiddingRead, began: now, hinted: hinted, vacancyKnown: known}
}

func (b *bidding) at() Step { return b.step }

func (b *bidding) next(c *Candidate, now time.Time) Op {
	switch b.step {
	case BiddingRead, BiddingReadBack:
		op := c.readOp(now, c.campaignReadLimit(now), Always)
		op.Marker = !c.Connected
		return op
	case BiddingReplies:
		return c.refusedWriteOp(now, c.newRecord(now))
	case BiddingWrite:
		return b.acquisition.writeOp(c, now)
	}
	return c.loadOp(now, Always)
}

func (b *bidding) done(c *Candidate, now time.Time, r Result) role {
	switch b.step {
	case BiddingRead:
		b.takeRead(c, now, &r)
		if b.bucketMayHaveChanged(c, now) {
			b.step = BiddingBucket
			return b
		}
		return b.decide(c, now)
	case BiddingReadBack:
		b.takeRead(c, now, &r)
		if b.showsLaterBucket(c) {
			b.step = BiddingBucket
			return b
		}
		return b.writeAgain(c, now)
	case BiddingBucket:
		if b.readBack {
			return b.writeAgain(c, now)
		}
		if b.acquisition != nil {
			return b.writeOverOutlived(c, now)
		}
		if b.err == nil {
			c.believeLonger(now, b.state)
		}
		return b.decide(c, now)
	case BiddingReplies:
		return b.repliesArrive(c, now, &r)
	case BiddingWrite:
		return b.writeDone(c, now, &r)
	case BiddingWinBucket:
		return b.wonIn(c, now, &r)
	}
	return b.ends(c, now, b.turnAt.IsZero()) // BiddingFailedBucket
}

// takeRead takes in what was read, and reports the leader.
func (b *bidding) takeRead(c *Candidate, now time.Time, r *Result) {
	b.state, b.err, b.failure = &r.State, r.Err, r.Failure
	c.finishRead(now, b.state, r.Err, false)
	switch {
	case r.Err != nil:
		if r.Failure == Timeout {
			c.report(Event{Kind: Suspect})
		}
		c.log(Debug, "Key not read", "error", r.Err)
	case b.state.Held():
		c.reportHolder(&b.state.Record, b.state.Revision, b.state.Written)
	default:
		c.reportVacant()
	}
}

// showsLaterBucket reports whether the record that was read is of a later bucket: it was made again, or the server reports another time of creation.
func (b *bidding) showsLaterBucket(c *Candidate) bool {
	return b.state.Record.Bucket().After(c.bucket.Created)
}

// bucketMayHaveChanged reports whether what was read suggests that the bucket is gone, was made again, or has another TTL.
func (b *bidding) bucketMayHaveChanged(c *Candidate, now time.Time) bool {
	mayBeGone := b.failure.mayBeGone() && c.mayAskForInfo(now)
	mayHaveOtherTTL := b.err == nil && (c.outlived(now) || b.state.Held() && c.mayAllowLonger(now, &b.state.Record))
	return mayBeGone || mayHaveOtherTTL || b.showsLaterBucket(c)
}

// decide decides, once the key was read, whether the campaign makes a write that may win, and over what.
func (b *bidding) decide(c *Candidate, now time.Time) role {
	s := b.state
	ours := s.HeldBy(c.Instance)
	switch {
	case ours && c.doubt.foreign(s): // another process uses this instance
		return finished{cloned: true}
	case c.holds != 0:
		return b.ends(c, now, false)
	case b.err == nil && s.Held() && c.outlived(now) && c.knowsTTLOf(c.key.lastWrite.firstSeen):
		return b.contest(c, now)
	case ours && !c.doubt.isOurs(s): // a stale read
		return b.ends(c, now, !b.hinted)

	// Not read.
	case b.err != nil && b.hinted:
		return b.ends(c, now, false)
	case b.err != nil && c.reading.repliesDoubtful:
		// A candidate that can neither read the key nor receive the reply to its creation would win without knowing it, again and again, and
		// nobody could lead. So it first makes a write that is always refused, and looks whether the refusal arrives.
		b.step = BiddingReplies
		return b
	case b.err != nil: // a candidate that may not read can still campaign
		return b.createUnread(c, now)

	// Another candidate holds the key.
	case s.Held() && !ours && c.hasLapsed(now, s):
		return b.contest(c, now)
	case s.Held() && !ours:
		return b.announce(c, now)

	// The key is vacant, or has a late write of this candidate's own.
	case b.hinted && c.wasHolder(s): // the key is left to others until the next campaign is due
		return c.waitAgain(now)
	case b.hinted && s.Removal == record.Gone && !b.vacancyKnown: // the hint told of no vacancy, and such a read proves nothing
		return b.ends(c, now, false)
	case s.Vacant() && s.Removal != record.Gone && (b.hinted || c.yieldsTo(s)) && !c.wasHolder(s) && now.Before(c.bidAt(now, s)):
		return b.awaitTurn(c, now)
	}
	return b.contest(c, now)
}

// announce makes an attempt although another candidate holds the key, if that is due: the leader records attempts, and so learns of this candidate.
// The attempt is refused, unless the key has become free since it was read.
func (b *bidding) announce(c *Candidate, now time.Time) role {
	failed := c.waiting.failed
	if c.writeFailed { // the leader may not have seen its attempt
		failed = 0
	}
	if !c.shouldAnnounce(now, b.hinted, failed) {
		return b.ends(c, now, !b.hinted)
	}
	return b.makeAnnouncement(c, now)
}

// makeAnnouncement makes an attempt where something was read to be stored: a write that is to be refused.
func (b *bidding) makeAnnouncement(c *Candidate, now time.Time) role {
	a := c.creation(now, &b.state.Record, b.state.Read)
	a.announces = true
	return b.write(a)
}

// awaitTurn leaves a vacancy to the candidates that come before this one. A candidate for a lock announces itself, so as to get into the queue.
func (b *bidding) awaitTurn(c *Candidate, now time.Time) role {
	b.turnAt = c.bidAt(now, b.state)
	if c.Order == ByArrival && c.shouldAnnounce(now, b.hinted, c.waiting.failed) {
		return b.makeAnnouncement(c, now)
	}
	return b.ends(c, now, false)
}

// contest makes the write that may win the key, over exactly what was read: an update of a release, of a marker, of a lapsed holder's record or of
// a late write of this candidate's own, or a creation where nothing is stored.
func (b *bidding) contest(c *Candidate, now time.Time) role {
	if b.hinted {
		c.report(Event{Kind: Campaigned, State: Follower})
	}
	if c.Order == ByArrival { // before the win, so that no attempt of a candidate that comes after it is missed
		c.recordAttempts(true)
	}
	b.contests = true
	return b.write(c.acquisitionOver(now, b.state))
}

// write goes on with the write of an acquisition.
func (b *bidding) write(a *acquisition) role {
	b.acquisition, b.step = a, BiddingWrite
	return b
}

// writeDone goes on once the write that may win has returned.
func (b *bidding) writeDone(c *Candidate, now time.Time, r *Result) role {
	a := b.acquisition
	if r.Failure == TooLarge && c.leaveOut(a.written, r.Err) {
		return b
	}
	a.acknowledged, a.revision, a.reconnects = now, r.Revision, r.Reconnects
	if a.written.Leads {
		a.written.Term = a.revision
	}
	c.writeAnswered(now, r.Outcome)
	c.reading.repliesDoubtful = r.Outcome == Unknown
	switch r.Outcome {
	case Applied:
		c.metadataStored(a.written)
		c.doubt.applied(a.written, a.revision, nil)
		c.key.highest = max(c.key.highest, a.revision) // from now on, a lower revision is one of a rewound history
		c.reading.refusedBy = incident{}
		return b.won(c, now)
	case Refused:
		c.noteWrite(r)
		c.log(Debug, "Campaign lost")
		if c.outlivedAfter(now, a, r) > 0 {
			if c.knowsTTLOf(c.reading.refusedBy.at) {
				return b.writeOverOutlived(c, now)
			}
			b.step = BiddingBucket
			return b
		}
		return b.notWon(c, now, r.Failure)
	}
	level := Debug
	if r.Failure == Otherwise && !c.writeFailed { // the first in a row that the server rejects for a reason of its own, such as a full account
		level = Warn
	}
	c.noteWrite(r)
	c.log(level, "Campaign failed", "reason", r.Failure.String(), "error", r.Err)
	if r.Outcome == Failed {
		return b.notWon(c, now, r.Failure)
	}
	c.doubt.add(a.written, a.sent, a.replaces, nil)
	if b.second {
		return b.notWon(c, now, r.Failure)
	}
	b.writeFailure, b.readBack, b.step = r.Failure, true, BiddingReadBack
	return b
}

// writeOverOutlived writes over what has refused a creation for longer than the TTL, if it still has by the TTL that is known now.
func (b *bidding) writeOverOutlived(c *Candidate, now time.Time) role {
	over := c.outlivedRevision(now)
	if over == 0 || c.holds != 0 || !c.knowsTTLOf(c.reading.refusedBy.at) {
		return b.notWon(c, now, NoFailure)
	}
	b.acquisition.replaces, b.acquisition.unproven = over, true // after a history that went back another write may have that revision
	b.step = BiddingWrite
	return b
}

// writeAgain goes on after a write that was to win the key and was not answered. If the read shows that write, the candidate writes over it, once.
// The lease counts from the second write.
func (b *bidding) writeAgain(c *Candidate, now time.Time) role {
	if s := b.state; b.err == nil && s.HeldBy(c.Instance) {
		if c.doubt.foreign(s) {
			return finished{cloned: true}
		}
		if c.doubt.isOurs(s) {
			b.second = true
			return b.write(c.acquisitionOver(now, s))
		}
	}
	if b.err == nil && b.state.Vacant() && !b.contests { // it only announced this candidate, and the key has become free meanwhile
		c.bidBy(c.bidAt(now, b.state))
	}
	return b.notWon(c, now, b.writeFailure)
}

// notWon ends a campaign that did not win.
func (b *bidding) notWon(c *Candidate, now time.Time, why Failure) role {
	if b.contests {
		c.bidAgainSoon(now)
		c.recordAttempts(false)
	}
	if (why.mayBeGone() || why == Timeout) && c.mayAskForInfo(now) {
		b.step = BiddingFailedBucket
		return b
	}
	return b.ends(c, now, b.turnAt.IsZero())
}

// ends has the candidate wait for its next campaign, or for its turn. counts says whether the bid counts as a campaign that failed, after which the Backoff
// sets the next one. It does not if it was only a read for a hint, or leaves the vacancy to candidates that come before this one.
func (b *bidding) ends(c *Candidate, now time.Time, counts bool) role {
	w := &c.waiting
	switch {
	case counts:
		return c.waitAfterFailure(b.began, w.failed+1)
	case !b.hinted:
		w.due = b.began.Add(c.bucket.Interval)
	case !c.key.occupied: // a candidate that relied on notifications is overdue to campaign, as all others are: put it off at random
		w.due = later(w.due, later(b.turnAt, b.began.Add(c.turn.afterExpiry)))
	}
	if !b.turnAt.IsZero() {
		c.bidBy(b.turnAt)
	}
	return c.waitAgain(now)
}

// won goes on once the write that wins was applied. Since the bucket's info was loaded, the bucket may have been deleted and made again, with
// another TTL. So the info is loaded again, unless the release that was replaced proves that the bucket is the same.
func (b *bidding) won(c *Candidate, now time.Time) role {
	if c.bucket.Created.IsZero() || !b.acquisition.inBucket(&c.bucket) || !c.Connected || c.bucket.Read.Before(c.hints.connectedAt) {
		b.step = BiddingWinBucket
		return b
	}
	return b.keep(c, now, nil, NoFailure)
}

// wonIn goes on once the bucket's info was loaded in which the key was won.
func (b *bidding) wonIn(c *Candidate, now time.Time, r *Result) role {
	switch r.Failure {
	case NoFailure, Gone, Unfit: // the last two hold this candidate back: other candidates can lead, and are to get the key
	case Ended:
		c.hold(BucketGone, true)
	default: // the API of JetStream is busy, say: nothing speaks against the bucket, and the renewals ask again
		c.log(Info, "Bucket's info not loaded, key kept all the same", "error", r.Err)
	}
	a, removal := b.acquisition, c.key.removal.revision
	if a.replaces == 0 && a.removalBefore < removal && removal < a.revision {
		a.removed = true // a removal before the win was notified only after the write was sent
	}
	return b.keep(c, now, r.Err, r.Failure)
}

// keep begins the term that was won. If something has come to hold this candidate back while the write was under way, the term ends at once.
func (b *bidding) keep(c *Candidate, now time.Time, cause error, failure Failure) role {
	a := b.acquisition
	c.noteWrite(&Result{Outcome: Applied})
	t := c.newTerm(now, a)
	t.bucketInDoubt = failure != NoFailure
	t.AtOnce = t.AtOnce && !t.bucketInDoubt
	if a.reason == Lapsed {
		c.key.holderEnded = true
	}
	c.wrote(now, a.revision, a.written)
	c.reportHolder(a.written, a.revision, a.sent.Round(0))
	c.stateChanged(LeaderElect, a.reason, t)
	why := Reason("")
	if words, reason := c.holds.Against(); words != "" {
		why = reason
		c.log(Warn, "Key won, but not kept", "why", words, "cause", cause)
	}
	return c.holdKey(now, t, a.queue, why)
}

// noteWrite takes note of whether the last write failed, other than by a refusal.
func (c *Candidate) noteWrite(r *Result) {
	c.writeFailed = r.Outcome == Unknown || r.Outcome == Failed
	if r.Failure == Timeout {
		c.report(Event{Kind: Suspect})
	}
}

// mayAskForInfo reports whether the bucket's info may be loaded again: it was not loaded again just now.
func (c *Candidate) mayAskForInfo(now time.Time) bool {
	return now.Sub(c.infoAskedAt) >= c.bucket.RequestTimeout()
}
