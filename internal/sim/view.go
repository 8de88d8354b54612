package sim

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// electionKey is the one key of the bucket.
const electionKey = "leader"

// view is the bucket as one candidate sees it, through its own link: it is what the library is given. Every call is a
// request that travels to the server and a reply that travels back, and each way has its mishaps.
type view struct {
	unused
	w     *world
	c     *candidate
	calls [numOps]uint64
	last  time.Time // when the last call was made
	burst int       // how many more were made in the same instant

	conn       context.Context // ends when the connection is closed for good
	disconnect context.CancelFunc
}

// op is a method of the bucket that the library calls.
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

// writes says whether a call changes the key.
func (o op) writes() bool { return o <= opDelete }

// clientTimeout is how long nats.go waits where the caller sets no limit.
const clientTimeout = 5 * time.Second

// burstLimit is how many calls a candidate may make in one instant: one that fails at once must not be tried again at once.
const burstLimit = 20

// call makes one request. serve is what the server does when it arrives; it runs at most once, under the world's mutex,
// and for writes maybe after call has returned. q is nil for requests that write nothing.
func (v *view) call(ctx context.Context, o op, q *write, serve func(now time.Time, f fate) error) error {
	if _, limited := ctx.Deadline(); !limited {
		limit, cancel := context.WithTimeout(ctx, clientTimeout)
		defer cancel()
		ctx = limit
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.conn, cancel)()
	f, err := v.begin(o, q)
	if v.burst >= burstLimit { // else no time would pass any more
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		v.end(o, q, err)
		return err
	}
	err = v.travel(ctx, o, q, f, serve)
	v.thaw()
	switch { // what was ready while the process was stopped, and the end of ctx: either may be seen first
	case v.conn.Err() != nil && (err != nil || f.coin):
		err = nats.ErrConnectionClosed
	case ctx.Err() != nil && f.coin && !f.hangs:
		err = ctx.Err()
	}
	v.end(o, q, err)
	return err
}

