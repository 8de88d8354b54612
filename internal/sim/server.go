package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// note is what the simulator reads of a candidate's record.
type note struct {
	Name        string    `json:"name"`
	Instance    string    `json:"instance"`
	Attempt     string    `json:"attempt"`
	Since       time.Time `json:"since"`
	Term        uint64    `json:"term"`
	Bucket      time.Time `json:"bucket"`
	Released    time.Time `json:"released"`
	StandDownMs int64     `json:"stand_down_ms"`
}

func readNote(value []byte) (n note) {
	if json.Unmarshal(value, &n) != nil || n.Attempt == "" {
		return note{Name: string(value)}
	}
	return n
}

// write is one request to change the key, and all that became of it.
type write struct {
	by     *ledger // nil: an operator or somebody else
	create bool
	remove bool
	purge  bool
	value  []byte
	note   note
	expect uint64 // the revision it demands; of a create that of the marker it saw
	blind  bool   // whether it is a create whose writer cannot read the marker of a removal
	always bool   // whether it demands none
	sent   time.Time
	told   *entry        // the last that its writer had heard by then
	toldAt time.Time     // and when
	read   *entry        // the record that it had last read
	before *entry        // what it had heard before that
	owed   time.Duration // what was left of its writer's stand-down, if it renewed what that held as leader-elect
	knew   bool          // whether that had been told of a removal

	over     *entry    // what stood under the key before
	applied  time.Time // zero if it was not
	bucket   time.Time // when the bucket was made that it was applied in
	revision uint64
	known    time.Time // when its writer came to know that it was applied; zero if it did not
	answered time.Time // when the call was over in which it was acknowledged; zero if it was not, in that call
}

// entry is what stands under the key: a record, or the mark of a removal.
type entry struct {
	op       jetstream.KeyValueOp
	expired  bool // whether the server put the mark
	revision uint64
	value    []byte
	stamped  time.Time // by the server's clock
	expires  time.Time // when it is removed, as things stand
	wipe     bool      // the expiry is under way: no renewal stops it
	write    *write    // nil for the server
}

func (e *entry) marks() bool { return e != nil && e.op != jetstream.KeyValuePut }

// releases says whether e is a record by which a candidate let go of the key.
func (e *entry) releases() bool {
	return e != nil && e.write != nil && e.write.by != nil && !e.write.note.Released.IsZero()
}

// epoch is how things stood under the key from some time on.
type epoch struct {
	from  time.Time
	entry *entry
	seq   uint64 // of the stream
}

// server is the bucket: one key, the sequence of its stream, and a clock of its own. It is a deterministic state machine,
// driven under the world's mutex.
type server struct {
	w       *world
	created time.Time
	seq     uint64
	current *entry
	past    []epoch  // for stale reads
	written []*entry // all there ever were
	expiry  *time.Timer
	ears    []*watcher

	clockSet  time.Time // when offset and rate were last changed
	offset    time.Duration
	rate      float64 // less 1
	backwards time.Duration
	inFlight  time.Time // until when a write waits for a quorum
}

func newServer(w *world) *server {
	now := time.Now()
	s := &server{w: w, created: now, clockSet: now}
	s.expiry = time.AfterFunc(math.MaxInt64, s.expire)
	return s
}

// clock returns the time by the server's clock.
func (s *server) clock(now time.Time) time.Time {
	since := now.Sub(s.clockSet)
	return now.Add(s.offset + time.Duration(float64(since)*s.rate))
}

// when returns the instant at which the server's clock will show the given time.
func (s *server) when(shown time.Time) time.Time {
	left := shown.Sub(s.clockSet.Add(s.offset))
	return s.clockSet.Add(time.Duration(float64(left) / (1 + s.rate)))
}

// setClock steps the clock, or changes its rate. Expiries are judged by the clock as it is now.
func (s *server) setClock(now time.Time, step time.Duration, rate float64) {
	s.offset = s.clock(now).Sub(now) + step
	s.clockSet, s.rate = now, rate
	s.backwards = max(s.backwards, s.backwards-step)
	s.schedule(now)
}

// life is how long an entry stays under the key. The marker of an expiry has a TTL of its own.
func (s *server) life(e *entry) time.Duration {
	if e.expired {
		return s.w.script.markerTTL()
	}
	return s.w.script.ttl
}

// schedule sets the time at which what stands under the key is removed.
func (s *server) schedule(now time.Time) {
	e := s.current
	if e == nil || e.wipe {
		return
	}
	lateness := time.Duration(mix(s.w.script.seed, e.revision, 7) % uint64(s.w.script.lateness+1))
	e.expires = s.when(e.stamped.Add(s.life(e))).Add(lateness)
	s.expiry.Reset(max(e.expires.Sub(now), 0))
}

// expire removes what has stood for a TTL.
func (s *server) expire() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	e, now := s.current, time.Now()
	if e == nil || now.Before(e.expires) {
		return
	}
	s.w.journal.add(event{at: now, what: "expired", a: e.revision})
	if e.stamped.Add(s.life(e)).Before(s.clock(now).Add(-time.Millisecond)) {
		s.w.count("expiry more than 1 ms late")
	}
	kind := removalExpired
	if e.wipe {
		kind = removalWiped
		s.w.count("renewal wiped at the edge")
	}
	if !s.w.script.markers || e.expired {
		s.put(now, nil, kind)
		return
	}
	mark := &entry{op: jetstream.KeyValuePurge, expired: true}
	s.put(now, mark, kind)
}

