package core

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/record"
)

const (
	// maxRoster bounds the memory for candidates that were seen.
	maxRoster = 4096
	// OpeningCampaigns is how many campaigns a candidate makes in any case, before it relies on notifications.
	OpeningCampaigns = 2
	// announceInterval is after how many TTLs a candidate announces itself again, see shouldAnnounce.
	announceInterval = 40
	// rosterTime is for how many TTLs a candidate is remembered after its last attempt was seen.
	rosterTime = 160
	// queueTime is after how many TTLs a waiter announces itself again that no release lists, because the queue is longer than a release may list.
	queueTime = 4
)

// roster is what a candidate knows of the others. A leader records the candidates whose attempts to write its key it sees: its renewals name one of
// them as the successor, and its release names the best ones.
//
// The roster of a lock is a queue: the candidates that wait, in the order of their first attempts. Only the holder keeps the queue. It inherits the
// queue that is listed in the release that it took over, and adds the candidates whose attempts it receives. Each release lists the whole queue, so
// that each waiter knows its place. A waiter that finds that it has no place announces itself again, and so a lost entry comes back.
type roster struct {
	recording bool            // attempts of others are received and recorded
	seen      map[string]seen // the other candidates: by instance or, in a queue, by record.QueueID
	newcomer  bool            // one was seen first since the last renewal: it times the lease by the next, and is to see one soon
	enough    bool            // with it there are enough: others that start need not announce themselves once the leader's record says so
	namesake  *Namesake       // the first other candidate of this one's name; nil if none was seen
	warned    bool            // the namesake was logged
	announced time.Time       // when this candidate last announced itself, see shouldAnnounce; zero if it must again
	release   *record.Record  // the last notified release of a lock, until it is known who took the lock; see checkPlace
}

// Namesake is another candidate of the same name.
type Namesake struct {
	Instance, Host string
	PID            int
}

// seen is a candidate of the roster.
type seen struct {
	name        string
	notified    bool
	priority    int
	first, last time.Time
}

// shouldAnnounce reports whether this candidate is to make an attempt although another candidate holds the key, so that the leader sees it. A
// candidate that lost so many campaigns does so when it starts, unless the leader knows enough standbys, and then once in a while, but not because of a
// hint alone. A candidate for a lock does so at once, and again whenever it has reason to believe that it is not in the queue.
func (c *Candidate) shouldAnnounce(now time.Time, hinted bool, lost int) bool {
	switch since := now.Sub(c.others.announced); {
	case c.hints.source == NoSource:
		return false
	case c.Order == ByArrival && c.others.announced.IsZero():
	case hinted, lost >= OpeningCampaigns && since < c.bucket.TTL*announceInterval:
		return false
	case c.Order == ByRank && c.leaderKnowsEnough(): // a thousand that start at once make few attempts
		return false
	}
	c.others.announced = now
	return true
}

// leaderKnowsEnough reports whether the leader's record says that it knows as many standbys as its release names, and one among them is as good a successor as
// this candidate. It does not know that this candidate has its name.
func (c *Candidate) leaderKnowsEnough() bool {
	h := &c.key.holder
	return h.standbys >= record.MaxSuccessors && h.name != c.Name && (c.Priority <= 0 || slices.ContainsFunc(h.priorities, func(p int) bool { return p >= c.Priority }))
}

// isUnknown reports whether a leader that has won since this candidate last announced itself may not know it, nor enough others. A leader that crashed passes
// nothing on of what it knew. Those that choose targets know by themselves which candidates there are.
func (c *Candidate) isUnknown() bool {
	return c.Order == ByRank && c.Target == nil && c.others.announced.IsZero() && c.key.occupied && !c.isHolder() && c.Source() != NoSource && !c.leaderKnowsEnough()
}

// hasAnnounced reports whether the holder of a lock may have this candidate in the queue.
func (c *Candidate) hasAnnounced() bool {
	return c.Order == ByArrival && !c.others.announced.IsZero()
}

