package sim

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// op is a kind of request.
type op int

const (
	opCreate op = iota
	opUpdate
	opDelete
	opGet
	opStatus
	opWatch
	numOps
)

var opNames = [numOps]string{"create", "update", "delete", "get", "status", "watch"}

// writes reports whether a request changes the key.
func (o op) writes() bool { return o <= opDelete }

// burstLimit is how many requests a candidate may make in one instant: one that fails at once must not be repeated at once.
const burstLimit = 20

// request is one request of a candidate to the server, from when it is sent to its end.
type request struct {
	op     op
	limit  time.Time    // it ends then without an answer
	scope  core.Scope   // it ends before, too, if this does
	write  *judge.Write // nil for requests that write nothing
	marker bool         // a read has a watcher read the marker where no record is stored
	then   func(core.Result)

	c     *candidate
	fate  fate
	sent  time.Time
	found *judge.Entry   // by a read
	timer *virtual.Timer // of what happens to it next
	end   *virtual.Timer // at the limit
	over  bool
}

// requestOf returns the request for an operation.
func (c *candidate) requestOf(o *core.Op) *request {
	r := &request{limit: c.clock.When(o.Limit), scope: o.Scope, marker: o.Marker && !c.plan.noWatch}
	r.then = func(result core.Result) {
		if c.request == r {
			c.done(result)
		}
	}
	switch o.Kind {
	case core.Read:
		r.op = opGet
	case core.Load:
		r.op = opStatus
	case core.Write:
		if as := record.Parse(o.Value, 0).Instance; !c.plan.plain && as != c.rules.Instance {
			c.w.judge.Fail(c.w.Now, "P7", c.name, "writes as %q, which another process uses, and not as %q", as, c.rules.Instance)
		}
		r.op = opUpdate
		r.write = &judge.Write{By: c.ledger, Value: o.Value, Content: judge.ParseContent(o.Value), Expect: o.Replaces}
		if o.Create {
			r.op, r.write.Create = opCreate, true
			if e := c.w.server.current; e.IsFree() {
				r.write.Expect = e.Revision
			}
		}
		r.write.Deletes, r.write.Never = o.Deletes, o.Lasts
	case core.Delete:
		r.op = opDelete
		r.write = &judge.Write{By: c.ledger, Remove: true, Expect: o.Replaces}
	}
	c.request = r
	if o.Kind == core.Write && o.Reconnects != core.AnyReconnects && c.reconnects > o.Reconnects {
		r.over = true
		c.w.After(0, func() { c.act(func() { r.then(core.Result{Reconnected: true, Reconnects: c.reconnects}) }) })
	}
	return r
}

// call sends a request. Faults may spoil the way to the server or back. What it writes may be applied after it has ended.
func (c *candidate) call(r *request) {
	if r.over {
		return
	}
	w := c.w
	r.c, r.sent = c, w.Now
	if c.burst++; !w.Now.Equal(c.last) {
		c.last, c.burst = w.Now, 0
	}
	if c.burst == burstLimit {
		w.judge.Fail(w.Now, "P9", c.name, "makes %d calls in one instant", c.burst)
	}
	if c.crashed {
		return
	}
	r.end = w.At(r.limit, func() { c.act(func() { r.returns(core.Result{Err: errTimeout, Failure: core.Timeout}) }) })
	if c.closed {
		r.timer = w.After(0, func() { c.act(r.closed) })
		return
	}
	c.sent[r.op]++
	r.fate = w.fate(c, r.op, c.sent[r.op])
	if q := r.write; q != nil {
		q.Sent, q.CannotRead = w.Now, r.fate.cannotRead
		w.journal.Add(judge.Event{At: w.Now, Name: c.name, What: q.Verb() + " sent, over" + judge.OrNothing(q.Expect), A: q.Expect})
		w.judge.WriteSent(q, w.Now)
	} else if r.op == opStatus {
		w.judge.StatusRequested(c.ledger, w.Now)
	}
	if r.fate != (fate{coin: r.fate.coin}) || w.Now.Before(w.server.inFlight) {
		c.ledger.Troubled(w.Now)
	}
	r.travel()
}

// travel takes the request to the server.
func (r *request) travel() {
	c, w, f := r.c, r.c.w, r.fate
	if left := c.slot.cutUntil.Sub(w.Now); left > 0 {
		if !c.slot.buffered {
			r.timer = w.After(0, func() {
				c.act(func() { r.returns(core.Result{Err: errNotConnected, Failure: core.Disconnected, Outcome: core.Failed}) })
			})
			return
		}
		r.timer = w.At(c.slot.cutUntil, r.travel) // sent when the link is back, even if its caller has given up
		return
	}
	switch {
	case f.err != nil:
		r.timer = w.After(f.replyDelay, func() {
			c.act(func() { r.returns(core.Result{Err: f.err, Failure: core.NoStream, Outcome: core.Failed}) })
		})
	case f.requestLost: // until its end
	default:
		arrival := w.Now.Add(w.script.latency + f.requestDelay)
		if r.op.writes() && arrival.After(w.troubleEnds) && arrival.After(r.limit) { // it arrives late, but no later than the end of the trouble
			arrival = timeutil.Later(w.Now.Add(w.script.latency), w.troubleEnds)
		}
		r.timer = w.At(arrival, r.arrive)
	}
}

