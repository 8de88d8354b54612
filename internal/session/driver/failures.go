package driver

import (
	"errors"
	"maps"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/session"
)

// failures are why requests failed last, by what they were for. A failure stays until a request for the same succeeds, and that of a write which is made only now
// and then, as a claim while its key is vacant, for two TTLs.
type failures struct {
	reading failure
	record  failure            // of writes of the session's own record
	others  map[string]failure // of other writes, by key
	pruned  time.Time
}

// failure is when and why a request failed; the zero value if it did not.
type failure struct {
	at  time.Time
	err error
}

var errSaysNothing = errors.New("the answer says nothing")

// note takes note of what came of a request.
func (d *Driver) note(q request, f failure) {
	switch key := q.op.Key; {
	case q.op.Kind == session.Follow:
		if x := d.consumer; f.at.IsZero() || x == nil || x.op == q.op.ID { // else another consumer has taken its place
			d.failures.reading = f
		}
	case q.own:
		d.failures.record = f
	case f.at.IsZero():
		delete(d.failures.others, key)
	default:
		d.noteOther(key, f)
	}
}

// noteOther takes note of a failure. The log has the first one only: others may fail for the same reason.
func (d *Driver) noteOther(key string, f failure) {
	others := d.failures.others
	if d.isLongAgo(d.failures.pruned, f.at) {
		d.failures.pruned = f.at
		maps.DeleteFunc(others, func(_ string, old failure) bool { return d.isLongAgo(old.at, f.at) })
	}
	if _, ofSession := session.SessionOf(key); len(others) == 0 && !ofSession {
		d.events = append(d.events, core.Event{
			Kind: core.Logged, Level: core.Warn, Message: "Write failed, and those of other keys may", Attrs: []any{"subject", kv.Subject(d.bucket, key), "error", f.err},
		})
	}
	others[key] = f
}

// Failure returns when and why a request failed last; nil if those of each kind succeed. The caller holds the mutex.
func (d *Driver) Failure(now time.Time) (at time.Time, err error) {
	last := d.everybodys()
	for key := range d.failures.others {
		last = later(last, d.other(key, now))
	}
	return last.at, last.err
}

// FailureOf is [Driver.Failure] of the requests on which the election of one key depends.
func (d *Driver) FailureOf(key string, now time.Time) (at time.Time, err error) {
	last := later(d.everybodys(), d.other(session.ClaimKey(key), now))
	return last.at, last.err
}

// everybodys returns the last failure on which all keys depend.
func (d *Driver) everybodys() failure { return later(d.failures.reading, d.failures.record) }

// other returns the failure of a write that is made only now and then.
func (d *Driver) other(key string, now time.Time) (f failure) {
	if f = d.failures.others[key]; d.isLongAgo(f.at, now) {
		return failure{}
	}
	return f
}

// isLongAgo reports whether a failure of such a write counts no more.
func (d *Driver) isLongAgo(at, now time.Time) bool { return now.Sub(at) > 2*d.session.Timing.TTL }

// later returns the later one of two failures.
func later(a, b failure) failure {
	if b.at.After(a.at) {
		return b
	}
	return a
}
