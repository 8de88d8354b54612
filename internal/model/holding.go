package model

// confirm extends the lease by a write that is known to be applied; ready: it was sent after the stand-down.
func (l *Limits) confirm(s *State, i int, lease int64, ready bool) {
	c := &s.C[i]
	c.Unsure = l.Unsure(c)
	if c.Unsure && s.up(i) && c.Link != NoInfo {
		c.Unsure = false
		if c.Outdated != 0 {
			c.Highest = c.Rev
		}
		c.Outdated = 0
	}
	if !c.Unsure && c.Outdated == 0 && c.Former != 0 { // the bucket was made again
		l.over(s, i)
		return
	}
	c.Lease, c.Failed, c.Sent = lease, false, 0
	s.unpend(i)
	c.Removed, c.Highest = false, max(c.Rev, c.Highest)
	if c.St == Elect && ready {
		s.lead(i)
	}
	l.due(c)
	c.Ready = false
}

// Unsure reports whether a renewal of this holder has to load the bucket's info.
func (l *Limits) Unsure(c *Cand) bool { return c.Unsure || c.Failed || l.Lease()-c.Lease > l.Interval }

func retry(c *Cand) { c.Failed, c.Next = true, 1 }

// resolve finds out what a refused renewal means; named: the refusal names the last sequence; read: r was read.
func (l *Limits) resolve(s *State, i int, named, read bool, r *Rec) {
	c := &s.C[i]
	newer := read && r.newerThan(c)
	switch own := r.writtenBy(i); {
	case named && s.Key.Rev > 0 && s.Key.Rev < c.Rev: // rewound
		l.over(s, i)
	case newer && own && r.Rev >= c.Rev && r.Kind == Release: // a late release of an earlier term of its own
		l.over(s, i)
	case newer && own && r.Rev >= c.Rev:
		if !l.adopt(s, i, r) {
			retry(c)
		}
	case newer && !own: // theirs, or deleted
		l.over(s, i)
	case read && r.Kind != Nothing && !own && r.Rev >= c.Num: // displaced
		l.over(s, i)
	case named && (s.Key.Rev == 0 || read && r.Kind == Nothing && !c.Pending && (!c.GivenUp || c.Failed)):
		l.over(s, i)
	case named && s.Key.Rev > c.Rev && !c.Pending && !read && !c.GivenUp:
		l.over(s, i)
	default:
		retry(c)
	}
}

// newerThan reports whether an entry is at least as new as the holder's last write.
func (r *Rec) newerThan(c *Cand) bool {
	return r.Kind != Nothing && (r.Rev >= c.Rev || r.kept() && r.Old < c.Former)
}

// adopt takes over a record of candidate i's own, and confirms the attempt if it still knows it.
func (l *Limits) adopt(s *State, i int, r *Rec) bool {
	s.C[i].Rev = r.Rev
	if r.Lease == 0 {
		return false
	}
	l.confirm(s, i, r.Lease, r.Left == 0)
	return true
}

// verify has a holder read an entry on account of a notification.
func (l *Limits) verify(s *State, i int, r *Rec) {
	c := &s.C[i]
	switch own := r.writtenBy(i); {
	case own && r.Rev >= c.Rev && r.Kind == Release:
		l.over(s, i)
	case own && r.Rev >= c.Rev:
		l.adopt(s, i, r)
	case !own && (r.newerThan(c) || r.Kind != Nothing && r.Rev >= c.Num):
		l.over(s, i)
	case r.Kind == Nothing, r.Kind == Record && !own:
		c.Unsure, c.Next = true, 0
	}
}

// release writes the release, or tries to.
func (l *Limits) release(s *State, i int, named bool) {
	c := &s.C[i]
	held := s.Key.Rev == c.Rev
	switch {
	case s.up(i) && !held && s.Key.mine(i): // a renewal was applied late
		c.Rev, c.Next = s.Key.Rev, 1
		return
	case s.up(i) && !held:
		l.over(s, i)
		return
	case s.up(i), c.Link == Mute && held:
		s.store(int8(i), Release, s.StillDue(i), named, c.Outdated, 0)
		defer l.squeeze(s)
	case c.Link == Holding:
		s.hold(i, Release, s.StillDue(i), named, 0, c.Rev)
	}
	if s.up(i) {
		l.over(s, i)
	} else {
		c.Next = 1
	}
}

// older lets time pass for candidate i.
func (l *Limits) older(s *State, i int, by int64) {
	c := &s.C[i]
	c.Next, c.Counts = max(0, c.Next-by), max(0, c.Counts-by)
	if c.Sent > 1 {
		c.Sent = max(1, c.Sent-by)
	}
	for _, r := range []*Rec{&s.Key, &s.Late, &s.Copy} {
		if r.Own == int8(i) {
			r.Lease = max(0, r.Lease-by)
		}
	}
	if c.Lease > 0 && c.Lease <= by {
		l.over(s, i)
	} else {
		c.Lease = max(0, c.Lease-by)
	}
}

// Pass lets time pass for candidate i alone, by the clock of a replay. The deadline ends its term.
func (l *Limits) Pass(s *State, i int, by int64) { l.older(s, i, by) }