// arrive has the server carry out the request, and sends the reply on its way. What writes nothing need not arrive once it is over.
func (r *request) arrive() {
	c, w, f := r.c, r.c.w, r.fate
	if r.over && !r.op.writes() {
		return
	}
	if r.over {
		w.count("write applied or refused late")
	}
	w.checkSoon()
	result := w.server.serve(r)
	if r.over || f.replyLost {
		return
	}
	if f.hangs && result.Err != nil { // nats.go reads the key to see whether it was removed, and then returns the refusal
		r.end.Stop()
		r.end = w.At(r.limit, func() { c.act(func() { r.returns(result) }) })
		return
	}
	r.timer = w.After(w.script.latency+f.replyDelay, func() {
		if !w.Now.Before(c.slot.cutUntil) {
			c.act(func() { r.returns(result) })
		}
	})
}

// returns ends the request.
func (r *request) returns(result core.Result) {
	if r.over {
		return
	}
	c, w := r.c, r.c.w
	r.over = true
	r.end.Stop()
	if c.closed {
		result = core.Result{Err: errClosed, Failure: core.Ended}
	}
	e := judge.Event{At: w.Now, Name: c.name, What: opNames[r.op] + " returned"}
	if result.Err != nil {
		e.Note = result.Err.Error()
	}
	if result.Err != nil || r.op != opGet {
		w.journal.Add(e)
	}
	switch q := r.write; {
	case q != nil && result.Err == nil:
		q.Acknowledged = w.Now
		w.judge.WriteKnown(q, w.Now)
	case q != nil && result.Failure == core.Ended:
		c.ledger.SawDisconnection(w.Now)
	case q != nil && result.Named:
		w.judge.WriteRefused(q, result.Last, w.Now)
	case r.op == opGet && result.Err == nil:
		r.hasRead()
	}
	result.Reconnects = c.reconnects
	if result.Failure == core.Ended {
		c.fail()
	}
	w.checkSoon()
	r.then(result)
}

// closed ends the request because the connection is closed for good.
func (r *request) closed() { r.returns(core.Result{Err: errClosed, Failure: core.Ended}) }

// hasRead takes note of what was read.
func (r *request) hasRead() {
	c, w := r.c, r.c.w
	e := r.found
	if e == nil || e.IsMarker() || c.stateOf(e, r.marker).Removal == record.Gone { // a bare handle shows no release that a deletion carries
		w.note(c.name, "read no key")
		if e.IsMarker() && c.plan.connected && c.stateOf(e, r.marker).Removal == record.Removed {
			w.judge.RemovalRead(c.ledger, e)
		}
		return
	}
	w.journal.Add(judge.Event{At: w.Now, Name: c.name, What: "read", A: e.Revision})
	w.judge.KeyRead(c.ledger, e, w.Now)
	q := e.Write
	if q.Of != nil {
		q = q.Of
	}
	if q.By == c.ledger && !c.plan.plain {
		w.judge.WriteKnown(q, w.Now)
	}
}

// endRequest ends the request of the present operation because its scope ends.
func (c *candidate) endRequest(scope core.Scope) {
	if r := c.request; r != nil && !r.over && r.scope == scope && r.c != nil {
		c.w.After(0, func() { c.act(func() { r.returns(core.Result{Err: errCanceled, Failure: core.Canceled}) }) })
	}
}

// serve carries out a request.
func (s *server) serve(r *request) (result core.Result) {
	w, c, f := s.w, r.c, r.fate
	switch r.op {
	case opGet:
		e := s.current
		if f.stale > 0 {
			e = s.at(w.Now.Add(-f.stale))
		}
		r.found = e
		result.State = c.stateOf(e, r.marker)
		result.State.Read = c.clock.Reads(r.sent)
	case opStatus:
		result.Bucket = core.Bucket{Created: s.shown, Read: c.clock.Reads(r.sent), Took: w.Now.Sub(r.sent) + w.script.latency, Pinned: w.script.pinned, LongestTTL: s.longest, Paused: s.paused}
		if w.script.pinned {
			result.Bucket.Created = s.created
		}
		if w.script.markers {
			result.Bucket.MarkerTTL, result.Bucket.Remembers = w.script.markerTTL(), w.script.remembers
		}
		result.Bucket.Timing, result.Err = c.plan.durations().Timing(s.ttl)
		if result.Err != nil {
			result.Failure = core.Unfit
		}
	case opWatch:
	default:
		return s.write(r)
	}
	return result
}

