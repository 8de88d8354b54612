package judge

import (
	"slices"
	"time"
)

// overlap is a time in which two candidates lead, which the contract allows.
type overlap struct {
	first, second *Ledger
	terms         [2]uint64
	began         time.Time
	excuse        string
	lastSent      time.Time     // when the first sent its last write that was applied
	waited        time.Duration // the shortest stand-down of the winners since
}

// Excuses that need a limit of their own.
const (
	excuseReset   = "the bucket was reset"    // no limit: a former leader may hit the revision of another record by chance, and go on
	excuseRewound = "the history was rewound" // until the former leader finds out by its next renewal, if it is connected; see Judge.mustDiscoverBy
	excuseDeleted = "the key was deleted"     // likewise
	excuseShorter = "the TTL was made shorter"
)

// StaleLimit is how old the state may be that a read returns.
const StaleLimit = 100 * time.Millisecond

// discovery is how long that renewal, the reads after it and the winner's renewal may take: a read that shows nothing may be stale, and
// is repeated by a leader that once gave up a write.
const discovery = 50*time.Millisecond + StaleLimit

// judgeOverlap judges that first still leads when second comes to lead. P2: this is allowed only if first lost the key in a
// way that second could not know of, or earlier than the stand-down of second allows for.
func (j *Judge) judgeOverlap(first, second *Ledger, at time.Time) {
	if newest := len(j.history) - 1; j.lastChangeBy(first) == newest && j.lastChangeBy(second) != newest {
		first, second = second, first // first learned late of its renewal; second has lost the key since
	}
	why, allowed := j.excuse(first, second, at)
	if !allowed {
		j.Fail(at, "P2", second.Name, "leads in term %d while %s leads in term %d: %s", second.reportedTerm.Number, first.Name, first.reportedTerm.Number, why)
		return
	}
	j.journal.Add(Event{At: at, Name: second.Name, What: "leads beside another leader, which is allowed: " + why, A: first.reportedTerm.Number})
	last := j.lastChangeBy(first)
	j.overlaps = append(j.overlaps, &overlap{
		first: first, second: second, terms: [2]uint64{first.reportedTerm.Number, second.reportedTerm.Number}, began: at, excuse: why,
		lastSent: j.history[last].After.Write.Sent, waited: j.leastStandDown(last+1, second),
	})
}

// excuse returns how first lost the key, and whether that excuses that both lead.
func (j *Judge) excuse(first, second *Ledger, at time.Time) (why string, allowed bool) {
	for _, l := range []*Ledger{first, second} { // the earlier winner lost the key without notice, or hit the other's record by chance
		if j.resetBetween(l.term.win.Applied, at) {
			return excuseReset, true
		}
	}
	for _, l := range []*Ledger{first, second} { // the holder of the key lost its last write
		if j.rewoundBetween(l.term.win.Applied, at) {
			return excuseRewound, true
		}
	}
	last := j.lastChangeBy(first)
	if last == len(j.history)-1 {
		return "its record is still under the key", false
	}
	q, next := j.history[last].After.Write, j.history[last+1]
	switch {
	case q.givesUp() && j.resetBetween(q.Sent, q.Applied): // it arrived late, and hit a later record of its writer by chance
		return excuseReset, true
	case q.givesUp() && j.rewoundBetween(q.Sent, q.Applied):
		return excuseRewound, true
	case q.givesUp():
		return "it had released the key itself", false
	case next.Kind == ByExpiry:
		early := first.Clock.After(q.Sent, j.now-first.Margin).After(next.At.Add(j.leastStandDown(last+1, second)))
		if !early && j.longest > j.ttl {
			return excuseShorter, !second.knew(q, second.term.win)
		}
		return "the key expired early", early
	case next.Kind == ByLateExpiry:
		return "the renewal was deleted by an expiry", true
	case next.After.By() != nil && j.chanceHit(next.After.Write) != "":
		return j.chanceHit(next.After.Write), true
	case next.After.By() != nil:
		return "another candidate had overwritten its record", false
	case next.After.IsMarker() && second.term.sawRemoval && j.longest > j.ttl && !second.knew(q, second.term.win):
		return excuseShorter, true // it waited for a TTL, as the bucket has it now, and no record that it read said that the lease was longer
	case next.After.IsMarker() && second.term.sawRemoval:
		return "the key was deleted, and the winner was notified", false
	case next.After.IsMarker():
		return excuseDeleted, true
	}
	switch {
	case !j.onlyCopies(last + 1):
		return "the key was overwritten", true
	case !second.knew(q, second.term.win):
		return "a stranger released the key, and the winner had read nothing of the term", true
	case j.LostHistory(): // what was read may have been taken for a stale read
		return "a stranger released the key after history was lost", true
	case second.term.win.Replaced == nil, second.term.win.Replaced.IsMarker(): // it may have read of the last renewal too long ago to know
		return "a stranger released the key, and the one who took it removed it", true
	case j.adoptedCopy(last + 1):
		return "a stranger stored a record of unknown outcome again", true
	}
	return "a stranger released the key, and the winner had read a record of the term", false
}

