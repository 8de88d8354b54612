package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/sim/judge"
)

// electionKey is the only key of the bucket.
const electionKey = "leader"

// slot is a host with its link, on which one candidate runs after another.
type slot struct {
	index       int
	plan        *plan
	current     *candidate // nil if none was started yet, or the last one crashed or was stopped
	started     int        // how many candidates so far
	cutUntil    time.Time
	buffered    bool // whether the client keeps its messages while the link is cut
	catchesUp   bool // whether watchers receive afterwards what they missed
	frozenUntil time.Time
}

// able reports whether the candidate of the slot can come to lead.
func (s *slot) able() bool {
	c := s.current
	return c != nil && c.running && c.wanted && !c.noStatus && !c.closed
}

// candidate is the shell of one core.Candidate: it does what the candidate decides, across a link that may be spoiled. It has what the run of
// package election has, but for goroutines.
type candidate struct {
	w      *world
	slot   *slot
	plan   *plan
	number int // among the slot's candidates, from 1
	name   string
	clock  judge.Clock
	ledger *judge.Ledger
	core   *core.Candidate
	rules  core.Rules
	dice   *dice // of its random delays
	ids    uint64

	running  bool
	looping  bool // it campaigns and leads: its bucket was reached
	wanted   bool // whether it restarts if its run returns by itself
	crashed  bool
	noRead   bool // its reads of the key fail for good
	noStatus bool // its requests for the state of the bucket fail for good, so it cannot come to lead
	closed   bool // its connection is closed for good
	stopping bool
	failed   error // why the run ends though nobody stopped it

	op         core.Op // that it does now
	at         core.Step
	waker      *timer
	wakeAt     time.Time // when the waker wakes it; zero for never
	request    *request  // of the operation that it does now; nil if there is none
	term       *core.Term
	lease      *core.Lease // of the term, as it is shown
	expiry     *timer
	reconnects uint64
	records    bool // the attempts of others
	source     *source
	calls      dispatcher
	work       *work
	result     error // of the work that returned while it led

	sent  [numOps]uint64 // requests
	last  time.Time      // when the last was made
	burst int            // how many more were made in the same instant
}

// errWork is the error that work returns by itself.
var errWork = errors.New("work failed")

// start starts the slot's candidate again if its context had ended, else a new one.
func (w *world) start(s *slot) {
	c := s.current
	if c == nil || c.closed {
		c = w.newCandidate(s, "")
	}
	if c.running {
		return
	}
	c.running, c.wanted, c.stopping, c.failed, c.result = true, true, false, nil, nil
	c.ledger.Started()
	w.note(c.name, "starts")
	c.core.Notice(c.now(), core.NewRun{Rules: c.newRules(), Started: c.now().Round(0)})
	c.act(c.loadBucket)
	w.checkSoon()
}

// newCandidate returns a candidate of a slot; with the instance of another, if one is given.
func (w *world) newCandidate(s *slot, instance string) *candidate {
	s.started++
	c := &candidate{w: w, slot: s, plan: s.plan, number: s.started, name: s.plan.name}
	if s.started > 1 {
		c.name = s.plan.name + string(rune('0'+min(s.started, 9)))
	}
	c.dice = newDice(w.script.seed, mix(uint64(s.index), uint64(s.started), 17))
	c.calls.c = c
	c.source = &source{c: c, kind: core.NoSource}
	c.noRead = s.plan.noRead
	if instance == "" {
		instance = fmt.Sprintf("%s.%d", c.name, s.started)
	}
	c.clock = judge.Clock{Began: epoch, Drift: s.plan.drift, Unslewed: s.plan.unslewed}
	c.rules = core.Rules{
		BucketName: "ELECTIONS", Name: c.name, Instance: instance, Priority: s.plan.priority, Order: s.plan.order,
		Plain: s.plan.plain, Preempts: s.plan.preempts, HasBackoff: s.plan.backoff > 0, Connected: s.plan.connected, Direct: s.plan.direct,
		World: &core.World{
			Random: c.random, NewID: c.newID, NewSecret: c.newSecret,
			Clocks: c.clocks, Boot: func() (time.Duration, bool) { return c.now().Sub(epoch), true }, Slewed: c.slewed, Started: c.clocks(), Seed: mix(w.script.seed, uint64(s.index)),
			Stepped: c.stepped,
		},
	}
	c.core = core.New(&c.rules)
	c.ledger = w.judge.Add(judge.Candidate{
		Name: c.name, Margin: s.plan.marginOf(w.script.ttl), StandDown: s.plan.standDownOf(w.script.ttl), Interval: s.plan.intervalOf(w.script.ttl), Clock: c.clock,
		Plain: s.plan.plain, NoRead: s.plan.noRead, Connected: s.plan.connected, Reports: c, Notified: c.source.delivered,
	})
	s.current = c
	w.candidates = append(w.candidates, c)
	return c
}

func (c *candidate) newRules() *core.Rules {
	rules := c.rules
	return &rules
}

