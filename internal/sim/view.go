package sim

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/replay"
	"github.com/natscampaign/election/internal/sim/judge"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	bucketName  = "ELECTIONS"
	electionKey = "leader" // the only key of the bucket
)

// view is the bucket as the library sees it in one candidate, across the link of that candidate. The embedded interface is
// nil: a method that the simulator does not have panics.
type view struct {
	jetstream.KeyValue
	w     *world
	c     *candidate
	calls [numOps]uint64
	last  time.Time // when the last call was made
	burst int       // how many more calls were made in the same instant

	conn       context.Context // ends when the connection is closed for good
	disconnect context.CancelFunc
}

// Bucket returns the name of the bucket.
func (v *view) Bucket() string { return bucketName }

// Create creates the key. Like nats.go it creates over the marker of a removal, too.
func (v *view) Create(ctx context.Context, _ string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	q := &judge.Write{By: v.c.ledger, Create: true, Value: value, Content: judge.ParseContent(value)}
	v.w.mu.Lock()
	if e := v.w.server.current; e.IsMarker() {
		q.Expect = e.Revision
	}
	v.w.mu.Unlock()
	return v.write(ctx, opCreate, q)
}

// Update overwrites the given revision.
func (v *view) Update(ctx context.Context, _ string, value []byte, revision uint64) (uint64, error) {
	q := &judge.Write{By: v.c.ledger, Value: value, Content: judge.ParseContent(value), Expect: revision}
	if q.Releases() {
		v.nameSuccessors(q)
	}
	return v.write(ctx, opUpdate, q)
}

// nameSuccessors has a release name the other candidates, as if its writer had seen their attempts. Without a connection it sees none. In
// the quiet it names nobody: where candidates that know only Create may campaign, the release is gone before the third has its turn.
func (v *view) nameSuccessors(q *judge.Write) {
	v.w.mu.Lock()
	quiet := v.w.quiet
	var names []string
	for _, s := range v.w.slots {
		if s.current != nil && s.current != v.c && !quiet {
			names = append(names, s.current.name)
		}
	}
	v.w.mu.Unlock()
	var r map[string]any
	if !quiet && !v.c.plan.names || json.Unmarshal(q.Value, &r) != nil {
		return
	}
	r["successors"] = names
	if value, err := json.Marshal(r); err == nil {
		q.Value, q.Content = value, judge.ParseContent(value)
	}
}

// Delete overwrites the given revision with a marker.
func (v *view) Delete(ctx context.Context, _ string, opts ...jetstream.KVDeleteOpt) error {
	_, err := v.write(ctx, opDelete, &judge.Write{By: v.c.ledger, Remove: true, Expect: lastRevision(opts)})
	return err
}

func (v *view) write(ctx context.Context, o op, q *judge.Write) (uint64, error) {
	err := v.call(ctx, o, q, func(now time.Time, f fate) error {
		s := v.w.server
		if f.conflict || now.Before(s.inFlight) && !f.waits {
			v.w.note(v.c.name, "transient conflict")
			v.w.trace.Served(q, s.current, false, nil)
			return transientRefusal(q)
		}
		return v.apply(now, q, f, false)
	})
	if err != nil {
		return 0, err
	}
	return q.Revision, nil
}

// apply has the server carry out a write. A renewal at the expiry finds that expiry under way.
func (v *view) apply(now time.Time, q *judge.Write, f fate, late bool) error {
	s := v.w.server
	if e := s.current; f.atExpiry && e != nil && e.Write != nil && e.Write.By == q.By && e.Revision == q.Expect {
		s.expiring = true
	}
	return s.apply(now, q, late)
}

// lastRevision returns the revision that options of a deletion demand. Only applying the options shows it.
func lastRevision(opts []jetstream.KVDeleteOpt) uint64 {
	var revision uint64
	for _, opt := range opts {
		apply := reflect.ValueOf(opt)
		o := reflect.New(apply.Type().In(0).Elem())
		apply.Call([]reflect.Value{o})
		revision = max(revision, o.Elem().FieldByName("revision").Uint())
	}
	return revision
}