// onlyCopies reports whether strangers did nothing since the given change but store releases, and records again.
func (j *Judge) onlyCopies(since int) bool {
	return !slices.ContainsFunc(j.history[since:], func(m Change) bool {
		return m.Kind == ByWrite && m.After.By() == nil && !m.After.Write.Copies
	})
}

// adoptedCopy reports whether a stranger stored a record again, since the given change, whose writer took it for its own: it did not know
// what had become of its write. A bucket without a connection does not show it who stored the record.
func (j *Judge) adoptedCopy(since int) bool {
	for i, m := range j.history[since:] {
		next := since + i + 1
		if m.Kind != ByWrite || m.After.By() != nil || next == len(j.history) || j.history[next].After.By() == nil {
			continue
		}
		if of := m.After.Write.Of; of != nil && of.By == j.history[next].After.By() && of.Acknowledged.IsZero() {
			return true
		}
	}
	return false
}

// chanceHit returns the excuse of a write that may have been meant for another entry with the revision that it hit: the bucket
// was reset or rewound since. It returns "" if there is none.
func (j *Judge) chanceHit(q *Write) string {
	existed := false
	for _, m := range j.history {
		switch {
		case m.rewinds() && existed && m.Seq < q.Expect:
			return excuseRewound
		case m.After != nil && m.After.Revision == q.Expect:
			existed = true
		case m.resets() && existed:
			return excuseReset
		}
	}
	return ""
}

// leastStandDown returns how long the shortest stand-down takes of the candidates that wrote since the given change, and of second.
func (j *Judge) leastStandDown(since int, second *Ledger) time.Duration {
	least := second.Clock.Takes(second.StandDown)
	for _, m := range j.history[since:] {
		if l := m.After.By(); l != nil {
			least = min(least, l.Clock.Takes(l.StandDown))
		}
		if m.After.isStrangersRelease() { // who took it may have been deceived
			return 0
		}
	}
	return least
}

// lastChangeBy returns the index of the last write of a candidate in the history. The candidate has written.
func (j *Judge) lastChangeBy(l *Ledger) int {
	last := len(j.history) - 1
	for ; last > 0; last-- {
		if m := j.history[last]; !m.rewinds() && m.After.By() == l {
			break
		}
	}
	return last
}

// measure judges how long overlaps last.
func (j *Judge) measure(at time.Time) {
	rest := j.overlaps[:0]
	for _, o := range j.overlaps {
		if o.first.leads && o.second.leads && o.first.reportedTerm.Number == o.terms[0] && o.second.reportedTerm.Number == o.terms[1] {
			rest = append(rest, o)
			continue
		}
		lasted := at.Sub(o.began)
		if lasted > j.overlapLimit(o, at) && o.excuse != excuseReset && !j.resetBetween(o.began, at) {
			j.Fail(at, "P2", o.second.Name, "led for %v together with %s, and %s", lasted, o.first.Name, o.excuse)
		}
		connected := j.resets == 0 && j.rewinds == 0 && o.first.troubledUntil.Before(o.lastSent) && !o.first.NoRead && o.waited >= o.first.Clock.Takes(o.first.Interval)
		if o.excuse == excuseDeleted && connected && lasted > discovery {
			j.Fail(at, "P2", o.second.Name, "led for %v together with %s, which was connected when its key was deleted", lasted, o.first.Name)
		}
		j.tally["allowed overlap: "+o.excuse]++
		j.Longest[o.excuse] = max(j.Longest[o.excuse], lasted)
	}
	j.overlaps = rest
}

// overlapLimit returns how long an overlap may last: one lease, which is at most a TTL. After a rewind the former leader may hit
// the winner's record by chance before its lease ends, and the roles are then exchanged, once more per further rewind.
func (j *Judge) overlapLimit(o *overlap, at time.Time) time.Duration {
	leases := 1 + j.countBetween(o.began, at, Change.rewinds)
	if o.excuse == excuseRewound {
		leases++
	}
	return time.Duration(leases) * max(o.first.Clock.Takes(j.longest), o.second.Clock.Takes(j.longest))
}
