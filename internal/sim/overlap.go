package sim

import "time"

// overlap is a time in which two led that the contract allows.
type overlap struct {
	first, second *ledger
	terms         [2]uint64
	began         time.Time
	why           string
	since         time.Time     // when the first sent the last write of its own that was applied
	waited        time.Duration // the shortest stand-down of those who have won since
}

// whyReset is an excuse for any time: one that held the key before may hit its revision by chance, and go on.
const whyReset = "the bucket was reset"

// whyRewound is an excuse until the loser finds out, by its next renewal if it is connected; see judge.discovered.
const whyRewound = "the history was rewound"

// whyDeleted is an excuse for a leader that is cut off. One that is connected finds out by its next renewal.
const whyDeleted = "the key was deleted"

// discovery is how long a leader may need for that, besides: for the renewal, the reading back, and the winner's renewal.
const discovery = 50 * time.Millisecond

// together judges that first still leads when second comes to lead. P2: this must not be, unless the key of first was
// taken away from it in a way that second could not know of, or sooner than second allows for.
func (j *judge) together(first, second *ledger, at time.Time) {
	if newest := len(j.history) - 1; j.lastOf(first) == newest && j.lastOf(second) != newest {
		first, second = second, first // it is the one that learns of its renewal late who has lost the key since
	}
	why, allowed := j.excuse(first, second, at)
	if !allowed {
		j.fail(at, "P2", second.name, "leads in term %d while %s leads in term %d: %s", second.term.Number, first.name, first.term.Number, why)
		return
	}
	j.journal.add(event{at: at, who: second.name, what: "leads while another does, which is allowed: " + why, a: first.term.Number})
	last := j.lastOf(first)
	j.overlaps = append(j.overlaps, &overlap{
		first: first, second: second, terms: [2]uint64{first.term.Number, second.term.Number}, began: at, why: why,
		since: j.history[last].after.write.sent, waited: j.leastStandDown(last+1, second),
	})
}

// excuse looks how first lost the key.
func (j *judge) excuse(first, second *ledger, at time.Time) (why string, allowed bool) {
	if j.resetBetween(first.hold.win.applied, at) || j.resetBetween(second.hold.win.applied, at) {
		return whyReset, true // the one who won before has lost the key unknown, or hit what the other wrote by mistake
	}
	if j.rewoundBetween(first.hold.win.applied, at) || j.rewoundBetween(second.hold.win.applied, at) {
		return whyRewound, true // a rewound history takes the last write of whoever held the key
	}
	last := j.lastOf(first)
	if last == len(j.history)-1 {
		return "its record still stands under the key", false
	}
	q, next := j.history[last].after.write, j.history[last+1]
	switch lets := !q.note.Released.IsZero() || q.remove; {
	case lets && j.resetBetween(q.sent, q.applied):
		return whyReset, true // it arrived late, and hit what its writer had written since by chance
	case lets && j.rewoundBetween(q.sent, q.applied):
		return whyRewound, true
	case lets:
		return "it had released the key itself", false
	case next.removal == removalExpired:
		early := q.sent.Add(j.ttl).Sub(next.at)
		return "the key expired early", early > j.leastStandDown(last+1, second)+first.margin
	case next.removal == removalWiped:
		return "the renewal was wiped", true
	case next.after.write.by != nil && j.mistaken(next.after.write) != "":
		return j.mistaken(next.after.write), true
	case next.after.write.by != nil:
		return "another candidate had overwritten its record", false
	case next.after.marks() && second.hold.knew:
		return "the key was deleted, and the winner knew", false
	case next.after.marks():
		return whyDeleted, true
	}
	return "the key was overwritten", true
}

// mistaken returns why a write may have been meant for something else that had the revision which it hit: the bucket was reset
// or rewound since. It returns nothing if it was not.
func (j *judge) mistaken(q *write) string {
	stood := false
	for _, m := range j.history {
		switch {
		case m.rewinds() && stood && m.seq < q.expect:
			return whyRewound
		case m.after != nil && m.after.revision == q.expect:
			stood = true
		case m.resets() && stood:
			return whyReset
		}
	}
	return ""
}

// leastStandDown returns the shortest stand-down of those who won since the given change, second being the last.
func (j *judge) leastStandDown(since int, second *ledger) time.Duration {
	least := second.standDown
	for _, m := range j.history[since:] {
		if m.after != nil && m.after.write != nil && m.after.write.by != nil {
			least = min(least, m.after.write.by.standDown)
		}
	}
	return least
}

// measure takes in how long overlaps last.
func (j *judge) measure(at time.Time) {
	rest := j.overlaps[:0]
	for _, o := range j.overlaps {
		if o.first.leads && o.second.leads && o.first.term.Number == o.terms[0] && o.second.term.Number == o.terms[1] {
			rest = append(rest, o)
			continue
		}
		if lasted := at.Sub(o.began); lasted > j.longestOf(o, at) && o.why != whyReset && !j.resetBetween(o.began, at) {
			j.fail(at, "P2", o.second.name, "has led for %v together with %s, and %s", lasted, o.first.name, o.why)
		}
		connected := j.resets == 0 && j.rewinds == 0 && o.first.troubled.Before(o.since) && !o.first.unread && o.waited >= o.first.interval
		if lasted := at.Sub(o.began); o.why == whyDeleted && connected && lasted > discovery {
			j.fail(at, "P2", o.second.name, "has led for %v together with %s, which was connected when its key was deleted", lasted, o.first.name)
		}
		j.tally["allowed overlap: "+o.why]++
		j.longest[o.why] = max(j.longest[o.why], at.Sub(o.began))
	}
	j.overlaps = rest
}

// longestOf returns how long an overlap may last: for a lease, which is no longer than a TTL. When history is rewound the loser
// may hit the winner's record by chance before its lease ends, so that the winner is the loser then.
func (j *judge) longestOf(o *overlap, at time.Time) time.Duration {
	leases := 1 + j.between(o.began, at, mutation.rewinds)
	if o.why == whyRewound {
		leases++
	}
	return time.Duration(leases) * j.ttl
}

// lastOf returns which change was the last write of a candidate that has written.
func (j *judge) lastOf(l *ledger) int {
	last := len(j.history) - 1
	for ; last > 0; last-- {
		if m := j.history[last]; !m.rewinds() && m.after != nil && m.after.write != nil && m.after.write.by == l {
			break
		}
	}
	return last
}
