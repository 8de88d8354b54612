package sim

import "time"

// overlap is a time in which two candidates lead, which the contract allows.
type overlap struct {
	first, second *ledger
	terms         [2]uint64
	began         time.Time
	excuse        string
	lastSent      time.Time     // when the first sent its last write that was applied
	waited        time.Duration // the shortest stand-down of the winners since
}

// Excuses that need a limit of their own.
const (
	excuseReset   = "the bucket was reset"    // no limit: a former leader may hit the revision of another record by chance, and go on
	excuseRewound = "the history was rewound" // until the former leader finds out by its next renewal, if it is connected; see judge.mustDiscoverBy
	excuseDeleted = "the key was deleted"     // likewise
)

// discovery is how long that renewal, the reads after it and the winner's renewal may take: a read that shows nothing may be stale, and
// is repeated by a leader that once gave up a write.
const discovery = 50*time.Millisecond + staleLimit

// judgeOverlap judges that first still leads when second comes to lead. P2: this is allowed only if first lost the key in a
// way that second could not know of, or earlier than the stand-down of second allows for.
func (j *judge) judgeOverlap(first, second *ledger, at time.Time) {
	if newest := len(j.history) - 1; j.lastChangeBy(first) == newest && j.lastChangeBy(second) != newest {
		first, second = second, first // first learned late of its renewal; second has lost the key since
	}
	why, allowed := j.excuse(first, second, at)
	if !allowed {
		j.fail(at, "P2", second.name, "leads in term %d while %s leads in term %d: %s", second.reportedTerm.Number, first.name, first.reportedTerm.Number, why)
		return
	}
	j.journal.add(event{at: at, name: second.name, what: "leads beside another leader, which is allowed: " + why, a: first.reportedTerm.Number})
	last := j.lastChangeBy(first)
	j.overlaps = append(j.overlaps, &overlap{
		first: first, second: second, terms: [2]uint64{first.reportedTerm.Number, second.reportedTerm.Number}, began: at, excuse: why,
		lastSent: j.history[last].after.write.sent, waited: j.leastStandDown(last+1, second),
	})
}

// excuse returns how first lost the key, and whether that excuses that both lead.
func (j *judge) excuse(first, second *ledger, at time.Time) (why string, allowed bool) {
	for _, l := range []*ledger{first, second} { // the earlier winner lost the key without notice, or hit the other's record by chance
		if j.resetBetween(l.term.win.applied, at) {
			return excuseReset, true
		}
	}
	for _, l := range []*ledger{first, second} { // the holder of the key lost its last write
		if j.rewoundBetween(l.term.win.applied, at) {
			return excuseRewound, true
		}
	}
	last := j.lastChangeBy(first)
	if last == len(j.history)-1 {
		return "its record is still under the key", false
	}
	q, next := j.history[last].after.write, j.history[last+1]
	switch {
	case q.givesUp() && j.resetBetween(q.sent, q.applied): // it arrived late, and hit a later record of its writer by chance
		return excuseReset, true
	case q.givesUp() && j.rewoundBetween(q.sent, q.applied):
		return excuseRewound, true
	case q.givesUp():
		return "it had released the key itself", false
	case next.kind == byExpiry:
		early := q.sent.Add(j.ttl).Sub(next.at)
		return "the key expired early", early > j.leastStandDown(last+1, second)+first.margin
	case next.kind == byLateExpiry:
		return "the renewal was deleted by an expiry", true
	case next.after.by() != nil && j.chanceHit(next.after.write) != "":
		return j.chanceHit(next.after.write), true
	case next.after.by() != nil:
		return "another candidate had overwritten its record", false
	case next.after.isMarker() && second.term.sawRemoval:
		return "the key was deleted, and the winner was notified", false
	case next.after.isMarker():
		return excuseDeleted, true
	}
	return "the key was overwritten", true
}

// chanceHit returns the excuse of a write that may have been meant for another entry with the revision that it hit: the bucket
// was reset or rewound since. It returns "" if there is none.
func (j *judge) chanceHit(q *write) string {
	existed := false
	for _, m := range j.history {
		switch {
		case m.rewinds() && existed && m.seq < q.expect:
			return excuseRewound
		case m.after != nil && m.after.revision == q.expect:
			existed = true
		case m.resets() && existed:
			return excuseReset
		}
	}
	return ""
}

// leastStandDown returns the shortest stand-down of the candidates that wrote since the given change, and of second.
func (j *judge) leastStandDown(since int, second *ledger) time.Duration {
	least := second.standDown
	for _, m := range j.history[since:] {
		if l := m.after.by(); l != nil {
			least = min(least, l.standDown)
		}
	}
	return least
}

// lastChangeBy returns the index of the last write of a candidate in the history. The candidate has written.
func (j *judge) lastChangeBy(l *ledger) int {
	last := len(j.history) - 1
	for ; last > 0; last-- {
		if m := j.history[last]; !m.rewinds() && m.after.by() == l {
			break
		}
	}
	return last
}

// measure judges how long overlaps last.
func (j *judge) measure(at time.Time) {
	rest := j.overlaps[:0]
	for _, o := range j.overlaps {
		if o.first.leads && o.second.leads && o.first.reportedTerm.Number == o.terms[0] && o.second.reportedTerm.Number == o.terms[1] {
			rest = append(rest, o)
			continue
		}
		lasted := at.Sub(o.began)
		if lasted > j.overlapLimit(o, at) && o.excuse != excuseReset && !j.resetBetween(o.began, at) {
			j.fail(at, "P2", o.second.name, "led for %v together with %s, and %s", lasted, o.first.name, o.excuse)
		}
		connected := j.resets == 0 && j.rewinds == 0 && o.first.troubledUntil.Before(o.lastSent) && !o.first.noRead && o.waited >= o.first.interval
		if o.excuse == excuseDeleted && connected && lasted > discovery {
			j.fail(at, "P2", o.second.name, "led for %v together with %s, which was connected when its key was deleted", lasted, o.first.name)
		}
		j.tally["allowed overlap: "+o.excuse]++
		j.longest[o.excuse] = max(j.longest[o.excuse], lasted)
	}
	j.overlaps = rest
}

// overlapLimit returns how long an overlap may last: one lease, which is at most a TTL. After a rewind the former leader may hit
// the winner's record by chance before its lease ends, and the roles are then exchanged, once more per further rewind.
func (j *judge) overlapLimit(o *overlap, at time.Time) time.Duration {
	leases := 1 + j.countBetween(o.began, at, change.rewinds)
	if o.excuse == excuseRewound {
		leases++
	}
	return time.Duration(leases) * j.ttl
}
