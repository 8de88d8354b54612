package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/collectors"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/wakeup"
)

// Term identifies one uninterrupted period of leadership. It is comparable and may be copied and kept.
//
// Number is the revision of the write that won the key: for one key of one bucket every later term has a larger one. BucketCreated, the
// instant at which the stream behind the bucket was created, orders terms across a bucket that was deleted and made again. Together
// they are a fencing token in the sense of Martin Kleppmann's "How to do distributed locking" (2016): see [Term.Token].
type Term struct {
	Key           string    `json:"key"`
	Name          string    `json:"name"`           // of the candidate that leads
	Number        uint64    `json:"number"`         // the revision of the write that won
	BucketCreated time.Time `json:"bucket_created"` // by the server's clock
	Since         time.Time `json:"since"`          // when the key was won, by this host's clock; leadership counts from later on

	labels
	active *activeTerm
}

// labels are those of the metrics of the candidate.
type labels = collectors.Labels

// Token returns the term as a fencing token: text that sorts, byte by byte, as the terms of its key do. Send it along with every
// effect outside, and let the receiver refuse a token that sorts before one it has seen.
func (t Term) Token() string {
	var created uint64
	if !t.BucketCreated.IsZero() {
		created = uint64(t.BucketCreated.UnixNano())
	}
	return fmt.Sprintf("%016x-%016x", created, t.Number)
}

// Compare returns -1 if t is an earlier term than u, 0 if they are the same, and 1 if t is a later one. It means nothing for terms of
// different keys.
func (t Term) Compare(u Term) int {
	return cmp.Or(t.BucketCreated.Compare(u.BucketCreated), cmp.Compare(t.Number, u.Number))
}

// Valid reports whether this very term still counts, by the clock, now. Ask right before each effect: it reads the clock, takes no lock,
// and allocates nothing. It cannot promise that the answer still holds when the effect takes place; the [Term.Token] is for that. The
// zero Term is never valid.
func (t Term) Valid() bool {
	return t.active != nil && t.active.leads()
}

// Deadline returns the instant at which the lease on the key ends unless it is renewed before: a moving limit for work that is to
// stop, and for the deadlines of its requests. Once the key was released or lost the deadline lies in the past. When the wall clock was
// stepped or the machine was suspended since the last renewal, Deadline is now plus what is really left, so that [time.Until] is right
// for it: call Deadline again rather than keep what it returned.
func (t Term) Deadline() time.Time {
	if t.active == nil {
		return time.Time{}
	}
	return t.active.lease.Load().Ends(time.Now(), lease.SinceBoot)
}

// activeTerm is what others see of a term: its lease, by an atomic pointer, and the context of its work. Package core decides about the term.
type activeTerm struct {
	owner  *Election
	calls  *dispatcher
	public Term
	ctx    context.Context // the leader's context: ends, with a cause, when leadership does
	cancel context.CancelCauseFunc
	lease  atomic.Pointer[core.Lease] // read by anybody, replaced under the election's mutex
	expiry *time.Timer                // ends leadership at the deadline, though the loop may be stuck

	// The election's mutex guards what follows.
	term    *core.Term
	over    wakeup.Latch // closed when the key was released or given up
	outcome error        // nil if it was released; written before over is closed
}

// newActiveTerm returns the activeTerm of a term that begins. Its context does not end with the run, but when leadership does. The caller holds the
// election's mutex.
func newActiveTerm(r *run, t *core.Term) *activeTerm {
	a := &activeTerm{owner: r.Election, calls: r.calls, term: t}
	a.public = Term{
		Key: r.key, Name: r.name, Number: t.Number, BucketCreated: t.BucketCreated, Since: t.Since,
		labels: collectors.NewLabels(r.bucket.Bucket(), r.identity()), active: a,
	}
	a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(r.ctx))
	a.expiry = time.AfterFunc(t.Lease.Left(time.Now(), lease.SinceBoot), a.expire)
	return a
}

