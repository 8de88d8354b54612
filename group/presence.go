package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/witness"
)

const (
	// presencesPerTTL is how many times per TTL a member writes its presence.
	presencesPerTTL = 4
	// maxDoubtful is how many presences of unknown outcome a member remembers. With more it does not recognise a copy of itself.
	maxDoubtful = 1024
	// presenceDelay is how long a member that leaves waits for its presence to be applied before it reads again.
	presenceDelay = 20 * time.Millisecond
)

var (
	// errUnanswered is why a member leaves whose presence was neither acknowledged nor found.
	errUnanswered = errors.New("the presence was not acknowledged")
	// errOverwritten is why a presence is written before its time.
	errOverwritten = errors.New("it expired, or was deleted or overwritten by something that is no member")
)

// presenting is what a member knows of the presence that it writes.
type presenting struct {
	own              ownPresences // by which a copy of this process is recognised
	presenceRevision uint64       // of the presence that was written last; 0 for none
	presenceSent     time.Time    // when the presence was last written, or a write was tried
	presenceSeen     time.Time    // when the watcher in use last delivered it
	presenceDue      time.Time    // when to write it next
	unanswered       bool         // the last write of it had no answer
}

// newPresence returns the presence of a member whose run begins now. It lists no keys yet.
func newPresence(name string) presence {
	host, _ := os.Hostname() // a record without a host is still a record
	return presence{Name: name, Instance: record.NewID(), Since: time.Now().UTC().Round(0), Host: host, PID: os.Getpid()}
}

// entrust has the witness of this process, if there is one, release the presence should the process die: the others need not wait until it expires. It
// returns a function that ends that.
func (r *run) entrust() (recall func()) {
	if r.witness == nil {
		return func() {}
	}
	secret := record.NewSecret()
	r.self.Commitment = secret.Commitment()
	r.witness.Began(witness.Term{
		API: kv.APIPrefix(r.bucket.JetStream()), Bucket: r.bucket.Bucket(), Key: r.memberKey(r.name), Name: r.name, Instance: r.self.Instance,
		Secret: secret, LeaseMs: record.Milliseconds(r.ttl),
	})
	return func() { r.witness.Over(r.self.Commitment) }
}

// writePresence writes the presence when it is due. By the next time the watcher must have delivered it, or another watcher is started. After a write
// without an answer it reads first, and writes no more until a read is answered. The error means that another member has the name.
func (r *run) writePresence(ctx context.Context) error {
	if time.Now().Before(r.presenceDue) || ctx.Err() != nil {
		return nil
	}
	r.presenceSent = time.Now()
	r.presenceDue = r.presenceSent.Add(r.ttl / presencesPerTTL)
	if r.unanswered { // a member that receives no answers leads nothing, and must not count as present for the keys that it was assigned
		answered, err := r.readPresence(ctx)
		if err != nil || !answered {
			r.presenceDue = timeutil.Earlier(r.presenceDue, retryTime(retryDelay))
			return err
		}
	}
	if r.watcher != nil && r.members[r.name].revision < r.presenceRevision && time.Since(r.begun) >= r.ttl/presencesPerTTL {
		r.stopWatcher()
		r.failedWatchers++
		r.watcherDue = time.Time{}
		r.startWatcher(ctx)
	}
	r.writeMissingList(ctx) // before the presence, which the planner reads it for
	over := r.presenceRevision
	r.self.Attempt = record.NewID()
	r.own.begin(r.self.Attempt, over > 0)
	revision, err := r.write(ctx, r.memberKey(r.name), encode(r.self), over)
	r.unanswered = kv.Classify(err) == kv.Unknown
	if err == nil {
		r.own.applied(r.self.Attempt, revision)
		r.presenceRevision, r.warned = revision, false
		return nil
	}
	r.warn("Presence not written", err)
	r.presenceDue = timeutil.Earlier(r.presenceDue, retryTime(retryDelay))
	if kv.Classify(err) != kv.Refused {
		return nil
	}
	if _, err := r.readPresence(ctx); err != nil {
		return err
	}
	if r.presenceRevision != over {
		r.presenceDue = time.Now()
	}
	return nil
}

