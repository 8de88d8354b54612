package sessions

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/test/virtual"
)

// server is the bucket: keys from which nothing disappears but records of sessions that expire. It is a deterministic state machine.
type server struct {
	w        *world
	created  time.Time
	sequence uint64
	keys     map[string]*entry
	past     []step   // what it was before each change, the oldest first
	written  []*entry // by processes: what strangers may restore
	remade   int
	rewound  []rewinding
}

// entry is what is stored under a key.
type entry struct {
	session.Change
	by     *process // nil for a stranger
	sent   time.Time
	expiry *virtual.Timer
}

// step is what a key was before a change.
type step struct {
	at       time.Time
	key      string
	before   *entry // nil if nothing was stored
	sequence uint64 // of the stream
}

// write is a request to store something.
type write struct {
	by          *process
	sent        time.Time
	key         string
	record      record.Record
	replaces    uint64
	conditional bool
	expires     time.Duration
	while       string
	own         uint64
}

func newServer(w *world) *server {
	return &server{w: w, created: w.Now, keys: map[string]*entry{}}
}

// revision returns the revision of a key; 0 if nothing is stored.
func (s *server) revision(key string) uint64 {
	if e := s.keys[key]; e != nil {
		return e.Revision
	}
	return 0
}

// apply stores what a request writes, if the revision that it demands is stored.
func (s *server) apply(q *write) session.Result {
	switch {
	case q.while != "" && s.revision(q.while) != q.own:
		return session.Result{Outcome: core.Refused}
	case q.while == "" && q.conditional && s.revision(q.key) != q.replaces:
		return session.Result{Outcome: core.Refused, Named: true, Last: s.revision(q.key)}
	}
	before := s.keys[q.key]
	s.past = append(s.past, step{s.w.Now, q.key, before, s.sequence})
	s.sequence++
	e := &entry{Change: session.Change{Key: q.key, Revision: s.sequence, Unconditional: !q.conditional, Record: q.record}, by: q.by, sent: q.sent}
	if q.conditional {
		e.Replaced = q.replaces
	}
	s.keys[q.key] = e
	if q.expires > 0 {
		e.expiry = s.w.After(q.expires+s.w.dice.UpTo(lateExpiry), func() { s.expire(e) })
	}
	if q.by != nil && (strings.HasPrefix(q.key, "c.") || s.w.dice.Chance(0.1)) { // renewals are many
		s.written = append(s.written, e)
	}
	s.w.stored(q, before, e)
	for _, p := range s.w.processes {
		p.consumer.stored(e)
	}
	return session.Result{Outcome: core.Applied, Revision: e.Revision}
}

// lateExpiry is how late the server may be to remove what has expired.
const lateExpiry = 350 * time.Millisecond

// expire removes the record of a session. Nobody is told.
func (s *server) expire(e *entry) {
	if s.keys[e.Key] == e {
		s.past = append(s.past, step{s.w.Now, e.Key, e, s.sequence})
		delete(s.keys, e.Key)
		s.w.note("", "expires: "+e.Key)
	}
}

// at returns what was stored some time ago.
func (s *server) at(ago time.Duration) (keys map[string]*entry, sequence uint64) {
	keys, sequence = maps.Clone(s.keys), s.sequence
	for i := len(s.past) - 1; i >= 0 && s.past[i].at.After(s.w.Now.Add(-ago)); i-- {
		sequence = s.past[i].sequence
		if b := s.past[i].before; b != nil {
			keys[s.past[i].key] = b
		} else {
			delete(keys, s.past[i].key)
		}
	}
	return keys, sequence
}

// read returns everything as it was some time ago, as a replica may that is behind.
func (s *server) read(ago time.Duration, atLeast uint64) session.Result {
	keys, sequence := s.at(ago)
	if sequence < atLeast {
		return session.Result{Outcome: core.Failed}
	}
	r := session.Result{Outcome: core.Applied, Position: sequence, Created: s.created}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		r.Changes = append(r.Changes, keys[key].Change)
	}
	return r
}

// after returns what is stored that was stored after a sequence, in the order in which it was.
func (s *server) after(sequence uint64) (entries []*entry) {
	for _, e := range s.keys {
		if e.Revision > sequence {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return entries
}

// readOn adds to a read what has been stored since.
func (s *server) readOn(r *session.Result) {
	if r.Outcome != core.Applied || !s.created.Equal(r.Created) {
		return
	}
	for _, e := range s.after(r.Position) {
		r.Changes = append(r.Changes, e.Change)
	}
	r.Position = max(r.Position, s.sequence)
}

// leaveOut leaves out of a read what was replaced before the consumer came to it, though what replaced it was stored only after the read had ended. The consumer
// had come to a sequence before that.
func (s *server) leaveOut(r *session.Result, after uint64) (some bool) {
	before := len(r.Changes)
	r.Changes = slices.DeleteFunc(r.Changes, func(ch session.Change) bool {
		e := s.keys[ch.Key]
		return ch.Revision > after && e != nil && e.Revision > r.Position
	})
	return len(r.Changes) < before
}

// rewinding is when history went back, and from which sequence on.
type rewinding struct {
	at     time.Time
	before uint64
}

// rewind has the server lose its last writes.
func (s *server) rewind(ago time.Duration) {
	before := s.sequence
	s.keys, s.sequence = s.at(ago)
	s.rewound = append(s.rewound, rewinding{s.w.Now, before})
	for len(s.past) > 0 && s.past[len(s.past)-1].at.After(s.w.Now.Add(-ago)) {
		s.past = s.past[:len(s.past)-1]
	}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if e := s.keys[key]; e.expiry != nil && !e.expiry.Waits() {
			e.expiry = s.w.After(s.w.script.ttl, func() { s.expire(e) })
		}
	}
}

// remake deletes the bucket, and makes it again.
func (s *server) remake() {
	s.keys, s.past, s.sequence, s.created = map[string]*entry{}, nil, 0, s.w.Now
	s.remade++
	for _, p := range s.w.processes {
		p.consumer.gone()
	}
}