// follow takes over what package core has decided about the term: others see the new lease from now on, the timer follows it, and if leadership has
// ended, so does the context of the work. The caller holds the election's mutex.
func (t *activeTerm) follow(now time.Time) {
	before, l := t.lease.Load(), t.term.Lease
	if before == l {
		return
	}
	t.lease.Store(l)
	if left := l.Left(now, lease.SinceBoot); left > 0 {
		t.expiry.Reset(left)
	} else {
		t.expiry.Stop()
	}
	if l.State == core.Follower && (before == nil || before.State != core.Follower) {
		t.cancel(&TermEndedError{t.public, Reason(t.term.Reason)})
		t.calls.leadership(t) // before the loop looks whether a callback is due: OnLost is
	}
}

// leads reports whether leadership counts now. It is all that IsLeader and Valid do.
func (t *activeTerm) leads() bool {
	l := t.lease.Load()
	return l.State == core.Leader && l.Left(time.Now(), lease.SinceBoot) > 0
}

// holdsKey reports whether the lease on the key lasts, whether leadership counts or not.
func (t *activeTerm) holdsKey() bool { return t.lease.Load().Left(time.Now(), lease.SinceBoot) > 0 }

// end ends leadership, and reports whether it was this call that did.
func (t *activeTerm) end(why core.Reason) (first bool) {
	e := t.owner
	e.mu.Lock()
	defer e.mu.Unlock()
	now, before := time.Now(), t.term.Lease.State
	e.notice(now, core.End{Term: t.term, Why: why})
	t.follow(now) // the term may be over, and then notice does not follow it
	return before != core.Follower && t.term.Lease.State == core.Follower
}

// expire ends leadership at the deadline, unless the lease was renewed while the timer fired.
func (t *activeTerm) expire() {
	if !t.end(core.Deadline) {
		if left := t.lease.Load().Left(time.Now(), lease.SinceBoot); left > 0 {
			t.expiry.Reset(left)
		}
	}
}

// outcomeOf returns the error that says what became of the key at the end of a term; nil if it was released.
func outcomeOf(term Term, t *core.Term, e core.Ending) error {
	switch e.How {
	case core.KeyLost:
		why := t.Reason
		if t.LostBy != "" {
			why = t.LostBy
		}
		ended := &TermEndedError{term, Reason(why)}
		if why == t.Reason {
			return ended
		}
		return fmt.Errorf("key not released: %w", ended)
	case core.LeaseOver:
		return fmt.Errorf("key not released: %w: the lease has run out", ErrNotLeader)
	case core.KeyWithAnother:
		return fmt.Errorf("key not released: %w: somebody else has the key", ErrNotLeader)
	case core.NotConfirmed:
		return fmt.Errorf("release not confirmed, the key is released or expires: %w", e.Err)
	case core.NotReleased:
		return fmt.Errorf("key not released, it is left to expire: %w", e.Err)
	case core.WorkGoesOn:
		return fmt.Errorf("not released: callbacks or work have not returned within %v, the key expires by itself", t.Lease.Timing.ReleaseTimeout)
	}
	return nil
}

// waitOver waits until the key is released or given up. The release waits for the work: so if ctx is the context of the work of this very term,
// waitOver returns as soon as that ends, and inside is true. It does not wait for ever either, because the caller may be a callback or the work.
func (t *activeTerm) waitOver(ctx context.Context) (inside bool, err error) {
	timing := t.lease.Load().Timing
	limit, cancel := context.WithTimeout(ctx, timing.ReleaseTimeout+timing.TTL)
	defer cancel()
	t.owner.mu.Lock()
	over := t.over.Wait()
	t.owner.mu.Unlock()
	switch err := waitFor(limit, over); {
	case err == nil:
		return false, t.outcome
	case ctx.Err() == nil:
		return false, errors.New("the key was not released in time: a callback, the work or a log handler has not returned")
	}
	ended := (*TermEndedError)(nil)
	if errors.As(context.Cause(ctx), &ended) && ended.Term == t.public && ended.Reason.voluntary() {
		return true, nil
	}
	return false, ctx.Err()
}
