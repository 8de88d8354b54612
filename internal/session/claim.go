package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// Claim is what a session does about one key that its process campaigns for. It makes no request of its own; its session makes them. Package shell
// surrounds it as it surrounds a candidate of an election. The drawing shows the usual way; claimSteps, in step.go, has every step that may follow.
//
//	             vacant, and its turn            stored                   leadership ends        all work of the claim has returned
//	Watching ─────────────────────────▶ Taking ─────────▶ Holding ───────────────────▶ Ending ─────────────────┬───────────────────▶ Giving
//	   ▲  ▲                                │                 │                            │                    ▼                       │
//	   │  └────────────────────────────────┘                 │ lost                       │ lost            Sharing                   │
//	   │           refused, or not answered                  ▼                            ▼                    ▼                       ▼
//	   └──────────────────────────────────────────────── Returning ◀───────────────────────────────────────────────────────────────────┘
//
// Sharing is the end of the whole session: one write releases all claims.
type Claim struct {
	Shell any // what surrounds the claim in its process; for its driver

	s        *Session
	key      string
	step     ClaimStep
	stopping bool
	holds    core.Holds
	metadata map[string]string
	started  time.Time // of the run

	termsLed, termsEnded uint64
	leader               uint64 // the term of the leader that was reported last; 0 if that was nobody

	again    time.Time // when to try again what was refused or not answered
	refused  bool      // a write was refused, and it is not known why
	yields   time.Time // until then others may take the key, and this claim does not
	underWay bool      // a write of the claim is
	lastTerm uint64    // the number of the last term
	returnBy time.Time // when callbacks and work are to have returned after it
	held               // from Taking to Returning

	touched  bool // its shell is to look again
	outlived bool // work goes on though the release timeout is over: others lead the key a lease later all the same
	queued   bool // it waits because too many claims are written at a time
	admitted bool // it is its turn now
	op       core.Op
	events   []core.Event
}

// held is what a claim knows of its term.
type held struct {
	term     *core.Term       // nil while it has none
	attempt  string           // by which the claim was taken
	replaced uint64           // the revision that it replaced
	takenAt  time.Time        // when that was known
	proven   bool             // the claim is known to be in the bucket in which the session is
	target   record.Successor // of a transfer
	endedAt  time.Time        // when leadership ended; zero before
	told     bool             // that was reported
	limit    time.Time        // of all tries to release

	mayBeReleased bool // a release was not answered
}

// Campaign returns the claim of a key that the process is to campaign for. There is one for each key.
func (s *Session) Campaign(key string) *Claim {
	c := &Claim{s: s, key: key}
	s.own[key], s.list = c, append(s.list, c)
	s.count(s.claim(key), 1)
	return c
}

// Forget ends what Campaign began. The claim is not running.
func (s *Session) Forget(c *Claim) {
	if s.own[c.key] == c {
		if c.admitted {
			c.admitted = false
			s.admitted--
		}
		s.count(s.claim(c.key), -1)
		delete(s.own, c.key)
		s.list = slices.DeleteFunc(s.list, func(other *Claim) bool { return other == c })
	}
}

// Doing says in words what the claim does.
func (c *Claim) Doing() string { return c.step.String() }

// Step returns what the claim does at present.
func (c *Claim) Step() ClaimStep { return c.step }

// Term returns the term in which the claim is held; nil if there is none.
func (c *Claim) Term() *core.Term { return c.term }

// Begin begins to campaign.
func (c *Claim) Begin(time.Time, time.Time) { c.enter(Watching) }

// Next returns how long to wait, and what there is to report before.
func (c *Claim) Next(now time.Time) (core.Op, []core.Event) {
	c.decide(now, false)
	return c.op, c.takeEvents()
}

// Done says that a wait is over.
func (c *Claim) Done(now time.Time, r core.Result) { c.decide(now, r.Quiet) }

// Waits returns the present wait.
func (c *Claim) Waits() (op core.Op, waits bool) { return c.op, c.op.Kind == core.Wait }