// write carries out a write.
func (s *server) write(r *request) (result core.Result) {
	w, q, f := s.w, r.write, r.fate
	s.attempted(r)
	if f.conflict || w.Now.Before(s.inFlight) && !f.waits {
		w.note(r.c.name, "transient conflict")
		return core.Result{Outcome: core.Refused, Err: errConflict, Failure: core.Otherwise}
	}
	if e := s.current; f.atExpiry && e != nil && e.Write != nil && !e.Write.Never && e.Write.By == q.By && e.Revision == q.Expect {
		s.expiring = true // a renewal at the expiry finds that expiry under way
	}
	if found, applied := s.apply(w.Now, q, r.over); !applied {
		return core.Result{Outcome: core.Refused, Err: errRefused, Failure: core.Otherwise, Last: found, Named: w.script.named}
	}
	return core.Result{Outcome: core.Applied, Revision: q.Revision}
}

// stateOf returns what a candidate reads where an entry is stored.
func (c *candidate) stateOf(e *judge.Entry, marker bool) record.State {
	switch {
	case e == nil, e.IsFree() && !c.plan.connected && !marker:
		return record.State{Removal: record.Gone}
	case e.IsMarker():
		s := record.State{Revision: e.Revision, Written: e.Stamped, Removal: record.Removed}
		switch {
		case !c.plan.connected && e.Op == jetstream.KeyValuePurge: // a watcher does not distinguish it from an expiry
			s.Removal = record.RemovedOrExpired
		case e.Expired:
			s.Removal = record.Expired
		}
		return s
	}
	s := record.State{Revision: e.Revision, Written: e.Stamped, Record: record.Parse(e.Value, e.Revision)}
	if c.plan.connected && e.Write != nil { // otherwise it does not see how the record was stored
		s.Unconditional = e.Write.By == nil && !e.Write.Conditional
		if before := e.Write.Replaced; before != nil && !s.Unconditional {
			s.Replaced = before.Revision
		}
	}
	return s
}

// notification returns what a source of notifications says of an entry.
func (c *candidate) notification(e *judge.Entry, kind string) *core.Notification {
	n := &core.Notification{Revision: e.Revision, Written: e.Stamped, Value: &core.Value{Bytes: e.Value, Revision: e.Revision}}
	switch {
	case e.Op == jetstream.KeyValueDelete:
		n.Removal = record.Removed
	case e.IsMarker() && kind == core.Watch: // which does not distinguish a purge from an expiry
		n.Removal = record.RemovedOrExpired
	case e.IsMarker() && e.Expired:
		n.Removal = record.Expired
	case e.IsMarker():
		n.Removal = record.Removed
	}
	return n
}

// attempted notifies those who record attempts of a write that has reached the server, whether it is applied or not.
func (s *server) attempted(r *request) {
	if r.op == opDelete {
		return
	}
	for _, c := range s.w.candidates {
		if c.records && c != r.c && c.looping && !c.crashed && !s.w.Now.Before(c.slot.cutUntil) {
			s.w.After(s.w.script.latency, func() {
				c.act(func() {
					if c.looping {
						c.tell(core.Attempt{Value: &core.Value{Bytes: r.write.Value}})
					}
				})
			})
		}
	}
}

// durations returns the durations that the options of the plan set.
func (p *plan) durations() *timing.Durations {
	given := func(d time.Duration) *time.Duration {
		if d < 0 {
			return nil
		}
		return &d
	}
	return &timing.Durations{Interval: given(p.interval), Splay: given(p.splay), StandDown: given(p.standDown), LeaseMargin: given(p.margin), ReleaseTimeout: given(p.releaseTimeout)}
}

// requestTransfer asks the leader to hand over to this candidate.
func (c *candidate) requestTransfer(leader string) {
	w := c.w
	w.count("preemption")
	w.After(2*w.script.latency, func() {
		for _, other := range w.candidates {
			if other.rules.Instance == leader && other.term != nil && !w.Now.Before(other.slot.cutUntil) {
				other.act(func() { other.handOver(c) })
			}
		}
	})
}

// handOver ends leadership in favour of another candidate, if it could take over.
func (c *candidate) handOver(to *candidate) {
	if c.term == nil || !c.IsLeader() || !to.ready() {
		return
	}
	c.ledger.Asked()
	target := record.Successor{Name: to.name, ID: record.QueueID(to.rules.Instance)}
	if _, refused := c.shell.Handover(c.now(), c.term, target, core.Transferred); !refused {
		c.w.note(c.name, "hands over to "+to.name)
		c.w.count("transfer")
	}
}

// ready reports whether the candidate would answer a release now.
func (c *candidate) ready() bool { return c.looping && !c.crashed && c.core.Status().Ready }
