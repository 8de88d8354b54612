package notify

import (
	"cmp"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
)

// Terms end by a release, or without one. A release proves that the lease of its writer is over and its work has ended: but anybody can write
// what looks like one who gets a process that may write the key to publish given bytes there, such as a program that answers with what it
// is asked. So each term commits itself to a secret, and only its holder can reveal it. A candidate that has read a record of a term takes
// nothing for its release that does not open the commitment.
//
// Commitments are believed only as they were read from the bucket. A secret proves itself, wherever it was seen.

// endings is what a candidate knows of how the terms of its key ended. The listener's mutex guards it.
type endings struct {
	proven bool          // the term of the known holder has ended: its secret was seen, or it was this candidate's own
	until  time.Time     // by then the leases have ended of the holders before the known one; zero if their end was proven
	lease  time.Duration // the longest of these leases
}

// begins takes note of a record by which somebody holds the key, before the record replaces the known holder's. If nothing proves that the
// term of the known holder has ended, its lease may last for its whole length from now: its holder can have renewed it until the record was
// written. The caller holds mu.
func (l *Listener) begins(r record.Record, now time.Time) {
	e, before := &l.endings, l.holder.record()
	if l.holder.name == "" || r.SameTerm(before) {
		return
	}
	if !e.proven && l.holder.instance != l.Instance && !r.Follows(before.Commitment) {
		if now.After(e.until) {
			e.lease = 0
		}
		lease := max(before.Lease(), l.TTL)
		e.until, e.lease = timeutil.Later(e.until, now.Add(lease)), max(e.lease, lease)
	}
	e.proven = false
}

// ends takes note of a record that was read or notified, if it is a release: of the known holder or of one after it. The caller holds mu.
func (l *Listener) ends(r record.Record) {
	if !r.Released.IsZero() && (l.holder.commitment.OpenedBy(r.Secret) || r.Follows(l.holder.commitment)) {
		l.endings.proven = true
	}
}

// Proves reports whether the release that was read proves that its term has ended, and that no other lease lasts but those of [Listener.LeftBefore].
//
// Every release must open its own commitment, and must have been stored on condition that it replaced another revision, as candidates write
// and as no answer does that somebody had sent to the key. If this candidate has read a record of the term that states a commitment, the release must
// open that one. Otherwise there is nothing to compare: the candidate has just started, or it has missed a term that began after the last
// known one had ended, or the holder writes bare names. Such a release is taken all the same, so that a service that restarts alone leads
// again at once, and so does the next that takes a lock. This is weaker: one who can have a process write the key with headers of their own
// choice can forge such a release, and deceive a candidate that has read nothing of the term. The alternative is to wait for a whole lease
// at each start.
func (l *Listener) Proves(s kv.State) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, known := s.Record, l.holder.commitment
	if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {
		return false
	}
	return r.Commitment == known || known == (record.Commitment{}) || l.endings.proven || r.Follows(known)
}

// Lease returns the longest lease that may last still, as far as is known: of the known holder, unless it is proven to have ended, and of the
// holders before it whose end nothing proves.
func (l *Listener) Lease() (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.endings.until) {
		longest = l.endings.lease
	}
	if l.mayLast() {
		holder := l.holder.record()
		longest = max(longest, holder.Lease())
	}
	return longest
}

// mayLast reports whether the lease of the known holder may last still. The caller holds mu.
func (l *Listener) mayLast() bool { return !l.endings.proven && l.holder.instance != l.Instance }

// LeftBefore returns how long leases may last of the holders before the known one, whose record may be none of a holder.
func (l *Listener) LeftBefore() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Until(l.endings.until))
}

// LeftAtMarker returns how long the lease of the known holder may last where a marker was stored at the given time of the server: since the holder
// was last known to be there. A server never expires a key early. So where the marker came sooner than a TTL after the holder's last write it is
// none of an expiry, or the bucket's TTL was made shorter.
func (l *Listener) LeftAtMarker(stored time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	holder := l.holder.record()
	if !l.mayLast() || stored.Sub(l.aliveWritten) >= max(l.TTL, holder.Lease()) {
		return 0
	}
	return max(0, time.Until(l.alive.Add(cmp.Or(holder.Lease(), l.TTL))))
}

// VanishedEarly reports whether a key under which nothing is stored, now, was removed for sure: the lease of the known holder lasts by its last
// write that is known, so that the key cannot have expired. A roll-up or a purge of the stream leaves no marker. An expiry does for markerTTL; that is
// 0 if the caller would not see one.
func (l *Listener) VanishedEarly(markerTTL time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	holder := l.holder.record()
	return l.holder.name != "" && l.mayLast() && time.Now().Before(l.aliveSince.Add(min(l.TTL, cmp.Or(holder.Lease(), l.TTL))+markerTTL))
}