// Notice takes what has happened beside the loop. What follows from it is decided in the loop, which starts work and calls callbacks in the order of what it
// reports.
func (c *Claim) Notice(now time.Time, n core.Notice) []core.Event {
	switch n := n.(type) {
	case core.NewRun:
		c.stopping, c.started, c.leader = false, n.Started, 0
	case core.EndRun:
		if st := c.s.claim(c.key); c.step != Finished && st.names(c.s.id) { // the loop has panicked: work may go on for a while
			st.keptUntil = now.Add(c.s.Timing.TTL)
		}
		c.lost(now, core.Closed)
		c.enter(NotRunning)
		c.op = core.Op{}
		return c.takeEvents()
	case core.Stop:
		c.stopping = true
		c.endLeadership(now, core.Stopped)
	case core.End:
		if n.Term == c.term && (n.Why != core.Deadline || !c.s.leads(now)) { // else the lease was renewed while the timer fired
			c.endLeadership(now, n.Why)
		}
	case core.Hold:
		if c.holds &^= n.Why; n.On {
			c.holds |= n.Why
		}
	case core.SetMetadata:
		c.metadata = n.Metadata
	}
	c.s.touch(c)
	return nil
}

func (c *Claim) takeEvents() []core.Event {
	events := c.events
	c.events = nil
	return events
}

func (c *Claim) report(e core.Event) { c.events = append(c.events, e) }

// Handover names the session that is to take the key over, and ends leadership for the given reason, see [core.Candidate.Handover].
func (c *Claim) Handover(now time.Time, t *core.Term, target record.Successor, why core.Reason) (reason core.Reason, refused bool) {
	switch {
	case t != c.term && t.LostBy != "":
		return t.LostBy, true
	case t != c.term:
		return t.Reason, true
	case t.Lease.State == core.Follower:
		return "", true
	}
	c.target = target
	c.endLeadership(now, why)
	c.s.touch(c)
	return "", false
}

// wants reports whether the process would take the key.
func (c *Claim) wants(now time.Time) bool {
	return c.step == Watching && !c.stopping && c.holds == 0 && !c.isYielding(now) && !c.s.closing
}

// isYielding reports whether the process leaves the key to others: it has given it up a short time ago, and it is not handed back.
func (c *Claim) isYielding(now time.Time) bool {
	return now.Before(c.yields) && c.s.place(c.s.claim(c.key)) != 0
}

// decide goes on as far as it can. quiet says that callbacks and work have returned.
func (c *Claim) decide(now time.Time, quiet bool) {
	admitted := c.admitted
	if admitted {
		c.admitted = false
		c.s.admitted--
	}
	for step := Finished + 1; step != c.step; {
		step, c.op = c.step, core.Op{Kind: core.Wait}
		switch step {
		case NotRunning:
			c.op = core.Op{}
		case Watching:
			c.watch(now)
		case Holding:
			c.hold(now)
		case Ending:
			c.end(now, quiet)
		case Giving:
			c.give(now)
		case Returning:
			if c.op.Quiet, c.op.Due = true, c.returnBy; quiet {
				c.enter(Watching)
				quiet = false
			}
		case Finished:
			c.op = core.Op{Kind: core.Finish}
		}
	}
	if admitted && c.step != Taking {
		c.s.touchQueued() // it does not need its turn
	}
	if c.step != NotRunning && c.step != Finished {
		c.op.Until = earlier(c.op.Until, c.seeLeader(now))
	}
}

