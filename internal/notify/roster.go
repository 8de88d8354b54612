package notify

import (
	"bytes"
	"cmp"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natsconn"
	"github.com/natscampaign/election/internal/record"
)

const (
	// maxRoster bounds the memory for candidates that were seen.
	maxRoster = 4096
	// OpeningCampaigns is how many campaigns a candidate makes in any case, before it relies on notifications.
	OpeningCampaigns = 2
	// announceInterval is after how many TTLs a candidate makes an attempt though somebody else holds the key.
	announceInterval = 40
	// rosterTime is for how many TTLs a candidate is remembered whose attempts are not seen any more.
	rosterTime = 160
)

// Order says whom a release names, beside the target of a transfer.
type Order uint8

// The orders.
const (
	ByRank    Order = iota // candidates of the highest priority, and among these first the one that was seen last
	ByArrival              // all that wait, in the order in which they came
	ByChance               // nobody
)

// roster is the candidates that a leader has seen, by their attempts to write its key: its renewals name one of them, and its release the
// best.
type roster struct {
	recording bool
	seen      map[string]seen // by instance, in a queue by the id there
	namesake  *Namesake       // the first candidate of this one's name whose attempt was seen; nil if there is none
	announced time.Time       // when this candidate last made an attempt though somebody else held the key; zero if it must again
	release   *record.Record  // of a lock, the last that was notified, until it is known who took it
}

// Namesake is another candidate of the same name.
type Namesake struct {
	Instance, Host string
	PID            int
}

// Namesake returns the first other candidate of this one's name whose attempt was seen; nil if there is none. Names matter to people, and
// to groups, but no lock needs them to differ.
func (l *Listener) Namesake() *Namesake {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.roster.namesake
}

// seen is a candidate of the roster.
type seen struct {
	name        string
	notified    bool
	priority    int
	first, last time.Time
}

// ShouldAnnounce reports whether a candidate that lost so many campaigns is to make its attempt though somebody else holds the key, so
// that the leader sees it. It does when it starts, and now and then, but not because of a hint alone. Who waits for a lock does so at
// once, and when it has reason to believe that it is not in the queue.
func (l *Listener) ShouldAnnounce(hinted bool, lost int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch since := now.Sub(l.roster.announced); {
	case l.notifier.inUse() == None:
		return false
	case l.Order == ByArrival && l.roster.announced.IsZero():
	case hinted, lost >= OpeningCampaigns && since < l.TTL*announceInterval:
		return false
	}
	l.roster.announced = now
	return true
}

// RecordAttempts starts or ends the recording of candidates. Only a leader records, and who is about to take a lock; and only with a
// connection to receive attempts by.
func (l *Listener) RecordAttempts(on bool) {
	l.mu.Lock()
	was := l.roster.recording
	if on != was {
		l.roster.recording, l.roster.seen = on, nil
	}
	l.mu.Unlock()
	if on != was {
		l.notifier.receiveAttempts(l.Key, on)
	}
}

// attempted records an attempt to write the key.
func (l *Listener) attempted(r record.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.roster.recording || r.Instance == "" || r.Instance == l.Instance {
		return
	}
	id := r.Instance
	if l.Order == ByArrival {
		id = record.QueueID(id)
	}
	if r.Withdrawn || !r.Released.IsZero() {
		delete(l.roster.seen, id)
		return
	}
	if r.Name == l.Name && l.roster.namesake == nil && l.Order == ByRank {
		l.roster.namesake = &Namesake{r.Instance, r.Host, r.PID}
	}
	now := time.Now()
	s, known := l.roster.seen[id]
	if !known {
		if len(l.roster.seen) == maxRoster {
			return
		}
		s.first = now
	}
	s.name, s.notified, s.priority, s.last = r.Name, r.Notified, r.Priority, now
	l.roster.note(id, s)
}

// note records a candidate.
func (q *roster) note(id string, s seen) {
	if q.seen == nil {
		q.seen = map[string]seen{}
	}
	q.seen[id] = s
}

// Priorities returns the highest priorities of other candidates that are notified of vacancies, each once; nil if all have priority 0.
// For a while after the term was won it includes the priorities that were known before.
func (l *Listener) Priorities(before []int, won time.Time) (priorities []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := func(t time.Time) bool { return time.Since(t) > l.TTL*rosterTime }
	maps.DeleteFunc(l.roster.seen, func(_ string, s seen) bool { return old(s.last) })
	if !old(won) {
		priorities = slices.Clone(before)
	}
	for _, s := range l.roster.seen {
		if s.notified {
			priorities = append(priorities, s.priority)
		}
	}
	slices.SortFunc(priorities, func(a, b int) int { return cmp.Compare(b, a) })
	priorities = slices.Compact(priorities)
	if len(priorities) == 1 && priorities[0] == 0 {
		return nil
	}
	return priorities[:min(len(priorities), record.MaxPriorities)]
}

