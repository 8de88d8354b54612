package notify

import (
	"slices"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
)

// A queue is those that wait for a lock, in the order of their first attempts. Its holder has it: it inherits the queue of the release that
// it took over, and receives the attempts of those who come. Each release lists the whole queue, so that each waiter knows its place; who
// finds that it has none announces itself again. So nobody but the holder keeps anything, and whatever is lost mends itself.

// queueTime is after how many TTLs a waiter announces itself again if the releases do not list it, because the queue is longer than they may.
const queueTime = 4

// Inherit takes over the queue of the release that this candidate took over.
func (l *Listener) Inherit(queue []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, id := range queue {
		if id == record.QueueID(l.Instance) {
			continue
		}
		l.roster.note(id, seen{notified: true, first: time.Unix(0, int64(i)), last: time.Now()}) // first, so before all that were seen
	}
}

// Queue returns the ids of those that wait for the lock, in the order in which they came.
func (l *Listener) Queue() (ids []string) {
	if l.Order != ByArrival {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.roster.seen {
		if s.notified {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(id, other string) int { return l.roster.seen[id].first.Compare(l.roster.seen[other].first) })
	return ids[:min(len(ids), record.MaxQueue)]
}

// Announced reports whether the holder may take this candidate for one that waits.
func (l *Listener) Announced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Order == ByArrival && !l.roster.announced.IsZero()
}

// checkPlace has a waiter announce itself again if a notification shows that it has no place in the queue: the release did not list it,
// or another candidate took the lock though it was this one's turn. A forged notification can so cost waiters their places, but no
// more. The caller holds mu.
func (l *Listener) checkPlace(c Change, now time.Time) {
	q := &l.roster
	if c.Removal != kv.Kept {
		return
	}
	if _, released := c.Record.IsRelease(); released {
		q.release = &c.Record
		return
	}
	if q.release == nil {
		return
	}
	place, listed := q.release.Place(l.Name, l.Instance)
	winner, _ := q.release.Place(c.Record.Name, c.Record.Instance)
	unknown := !listed && (len(q.release.Queue) < record.MaxQueue || now.Sub(q.announced) > queueTime*l.TTL)
	if unknown || listed && place < winner {
		q.announced = time.Time{}
	}
	q.release = nil
}
