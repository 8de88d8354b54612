package notify

import (
	"cmp"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// ShortSpread is the time over which candidates spread what costs little when some of them do it at once: the answers to a release
	// that names no successors, and the reads after a new holder was notified. A release that is stored for 50 ms only, as in a bucket
	// that candidates of Choria share, is answered within it.
	ShortSpread = 25 * time.Millisecond
	// HeadStart is for how long each successor that a release names has it to itself, but for the first, whose time the release says.
	// By then the others have seen that successor win, unless it is gone.
	HeadStart = 25 * time.Millisecond
	// firstRetryDelay times a power of two is how long after an attempt that failed the key is read again.
	firstRetryDelay = 10 * time.Millisecond
	// maxRetries is how many attempts over one vacancy may fail before it is left to an ordinary campaign.
	maxRetries = 5
)

// view is what a candidate knows of its key by reading, and by notifications where a mistake is safe. The listener's mutex guards it.
type view struct {
	known       kv.State      // as it was read or written last
	predecessor record.Record // of the last holder that was read; its priorities are those of the latest renewal that was notified
	alive       time.Time     // when the holder was last known to be there, by a notification or by reading
	aliveBy     uint64        // the revision that showed it
	silence     time.Duration // a random part of the spread, by which this candidate answers a missed renewal
	highest     uint64        // the highest revision that was read or written in this bucket
	removed     event         // the last notified removal, until a later record is read
	released    event         // the last release that passed on a stand-down, likewise
	inherited   time.Duration // that stand-down
	turn        turn
	retries     int // attempts in a row over one vacancy that failed
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

// turn is when a vacancy was first known, from which each candidate counts when it is to answer.
type turn struct {
	revision uint64
	from     time.Time
	delay    time.Duration
}

// learn takes over what was read. The caller holds mu.
func (l *Listener) learn(s kv.State) {
	if !s.Continues(l.known) {
		l.retries = 0
	}
	if s.Held() {
		l.predecessor = s.Record
		if s.Revision != l.aliveBy || l.alive.IsZero() { // what is read again, or was notified before, says nothing new
			l.alive = timeutil.Later(l.alive, s.Read)
		}
		l.aliveBy = s.Revision
		l.silence = timeutil.Random(l.Spread)
		if l.removed.outdatedBy(s) {
			l.removed = event{}
		}
		if l.released.outdatedBy(s) {
			l.released, l.inherited = event{}, 0
		}
	}
	l.passOn(s.Record, s.Revision, s.Read)
	l.known, l.renewal = s, 0
	l.highest = max(l.highest, s.Revision)
	l.await(s.Revision)
	if l.hint != nil && l.hint.Revision <= s.Revision { // the hint came while the key was read
		l.hint = nil
	}
}

// own reports whether this candidate holds the key, as far as is known. The caller holds mu.
func (l *Listener) own() bool { return l.known.HeldBy(l.Instance) }

// State returns what was last read or written, and the record of the last holder.
func (l *Listener) State() (known kv.State, predecessor record.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known, l.predecessor
}

// predecessorOf returns the record of the holder before a vacancy: the release, or else the last holder that is known. The caller
// holds mu.
func (l *Listener) predecessorOf(r kv.Removal, release record.Record) record.Record {
	if r == kv.Kept {
		return release
	}
	return l.predecessor
}

// IsOwnVacancy reports whether the last holder was this candidate, which then leaves the key to others until its next campaign is due.
func (l *Listener) IsOwnVacancy(s kv.State) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.predecessorOf(s.Removal, s.Record).Instance == l.Instance
}

// AnswerAt returns when it is this candidate's turn to take the key, which was read to be vacant.
func (l *Listener) AnswerAt(s kv.State) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turnOf(s.Revision, l.predecessorOf(s.Removal, s.Record), time.Now())
}

// turnOf returns when it is this candidate's turn to take the key over the vacancy of the given revision, counted from when the vacancy
// was first known. The caller holds mu.
func (l *Listener) turnOf(revision uint64, predecessor record.Record, now time.Time) time.Time {
	if l.turn.revision != revision || l.turn.from.IsZero() {
		l.turn = turn{revision, now, l.delay(predecessor)}
	}
	return l.turn.from.Add(l.turn.delay)
}

// delay returns how long after it became known this candidate answers a vacancy. The successors that a release names come first, in
// their order. All others spread their answers at random, and each priority that is known has its part of the spread, the highest the
// earliest: VRRP's skew time is the model (RFC 5798). The caller holds mu.
func (l *Listener) delay(predecessor record.Record) (delay time.Duration) {
	spread := l.Spread
	if _, released := predecessor.IsRelease(); released {
		place, named := predecessor.Place(l.Name, l.Instance)
		if place > 0 {
			delay = cmp.Or(predecessor.HeadStart(), HeadStart) + time.Duration(place-1)*HeadStart
		}
		if named {
			return delay
		}
		spread = min(spread, ShortSpread)
	}
	part := spread / time.Duration(max(1, len(predecessor.Priorities)))
	return delay + time.Duration(l.higher(predecessor))*part + timeutil.Random(part)
}

// Yields reports whether this candidate waits for its turn even if its campaign is due: a release names others that come before it, or
// the last holder saw candidates of a higher priority.
func (l *Listener) Yields(s kv.State) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	place, _ := s.Record.Place(l.Name, l.Instance)
	return place > 0 || l.higher(l.predecessorOf(s.Removal, s.Record)) > 0
}

// higher returns how many of the priorities that the last holder saw are higher than this candidate's.
func (l *Listener) higher(predecessor record.Record) (n int) {
	for _, p := range predecessor.Priorities {
		if p > l.Priority {
			n++
		}
	}
	return n
}

// AnswerFailed is called when an attempt over a vacancy failed, because no answer came or because another write was in the way. The key
// is read again soon, some times over, and then left to an ordinary campaign.
func (l *Listener) AnswerFailed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retries++; l.retries >= maxRetries {
		return
	}
	delay := firstRetryDelay << l.retries
	l.readBy(time.Now().Add(delay + timeutil.Random(delay)))
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
	return !l.came && l.notifier.bucket.JetStream() == nil && l.notifier.inUse() == Watch
}

// IsRewound reports whether a revision is below one that was read or written before: the history was rewound, unless the read is stale.
func (l *Listener) IsRewound(revision uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return revision < l.highest
}

// NextCampaign returns when to campaign. A campaign is due at the given time, unless somebody else holds the key and is there: a
// candidate that relies on notifications then waits until poll, or until the key must have expired.
func (l *Listener) NextCampaign(due, poll time.Time, rely bool) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rely && l.known.Held() && !l.own() {
		due = timeutil.Later(due, timeutil.Earlier(poll, l.alive.Add(l.TTL+kv.ExpiryLateness+l.silence)))
	}
	return due
}
