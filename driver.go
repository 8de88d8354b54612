package election

import (
	"context"
	"time"

	"github.com/natscampaign/election/internal/collectors"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/shell"
	"github.com/natscampaign/election/internal/wakeup"
	"github.com/natscampaign/election/internal/witness"
)

// What the shell of a run says is done here: for the run by driver, and for one of its terms by termDriver. The election's mutex is held meanwhile.

// newShell returns the shell of a run.
func newShell(r *run) *shell.Shell {
	s := shell.New(r.candidate, lease.SinceBoot, driver{r})
	o := &r.opts.Callbacks
	s.HasWork = r.work != nil
	s.Calls.Has[shell.Won], s.Calls.Has[shell.Lost] = len(o.OnWon) > 0, len(o.OnLost) > 0
	s.Calls.Has[shell.Campaign], s.Calls.Has[shell.Leader], s.Calls.Has[shell.Next] = len(o.OnCampaign) > 0, len(o.OnLeader) > 0, len(o.OnNext) > 0
	return s
}

// driver does what the shell says of a run.
type driver struct{ *run }

// NewTerm returns a term that begins. Its context does not end with the run, but when leadership does.
func (d driver) NewTerm(t *core.Term) *shell.Term {
	a := &activeTerm{}
	a.Core, a.Driver = t, termDriver{d.run, a}
	a.public = Term{
		Key: d.key, Name: d.name, Number: t.Number, BucketCreated: t.BucketCreated, Since: t.Since,
		labels: collectors.NewLabels(d.bucket.Bucket(), d.identity()), active: a,
	}
	a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(d.ctx))
	d.latest = a
	return &a.Term
}

// Show has others see a term from now on, or none. A witness is told of both.
func (d driver) Show(t *shell.Term) {
	if before := d.term.Load(); before != nil {
		d.tellWitnessOver(before)
	}
	if t != nil {
		d.tellWitnessBegan(t.Core)
		d.term.Store(d.latest)
		return
	}
	d.term.Store(nil)
	if d.leader != nil && d.leader.Instance == d.instanceID() {
		d.leader = nil
	}
}

// tellWitnessBegan gives the witness, if there is one, what it needs to release a term that begins, should this process die. A bare name has nothing by
// which a witness would recognise the term.
func (d driver) tellWitnessBegan(t *core.Term) {
	if d.opts.Witness == nil || d.opts.PlainValue {
		return
	}
	told := witness.Term{
		Bucket: d.bucket.Bucket(), Key: d.key, Name: d.name, Instance: d.own.Rules.Instance,
		Secret: t.Secret(), LeaseMs: record.Milliseconds(t.Lease.Timing.TTL),
	}
	if js := d.bucket.JetStream(); js != nil {
		told.API = kv.APIPrefix(js)
	}
	d.opts.Witness.Began(told)
}

// tellWitnessOver tells the witness that a term is over.
func (d driver) tellWitnessOver(a *activeTerm) {
	if d.opts.Witness != nil && !d.opts.PlainValue {
		d.opts.Witness.Over(a.Core.Secret().Commitment())
	}
}

// StartCalls starts the goroutine that calls callbacks.
func (d driver) StartCalls() { go d.callCallbacks() }

// Wake has the loop woken at a time.
func (d driver) Wake(at time.Time) {
	left := time.Until(at)
	switch {
	case d.timer == nil, !at.IsZero() && left <= 0:
		wakeup.Send(d.wake)
	case at.IsZero():
		d.timer.Stop()
	default:
		d.timer.Reset(left)
	}
}

// termDriver does what the shell says of one term.
type termDriver struct {
	run  *run
	term *activeTerm
}

// Expire has a timer end leadership after a time, though the loop may be stuck. A session ends the terms of its keys by a timer of its own.
func (d termDriver) Expire(in time.Duration) {
	switch t := d.term; {
	case d.run.own == nil:
	case in <= 0 && t.expiry != nil:
		t.expiry.Stop()
	case in <= 0:
	case t.expiry == nil:
		t.expiry = time.AfterFunc(lease.Sleep(in), d.expire)
	default:
		t.expiry.Reset(lease.Sleep(in))
	}
}

// expire ends leadership at the deadline, unless the lease was renewed while the timer fired. It is called without the election's mutex.
func (d termDriver) expire() {
	if left := d.term.left(); left > 0 {
		d.run.mu.Lock()
		defer d.run.mu.Unlock()
		d.Expire(left)
		return
	}
	d.run.beside(func(_ *run, now time.Time) []core.Event { return d.run.shell.Expired(now, &d.term.Term) })
}

// EndContext ends the context of the leader.
func (d termDriver) EndContext() {
	d.term.cancel(&TermEndedError{d.term.public, Reason(d.term.Core.Reason)})
}

// StartWork starts the work of the term.
func (d termDriver) StartWork() { go d.run.doWork(d.term) }