// Successors returns the candidates that are to take over, in order: the target if there is one, then those of the highest priority, among
// these the one seen last, and at the end the candidates that were known before. A candidate that was seen just now is there, and in a
// rolling update it is one that was started again already. For locks and slots there is none but the target.
//
// Of the candidates that were known before only the name counts, because they may have been started again, as another instance. Only where
// candidates share a name is each known by its instance.
func (l *Listener) Successors(target record.Successor, before []record.Successor) (successors []record.Successor) {
	own := record.Successor{Name: l.Name, ID: record.QueueID(l.Instance)}
	same := func(s, other record.Successor) bool {
		return s.ID == other.ID && s.ID != "" || (s.ID == "" || other.ID == "") && s.Name == other.Name
	}
	add := func(s record.Successor) {
		known := func(other record.Successor) bool { return same(s, other) }
		if s.Name != "" && !known(own) && !slices.ContainsFunc(successors, known) {
			successors = append(successors, s)
		}
	}
	add(target)
	if l.Order != ByRank {
		return successors
	}
	l.mu.Lock()
	instances := slices.SortedFunc(maps.Keys(l.roster.seen), func(instance, of string) int {
		s, other := l.roster.seen[instance], l.roster.seen[of]
		return cmp.Or(cmp.Compare(other.priority, s.priority), other.last.Compare(s.last))
	})
	for _, instance := range instances {
		if s := l.roster.seen[instance]; s.notified && len(successors) < record.MaxSuccessors {
			add(record.Successor{Name: s.name, ID: record.QueueID(instance)})
		}
	}
	l.mu.Unlock()
	for i, s := range before {
		shares := func(other record.Successor) bool { return other.Name == s.Name }
		if s.Name != l.Name && !slices.ContainsFunc(before[:i], shares) && !slices.ContainsFunc(before[i+1:], shares) {
			s.ID = ""
		}
		add(s)
	}
	return record.BoundSuccessors(successors)
}

// Successor returns the instance of the candidate that is to answer first if this leader crashes; "" if there is none, as for locks and
// slots. It is one of the highest priority, among these the one whose instance has the highest hash. So it seldom changes, and renewals that
// do not differ need not be parsed; and where the same processes have many elections, these go to all of them after a crash.
func (l *Listener) Successor() (instance string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Order != ByRank {
		return ""
	}
	var priority int
	var highest uint64
	old := time.Now().Add(-2 * announceInterval * l.TTL)
	for id, s := range l.roster.seen {
		if !s.notified || s.last.Before(old) {
			continue
		}
		hash := maphash.String(hashSeed, id)
		if instance == "" || cmp.Or(cmp.Compare(s.priority, priority), cmp.Compare(hash, highest)) > 0 {
			instance, priority, highest = id, s.priority, hash
		}
	}
	return instance
}

// receiveAttempts subscribes to the subject of a key while a leader of the key records. What is published there are attempts, including
// those of candidates that lose.
func (n *Notifier) receiveAttempts(key string, on bool) {
	if n.bucket.Conn() == nil {
		return
	}
	var failures []error
	for _, k := range n.attempts() {
		if !on {
			k.Remove(key)
		} else if err := k.Add(key); err != nil {
			failures = append(failures, err)
		}
	}
	if err := errors.Join(failures...); err != nil {
		n.log.Debug("Attempts cannot be received", "bucket", n.bucket.Bucket(), "error", err)
	}
}

// newAttempts returns the subscriptions to attempts.
func (n *Notifier) newAttempts() (subs []*natsconn.Keyed) {
	for i, prefix := range n.attemptPrefixes() {
		subs = append(subs, &natsconn.Keyed{
			Conn: n.bucket.Conn(), Subject: func(key string) string { return prefix + key }, MaxBytes: maxAttemptBytes, Wide: i > 0, Queue: record.NewID(),
			Handle: func(m *nats.Msg) {
				if !isAttempt(m) {
					return
				}
				w := written{value: m.Data}
				for _, l := range n.of(strings.TrimPrefix(m.Subject, prefix)) {
					if !bytes.HasPrefix(m.Data, l.beginning) {
						l.attempted(w.parse())
					}
				}
			},
		})
	}
	return subs
}

// isAttempt reports whether a message may be what a candidate published to write a key: with a reply subject for the acknowledgement, and
// without the headers that the server gives to its own messages and to what a stream has stored. A client has the server put such messages
// on the subject of a key, also where the client may not publish.
func isAttempt(m *nats.Msg) bool {
	return m.Reply != "" && m.Header.Get("Status") == "" && m.Header.Get(jetstream.StreamHeader) == ""
}

// attemptPrefixes returns what the subjects begin with to which candidates publish their attempts: with the API prefix, too, where
// JetStream is reached by one, as on a leaf node by that of a domain.
//
// The leader subscribes to its own key, so that servers need not permit more, but below an API prefix to a pattern. A subscription to the
// exact subject of its key, below the prefix of a domain, would take the requests away from JetStream: on a leaf node the server then routes
// them to the subscriber alone (nats-server 2.15.2).
func (n *Notifier) attemptPrefixes() []string {
	prefixes := []string{n.bucket.Subject("")}
	if api := kv.APIPrefix(n.bucket.JetStream()); api != jetstream.DefaultAPIPrefix {
		prefixes = append(prefixes, api+prefixes[0])
	}
	return prefixes
}