// seeLeader reports who leads the key, if that has changed, and returns when to look again.
func (c *Claim) seeLeader(now time.Time) (until time.Time) {
	s, st := c.s, c.s.claim(c.key)
	o := s.others[st.owner]
	seen := core.Event{Kind: core.LeaderSeen, TTL: s.Timing.TTL}
	switch {
	case c.term != nil && c.term.Lease.State == core.Leader:
		seen.Record, seen.Revision = &record.Record{Name: s.Name, Host: s.Host, PID: s.PID, Instance: s.id, Since: c.term.Since, Metadata: c.metadata}, c.term.Number
	case !s.Knows():
		return time.Time{} // what is known may be outdated
	case c.term != nil:
	case st.kind == claimed && o != nil && o.status == open && o.revision > 0:
		if at := s.passedOn(now, st); now.Before(at) { // it does not lead yet
			return at
		}
		seen.Record, seen.Revision = &record.Record{Name: o.name, Instance: st.owner, Since: st.since, Metadata: st.metadata}, st.revision
	}
	if seen.Revision == c.leader {
		return time.Time{}
	}
	if c.leader = seen.Revision; seen.Record != nil {
		seen.Record.Term, seen.Record.BucketCreated = seen.Revision, s.created
	}
	c.report(seen)
	return time.Time{}
}

// Status returns what the claim tells of itself.
func (c *Claim) Status() core.Status {
	s, campaigns := c.s, c.step == Watching || c.step == Taking
	free := campaigns && !c.stopping && c.holds == 0 && s.step == Open
	return core.Status{
		Bucket: core.Bucket{Timing: s.Timing, Created: s.created}, Holds: c.holds, Source: Source, Step: c.step, Started: c.started, UntilNext: s.Timing.Interval,
		TermsLed: c.termsLed, TermsEnded: c.termsEnded, Ready: free && s.Knows(), Standby: free && s.Knows(),
	}
}

// Source is how the elections of a session are notified: by the consumer of the session.
const Source = "session"

// watch takes the key if it is vacant, and it is this session's turn.
func (c *Claim) watch(now time.Time) {
	s := c.s
	st := s.claim(c.key)
	switch own := st.names(s.id); {
	case own && c.underWay, !s.Knows(), !s.leads(now): // for now
	case own && c.wants(now) && st.revision == c.lastTerm: // it was not released, and each term has a number of its own
		if at := timeutil.Later(c.again, st.keptUntil); now.Before(at) {
			c.op.Until = at
		} else {
			c.take(now, st, timeutil.Later(now, s.passedOn(now, st)))
		}
		return
	case own && c.wants(now) && s.isDoubtful(st): // a write was applied after all that was given up
		delete(s.doubtful, st.attempt)
		c.holdKey(now, st, timeutil.Later(now, s.passedOn(now, st)), st.since, core.Reclaimed)
		return
	case own:
		s.releaseUnwanted(now, c.key, st)
	}
	switch {
	case c.stopping:
		c.enter(Finished)
		return
	case c.isYielding(now):
		c.op.Until = c.yields
		return
	case !s.Knows(), !s.leads(now), !c.wants(now), c.underWay, s.reads.missing[ClaimKey(c.key)]:
		return
	}
	ends, vacant := s.vacancy(now, st)
	if !vacant {
		return
	}
	if at := timeutil.Later(c.again, s.turnAt(now, c.key, st, ends.After(now))); now.Before(at) {
		c.op.Until = at
		return
	}
	if c.refused { // the consumer has not told why
		c.refused = false
		s.readBy(now, 0)
	}
	if s.claimsLeft() <= 0 {
		s.enqueue(c)
		return
	}
	c.take(now, st, ends)
}

