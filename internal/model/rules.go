package model

import "slices"

// revisions returns every revision in a state.
func (s *State) revisions(l *Limits) []*int64 {
	all := []*int64{&s.Key.Rev, &s.Seq, &s.Copy.Rev, &s.CopySeq, &s.Over, &s.Top}
	for i := range l.N {
		c := &s.C[i]
		all = append(all, &c.Rev, &c.Num, &c.Highest, &c.SeenRev)
	}
	return all
}

// squeeze makes ranks of revisions: only their order and equality matter. See the inline squeeze. A replay keeps the revisions.
func (l *Limits) squeeze(s *State) {
	if l.Exact {
		return
	}
	var ranks []int64
	all := s.revisions(l)
	for _, v := range all {
		if *v > 0 && !slices.Contains(ranks, *v) {
			ranks = append(ranks, *v)
		}
	}
	slices.Sort(ranks)
	for _, v := range all {
		*v = int64(slices.Index(ranks, *v) + 1)
	}
	s.Gap = false
}

// store puts a record under the key.
func (s *State) store(who int8, kind Kind, left int64, named bool, old int8, lease int64) {
	if s.Key.Kind == Record && s.Key.Own != who && s.Key.Own != Stranger && who != Stranger {
		s.C[s.Key.Own].Excused = true
	}
	s.Seq++
	s.Key = Rec{Kind: kind, Own: who, Rev: s.Seq, Left: left, Named: named, Old: old, Lease: lease}
}

// clearKey puts nothing, or a marker, under the key.
func (s *State) clearKey(kind Kind) {
	s.Key = Rec{Kind: kind, Own: Stranger}
	if kind != Nothing {
		s.Seq++
		s.Key.Rev = s.Seq
	}
}

// unread ends what candidate i remembers of a read.
func (s *State) unread(i int) {
	c := &s.C[i]
	c.Seen, c.SeenRev, c.SeenLeft, c.SeenOwn, c.SeenNamed, c.SeenOld, c.Odd = 0, 0, 0, false, false, 0, false
}

// unpend ends what candidate i remembers of attempts.
func (s *State) unpend(i int) {
	s.C[i].Pending = false
	for _, r := range []*Rec{&s.Key, &s.Late, &s.Copy} {
		if r.Own == int8(i) {
			r.Lease = 0
		}
	}
}

// over ends a term: the inline over_.
func (l *Limits) over(s *State, i int) {
	c := &s.C[i]
	c.GivenUp, c.Unanswered = c.GivenUp || c.Pending, c.Pending
	s.unpend(i)
	c.St, c.Rev, c.Num, c.Lease, c.Counts, c.Next, c.Sent, c.Ready = Candidate, 0, 0, 0, 0, l.Interval, 0, false
	c.Led, c.Unsure, c.Failed, c.Former, c.Excused, c.Acked = false, false, false, 0, false, false
}

// lead lets leadership count from here.
func (s *State) lead(i int) {
	c := &s.C[i]
	c.St, c.Led, c.Work = Leader, true, true
	if !c.Excused {
		s.Top = c.Num
	}
}

// due sets the time of the next renewal.
func (l *Limits) due(c *Cand) {
	c.Next = l.Interval
	if c.St == Elect && c.Counts <= l.Interval {
		c.Next = c.Counts
	}
}

// Owes returns the stand-down of candidate i over what it has read.
func (l *Limits) Owes(c *Cand) int64 {
	removed := c.Seen == Tombstone
	if c.Seen == Nothing || c.Seen == Blind {
		removed = c.Removed
	} else if c.Seen != Tombstone {
		removed = c.SeenRev < c.Highest
	}
	switch {
	case removed, (c.Seen == Release || c.Seen == Record) && c.SeenOld != c.Outdated:
		return max(l.TTL, l.StandDown)
	case c.Seen == Release:
		return c.SeenLeft
	}
	return max(c.SeenLeft, l.StandDown)
}

// newTerm begins the term of a win that is acknowledged, of whose lease so much is left.
func (l *Limits) newTerm(s *State, i int, lease int64) {
	c := &s.C[i]
	standDown := l.Owes(c)
	names := c.Seen == Release && c.SeenNamed && standDown == 0
	verified := c.Seen == Release && c.SeenOld == c.Outdated && c.Sent == 0
	abandons := !verified && c.Link == NoInfo
	if !verified && !abandons {
		if c.Outdated != 0 {
			c.Highest = 0
		}
		c.Outdated = 0
		standDown = l.Owes(c)
		names = names && standDown == 0
	}
	c.Unanswered = false
	c.St, c.Num, c.Lease, c.Counts, c.Former, c.Excused, c.Acked = Elect, c.Rev, lease, standDown, c.Outdated, c.Odd, true
	if abandons {
		c.St = Drain
	}
	c.Sent, c.Removed, c.Highest = 0, false, max(c.Rev, c.Highest)
	l.due(c)
	s.unread(i)
	if abandons {
		c.Next = 0
	}
	switch {
	case lease == 0 && !abandons:
		l.over(s, i)
	case names && !abandons:
		s.lead(i)
		l.due(c)
	}
}

// read has a candidate read an entry: the key, or what a lagging replica has.
func (l *Limits) read(s *State, i int, r *Rec) {
	c := &s.C[i]
	if r.Kind != Nothing {
		c.Highest = max(r.Rev, c.Highest)
	}
	if r.kept() && r.Old < c.Outdated { // of a newer bucket
		c.Outdated, c.Highest = 0, r.Rev
	}
	if r.Kind == Record && r.Own != int8(i) {
		c.Removed, c.Next = false, l.Interval
		return
	}
	c.Seen, c.SeenOwn, c.SeenLeft, c.SeenNamed, c.SeenOld = r.Kind, r.Own == int8(i), r.Left, r.Named && r.Own != int8(i), r.Old
	c.SeenRev = r.Rev
	if r.Kind == Nothing {
		c.SeenRev = 0
	}
}

// demands returns the revision that the write of a candidate demands. Where the key could not be read the client creates it, for which it
// reads and overwrites a marker.
func (s *State) demands(c *Cand) int64 {
	if c.Seen == Blind && (s.Key.Kind == Marker || s.Key.Kind == Tombstone) {
		return s.Key.Rev
	}
	if c.Seen == Nothing || c.Seen == Blind {
		return 0
	}
	return c.SeenRev
}

// win writes over exactly what candidate i read, and reports whether that was applied.
func (l *Limits) win(s *State, i int) bool {
	c := &s.C[i]
	standDown := l.Owes(c)
	if s.Key.Rev != s.demands(c) {
		return false
	}
	if s.Key.Kind == Tombstone && c.Seen == Blind && standDown < l.TTL { // the winner is not notified
		for x := range l.N {
			s.C[x].Excused = s.C[x].Excused || s.holder(x)
		}
	}
	s.store(int8(i), Record, standDown, false, c.Outdated, 0)
	return true
}

// lost ends a campaign.
func (l *Limits) lost(s *State, i int) {
	s.unread(i)
	s.C[i].Next, s.C[i].Unanswered = l.Interval, false
}

// hold holds a write up: it may arrive whenever it likes.
func (s *State) hold(i int, kind Kind, left int64, named bool, lease, demanded int64) {
	if s.IsLate {
		return
	}
	c := &s.C[i]
	s.IsLate, s.LateOdd, s.Over = true, c.Odd || c.Excused, demanded
	s.Late = Rec{Kind: kind, Own: int8(i), Left: left, Named: named, Old: c.Outdated, Lease: lease}
}
