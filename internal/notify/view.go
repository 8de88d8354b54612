package notify

import (
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
)

// view is what a candidate knows of its key by reading, and by notifications where a mistake is safe. The listener's mutex guards it.
type view struct {
	read     time.Time // when the key was read or written last; zero if it has not been
	revision uint64    // at which that was
	held     bool      // somebody held the key then
	holder   holder    // the last that was read or written; its priorities and successor are those of the latest renewal that was notified
	alive    time.Time // when the holder was last known to be there, by a notification or by reading
	aliveBy  uint64    // the revision that showed it

	aliveWritten time.Time     // when that revision was written, by the server's clock
	aliveSince   time.Time     // it was written after this, as far as is known
	observed     time.Time     // when the key was last read or written, or notified since it was first read
	missed       uint64        // the revision after which the next renewal was known to be overdue
	silence      time.Duration // a random part of the spread, by which this candidate answers a missed renewal
	highest      uint64        // the highest revision that was read or written in this bucket
	removed      event         // the last notified removal, until a later record is read
	released     event         // the last release that passed on a stand-down, likewise
	inherited    time.Duration // that stand-down
	endings      endings
	turn         turn
	retries      int // attempts in a row over one vacancy that failed
}

// holder is what a candidate remembers of who held the key: a small part of the record, because a process may have thousands of candidates.
type holder struct {
	name, instance string
	since          time.Time
	term           uint64
	priority       int
	metadata       map[string]string
	intervalMs     int64
	leaseMs        int64
	priorities     []int
	successor      string
	commitment     record.Commitment
}

// holderOf returns the holder that wrote a record.
func holderOf(r record.Record) holder {
	return holder{r.Name, r.Instance, r.Since, r.Term, r.Priority, r.Metadata, r.IntervalMs, r.LeaseMs, r.Priorities, r.Successor, r.Commitment}
}

// record returns a record of which the rest is empty. What the holder writes next renews it.
func (h *holder) record() record.Record {
	return record.Record{
		Name: h.name, Instance: h.instance, Since: h.since, Term: h.term, Priority: h.priority, Metadata: h.metadata, IntervalMs: h.intervalMs, LeaseMs: h.leaseMs,
		Priorities: h.priorities, Successor: h.successor, Commitment: h.commitment,
	}
}

// event is something that happened to the key; the zero value if it did not.
type event struct {
	revision uint64
	at       time.Time // when this candidate learned of it
}

// outdatedBy reports whether what was read shows that the event does not matter any more. A read that is older may be stale.
func (e event) outdatedBy(s kv.State) bool {
	return s.Revision > e.revision || s.Read.Sub(e.at) > recent
}

// passOn takes note of the stand-down that a release passes on.
func (v *view) passOn(r record.Record, revision uint64, now time.Time) {
	if left, released := r.IsRelease(); released && left > 0 {
		v.released, v.inherited = event{revision, now}, max(v.inherited, left)
	}
}

// learn takes over what was read. The caller holds mu.
func (l *Listener) learn(s kv.State) {
	if !l.continues(s) {
		l.retries = 0
	}
	if s.Held() {
		l.begins(s.Record, time.Now())
		l.holder = holderOf(s.Record)
		if s.Revision != l.aliveBy || l.alive.IsZero() { // what is read again, or was notified before, says nothing new
			l.alive = timeutil.Later(l.alive, s.Read)
			l.aliveSince = timeutil.Later(l.observed, s.Read.Add(-l.TTL)) // else it would have expired
		}
		l.aliveBy, l.aliveWritten = s.Revision, s.Written
		l.silence = timeutil.Random(l.Spread)
		if l.removed.outdatedBy(s) {
			l.removed = event{}
		}
		if l.released.outdatedBy(s) {
			l.released, l.inherited = event{}, 0
		}
	}
	l.ends(s.Record)
	l.passOn(s.Record, s.Revision, s.Read)
	l.read, l.revision, l.held, l.renewal = s.Read, s.Revision, s.Held(), 0
	l.observed = timeutil.Later(l.observed, s.Read)
	l.highest = max(l.highest, s.Revision)
	l.await(s.Revision)
	if l.hint != nil && l.hint.Revision <= s.Revision { // the hint came while the key was read
		l.hint = nil
	}
}