// take takes the claim by a write over what is stored. ends is when the leases of earlier leaders are over.
func (c *Claim) take(now time.Time, st *storedClaim, ends time.Time) {
	s := c.s
	wait, won, first := max(0, ends.Sub(now)), s.wonOver(st), st.revision == 0 || st.owner == s.id
	r := s.claimRecord(now, wait, won)
	r.Metadata = c.metadata
	switch {
	case st.kind == released:
		r.Predecessors = []record.Secret{st.secret}
	case st.names(s.id):
		r.Predecessors = []record.Secret{s.claimSecret(st.attempt)}
	}
	c.enter(Taking)
	c.report(core.Event{Kind: core.Campaigned, State: core.Follower})
	limit := now.Add(s.Timing.RequestTimeout())
	d := doubt{st.revision, now}
	if wait > 0 {
		d.ends = limit.Add(wait)
	}
	s.doubtful[r.Attempt] = d
	c.write(r, st.revision, limit, func(now time.Time, outcome core.Outcome) {
		if outcome == core.Applied || outcome == core.Failed { // a server may refuse that takes itself for the leader, and the leader store it
			delete(s.doubtful, r.Attempt)
		}
		if c.step != Taking {
			return
		}
		if st := s.claims[c.key]; outcome == core.Applied && st.kind == claimed && st.attempt == r.Attempt {
			c.holdKey(now, st, now.Add(wait), r.Since, won)
			if c.proven = !first && s.Knows(); c.proven { // else history may be another one
				delete(s.unproven.claims, c)
			}
			return
		}
		c.enter(Watching)
		c.again = now.Add(readPause)
	})
}

// doubt is an attempt to take a claim that may have been applied.
type doubt struct {
	replaces uint64
	ends     time.Time // until when leaders before may lead
}

// isDoubtful reports whether a claim was stored by an attempt of which that was not known. A copy that somebody else stores replaces another revision.
func (s *Session) isDoubtful(c *storedClaim) bool {
	d, is := s.doubtful[c.attempt]
	return is && d.replaces == c.replaced
}

// wonOver returns over what a claim is taken.
func (s *Session) wonOver(st *storedClaim) core.Reason {
	switch {
	case st.names(s.id):
		return core.Reclaimed
	case st.kind == released, st.kind == claimed && s.others[st.owner].status == ended:
		return core.Released
	case st.kind == claimed:
		return core.Lapsed
	}
	return core.Vacant
}

// write writes over the claim. then is not called if the session is over when the answer comes.
func (c *Claim) write(r record.Record, replaces uint64, limit time.Time, then func(time.Time, core.Outcome)) {
	s, id := c.s, c.s.id
	c.underWay = true
	s.claimsUnderWay++
	s.request(Op{Key: ClaimKey(c.key), Value: r.Encode(), Replaces: replaces, Limit: limit}, func(now time.Time, answer *Result) {
		c.underWay = false
		s.claimsUnderWay--
		s.touch(c)
		s.touchQueued()
		if s.id != id {
			if c.step == Taking {
				c.enter(Watching)
			}
			return
		}
		switch answer.Outcome {
		case core.Applied:
			if st := s.claim(c.key); st.revision < answer.Revision && answer.Revision <= s.position {
				s.historyWentBack(now, ClaimKey(c.key), answer.Revision)
			}
			s.claimSeen(now, c.key, &Change{Key: ClaimKey(c.key), Revision: answer.Revision, Replaced: replaces, Record: r})
		case core.Refused:
			if c.refused = true; answer.Named && answer.Last < replaces && s.position > 0 { // what was to be replaced was stored
				s.historyWentBack(now, ClaimKey(c.key), answer.Last)
			}
		}
		then(now, answer.Outcome)
	})
}

// claimsLeft returns how many more claims may be written at a time.
func (s *Session) claimsLeft() int {
	return cmp.Or(s.ClaimsAtOnce, claimsAtOnce) - s.claimsUnderWay - s.admitted
}

// enqueue has a claim wait because too many are written at a time.
func (s *Session) enqueue(c *Claim) {
	if !c.queued {
		c.queued = true
		s.queue = append(s.queue, c)
	}
}

// touchQueued goes on with as many of the claims that wait as may be written now.
func (s *Session) touchQueued() {
	for len(s.queue) > 0 && s.claimsLeft() > 0 {
		c := s.queue[0]
		s.queue = s.queue[1:]
		if c.queued = false; c.step == Watching {
			c.admitted = true
			s.admitted++
			s.touch(c)
		}
	}
}