// travel takes the request to the server and the reply back.
func (v *view) travel(ctx context.Context, o op, q *write, f fate, serve func(time.Time, fate) error) error {
	v.thaw()
	if err := v.reach(ctx, o, q, f, serve); err != nil {
		return err
	}
	if f.err != nil {
		wait(ctx, f.after)
		if ctx.Err() != nil && f.after > 0 {
			return ctx.Err()
		}
		return f.err
	}
	if f.lost {
		<-ctx.Done()
		return ctx.Err()
	}
	arrival := time.Now().Add(v.w.script.latency + f.before)
	if !wait(ctx, time.Until(arrival)) {
		if o.writes() {
			v.later(arrival, q, f, serve)
		}
		return ctx.Err()
	}
	err := v.arrive(q, f, false, serve)
	if f.hangs && err != nil { // nats.go reads the key to see whether it is removed, and then returns the refusal
		<-ctx.Done()
		return err
	}
	if f.mute || !wait(ctx, v.w.script.latency+f.after) || v.isCut() {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// reach waits for the link. What is tried while it is down fails at once, or waits in the client's buffer and is sent
// when it is back, whether anybody still wants that or not.
func (v *view) reach(ctx context.Context, o op, q *write, f fate, serve func(time.Time, fate) error) error {
	v.w.mu.Lock()
	until, buffered := v.c.slot.cutUntil, v.c.slot.buffered
	v.w.mu.Unlock()
	switch left := time.Until(until); {
	case left <= 0:
		return nil
	case !buffered:
		return nats.ErrReconnectBufExceeded
	case wait(ctx, left):
		return nil
	}
	if o.writes() {
		v.later(until.Add(v.w.script.latency), q, f, serve)
	}
	return ctx.Err()
}

// arrive lets the server do its part.
func (v *view) arrive(q *write, f fate, late bool, serve func(time.Time, fate) error) error {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	now := time.Now()
	if q != nil && late {
		v.w.count("write applied or refused late")
		return v.apply(now, q, f, true)
	}
	v.w.probeSoon()
	return serve(now, f)
}

// later has a write arrive that its sender has given up. When trouble ends nothing is under way any more.
func (v *view) later(arrival time.Time, q *write, f fate, serve func(time.Time, fate) error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	if end := v.w.troubleEnds; arrival.After(end) {
		arrival = end
	}
	time.AfterFunc(max(time.Until(arrival), 0), func() {
		_ = v.arrive(q, f, true, serve)
		v.w.mu.Lock()
		v.w.probeSoon()
		v.w.mu.Unlock()
	})
}

// thaw waits while the process is paused.
func (v *view) thaw() {
	for {
		v.w.mu.Lock()
		left := time.Until(v.c.slot.stalledUntil)
		v.w.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

func (v *view) isCut() bool {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	return time.Now().Before(v.c.slot.cutUntil)
}

// begin notes the call and decides what is to befall it.
func (v *view) begin(o op, q *write) (fate, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	now := time.Now()
	if v.burst++; !now.Equal(v.last) {
		v.last, v.burst = now, 0
	}
	if v.burst == burstLimit {
		v.w.judge.fail(now, "P9", v.c.name, "makes %d calls in one instant", v.burst)
	}
	if v.c.crashed || v.c.closed {
		return fate{}, nats.ErrConnectionClosed
	}
	v.calls[o]++
	f := v.w.fate(v.c, o, v.calls[o])
	if q != nil {
		q.sent, q.blind = now, f.blind
		v.w.journal.add(event{at: now, who: v.c.name, what: q.verb() + " sent, over", a: q.expect})
		v.w.judge.sent(q, now)
	}
	if o == opStatus {
		v.w.judge.asked(v.c.ledger, now)
	}
	if f != (fate{coin: f.coin}) || now.Before(v.w.server.inFlight) {
		v.c.ledger.troubled = latest(v.c.ledger.troubled, now)
	}
	return f, nil
}

// end notes how the call ended.
func (v *view) end(o op, q *write, err error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	now := time.Now()
	e := event{at: now, who: v.c.name, what: opNames[o] + " returned"}
	if err != nil {
		e.note = err.Error()
	}
	if err != nil || o != opGet { // which tells what it found
		v.w.journal.add(e)
	}
	switch {
	case q == nil:
	case err == nil:
		q.answered = now
		v.w.judge.known(q, now)
	case v.c.closed && errors.Is(err, nats.ErrConnectionClosed):
		v.w.judge.cutOff(v.c.ledger, now)
	default:
		if last, named := lastNamed(err); named {
			v.w.judge.refused(q, last, now)
		}
	}
	v.w.probeSoon()
}

// Create is like that of nats.go, which looks for the mark of a removal if the key is not simply absent.
func (v *view) Create(ctx context.Context, _ string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	q := &write{by: v.c.ledger, create: true, value: value, note: readNote(value)}
	v.w.mu.Lock()
	if e := v.w.server.current; e.marks() {
		q.expect = e.revision
	}
	v.w.mu.Unlock()
	return v.write(ctx, opCreate, q)
}

// Update is refused unless the revision stands under the key.
func (v *view) Update(ctx context.Context, _ string, value []byte, revision uint64) (uint64, error) {
	return v.write(ctx, opUpdate, &write{by: v.c.ledger, value: value, note: readNote(value), expect: revision})
}

// Delete puts a mark where the given revision stands.
func (v *view) Delete(ctx context.Context, _ string, opts ...jetstream.KVDeleteOpt) error {
	_, err := v.write(ctx, opDelete, &write{by: v.c.ledger, remove: true, expect: lastRevision(opts)})
	return err
}

func (v *view) write(ctx context.Context, o op, q *write) (uint64, error) {
	err := v.call(ctx, o, q, func(now time.Time, f fate) error {
		s := v.w.server
		if f.conflict || now.Before(s.inFlight) && !f.quorum {
			v.w.journal.add(event{at: now, who: v.c.name, what: "passing conflict"})
			return s.transient(q)
		}
		return v.apply(now, q, f, false)
	})
	if err != nil {
		return 0, err
	}
	return q.revision, nil
}

// apply has the server carry out a write. A renewal at the edge comes when the expiry of its key is under way.
func (v *view) apply(now time.Time, q *write, f fate, late bool) error {
	s := v.w.server
	if e := s.current; f.edge && e != nil && e.write != nil && e.write.by == q.by && e.revision == q.expect {
		e.wipe = true
		defer func() { e.wipe = false }()
	}
	return s.apply(now, q, late)
}

// lastRevision returns the revision that options of a deletion demand. They can be read only by applying them.
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

// errNotPermitted stands for what a candidate is told that lacks a permission: nothing, until its time is up.
var errNotPermitted = errors.New("nats: permissions violation")

// Get may show the key as it was a while ago.
func (v *view) Get(ctx context.Context, _ string) (jetstream.KeyValueEntry, error) {
	var found *entry
	err := v.call(ctx, opGet, nil, func(now time.Time, f fate) error {
		found = v.w.server.current
		if f.stale > 0 {
			found = v.w.server.at(now.Add(-f.stale))
		}
		return nil
	})
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case found == nil || found.marks():
		v.w.journal.add(event{at: time.Now(), who: v.c.name, what: "read no key"})
		return nil, jetstream.ErrKeyNotFound
	}
	v.w.journal.add(event{at: time.Now(), who: v.c.name, what: "read", a: found.revision})
	v.w.judge.read(v.c.ledger, found, time.Now())
	if q := found.write; q != nil && q.by == v.c.ledger && !v.c.plan.plain {
		v.w.judge.known(q, time.Now())
	}
	return update{found}, nil
}

// Status tells what a candidate wants to know of the bucket.
func (v *view) Status(ctx context.Context) (jetstream.KeyValueStatus, error) {
	var st *status
	err := v.call(ctx, opStatus, nil, func(time.Time, fate) error {
		s := v.w.server
		info := &jetstream.StreamInfo{Created: s.created}
		info.Config.MaxAge, info.Config.MaxMsgsPerSubject = v.w.script.ttl, 1
		if v.w.script.markers {
			info.Config.SubjectDeleteMarkerTTL = v.w.script.markerTTL()
		}
		info.State.Consumers = len(s.ears)
		st = &status{info: info}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Watch tells of every change of the key.
func (v *view) Watch(ctx context.Context, _ string, _ ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	if v.c.plan.deaf {
		return nil, errNotPermitted
	}
	var x *watcher
	err := v.call(ctx, opWatch, nil, func(now time.Time, _ fate) error {
		x = newWatcher(v)
		if e := v.w.server.current; e != nil {
			x.deliverAt(now, e)
		}
		x.deliverAt(now, nil) // all that stands has been told
		return nil
	})
	if err != nil {
		if x != nil {
			_ = x.Stop()
		}
		return nil, err
	}
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	x.heardAt = latest(x.heardAt, time.Now())
	if v.c.watcher == nil || v.c.watcher.ended { // else it is one that reads a marker, and ends soon
		v.c.watcher = x
	}
	return x, nil
}

// Bucket returns a name.
func (v *view) Bucket() string { return "ELECTIONS" }

// wait waits and says whether ctx is still alive then.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