// recordAttempts starts or ends the recording of the attempts of others. Only a leader records, and a candidate that is about to take a lock.
func (c *Candidate) recordAttempts(on bool) {
	if on == c.others.recording {
		return
	}
	c.others.recording, c.others.seen, c.others.newcomer, c.others.enough = on, nil, false, false
	c.report(Event{Kind: RecordAttempts, On: on})
}

// attempted records an attempt of another candidate to write the key.
func (c *Candidate) attempted(now time.Time, r *record.Record) {
	q := &c.others
	if !q.recording || r.Instance == "" || r.Instance == c.Instance {
		return
	}
	id := r.Instance
	if c.Order == ByArrival {
		id = record.QueueID(id)
	}
	if r.Withdrawn || !r.Released.IsZero() {
		_, known := q.seen[id]
		q.newcomer = q.newcomer || known && c.Order == ByRank // another is to be named soon
		delete(q.seen, id)
		return
	}
	if r.Name == c.Name && q.namesake == nil && c.Order == ByRank {
		q.namesake = &Namesake{r.Instance, r.Host, r.PID}
	}
	s, known := q.seen[id]
	if !known {
		if len(q.seen) == maxRoster {
			return
		}
		s.first = now
		q.enough = q.enough || len(q.seen) == record.MaxSuccessors-1 && c.Order == ByRank
		q.newcomer = q.newcomer || c.Order == ByRank
	}
	s.name, s.notified, s.priority, s.last = r.Name, r.Notified, r.Priority, now
	q.note(id, s)
}

// note records a candidate.
func (q *roster) note(id string, s seen) {
	if q.seen == nil {
		q.seen = map[string]seen{}
	}
	q.seen[id] = s
}

// warnOfNamesake logs once that another candidate has the name of this one. Locks are left out: their candidates may share a name.
func (c *Candidate) warnOfNamesake() {
	if other := c.others.namesake; other != nil && !c.others.warned {
		c.others.warned = true
		c.log(Warn, "Another candidate has the same name", "instance", other.Instance, "host", other.Host, "pid", other.PID,
			"fix", "give each candidate a name of its own: it is what people see, and what a transfer names")
	}
}