// holdKey begins a term: the claim is stored. Leadership counts once the leases of earlier leaders are over, and only a later renewal proves that this is the
// bucket in which the session is.
func (c *Claim) holdKey(now time.Time, st *storedClaim, ends, since time.Time, won core.Reason) {
	s := c.s
	c.enter(Holding)
	s.latest = max(s.latest, st.revision)
	c.held = held{attempt: st.attempt, replaced: st.replaced, takenAt: now, term: &core.Term{
		Number: st.revision, BucketCreated: s.created, Since: since.Round(0), StandDown: max(0, ends.Sub(now)), LeadsFrom: ends, Lease: s.leaseFor(core.LeaderElect),
	}}
	s.unproven.add(c)
	c.report(core.Event{Kind: core.StateChanged, State: core.LeaderElect, Reason: won, Term: c.term})
	why := core.Stopped
	if !c.stopping && !s.closing {
		_, why = c.holds.Against() // something may have come to hold it back while the write was under way
	}
	if why != "" {
		c.endLeadership(now, why)
	}
}

// hold has leadership begin to count once it may.
func (c *Claim) hold(now time.Time) {
	s, t := c.s, c.term
	switch {
	case t.Lease.State == core.Follower:
		c.enter(Ending)
	case t.Lease.State == core.Leader:
	case now.Before(t.LeadsFrom):
		c.op.Until = t.LeadsFrom
	case c.proven && s.leads(now):
		t.Lease, t.LedSince = s.leaseFor(core.Leader), now.Round(0)
		c.termsLed++
		c.report(core.Event{Kind: core.StateChanged, State: core.Leader, Reason: core.StoodDown, Term: t})
		c.report(core.Event{Kind: core.LeadershipCounts, Term: t})
	}
}

// seen takes what is stored under the key.
func (c *Claim) seen(now time.Time, st *storedClaim) {
	c.refused = false
	switch {
	case c.term == nil, st.names(c.s.id) && st.revision == c.term.Number:
	case c.step == Giving && st.kind == released && st.owner == c.s.id: // the answer to the release did not come
		c.over(now, core.Ending{How: core.KeyReleased})
	case c.step == Giving && c.underWay: // the answer to the release says whether this has replaced it
	case c.step == Giving && c.mayBeReleased && st.kind == claimed: // the release was stored, and another session was quick
		c.over(now, core.Ending{How: core.KeyReleased})
	case st.kind == unclaimed:
		c.lost(now, core.Deleted)
	default:
		c.lost(now, core.Overwritten)
		if st.kind == foreign { // an operator has evicted it, say
			c.yields = now.Add(c.s.Timing.Interval)
		}
	}
}

// endLeadership ends leadership. If the reason is voluntary, the lease goes on while callbacks and work return.
func (c *Claim) endLeadership(now time.Time, why core.Reason) {
	t := c.term
	if t == nil || t.Lease.State == core.Follower {
		return
	}
	t.Reason, c.endedAt = why, now
	if why.Voluntary() {
		t.Lease = c.s.leaseFor(core.Follower)
	} else {
		c.endLease(now)
	}
}

// endLease ends the lease of the term.
func (c *Claim) endLease(now time.Time) {
	ended := *c.term.Lease.CutShort(now, c.s.Boot)
	ended.State = core.Follower
	c.term.Lease = &ended
}

// end waits until callbacks and work have returned, and then has the claim released.
func (c *Claim) end(now time.Time, quiet bool) {
	s, t := c.s, c.term
	c.tellEnd()
	due := c.endedAt.Add(s.Timing.ReleaseTimeout)
	c.op.Quiet, c.op.Due, c.op.Until = true, due, due
	switch {
	case !t.Reason.Voluntary():
		c.over(now, core.Ending{How: core.KeyLost})
	case s.step == Released: // without this claim
		c.over(now, core.Ending{How: core.NotReleased})
	case quiet && s.closing && !s.oneByOne:
		c.enter(Sharing)
	case quiet:
		c.beginToGive(now)
	case !now.Before(due):
		c.over(now, core.Ending{How: core.WorkGoesOn})
		s.releaseAllUnwanted(now)
		s.releaseOneByOne(now)
	}
}

