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
	"github.com/natscampaign/election/internal/shell"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
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

// candidate drives the shell of one core.Candidate: it is a shell.Driver in virtual time, and does what the candidate decides across a link that may be
// spoiled. What package election does by goroutines and timers, it does by the events of the engine.
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
	dice   *virtual.Dice // of its random delays
	ids    uint64

	shell    *shell.Shell // of the present run, or the last one
	running  bool
	looping  bool // it campaigns and leads: its bucket was reached
	wanted   bool // whether it restarts if its run returns by itself
	crashed  bool
	noRead   bool  // its reads of the key fail for good
	noStatus bool  // its requests for the state of the bucket fail for good, so it cannot come to lead
	closed   bool  // its connection is closed for good
	failed   error // why the run ends though nobody stopped it

	op         core.Op        // that it does now
	request    *request       // of the operation that it does now; nil if there is none
	retry      *virtual.Timer // of a request for the bucket's info that failed
	waker      *virtual.Timer // wakes the loop
	renamedAt  time.Time      // when it last went on as another instance
	returning  bool           // it waits for callbacks to return
	term       *shell.Term    // that others see; nil if none
	reconnects uint64
	records    bool // the attempts of others
	source     *source
	calls      uint64 // callbacks so far: every third may panic
	work       *work

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
	c.running, c.wanted, c.failed = true, true, nil
	c.ledger.Started()
	w.note(c.name, "starts")
	c.shell = shell.New(c.core, c.rules.Boot, c)
	c.shell.HasWork = c.plan.hasWork
	c.shell.Calls.Has[shell.Won], c.shell.Calls.Has[shell.Lost], c.shell.Calls.Has[shell.Next] = true, true, true
	c.shell.Calls.Has[shell.Campaign], c.shell.Calls.Has[shell.Leader] = c.plan.onCampaign > 0, c.plan.onCampaign > 0
	c.shell.Start(c.now(), c.newRules(), c.now().Round(0))
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
	c.dice = virtual.NewDice(w.script.seed, virtual.Mix(uint64(s.index), uint64(s.started), 17))
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
			Clocks: c.clocks, Boot: func() (time.Duration, bool) { return c.now().Sub(epoch), true }, Slewed: c.slewed, Started: c.clocks(), Seed: virtual.Mix(w.script.seed, uint64(s.index)),
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
func (c *candidate) now() time.Time { return c.clock.Reads(c.w.Now) }

// clocks reads all clocks of the candidate. They agree.
func (c *candidate) clocks() lease.Reading {
	return lease.Reading{Instant: lease.Of(c.now()), Boot: c.now().Sub(epoch), Readable: true}
}

// slewed returns by how much the clock of the candidate has run ahead of the one that is never slewed, if there is one.
func (c *candidate) slewed() (time.Duration, bool) {
	return c.clock.Slewed(c.w.Now), !c.plan.onlySlewed
}

// act does something in the process of the candidate: now or, if the process is frozen, when it goes on.
func (c *candidate) act(do func()) {
	if c.crashed {
		return
	}
	if c.w.Now.Before(c.slot.frozenUntil) {
		c.w.At(c.slot.frozenUntil, func() { c.act(do) })
		return
	}
	do()
	c.w.checkSoon()
}