// renewed reports whether a record is a renewal by the known holder. The caller holds mu.
func (l *Listener) renewed(r record.Record) bool { return l.held && r.Renews(l.holder.record()) }

// continues reports whether what was read differs from what was known by renewals alone. The caller holds mu.
func (l *Listener) continues(s kv.State) bool {
	switch {
	case l.read.IsZero(), s.Held() != l.held:
		return false
	case l.held:
		return l.renewed(s.Record)
	}
	return s.Revision == l.revision
}

// Won is called when a win was acknowledged, before it is known whether this candidate can keep it: whatever has a lower revision from
// then on is of a rewound history.
func (l *Listener) Won(revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.highest = max(l.highest, revision)
}

// Wrote is called when a write of this candidate's own was applied on which it holds the key.
func (l *Listener) Wrote(revision uint64, r record.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.renewed(r) {
		l.renewal = 0
	}
	l.begins(r, now)
	l.read, l.revision, l.held, l.holder, l.observed = now, revision, true, holderOf(r), now
	if revision < l.highest { // the history was rewound: what was reported before does not count
		l.delivered = 0
	}
	l.highest = max(l.highest, revision)
	if revision > l.removed.revision {
		l.removed, l.released, l.inherited = event{}, event{}, 0
	}
	l.await(revision)
	if l.hint == nil || l.hint.Revision <= revision { // the write shows what a read would
		l.readAt, l.hint = time.Time{}, nil
	}
}

// Forget has the candidate read the key again before it relies on what it knew.
func (l *Listener) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endings.proven = l.endings.proven || l.holder.instance == l.Instance // this candidate knows that its own lease is over
	l.read, l.revision, l.held, l.renewal, l.hint, l.readAt = time.Time{}, 0, false, 0, nil, time.Now()
	l.wrong, l.next, l.failures, l.retry = 0, time.Time{}, 0, time.Time{}
}

// Recall has the candidate know of holders and their leases what it knew under another instance, which a copy of it may still have: so its own
// records of then are those of somebody else.
func (l *Listener) Recall(before *Listener) {
	before.mu.Lock()
	known := before.view
	before.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder, l.endings = known.holder, known.endings
	l.alive, l.aliveBy, l.aliveWritten, l.aliveSince = known.alive, known.aliveBy, known.aliveWritten, known.aliveSince
	l.endings.proven = known.endings.proven && known.holder.instance != before.Instance // the holder may be the copy
	l.highest, l.removed, l.released, l.inherited = known.highest, known.removed, known.released, known.inherited
}

// own reports whether this candidate holds the key, as far as is known. The caller holds mu.
func (l *Listener) own() bool { return l.held && l.holder.instance == l.Instance }

// Held reports whether somebody holds the key, as far as is known.
func (l *Listener) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// Holder returns what is remembered of the last record of a holder that was read or written, and whether that one holds the key as far as
// is known.
func (l *Listener) Holder() (r record.Record, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder.record(), l.held
}

// predecessorOf returns the record of the holder before a vacancy: the release, or else what is remembered of the last holder. The caller
// holds mu.
func (l *Listener) predecessorOf(r kv.Removal, release record.Record) record.Record {
	if r == kv.Kept {
		return release
	}
	return l.holder.record()
}

// Past returns what is known of how the key became free: the revision at which somebody removed it, as was notified, 0 if nobody did;
// and the stand-down that the last release passed on.
func (l *Listener) Past() (removed uint64, standDown time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.removed.revision, l.inherited
}

// SeesNoMarker reports whether the source is a watcher that has reported nothing about the key: then what removed the key is not known.
func (l *Listener) SeesNoMarker() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.last.known && l.notifier.bucket.JetStream() == nil && l.notifier.inUse() == Watch
}

// IsRewound reports whether a revision is below one that was read or written before: the history was rewound, unless the read is stale.
func (l *Listener) IsRewound(revision uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return revision < l.highest
}
