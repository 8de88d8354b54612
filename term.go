package election

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/collectors"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/shell"
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
	return t.active.Lease().Ends(time.Now(), lease.SinceBoot)
}

// TermEndedError is the cause of the end of a leader's context, see context.Cause: leadership has ended. It is an [ErrNotLeader].
type TermEndedError struct {
	Term   Term
	Reason Reason
}

// Error names the term and the reason.
func (e *TermEndedError) Error() string {
	return fmt.Sprintf("term %d of %q in election %q has ended: %s", e.Term.Number, e.Term.Name, e.Term.Key, e.Reason)
}

// Is reports whether target is [ErrNotLeader].
func (e *TermEndedError) Is(target error) bool { return target == ErrNotLeader }

// activeTerm is a term in this package: core.Term has what is decided about it, shell.Term adds what others see of it, and activeTerm the context of its
// work and a timer. Term is what users get.
type activeTerm struct {
	shell.Term
	public Term
	ctx    context.Context // the leader's context: ends, with a cause, when leadership does
	cancel context.CancelCauseFunc

	// The election's mutex guards what follows.
	expiry  *time.Timer  // ends leadership at the deadline, though the loop may be stuck; nil if no lease was published yet
	over    wakeup.Latch // closed when the key was released or given up
	outcome error        // nil if it was released; written before over is closed
}

// leads reports whether leadership counts now. It is all that IsLeader and Valid do.
func (t *activeTerm) leads() bool { return t.Leads(time.Now(), lease.SinceBoot) }

// left returns what is left of the lease on the key, whether leadership counts or not; 0 or less once it is over.
func (t *activeTerm) left() time.Duration { return t.Lease().Left(time.Now(), lease.SinceBoot) }

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