// loadBucket loads the bucket's info until it can, and begins to campaign then.
func (c *candidate) loadBucket() {
	if c.shell.IsStopping() {
		c.returned()
		return
	}
	c.call(&request{op: opStatus, limit: c.w.Now.Add(bucketTimeout), then: func(r core.Result) {
		if c.failed != nil {
			c.returned()
			return
		}
		c.tell(core.Loaded{Bucket: r.Bucket, Err: r.Err, Failure: r.Failure})
		if r.Err != nil {
			c.retry = c.w.After(bucketRetry+c.rules.Random(bucketRetry), func() { c.act(c.loadBucket) })
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

// begin begins to campaign, once the source of notifications is in use or cannot be.
func (c *candidate) begin() {
	if c.looping || !c.running {
		return
	}
	c.looping = true
	c.do(c.shell.Begin(c.now(), c.now()))
}

// do does what the candidate decides.
func (c *candidate) do(op core.Op, events []core.Event) {
	c.op, c.request = op, nil
	c.report(events)
	c.take(events)
	switch op.Kind {
	case core.Finish:
		c.finish(op)
	case core.Wait: // the shell has it woken
	case core.AskBackoff:
		c.done(core.Result{Delay: c.plan.backoff})
	default:
		c.call(c.requestOf(&op))
	}
}

// done passes on what came of the operation that the candidate does, and does the next.
func (c *candidate) done(r core.Result) { c.do(c.shell.Done(c.now(), r)) }

// term is a term of a candidate: what others see of it, and its timer at the deadline.
type term struct {
	shell.Term
	c      *candidate
	expiry *virtual.Timer
}

// NewTerm returns a term that begins.
func (c *candidate) NewTerm(t *core.Term) *shell.Term {
	x := &term{c: c}
	x.Core, x.Driver = t, x
	return &x.Term
}

// Expire has the leadership of the term end after a time of the candidate's clock.
func (x *term) Expire(in time.Duration) {
	c := x.c
	x.expiry.Stop()
	if in > 0 {
		x.expiry = c.w.At(c.clock.When(c.now().Add(in)), func() { c.act(func() { c.report(c.shell.Expired(c.now(), &x.Term)) }) })
	}
}

// EndContext ends the context of the work and of the requests of the term.
func (x *term) EndContext() {
	x.c.work.contextEnds(x.c, &x.Term)
	x.c.endRequest(core.WhileLeads)
}

// StartWork starts the work of the term.
func (x *term) StartWork() { x.c.startWork(&x.Term) }

// Show has others see a term, or none.
func (c *candidate) Show(t *shell.Term) { c.term = t }

// StartCalls has callbacks called, soon.
func (c *candidate) StartCalls() { c.w.After(0, func() { c.act(c.nextCall) }) }

// Wake has the loop woken at a time of the candidate's clock.
func (c *candidate) Wake(at time.Time) {
	c.waker.Stop()
	if at.IsZero() {
		return
	}
	c.waker = c.w.At(c.clock.When(at), func() {
		c.act(func() {
			switch {
			case c.returning:
				c.returnWhenIdle()
			case c.looping && c.op.Kind == core.Wait:
				c.done(core.Result{})
			}
		})
	})
}

// tell tells the candidate what happens beside the loop.
func (c *candidate) tell(n core.Notice) { c.report(c.shell.Notice(c.now(), n)) }

// report does what the candidate reports.
func (c *candidate) report(events []core.Event) {
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case core.LeaderSeen:
			if e.Record != nil {
				c.w.judge.LeaderReported(c.ledger, e.Record.Name, c.w.Now)
			}
		case core.RecordAttempts:
			c.records = e.On && c.plan.connected
		case core.Remake:
			c.source.remake()
		case core.SourceStalled:
			c.source.stalls()
		}
	}
}

// take does what only events of the loop ask for.
func (c *candidate) take(events []core.Event) {
	for i := range events {
		e := &events[i]
		if e.Kind == core.Preempt {
			c.requestTransfer(e.Instance)
		}
		c.shell.Take(c.now(), e)
	}
}

// finish is called when nothing is left to do.
func (c *candidate) finish(op core.Op) {
	c.looping = false
	if op.Cloned {
		if c.renamedAt.Equal(c.w.Now) {
			c.w.judge.Fail(c.w.Now, "P9", c.name, "goes on as another instance twice in one instant")
			return
		}
		c.renamedAt = c.w.Now
		c.rules.Instance = c.newID()
		c.w.note(c.name, "goes on as "+c.rules.Instance)
		c.w.count("another instance")
		c.report(c.shell.Rename(c.now(), c.newRules()))
		c.core.Notice(c.now(), core.Joined{Source: c.source.kind, Created: c.source.created})
		c.w.After(0, func() { c.act(c.begin) })
		return
	}
	c.source.end()
	c.returnWhenIdle()
}

// returnWhenIdle returns once no callback runs.
func (c *candidate) returnWhenIdle() {
	c.returning = !c.shell.Discard()
	if !c.returning {
		c.returned()
	}
}

// returned is the end of one call of Start or Run.
func (c *candidate) returned() {
	w := c.w
	c.shell.Return(c.now())
	c.waker.Stop()
	c.running, c.looping = false, false
	err := c.shell.Result()
	if c.failed != nil && err == nil {
		err = c.failed
	}
	note := ""
	if err != nil {
		note = err.Error()
	}
	w.journal.Add(judge.Event{At: w.Now, Name: c.name, What: "returned", Note: note})
	w.judge.Returned(c.ledger, err, !c.wanted, w.Now)
	wanted := func() bool { return c.wanted && c.slot.current == c && !w.closing }
	if wanted() { // its work has returned by itself
		w.After(w.script.ttl/10, func() {
			if wanted() {
				w.start(c.slot)
			}
		})
	}
	w.checkSoon()
}

// stop ends the run of a candidate.
func (c *candidate) stop() {
	if !c.running || c.shell.IsStopping() {
		return
	}
	c.report(c.shell.Stop(c.now()))
	c.endRequest(core.WhileRuns)
	if c.retry.Waits() { // it waits for the bucket
		do := c.retry.Do
		c.retry.Stop()
		c.w.After(0, do)
	}
}

// fail ends the run because the connection is closed for good.
func (c *candidate) fail() {
	if c.failed != nil || !c.running {
		return
	}
	c.failed = fmt.Errorf("cannot go on: %w", nats.ErrConnectionClosed)
	c.endTerm(core.Closed)
	c.stop()
}

// endTerm ends the leadership of the term, if there is one.
func (c *candidate) endTerm(why core.Reason) {
	if c.term != nil {
		_, events := c.shell.End(c.now(), c.term, why)
		c.report(events)
	}
}

// IsLeader reports whether the candidate leads, as Election.IsLeader does.
func (c *candidate) IsLeader() bool { return c.term != nil && c.term.Leads(c.now(), c.rules.Boot) }

// Term returns the term that the candidate leads, as Election.Term does.
func (c *candidate) Term() (election.Term, bool) {
	if !c.IsLeader() {
		return election.Term{}, false
	}
	return c.publicTerm(c.term.Core), true
}

func (c *candidate) publicTerm(t *core.Term) election.Term {
	return election.Term{Key: electionKey, Name: c.name, Number: t.Number, BucketCreated: t.BucketCreated, Since: t.Since}
}

// State returns the state, as Election.State does.
func (c *candidate) State() election.State {
	switch {
	case c.term != nil && c.term.Lease().Left(c.now(), c.rules.Boot) > 0:
		return election.State(c.term.Lease().State)
	case c.running:
		return election.CandidateState
	}
	return election.UnknownState
}