// tellEnd reports that leadership has ended, once.
func (c *Claim) tellEnd() {
	if !c.told {
		c.told = true
		if !c.term.LedSince.IsZero() {
			c.termsEnded++
		}
		c.report(core.Event{Kind: core.StateChanged, State: core.Follower, Reason: c.term.Reason, Term: c.term})
	}
}

func (c *Claim) beginToGive(now time.Time) {
	c.enter(Giving)
	c.again, c.limit = now, now.Add(max(timing.MinTry, min(c.s.Left(now), timing.RequestTimeout)))
}

// give releases the claim.
func (c *Claim) give(now time.Time) {
	s, t := c.s, c.term
	switch {
	case c.underWay:
		return
	case now.Before(c.again):
		c.op.Until = c.again
		return
	case c.limit.Sub(now) < timing.MinTry:
		c.over(now, core.Ending{How: core.NotReleased})
		return
	case c.refused: // the consumer has not told why
		c.refused = false
		s.readBy(now, 0)
	}
	led := uint64(0)
	if t.Led() {
		led = t.Number
	}
	r := s.claimRelease(now, t.Since, led, c.attempt, s.waitAfter(now, c), t.Reason)
	if c.target != (record.Successor{}) {
		r.SetSuccessors([]record.Successor{c.target})
	}
	c.write(r, t.Number, earlier(now.Add(s.Timing.RequestTimeout()), c.limit), func(now time.Time, outcome core.Outcome) {
		if c.step != Giving { // the release is seen to be stored
			return
		}
		c.mayBeReleased = c.mayBeReleased || outcome == core.Unknown
		switch st := s.claim(c.key); {
		case outcome == core.Applied: // and was replaced before it was seen
			c.over(now, core.Ending{How: core.KeyReleased})
		case st.revision != t.Number:
			c.seen(now, st)
		default:
			c.again = now.Add(timing.MinPause)
		}
	})
}

// waitAfter returns for how long the next leader must wait for leaders before the holder of the claim.
func (s *Session) waitAfter(now time.Time, c *Claim) time.Duration {
	if !c.proven { // the session may have been opened in an earlier bucket
		return s.longestWait()
	}
	return max(0, c.term.LeadsFrom.Sub(now))
}

// lost ends the term because the claim or the session was lost.
func (c *Claim) lost(now time.Time, why core.Reason) {
	t := c.term
	switch {
	case t == nil:
		return
	case t.Reason == "":
		t.Reason = why
	case t.LostBy == "":
		t.LostBy = why
	}
	how := core.KeyLost
	if why == core.Deadline && t.Reason.Voluntary() {
		how = core.LeaseOver
	}
	c.over(now, core.Ending{How: how})
}

// over ends the term.
func (c *Claim) over(now time.Time, end core.Ending) {
	t := c.term
	t.Outcome, c.lastTerm, c.outlived = end, t.Number, end.How == core.WorkGoesOn
	if t.Reason.Voluntary() && t.Reason != core.Stopped && t.Reason != core.WorkEnded {
		c.yields = now.Add(c.s.Timing.TTL)
	}
	c.stopping = c.stopping || t.Reason == core.WorkEnded // the run ends with its work
	c.endLease(now)
	c.tellEnd()
	if end.How != core.KeyReleased {
		c.s.stray = true
		c.report(core.Event{Kind: core.KeyNotReleased, Term: t, Ending: end})
	}
	c.report(core.Event{Kind: core.TermOver, Term: t})
	c.enter(Returning)
	c.returnBy = cmp.Or(c.endedAt, now).Add(c.s.Timing.ReleaseTimeout)
	c.held = held{}
	delete(c.s.unproven.claims, c)
	c.s.touch(c)
}
