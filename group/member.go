package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// beats is how many times per TTL a member says that it is there.
const beats = 4

// lookAgain is how long a member that leaves waits for its presence to be applied before it looks again.
const lookAgain = 20 * time.Millisecond

// errUnanswered is why a member leaves whose presence was neither acknowledged nor found.
var errUnanswered = errors.New("the presence was not acknowledged")

// show writes this member's presence when that is due, and returns when it is due next. By then the watcher must have told
// of it, or it is made again. The error says that somebody else has the name.
func (r *run) show(ctx context.Context) (time.Time, error) {
	if time.Now().Before(r.beat) || ctx.Err() != nil {
		return r.beat, nil
	}
	if r.watcher != nil && r.members[r.name].revision < r.revision && time.Since(r.began) >= r.ttl/beats {
		r.close()
		r.watch(ctx)
	}
	r.beat = time.Now().Add(r.ttl / beats)
	revision, err := r.write(ctx, r.memberKey(r.name), encode(r.self), r.revision)
	if err == nil {
		r.revision, r.warned = revision, false
		return r.beat, nil
	}
	r.trouble("Presence not written", err)
	r.beat = earlier(r.beat, time.Now().Add(retry))
	if conflicts(err) {
		over := r.revision
		if err := r.contested(ctx); err != nil {
			return r.beat, err
		}
		if r.revision != over {
			r.beat = time.Now()
		}
	}
	return r.beat, nil
}

// contested finds out why the presence could not be updated: somebody else has the name, or it expired, or an update whose
// reply was lost was applied.
func (r *run) contested(ctx context.Context) error {
	call, cancel := r.try(ctx)
	defer cancel()
	var p presence
	entry, err := r.bucket.Get(call, r.memberKey(r.name))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		r.revision = 0
	case err != nil:
		return nil // who cannot be asked now is asked again
	case json.Unmarshal(entry.Value(), &p) == nil && p.Instance != r.self.Instance:
		return fmt.Errorf("%w: %q, on host %q as process %d", ErrReplaced, r.name, p.Host, p.PID)
	default:
		r.revision = entry.Revision()
	}
	return nil
}

// write puts a value under a key, over the given revision or, if that is 0, whatever stands there.
func (r *run) write(ctx context.Context, key string, value []byte, over uint64) (uint64, error) {
	call, cancel := r.try(ctx)
	defer cancel()
	if over == 0 {
		return r.bucket.Put(call, key, value)
	}
	return r.bucket.Update(call, key, value, over)
}

// conflicts says whether a write was refused because another came before it.
func conflicts(err error) bool {
	return errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists)
}

// farewell says that this member leaves, and whether the others know or will in a moment.
func (r *run) farewell() bool {
	if r.beat.IsZero() {
		return false // it has not said that it is there
	}
	call, cancel := r.try(r.ctx)
	defer cancel()
	err := r.depart(call)
	if err != nil {
		r.log.Warn("Leaving without a farewell", "error", err)
	}
	return err == nil
}

// depart deletes the presence, and never that of somebody else. What was written last may have been applied without an
// answer, as when the member was told to leave meanwhile, or may be applied only now: it is looked for until ctx ends.
func (r *run) depart(ctx context.Context) error {
	err := errUnanswered
	for ctx.Err() == nil {
		over := r.revision
		if over > 0 {
			if err = r.bucket.Delete(ctx, r.memberKey(r.name), jetstream.LastRevision(over)); !conflicts(err) {
				return err
			}
		}
		replaced := r.contested(ctx)
		switch {
		case over > 0 && replaced != nil:
			return replaced
		case over > 0 && r.revision == 0:
			return nil // it expired, which the others find out by themselves
		case r.revision == over: // what was put over whatever stands is not there yet, or a replica is behind
			time.Sleep(lookAgain)
		}
	}
	return err
}