// Get returns the record under the key, maybe an earlier one.
func (v *view) Get(ctx context.Context, _ string) (jetstream.KeyValueEntry, error) {
	var found *judge.Entry
	err := v.call(ctx, opGet, nil, func(now time.Time, f fate) error {
		found = v.w.server.current
		if f.stale > 0 {
			found = v.w.server.at(now.Add(-f.stale))
		}
		return nil
	})
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	v.w.trace.Read(v.c.ledger, found, err)
	switch {
	case err != nil:
		return nil, err
	case found == nil || found.IsMarker():
		v.w.note(v.c.name, "read no key")
		return nil, jetstream.ErrKeyNotFound
	}
	v.w.journal.Add(judge.Event{At: time.Now(), Name: v.c.name, What: "read", A: found.Revision})
	v.w.judge.KeyRead(v.c.ledger, found, time.Now())
	q := found.Write
	if q.Of != nil {
		q = q.Of
	}
	if q.By == v.c.ledger && !v.c.plan.plain {
		v.w.judge.WriteKnown(q, time.Now())
	}
	return update{found}, nil
}

// Status returns the state of the bucket, as far as the library reads it.
func (v *view) Status(ctx context.Context) (jetstream.KeyValueStatus, error) {
	var st *status
	err := v.call(ctx, opStatus, nil, func(time.Time, fate) error {
		s := v.w.server
		info := &jetstream.StreamInfo{Created: s.shown}
		info.Config.MaxAge, info.Config.MaxMsgsPerSubject = s.ttl, 1
		if v.w.script.pinned {
			info.Config.Metadata = map[string]string{kv.CreatedMetadata: s.created.Format(time.RFC3339Nano)}
		}
		if v.w.script.markers {
			info.Config.SubjectDeleteMarkerTTL = v.w.script.markerTTL()
		}
		info.State.Consumers = len(s.watchers)
		st = &status{info: info, bucket: s.created}
		return nil
	})
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	if err != nil {
		v.w.trace.Event(v.c.ledger, replay.Event{Kind: replay.HasInfo, Fails: true})
		return nil, err
	}
	v.w.trace.Event(v.c.ledger, replay.Event{Kind: replay.HasInfo, Bucket: st.bucket})
	return st, nil
}

// errNotPermitted stands for a missing permission.
var errNotPermitted = errors.New("nats: permissions violation")

// Watch delivers the current entry, the end of the initial state, and every change of the key.
func (v *view) Watch(ctx context.Context, _ string, _ ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	if v.c.plan.noWatch {
		return nil, errNotPermitted
	}
	var x *watcher
	err := v.call(ctx, opWatch, nil, func(now time.Time, _ fate) error {
		x = newWatcher(v)
		if e := v.w.server.current; e != nil {
			x.enqueue(delivery{at: now, entry: e})
		}
		x.enqueue(delivery{at: now})
		return nil
	})
	v.w.mu.Lock()
	v.w.trace.Note(v.c.ledger, replay.HasMarker)
	v.w.mu.Unlock()
	if err != nil {
		if x != nil {
			_ = x.Stop()
		}
		return nil, err
	}
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	x.lastAt = timeutil.Later(x.lastAt, time.Now())
	if v.c.watcher == nil || v.c.watcher.ended { // otherwise x reads a marker, and ends soon
		v.c.watcher = x
	}
	return x, nil
}

// status is the part of the bucket's state that the library reads. The embedded interface is nil: any other method panics.
type status struct {
	jetstream.KeyValueStatus
	info   *jetstream.StreamInfo
	bucket time.Time // when it was created
}

func (s *status) Bucket() string                    { return bucketName }
func (s *status) TTL() time.Duration                { return s.info.Config.MaxAge }
func (s *status) History() int64                    { return s.info.Config.MaxMsgsPerSubject }
func (s *status) LimitMarkerTTL() time.Duration     { return s.info.Config.SubjectDeleteMarkerTTL }
func (s *status) StreamInfo() *jetstream.StreamInfo { return s.info }
