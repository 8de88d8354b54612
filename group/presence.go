package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// presencesPerTTL is how many times per TTL a member writes its presence.
	presencesPerTTL = 4
	// presenceDelay is how long a member that leaves waits for its presence to be applied before it reads again.
	presenceDelay = 20 * time.Millisecond
)

var (
	// errUnanswered is why a member leaves whose presence was neither acknowledged nor found.
	errUnanswered = errors.New("the presence was not acknowledged")
	// errOverwritten is why a presence is written before its time.
	errOverwritten = errors.New("it expired, or was deleted or overwritten by something that is no member")
)

// writePresence writes the presence when it is due, and returns when it is due next. By then the watcher must have delivered it, or another
// watcher is started. The error means that another member has the name.
func (r *run) writePresence(ctx context.Context) (next time.Time, err error) {
	if time.Now().Before(r.presenceDue) || ctx.Err() != nil {
		return r.presenceDue, nil
	}
	if r.watcher != nil && r.members[r.name].revision < r.presenceRevision && time.Since(r.begun) >= r.ttl/presencesPerTTL {
		r.stopWatcher()
		r.startWatcher(ctx)
	}
	r.presenceSent = time.Now()
	r.presenceDue = r.presenceSent.Add(r.ttl / presencesPerTTL)
	revision, err := r.write(ctx, r.memberKey(r.name), encode(r.self), r.presenceRevision)
	if err == nil {
		r.presenceRevision, r.warned = revision, false
		return r.presenceDue, nil
	}
	r.warn("Presence not written", err)
	r.presenceDue = timeutil.Earlier(r.presenceDue, time.Now().Add(retryDelay))
	if kv.Classify(err) != kv.Refused {
		return r.presenceDue, nil
	}
	over := r.presenceRevision
	if err := r.readPresence(ctx); err != nil {
		return r.presenceDue, err
	}
	if r.presenceRevision != over {
		r.presenceDue = time.Now()
	}
	return r.presenceDue, nil
}

// readPresence reads why the presence could not be updated: another member has the name, or the presence expired, or an update whose reply
// was lost was applied. Where it cannot be read, nothing changes.
func (r *run) readPresence(ctx context.Context) error {
	call, cancel := r.request(ctx)
	defer cancel()
	entry, err := r.bucket.Get(call, r.memberKey(r.name))
	switch kv.Classify(err) {
	case kv.Absent:
		r.presenceRevision = 0
	case kv.Applied:
		return r.overwritten(entry)
	}
	return nil
}

// overwritten takes in what is stored over the last presence: that of another member of the name, which is the error, or an update whose
// reply was lost. Anything else was written by a stranger, or is a marker, and the next presence is due at once.
func (r *run) overwritten(entry jetstream.KeyValueEntry) error {
	if p, whole := presenceIn(entry, r.name); whole && p.Instance != r.self.Instance {
		return r.replacedBy(p)
	}
	r.presenceRevision = entry.Revision()
	if !bytes.Equal(entry.Value(), encode(r.self)) {
		r.warn("Presence is written again", errOverwritten)
		r.presenceDue = time.Now()
	}
	return nil
}

func (r *run) replacedBy(p presence) error {
	return fmt.Errorf("%w: %q, on host %q as process %d", ErrReplaced, r.name, p.Host, p.PID)
}

// write stores a value under a key, over the given revision or, if that is 0, over whatever is stored.
func (r *run) write(ctx context.Context, key string, value []byte, over uint64) (uint64, error) {
	call, cancel := r.request(ctx)
	defer cancel()
	if over == 0 {
		return r.bucket.Put(call, key, value)
	}
	return r.bucket.Update(call, key, value, over)
}

// announceLeaving writes that this member leaves, and reports whether the others know or will in a moment.
func (r *run) announceLeaving() bool {
	if r.presenceDue.IsZero() {
		return false // it never wrote a presence
	}
	call, cancel := r.request(r.ctx)
	defer cancel()
	err := r.writeLeft(call)
	if err != nil {
		r.log.Warn("Leaving without telling the others", "error", err)
	}
	return err == nil
}

// writeLeft writes over the presence of this member that it has left, never over that of another. The last write may have been applied
// without an answer, as when Stop is called meanwhile, or may be applied only now: writeLeft reads until it finds that write or ctx ends.
func (r *run) writeLeft(ctx context.Context) error {
	left := r.self
	left.Keys, left.Left = nil, true
	err := errUnanswered
	for ctx.Err() == nil {
		over := r.presenceRevision
		if over > 0 {
			if _, err = r.bucket.Update(ctx, r.memberKey(r.name), encode(left), over); kv.Classify(err) != kv.Refused {
				return err
			}
		}
		replaced := r.readPresence(ctx)
		switch {
		case over > 0 && replaced != nil:
			return replaced
		case over > 0 && r.presenceRevision == 0: // it expired, or a stranger deleted it
			if _, err = r.bucket.Create(ctx, r.memberKey(r.name), encode(left)); kv.Classify(err) != kv.Refused {
				return err
			}
			r.presenceRevision = over // a replica is behind, or somebody was quicker
			timeutil.Sleep(ctx, presenceDelay)
		case r.presenceRevision == over: // the write is not applied yet, or a replica is behind
			timeutil.Sleep(ctx, presenceDelay)
		}
	}
	return err
}
