package core

import (
	"bytes"
	"hash/maphash"
	"time"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// Notifications, and what follows from them: whether and when to read the key, and whether their source still works.
//
// A notification is handled so:
//
//	notified ── changed ─┬─ a renewal by the known holder, or older than a recent read: only note when the holder was seen (noteHolderWrite)
//	                     └─ anything else: becomes a hint, and the key is read, soon or when it is this candidate's turn (follow)
//
// What the read shows says whether the hint was right (finishRead). A candidate whose hints prove wrong, because somebody forges notifications or
// a replica lags, reads less and less often for them (hintWasWrong). A source that does not report what this process itself has written or
// read counts as stalled (expectReport, checkStalled).

const (
	// maxWrongHints is how many hints in a row may prove wrong. After that, hints cause one read per TTL, until a hint proves right or none has
	// proved wrong for as many TTLs.
	maxWrongHints = 3
	// lagDelay is how long after a read that was older than its hint the key is read again: nearly every replica has caught up by then. The
	// next delay is lagGrowth times that.
	lagDelay, lagGrowth = 2 * time.Millisecond, 80
	// learnDelay is how long after the notification of a new holder the key is read: often the new holder renews at once, and its leadership
	// counts from that renewal.
	learnDelay = 2 * time.Millisecond
	// stalledAfter is how long a source may take to report what this process wrote or read. After that the source counts as stalled.
	stalledAfter = time.Second
)

// The sources of notifications, as the status and the metrics name them.
const (
	Republish = "republish"
	Watch     = "watch"
	NoSource  = "none"
)

// hints are the notifications that a candidate has received: what it has not read yet, how far notifications are trusted, and when the key is
// to be read. A notification proves nothing of who holds the key. It is a reason to read it.
type hints struct {
	source        string    // the source in use; NoSource if there is none, or it is stalled
	bucketCreated time.Time // when the bucket that the source reports of was created
	connectedAt   time.Time // when the connection was last made again; zero if it was not

	last        lastChange // the latest notification from the source in use
	fingerprint uint64     // the fingerprint of the known holder's renewals, see fingerprintOf; 0 if none was parsed, or nobody is known to hold the key

	// The next read.
	readAt    time.Time // when to read the key; zero if there is no reason to
	hint      *hint     // the reason, if it is a hint
	notBefore time.Time // once too many hints were wrong: no read for a hint before this
	retry     time.Time // after a read that failed: no read for a hint before this
	wrong     int32     // hints in a row that proved wrong
	failures  int32     // reads in a row that failed

	// Whether the source works.
	delivered    uint64    // the revision that the source reported last, or that was read first since it is in use; 0 if there is none
	awaited      uint64    // a revision that was written or read, and that the source has not reported; 0 if there is none
	awaitedSince time.Time // when that revision was written or read
	overdue      bool      // the source counts as stalled because of that revision
	overdueAfter uint64    // the revision of the holder's last write, if its next renewal was found to be overdue
}

// forget forgets what was notified, and that notifications were wrong.
func (h *hints) forget() {
	h.fingerprint, h.hint = 0, nil
	h.trust()
}

// trust has the next notification be a reason to read the key at once.
func (h *hints) trust() {
	h.wrong, h.notBefore, h.failures, h.retry = 0, time.Time{}, 0, time.Time{}
}

// Notification is one committed write to the key, as a source of notifications reports it. Nothing in it is believed.
type Notification struct {
	Revision uint64
	Written  time.Time // by the server's clock
	Removal  record.Removal
	Value    *Value // what was written, unless the key was removed
}

// Value is what was written. It is parsed only when a candidate needs the record. Most are renewals, which differ from one another by the id of
// the attempt alone, and need not be parsed. The candidates of one key share a Value, one after the other.
type Value struct {
	Bytes    []byte
	Revision uint64 // 0 if it is not known

	parsed bool
	record record.Record
}

// Record returns the record.
func (v *Value) Record() *record.Record {
	if !v.parsed {
		v.record, v.parsed = record.Parse(v.Bytes, v.Revision), true
	}
	return &v.record
}

// change is a notification with its record.
type change struct {
	Revision uint64
	Written  time.Time
	Removal  record.Removal
	Record   record.Record
}

// vacant reports whether the key may be taken after the change, if the notification is true.
func (c *change) vacant() bool {
	_, released := c.Record.IsRelease()
	return c.Removal != record.Kept || released
}

// hint is a notification that is a reason to read the key.
type hint struct {
	change
	newHolder bool // a new holder is the reason: the read is put off by learnDelay
}

// lastChange is what is kept of the last notification; the zero value if none has come.
type lastChange struct {
	known    bool
	revision uint64
	removal  record.Removal
	written  time.Time
}

// notified handles a notification of a write or a removal. It ignores the notification of a record that was written in an earlier bucket of this
// name, which may arrive across a leaf node.
func (c *Candidate) notified(now time.Time, n *Notification) {
	ch, renewal := change{Revision: n.Revision, Written: n.Written, Removal: n.Removal}, false
	if ch.Removal == record.Kept {
		fingerprint := fingerprintOf(n.Value.Bytes)
		if renewal = c.hints.fingerprint != 0 && fingerprint == c.hints.fingerprint; renewal {
			ch.Record = c.key.holder.record()
		} else if ch.Record = *n.Value.Record(); !ch.Record.BucketCreated.IsZero() && ch.Record.Bucket().Before(c.hints.bucketCreated) {
			return
		}
	}
	if c.changed(now, &ch) && !renewal {
		c.hints.fingerprint = fingerprintOf(n.Value.Bytes)
	}
}

// changed handles a notification, and reports whether it is that of a renewal by the known holder.
func (c *Candidate) changed(now time.Time, ch *change) (renewal bool) {
	h, k := &c.hints, &c.key
	ch.Removal = c.classify(ch.Removal, ch.Revision, ch.Written)
	c.noteChange(now, ch)
	writtenAfter := now
	if h.delivered == 0 { // a watcher begins with what was written earlier
		writtenAfter = k.lastEvidence
	}
	if !k.read.IsZero() {
		k.lastEvidence = now
	}
	h.delivered = ch.Revision
	if h.awaited <= ch.Revision {
		h.awaited, h.overdue = 0, false
	}
	h.last = lastChange{true, ch.Revision, ch.Removal, ch.Written}
	if c.Order == ByArrival {
		c.checkPlace(now, ch)
	}
	renewal = !ch.vacant() && c.isRenewal(&ch.Record)
	switch {
	case !k.read.IsZero() && ch.Revision <= k.revision && now.Sub(k.read) < recent: // it is older than what was read
		return renewal
	case renewal:
		c.noteHolderWrite(now, ch.Revision, ch.Written, writtenAfter, false)
		k.holder.priorities, k.holder.successor, k.holder.standbys = ch.Record.Priorities, ch.Record.Successor, ch.Record.Standbys // forged ones cost milliseconds
		return true
	}
	k.lastWrite.superseded = true
	if ch.vacant() {
		predecessor := c.predecessorOf(ch.Removal, &ch.Record)
		c.turnOf(now, ch.Revision, &predecessor)
	}
	c.follow(now, ch)
	return false
}

// classify returns how a key was removed by the write of a revision, at a time of the server's clock, where a watcher does not say.
func (c *Candidate) classify(removal record.Removal, revision uint64, written time.Time) record.Removal {
	last := &c.hints.last
	lasted := last.known && written.Sub(last.written) >= c.bucket.TTL // servers are late to expire, never early
	switch {
	case removal == record.Kept:
	case last.known && last.revision == revision && last.removal != record.Kept:
		return last.removal
	case last.known && last.removal != record.Kept && (removal == record.Expired || removal == record.RemovedOrExpired && lasted):
		return last.removal // the marker of a removal has itself expired
	case removal == record.RemovedOrExpired && lasted:
		return record.Expired
	case removal == record.RemovedOrExpired: // a candidate that has just started cannot tell: after a removal the winner waits longer
		return record.Removed
	}
	return removal
}

// noteChange takes note of a notified removal or release. A notification is not believed, but both only make a stand-down longer, or prove
// themselves by a secret.
func (c *Candidate) noteChange(now time.Time, ch *change) {
	switch ch.Removal {
	case record.Removed:
		c.key.removal = incident{ch.Revision, now}
	case record.Kept:
		c.noteRelease(&ch.Record)
		c.key.notePassedOn(&ch.Record, ch.Revision, now)
	}
}

// follow decides when to read the key on account of a notification.
func (c *Candidate) follow(now time.Time, ch *change) {
	h := &c.hints
	at, newHolder := now, false
	switch predecessor := c.predecessorOf(ch.Removal, &ch.Record); {
	case c.isHolder():
	case predecessor.Instance == c.Instance:
		return // a candidate that released or lost the key waits until its next campaign is due
	case ch.vacant():
		// The candidate is woken only when it is its turn. All candidates of a host receive the notification, and the first one should have the
		// processors to itself.
		at = c.turnOf(now, ch.Revision, &predecessor)
	case h.hint != nil && h.hint.newHolder:
		return
	default: // another candidate was quicker
		newHolder = true
		spread := ShortSpread
		// A candidate in a queue need not know soon who has the lock, but a takeover is read before a renewal replaces it.
		if c.Order == ByArrival && !c.others.announced.IsZero() && ch.Record.Won != string(Lapsed) {
			spread = max(spread, c.bucket.TTL/8)
		}
		at = now.Add(learnDelay + c.Random(spread))
		if !h.readAt.IsZero() && h.hint == nil {
			at = earlier(at, h.readAt)
		}
		h.readAt = time.Time{}
	}
	h.hint = &hint{*ch, newHolder}
	if h.wrong >= maxWrongHints {
		at = later(at, h.notBefore)
	}
	h.readBy(later(at, h.retry))
}

// readBy has the key read at the given time at the latest.
func (h *hints) readBy(at time.Time) { h.readAt = earlier(h.readAt, at) }

// releaseExpected has the key read at the given time, at which a leader says that it will have released the key to this candidate. So the
// candidate need not wait for the notification, which may take long. Anybody may send such a message. So it causes no read within a TTL of the
// last one; and a read for nothing does not count as a wrong hint, because notifications may be better protected by permissions.
func (c *Candidate) releaseExpected(now, at time.Time) {
	if now.Sub(c.key.read) >= c.bucket.TTL && !c.isHolder() {
		c.hints.readBy(later(at, c.hints.retry))
	}
}

// readDue returns when the key is to be read for a hint; the zero time if there is no reason to, or reading is not permitted.
func (c *Candidate) readDue() time.Time {
	if c.reading.resting {
		return time.Time{}
	}
	return c.hints.readAt
}

// finishRead takes in what was read, and decides whether the hint that was the reason was right. unclear means that the read proves nothing,
// because it may be older than what is stored; then only the hint is looked at.
func (c *Candidate) finishRead(now time.Time, s *record.State, err error, unclear bool) {
	h, hint := &c.hints, c.reading.hint
	c.reading.hint = nil
	if err != nil {
		if c.reading.began.After(h.connectedAt) { // otherwise the answer was lost with the connection, and the key is read again on the new one
			c.readFailed(now, hint)
		}
		return
	}
	unchanged := c.unchanged(s)
	h.failures, h.retry = 0, time.Time{}
	if !unclear {
		c.learn(now, s)
	}
	switch {
	case !unclear && !unchanged: // earlier hints that seemed wrong were right: a replica lagged
		h.wrong = 0
	case hint != nil:
		c.hintWasWrong(now, hint, s, unclear)
	}
}

// hintWasWrong is called when the key was read for a hint, and the read showed nothing new. It limits how many reads wrong hints cause, and has
// the key read again for this one if a lagging replica may be the reason.
func (c *Candidate) hintWasWrong(now time.Time, hint *hint, s *record.State, unclear bool) {
	h := &c.hints
	if !unclear && !hint.vacant() && s.Held() && hint.Record.Renews(s.Record) {
		return // the hint was right, but came after the same had been read
	}
	if now.Sub(h.notBefore) >= (maxWrongHints-1)*c.bucket.TTL { // it is long enough ago: another maxWrongHints are no more than one per TTL
		h.wrong = 0
	}
	h.wrong++
	h.notBefore = now.Add(c.bucket.TTL)
	again := h.notBefore
	switch h.wrong {
	case 1:
		again = now.Add(lagDelay)
	case 2:
		again = now.Add(lagGrowth * lagDelay)
	}
	agrees := s.Removal == record.Gone && hint.Removal != record.Kept
	mayLag := !unclear && !agrees && s.Revision < hint.Revision && h.wrong < maxWrongHints // if not, the hint was forged
	if (mayLag || unclear) && h.hint == nil {
		h.hint, h.readAt = hint, again
	}
	if !unclear && !mayLag && s.Held() {
		c.turn.vacancy = vacancy{} // which a forged notification may have begun, for a revision that is yet to come
	}
}

// readFailed has the key read again, for the hint if there is one. A read that failed does not prove a hint wrong, but until a read succeeds
// hints cause no more reads than these.
func (c *Candidate) readFailed(now time.Time, hint *hint) {
	h := &c.hints
	if hint == nil && (c.key.highest == 0 || c.isHolder()) { // reading may never be permitted
		return
	}
	delay := c.bucket.TTL / 8
	switch h.failures++; {
	case hint == nil:
	case h.failures == 1:
		delay = lagDelay
	case h.failures == 2:
		delay = lagGrowth * lagDelay
	}
	h.retry = now.Add(delay)
	if hint != nil && h.hint == nil {
		h.hint = hint
	}
	h.readAt = h.retry
}

// sourceChanged is called when a source was started or may have missed something. The key is read within the given time.
func (c *Candidate) sourceChanged(now time.Time, source string, within time.Duration) {
	h := &c.hints
	h.source = source
	h.delivered, h.awaited, h.overdue, h.last = 0, 0, false, lastChange{}
	c.forgetTiming()
	h.trust()
	if source != NoSource { // without a source the campaigns find out what was missed
		h.readBy(now.Add(c.Random(within)))
	}
}

// expectReport is called with a revision that was written or read. Unless the source has reported it, the source must report it soon, or counts as
// stalled.
func (c *Candidate) expectReport(now time.Time, revision uint64) {
	h := &c.hints
	switch {
	case h.delivered == 0: // the revision may be older than the source, which then never reports it
		h.delivered, h.awaited, h.overdue = revision, 0, false
	case revision > h.delivered && h.awaited == 0: // a lower revision may come from a stale read
		h.awaited, h.awaitedSince = revision, now
	}
}

// stalledAt returns when the source counts as stalled, unless it reports the awaited revision before; the zero time if it need report none.
func (c *Candidate) stalledAt() time.Time {
	if c.hints.awaited == 0 || c.hints.source == NoSource {
		return time.Time{}
	}
	return c.hints.awaitedSince.Add(stalledAfter)
}

// checkStalled reports the source as stalled if it is.
func (c *Candidate) checkStalled(now time.Time) {
	if at := c.stalledAt(); !at.IsZero() && !now.Before(at) {
		c.hints.awaitedSince, c.hints.overdue = now, true
		c.report(Event{Kind: SourceStalled})
	}
}

// renewalDue returns when the notification of the holder's next renewal is overdue. Then this candidate suspects its connection. It is zero if
// this candidate holds the key, is not notified, or has suspected its connection since the holder's last write.
func (c *Candidate) renewalDue() time.Time {
	k := &c.key
	interval, ttl := time.Duration(k.holder.intervalMs)*time.Millisecond, c.bucket.TTL
	if !k.occupied || c.isHolder() || interval <= 0 || interval >= ttl || c.hints.overdueAfter == k.lastWrite.revision || c.hints.source == NoSource {
		return time.Time{}
	}
	return k.lastWrite.firstSeen.Add(timing.RenewalOverdue(interval, ttl))
}

// renewalIsOverdue suspects the connection, and has the key read: the holder's renewal is overdue. The holder may have released the key, for a source may lose
// notifications without a sign: a server that is killed republishes nothing of what it stored last.
func (c *Candidate) renewalIsOverdue(now time.Time) {
	c.hints.overdueAfter = c.key.lastWrite.revision
	attributes := []any{
		"leader", c.key.holder.name,
		"since", now.Sub(c.key.lastWrite.firstSeen).Round(time.Millisecond),
		"ends-in", c.key.lastWrite.firstSeen.Add(c.bucket.TTL).Sub(now).Round(time.Millisecond),
	}
	if at := c.takeoverDue(now); at.IsZero() || at.After(c.key.lastWrite.writtenAfter.Add(c.bucket.TTL)) {
		attributes = append(attributes, "unless", "the key expires before, and the winner stands down: this candidate has seen no renewal, and cannot time the lease")
	}
	c.log(Info, "Leader has not renewed, waiting for the end of its lease", attributes...)
	c.report(Event{Kind: Suspect})
	c.hints.readBy(now.Add(c.Random(c.bucket.Spread())))
}

var attemptField = []byte(`"attempt":"`)

// fingerprintSeed makes the hashes of this process unpredictable, so that nobody can make two values with one hash.
var fingerprintSeed = maphash.MakeSeed()

// fingerprintOf returns the fingerprint of a value, a hash of all of it but the id of its attempt; 0 for a value without such an id. Successive renewals have one
// fingerprint, so that a candidate recognises a renewal without parsing it.
func fingerprintOf(value []byte) uint64 {
	i := bytes.Index(value, attemptField) + len(attemptField)
	if i < len(attemptField) {
		return 0
	}
	end := bytes.IndexByte(value[i:], '"')
	if end <= 0 {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(fingerprintSeed)
	_, _ = h.Write(value[:i])
	_, _ = h.Write(value[i+end:])
	return max(1, h.Sum64())
}