// presenceDelivered takes in the presence of this member, or what is stored over it, that the watcher has delivered. The error means that another
// member has the name.
func (r *run) presenceDelivered(entry jetstream.KeyValueEntry) error {
	if entry.Revision() > r.presenceRevision {
		if err := r.overwritten(entry); err != nil {
			return err
		}
	}
	before, m := r.presenceSeen, r.members[r.name]
	if m.Instance != r.self.Instance || !m.seen.After(before) {
		return nil
	}
	r.presenceSeen = m.seen
	if !r.polls {
		r.failedWatchers = 0
	}
	if m.Attempt == r.self.Attempt && r.complete {
		r.clock = reference{entry.Created(), r.presenceSent}
	}
	if before.Before(r.forgot) { // the plan may have waited for it
		r.changed = true
	}
	if !before.IsZero() && m.seen.Sub(before) > r.ttl/2 { // presences in between did not pass, and neither did those of others
		return r.connectionChanged(nats.CONNECTED)
	}
	return nil
}

// readPresence reads why the presence could not be updated: another member has the name, or the presence expired, or an update whose reply
// was lost was applied. Where no answer comes, nothing changes.
func (r *run) readPresence(ctx context.Context) (answered bool, err error) {
	call, cancel := r.request(ctx)
	defer cancel()
	entry, err := r.bucket.Get(call, r.memberKey(r.name))
	switch kv.Classify(err) {
	case kv.Absent:
		r.presenceRevision = 0
		return true, nil
	case kv.Applied:
		return true, r.overwritten(entry)
	}
	return false, nil
}

// overwritten takes in what is stored over the last presence: that of another member of the name or of a copy of this process, which is the
// error, or an update whose reply was lost. Anything else was written by a stranger or by a witness that is mistaken, or is a marker, and the next
// presence is due at once.
func (r *run) overwritten(entry jetstream.KeyValueEntry) error {
	p, whole := presenceIn(entry, r.name)
	switch {
	case whole && p.Instance != r.self.Instance:
		if r.own.revision == 0 && p.Since.Before(r.self.Since) { // no presence of this run was applied, as far as is known
			return nil // it is that of the process before this one
		}
		return fmt.Errorf("%w: %q, on host %q as process %d", ErrReplaced, r.name, p.Host, p.PID)
	case whole && !p.died() && r.own.isForeign(p.Attempt, entry.Revision()):
		return fmt.Errorf("%w: a copy of this process, as of a virtual machine that was cloned, takes part as %q: start members after their machine was cloned, each with a name of its own", ErrReplaced, r.name)
	}
	r.presenceRevision = entry.Revision()
	if !whole || p.Left {
		r.warn("Presence is written again", errOverwritten)
		r.presenceDue = time.Now()
	} else if entry.Revision() > r.own.revision {
		r.own.applied(p.Attempt, entry.Revision())
	}
	return nil
}

// ownPresences are the presences of this run that may be stored. Every write has an id that nobody can guess, so that any other presence of
// this run was written by a copy of the process.
type ownPresences struct {
	attempt  string          // the attempt of the last presence that is known to have been applied
	revision uint64          // the revision of that presence
	doubtful map[string]bool // presences of unknown outcome, by their attempts; the value says whether it is an update
}

// begin takes note of a write that is about to be sent: an update of the presence that is stored, or one that replaces whatever is stored.
func (o *ownPresences) begin(attempt string, update bool) {
	if o.doubtful == nil {
		o.doubtful = map[string]bool{}
	}
	if len(o.doubtful) < maxDoubtful {
		o.doubtful[attempt] = update
	}
}

// applied takes note that a write was applied. No update that was sent before is applied any more.
func (o *ownPresences) applied(attempt string, revision uint64) {
	o.attempt, o.revision = attempt, revision
	maps.DeleteFunc(o.doubtful, func(other string, update bool) bool { return update || other == attempt })
}

// isForeign reports whether a presence of this run that is stored at the given revision is proof that a copy of the process wrote it. What is older
// than the last one that is known may be read from a replica that lags behind.
func (o *ownPresences) isForeign(attempt string, revision uint64) bool {
	_, doubtful := o.doubtful[attempt]
	return revision > o.revision && attempt != o.attempt && !doubtful && len(o.doubtful) < maxDoubtful
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
	left.Keys, left.List, left.Left, left.Attempt = nil, "", true, record.NewID()
	r.own.begin(left.Attempt, true)
	err := errUnanswered
	for ctx.Err() == nil {
		over := r.presenceRevision
		if over > 0 {
			if _, err = r.bucket.Update(ctx, r.memberKey(r.name), encode(left), over); kv.Classify(err) != kv.Refused {
				return err
			}
		}
		_, replaced := r.readPresence(ctx)
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