// random returns a random delay; of schedules that are explored, always the same one.
func (c *candidate) random(d time.Duration) time.Duration {
	if c.w.explored != nil {
		return max(d, 0) * time.Duration(c.slot.index) / 4
	}
	return time.Duration(c.dice.Int64N(int64(max(d, 1))))
}

// newID returns an id that nobody else has.
func (c *candidate) newID() string {
	c.ids++
	return fmt.Sprintf("%s.%d.%d", c.name, c.number, c.ids)
}

func (c *candidate) newSecret() (s record.Secret) {
	for i := range s {
		s[i] = byte(c.dice.Uint64())
	}
	return s
}

// now is the time by the clock of the candidate.
func (c *candidate) now() time.Time { return c.clock.Reads(c.w.now) }

// clocks reads all clocks of the candidate. They agree.
func (c *candidate) clocks() lease.Reading {
	return lease.Reading{Instant: lease.Of(c.now()), Boot: c.now().Sub(epoch), Readable: true}
}

// slewed returns by how much the clock of the candidate has run ahead of the one that is never slewed, if there is one.
func (c *candidate) slewed() (time.Duration, bool) {
	return c.clock.Slewed(c.w.now), !c.plan.onlySlewed
}

// act does something in the process of the candidate: now or, if the process is frozen, when it goes on.
func (c *candidate) act(do func()) {
	if c.crashed {
		return
	}
	if c.w.now.Before(c.slot.frozenUntil) {
		c.w.at(c.slot.frozenUntil, func() { c.act(do) })
		return
	}
	do()
	c.w.checkSoon()
}

// loadBucket loads the bucket's info until it can, and begins to campaign then.
func (c *candidate) loadBucket() {
	if c.stopping {
		c.returned()
		return
	}
	c.call(&request{op: opStatus, limit: c.w.now.Add(bucketTimeout), then: func(r core.Result) {
		if c.failed != nil {
			c.returned()
			return
		}
		c.tell(core.Loaded{Bucket: r.Bucket, Err: r.Err, Failure: r.Failure})
		if r.Err != nil {
			again := c.w.after(bucketRetry+c.rules.Random(bucketRetry), func() { c.act(c.loadBucket) })
			c.onStop(again)
			return
		}
		c.core.Notice(c.now(), core.Joined{Source: core.NoSource, Created: r.Bucket.Created})
		c.source.created = r.Bucket.Created
		c.source.start(func() { c.act(c.begin) })
	}})
}

const (
	bucketTimeout = 2 * time.Second        // for a request about the bucket
	bucketRetry   = 250 * time.Millisecond // at least; at most twice that
)

// onStop has a timer fire at once if the candidate is stopped before.
func (c *candidate) onStop(t *timer) { c.waker = t }

// begin begins to campaign, once the source of notifications is in use or cannot be.
func (c *candidate) begin() {
	if c.looping || !c.running {
		return
	}
	c.looping = true
	c.core.Begin(c.now(), c.now())
	c.step()
}

// step does what the candidate decides next.
func (c *candidate) step() {
	op, events := c.core.Next(c.now())
	c.op, c.request = op, nil
	c.waker.stop()
	c.wakeAt = time.Time{}
	c.show()
	c.report(events)
	switch op.Kind {
	case core.Finish:
		c.finish(op)
	case core.Wait:
		if op.Quiet && c.isQuiet() {
			c.wake(c.now())
		} else if !op.Until.IsZero() {
			c.wake(op.Until)
		}
	case core.AskBackoff:
		c.done(core.Result{Delay: c.plan.backoff})
	default:
		c.call(c.requestOf(&op))
	}
}

// done passes on what came of the operation that the candidate does, and does the next.
func (c *candidate) done(r core.Result) {
	c.core.Done(c.now(), r)
	c.step()
}

// wake has the candidate woken at a time of its clock.
func (c *candidate) wake(at time.Time) {
	c.waker.stop()
	c.wakeAt = at
	c.waker = c.w.at(c.clock.When(at), func() {
		c.act(func() {
			if c.looping && c.op.Kind == core.Wait {
				c.done(core.Result{Quiet: c.op.Quiet && c.isQuiet()})
			}
		})
	})
}

// quietened is called when callbacks and work may have returned.
func (c *candidate) quietened() {
	if c.looping && c.op.Kind == core.Wait && c.op.Quiet && c.isQuiet() {
		c.wake(c.now())
	}
}

// isQuiet reports whether callbacks and work have returned.
func (c *candidate) isQuiet() bool { return !c.calls.busy && c.work == nil }

// tell tells the candidate what happens while it does something else.
func (c *candidate) tell(n core.Notice) {
	events := c.core.Notice(c.now(), n)
	c.show()
	c.report(events)
	c.rewake()
}

// rewake has the candidate woken earlier, if there is something to do earlier.
func (c *candidate) rewake() {
	if !c.looping {
		return
	}
	op, waits := c.core.Waits()
	if at := op.Until; waits && !at.IsZero() && (c.wakeAt.IsZero() || at.Before(c.wakeAt)) {
		c.wake(at)
	}
}