// priorities returns the highest priorities of other candidates that are notified of vacancies, each once; nil if all have priority 0.
// For a while after the term was won it includes the priorities that were known before.
func (c *Candidate) priorities(now time.Time, before []int, won time.Time) (priorities []int) {
	old := func(t time.Time) bool { return now.Sub(t) > c.bucket.TTL*rosterTime }
	maps.DeleteFunc(c.others.seen, func(_ string, s seen) bool { return old(s.last) })
	if !old(won) {
		priorities = slices.Clone(before)
	}
	for _, s := range c.others.seen {
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

// successors returns the candidates that are to take over, in order: the target if there is one, then the one that the renewals name, which may have
// prepared itself, then those that were seen, of the highest priority first and among these the one seen last, which is most likely still there, and at the
// end the candidates that were known before. For locks and slots there is none but the target.
func (c *Candidate) successors(now time.Time, target record.Successor, before []record.Successor) (successors []record.Successor) {
	this := record.Successor{Name: c.Name, ID: record.QueueID(c.Instance)}
	add := func(s record.Successor) {
		known := func(other record.Successor) bool { return sameCandidate(s, other) }
		if s.Name != "" && !known(this) && !slices.ContainsFunc(successors, known) {
			successors = append(successors, s)
		}
	}
	add(target)
	if c.Order != ByRank {
		return successors
	}
	named := c.successor(now)
	isNamed := func(instance string) int {
		if instance == named {
			return 0
		}
		return 1
	}
	instances := slices.SortedFunc(maps.Keys(c.others.seen), func(a, b string) int {
		s, other := c.others.seen[a], c.others.seen[b]
		return cmp.Or(cmp.Compare(isNamed(a), isNamed(b)), cmp.Compare(other.priority, s.priority), other.last.Compare(s.last), cmp.Compare(a, b))
	})
	for _, instance := range instances {
		if s := c.others.seen[instance]; s.notified && len(successors) < record.MaxSuccessors {
			add(record.Successor{Name: s.name, ID: record.QueueID(instance)})
		}
	}
	for i, s := range before {
		// Only the name counts, because the candidate may have been started again, as another instance; unless several share the name.
		shares := func(other record.Successor) bool { return other.Name == s.Name }
		if s.Name != c.Name && !slices.ContainsFunc(before[:i], shares) && !slices.ContainsFunc(before[i+1:], shares) {
			s.ID = ""
		}
		add(s)
	}
	return record.BoundSuccessors(successors)
}

// sameCandidate reports whether two successors may be one candidate: by their ids or, if one of the ids is not known, by their names.
func sameCandidate(s, other record.Successor) bool {
	if s.ID == "" || other.ID == "" {
		return s.Name == other.Name
	}
	return s.ID == other.ID
}

// standbys returns how many candidates this leader knows that are notified of vacancies, as many as a release names at most.
func (c *Candidate) standbys() (n int) {
	if c.Order != ByRank {
		return 0
	}
	for _, s := range c.others.seen {
		if s.notified {
			n++
		}
	}
	return min(n, record.MaxSuccessors)
}

// successor returns the instance of the candidate that is to bid first if this leader crashes; "" if there is none, as for locks and slots. It is
// one of the highest priority, and among these the one whose instance has the highest hash. So the successor seldom changes, and candidates need not
// parse renewals. And if the same processes have many elections, a crash of one process spreads its elections over all others.
func (c *Candidate) successor(now time.Time) (instance string) {
	if c.Order != ByRank {
		return ""
	}
	var priority int
	var highest uint64
	old := now.Add(-2 * announceInterval * c.bucket.TTL)
	for id, s := range c.others.seen {
		if !s.notified || s.last.Before(old) {
			continue
		}
		hash := c.hash(id)
		if instance == "" || cmp.Or(cmp.Compare(s.priority, priority), cmp.Compare(hash, highest), cmp.Compare(id, instance)) > 0 {
			instance, priority, highest = id, s.priority, hash
		}
	}
	return instance
}

// hash returns a hash of an id. It differs from process to process, so that nobody can predict it. The finalizer of SplitMix64 mixes its bits
// (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
func (c *Candidate) hash(id string) uint64 {
	h := fnv.New64a()
	var seed [8]byte
	binary.BigEndian.PutUint64(seed[:], c.Seed)
	_, _ = h.Write(seed[:])
	_, _ = h.Write([]byte(id))
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// inherit adds the queue that is listed in the release which this candidate took over.
func (c *Candidate) inherit(now time.Time, queue []string) {
	for i, id := range queue {
		if id == record.QueueID(c.Instance) {
			continue
		}
		c.others.note(id, seen{notified: true, first: time.Unix(0, int64(i)), last: now}) // in this order, and before all that were seen since
	}
}

// queue returns the ids of the candidates that wait for the lock, in the order in which they came.
func (c *Candidate) queue() (ids []string) {
	if c.Order != ByArrival {
		return nil
	}
	for id, s := range c.others.seen {
		if s.notified {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(id, other string) int {
		return cmp.Or(c.others.seen[id].first.Compare(c.others.seen[other].first), cmp.Compare(id, other))
	})
	return ids[:min(len(ids), record.MaxQueue)]
}

// checkPlace has this candidate for a lock announce itself again if a notification shows that it has no place in the queue: the release did not list
// it, or a candidate that comes after it took the lock. A forged notification can cost waiters their places, but no more.
func (c *Candidate) checkPlace(now time.Time, ch *change) {
	q := &c.others
	if ch.Removal != record.Kept {
		return
	}
	if _, released := ch.Record.IsRelease(); released {
		release := ch.Record // a copy, so that other notifications take no memory
		q.release = &release
		return
	}
	if q.release == nil {
		return
	}
	place, listed := q.release.Place(c.Name, c.Instance)
	winner, _ := q.release.Place(ch.Record.Name, ch.Record.Instance)
	unknown := !listed && (len(q.release.Queue) < record.MaxQueue || now.Sub(q.announced) > queueTime*c.bucket.TTL)
	if unknown || listed && place < winner {
		q.announced = time.Time{}
	}
	q.release = nil
}