// put lets an entry stand under the key, nil for nothing, and tells everybody.
func (s *server) put(now time.Time, e *entry, kind removal) {
	before := s.current
	if e != nil {
		s.seq += 1 + mix(s.w.script.seed, s.seq, 3)%8/7 // now and then somebody writes to another key
		e.revision, e.stamped = s.seq, s.clock(now)
		s.written = append(s.written, e)
		if e.write != nil {
			e.write.applied, e.write.revision, e.write.bucket = now, e.revision, s.created
			e.write.over = before
		}
	}
	s.current = e
	s.past = append(s.past, epoch{now, e, s.seq})
	s.w.judge.moved(mutation{at: now, before: before, after: e, removal: kind, bucket: s.created})
	if e == nil {
		return
	}
	if before != nil && before.wipe {
		e.wipe, e.expires = e.write != nil && e.write.by == before.write.by, before.expires
	}
	s.schedule(now)
	for _, x := range s.ears {
		x.push(now, e)
	}
}

// reset empties the bucket and begins its sequence anew. If it is made again it has another creation time.
func (s *server) reset(now time.Time, again bool) {
	kind := removalForgotten
	if again {
		kind = removalRemade
	}
	s.put(now, nil, kind)
	s.seq = 0
	s.past = nil
	if again {
		s.created = now
	}
	for _, x := range s.ears {
		x.blind = true
	}
}

// rewind takes the bucket back to what it was, as when a server loses its last writes or a backup is restored. It returns false
// if nothing has been written since.
func (s *server) rewind(now time.Time, a *act) bool {
	i := len(s.past) - 1
	for i >= 0 && s.past[i].from.After(now.Add(-a.back)) {
		i--
	}
	if i < 0 || s.past[i].seq == s.seq {
		return false
	}
	before, then := s.current, s.past[i]
	s.past = append(s.past[:i+1], epoch{now, then.entry, then.seq})
	s.current, s.seq = then.entry, then.seq
	e := event{at: now, what: "is back at sequence", a: s.seq}
	if s.current != nil {
		s.current.wipe = false
		e.b = s.current.revision
	}
	s.w.journal.add(e)
	s.w.judge.moved(mutation{at: now, before: before, after: s.current, removal: removalRewound, bucket: s.created, seq: s.seq})
	s.schedule(now)
	for _, x := range s.ears {
		x.blind = x.blind || a.blinds
	}
	return true
}

// apply carries out a write, if what stands under the key allows it.
func (s *server) apply(now time.Time, q *write, late bool) error {
	e := s.current
	var standing uint64
	if e != nil {
		standing = e.revision
	}
	switch {
	case q.always:
	case q.create && e.marks() && !q.blind && (!late || standing == q.expect):
		// The client creates over the mark of a removal, which it has looked at; what was sent before cannot.
	case q.create && e == nil:
	case !q.create && standing == q.expect: // over 0 it creates the key, but over no marker
	default:
		s.w.journal.add(event{at: now, who: q.who(), what: q.verb() + " refused, found", a: standing})
		return s.refusal(q, standing)
	}
	next := &entry{value: q.value, write: q}
	switch {
	case q.remove && q.purge:
		next.op, next.value = jetstream.KeyValuePurge, nil
	case q.remove:
		next.op, next.value = jetstream.KeyValueDelete, nil
	}
	s.put(now, next, removalWritten)
	s.w.journal.add(event{at: now, who: q.who(), what: q.verb() + " applied", a: standing, b: next.revision, note: q.remark(late)})
	return nil
}

// refusal is the error that nats.go makes of a lost compare-and-swap. Mostly it names the last sequence of the key, 0 if there is
// none.
func (s *server) refusal(q *write, last uint64) error {
	if !s.w.script.named {
		return s.transient(q)
	}
	return refused(q, jetstream.JSErrCodeStreamWrongLastSequence, fmt.Sprintf("wrong last sequence: %d", last))
}

// transient is the error for a write while another write, by anybody, is in flight. It names no sequence.
func (s *server) transient(q *write) error {
	return refused(q, jetstream.JSErrCodeStreamWrongLastSequenceConstant, "wrong last sequence")
}

// lastNamed returns the last sequence that a refusal names.
func lastNamed(err error) (last uint64, named bool) {
	api := (*jetstream.APIError)(nil)
	if !errors.As(err, &api) {
		return 0, false
	}
	text, named := strings.CutPrefix(api.Description, "wrong last sequence: ")
	last, err = strconv.ParseUint(text, 10, 64)
	return last, named && err == nil
}

// refused wraps the answer of the server as nats.go does.
func refused(q *write, code jetstream.ErrorCode, description string) error {
	err := fmt.Errorf("nats: %w", &jetstream.APIError{Code: 400, ErrorCode: code, Description: description})
	switch {
	case !q.create:
		return fmt.Errorf("%w: %w", err, jetstream.ErrKeyRevisionMismatch)
	case code == jetstream.JSErrCodeStreamWrongLastSequence:
		return fmt.Errorf("%w: key exists", err)
	}
	return fmt.Errorf("%w: %w", err, jetstream.ErrKeyExists)
}

// at returns what stood under the key a while ago, in this bucket.
func (s *server) at(then time.Time) *entry {
	for i := len(s.past) - 1; i >= 0; i-- {
		if !s.past[i].from.After(then) {
			return s.past[i].entry
		}
	}
	return nil
}

func (q *write) who() string {
	if q.by == nil {
		return ""
	}
	return q.by.name
}

func (q *write) verb() string {
	switch {
	case q.remove && q.purge:
		return "purge"
	case q.remove:
		return "delete"
	case q.create:
		return "create"
	case !q.note.Released.IsZero():
		return "release"
	}
	return "update"
}

func (q *write) remark(late bool) string {
	if late {
		return "given up before"
	}
	return ""
}

// mix makes a number of several that looks like chance, and is the same each time.
func mix(numbers ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, n := range numbers {
		h ^= n
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}