// show shows others what was decided about the term.
func (c *candidate) show() {
	now, t := c.now(), c.core.Term()
	if c.term != nil && c.lease != c.term.Lease {
		c.showLease(now)
	}
	if t != c.term {
		c.expiry.stop()
		if c.term = t; t != nil {
			c.lease = nil
			c.showLease(now)
		}
	}
}

func (c *candidate) showLease(now time.Time) {
	before, l := c.lease, c.term.Lease
	c.lease = l
	c.expiry.stop()
	if left := l.Left(now, c.rules.Boot); left > 0 {
		t := c.term
		c.expiry = c.w.at(c.clock.When(now.Add(left)), func() { c.act(func() { c.tell(core.End{Term: t, Why: core.Deadline}) }) })
	}
	if l.State == core.Follower && (before == nil || before.State != core.Follower) {
		c.calls.wake()
		c.work.contextEnds(c)
		c.endRequest(core.WhileLeads)
	}
}

// report does what the candidate reports.
func (c *candidate) report(events []core.Event) {
	for i := range events {
		switch e := &events[i]; e.Kind {
		case core.Campaigned:
			c.calls.campaigned()
		case core.LeadershipCounts:
			c.calls.latest = e.Term
			c.calls.wake()
			if c.plan.hasWork && c.IsLeader() {
				c.startWork(e.Term)
			}
		case core.LeaderSeen:
			if e.Record != nil {
				c.w.judge.LeaderReported(c.ledger, e.Record.Name, c.w.now)
			}
		case core.RecordAttempts:
			c.records = e.On && c.plan.connected
		case core.Remake:
			c.source.remake()
		case core.SourceStalled:
			c.source.stalls()
		case core.Preempt:
			c.requestTransfer(e.Instance)
		}
	}
}

// finish is called when nothing is left to do.
func (c *candidate) finish(op core.Op) {
	c.looping = false
	if op.Cloned {
		c.rules.Instance = c.newID()
		c.w.note(c.name, "goes on as "+c.rules.Instance)
		c.w.count("another instance")
		c.core.Notice(c.now(), core.NewRules{Rules: c.newRules()})
		c.core.Notice(c.now(), core.Joined{Source: c.source.kind, Created: c.source.created})
		c.w.after(0, func() { c.act(c.begin) })
		return
	}
	c.source.end()
	c.returnWhenIdle()
}

// returnWhenIdle returns once no callback runs.
func (c *candidate) returnWhenIdle() {
	c.calls.campaigns = 0
	if c.calls.busy {
		c.calls.idle = c.returnWhenIdle
		return
	}
	c.returned()
}

// returned is the end of one call of Start or Run.
func (c *candidate) returned() {
	w := c.w
	c.core.Notice(c.now(), core.EndRun{})
	c.waker.stop()
	c.running, c.looping = false, false
	err := c.result
	if c.failed != nil && err == nil {
		err = c.failed
	}
	note := ""
	if err != nil {
		note = err.Error()
	}
	w.journal.Add(judge.Event{At: w.now, Name: c.name, What: "returned", Note: note})
	w.judge.Returned(c.ledger, err, !c.wanted, w.now)
	wanted := func() bool { return c.wanted && c.slot.current == c && !w.closing }
	if wanted() { // its work has returned by itself
		w.after(w.script.ttl/10, func() {
			if wanted() {
				w.start(c.slot)
			}
		})
	}
	w.checkSoon()
}

// stop ends the run of a candidate.
func (c *candidate) stop() {
	if c.stopping || !c.running {
		return
	}
	c.stopping = true
	c.tell(core.Stop{})
	c.endRequest(core.WhileRuns)
	if !c.looping && c.waker.waits() { // it waits for the bucket
		do := c.waker.do
		c.waker.stop()
		c.w.after(0, do)
	}
}

// fail ends the run because the connection is closed for good.
func (c *candidate) fail() {
	if c.failed != nil || !c.running {
		return
	}
	c.failed = fmt.Errorf("cannot go on: %w", nats.ErrConnectionClosed)
	if c.term != nil {
		c.tell(core.End{Term: c.term, Why: core.Closed})
	}
	c.stop()
}

// IsLeader reports whether the candidate leads, as Election.IsLeader does.
func (c *candidate) IsLeader() bool { return c.leads(c.term) }

func (c *candidate) leads(t *core.Term) bool {
	return t != nil && t.Lease.State == core.Leader && t.Lease.Left(c.now(), c.rules.Boot) > 0
}

// Term returns the term that the candidate leads, as Election.Term does.
func (c *candidate) Term() (election.Term, bool) {
	if !c.IsLeader() {
		return election.Term{}, false
	}
	return c.publicTerm(c.term), true
}

func (c *candidate) publicTerm(t *core.Term) election.Term {
	return election.Term{Key: electionKey, Name: c.name, Number: t.Number, BucketCreated: t.BucketCreated, Since: t.Since}
}

// State returns the state, as Election.State does.
func (c *candidate) State() election.State {
	switch {
	case c.term != nil && c.term.Lease.Left(c.now(), c.rules.Boot) > 0:
		return election.State(c.term.Lease.State)
	case c.running:
		return election.CandidateState
	}
	return election.UnknownState
}
