package model

import "slices"

// ofServer are the transitions of the process Server: what the bucket does by itself, and what operators and disasters do to it.
var ofServer = []Transition{
	{"Expire",
		func(l *Limits, s *State, _ int) bool {
			return s.Key.Kind == Marker || s.Key.Kind > Marker && s.Key.Age >= l.TTL
		},
		func(l *Limits, s *State, _ int) { s.clearKey(Nothing); l.squeeze(s) }},
	{"ExpireMarked",
		func(l *Limits, s *State, _ int) bool { return s.Key.Kind > Marker && s.Key.Age >= l.TTL },
		func(l *Limits, s *State, _ int) { s.clearKey(Marker); l.squeeze(s) }},
	{"ExpireEarly",
		func(l *Limits, s *State, _ int) bool {
			return s.Key.Kind > Marker && s.Key.Age >= l.TTL-l.Early && s.Key.Age < l.TTL && s.Faults > 0
		},
		fault(func(l *Limits, s *State, _ int) { s.clearKey(Marker); l.squeeze(s) })},
	{"LateArrives",
		func(_ *Limits, s *State, _ int) bool { return s.IsLate },
		func(l *Limits, s *State, _ int) {
			if r := s.Late; s.Key.Rev == s.Over && (s.Over > 0 || s.Key.Kind == Nothing) {
				s.store(r.Own, r.Kind, r.Left, r.Named, r.Old, r.Lease)
			}
			s.forgetLate()
			l.squeeze(s)
		}},
	{"LateLost",
		func(_ *Limits, s *State, _ int) bool { return s.IsLate },
		func(l *Limits, s *State, _ int) { s.forgetLate(); l.squeeze(s) }},
	{"Delete",
		func(_ *Limits, s *State, _ int) bool { return s.Key.Kind >= Record && s.Faults > 0 },
		fault(func(l *Limits, s *State, _ int) {
			s.clearKey(Tombstone)
			for i := range l.N {
				s.notified(i)
			}
			l.squeeze(s)
		})},
	{"Overwrite",
		func(_ *Limits, s *State, _ int) bool {
			return s.Faults > 0
		},
		fault(func(l *Limits, s *State, _ int) { s.store(Stranger, Record, 0, false, 0, 0); l.squeeze(s) })},
	{"MakeCopy",
		func(_ *Limits, s *State, _ int) bool { return !s.IsCopy && s.Key.Kind != Nothing && s.Faults > 0 },
		fault(func(_ *Limits, s *State, _ int) { s.IsCopy, s.CopySeq, s.Copy = true, s.Seq, s.Key })},
	{"ForgetCopy",
		func(_ *Limits, s *State, _ int) bool { return s.IsCopy },
		func(l *Limits, s *State, _ int) { s.forgetCopy(); l.squeeze(s) }},
	{"Rewind",
		func(_ *Limits, s *State, _ int) bool { return s.IsCopy && s.CopySeq != s.Seq },
		func(l *Limits, s *State, _ int) {
			s.Key, s.Seq = s.Copy, s.CopySeq
			s.forgetCopy()
			s.disturb(l)
			l.squeeze(s)
		}},
	{"Remake",
		func(l *Limits, s *State, _ int) bool { return s.Faults > 0 && s.Seq > 0 && (l.Exact || !s.anyOld(l)) },
		fault(func(l *Limits, s *State, _ int) {
			s.clearKey(Nothing)
			s.Seq = 0
			s.forgetCopy()
			if s.IsLate {
				s.Late.Old++
			}
			s.disturb(l)
			for i := range l.N {
				s.C[i].Remade()
			}
			l.squeeze(s)
		})},
	{"Leap", // to a revision that nobody knows
		func(l *Limits, s *State, _ int) bool {
			known := s.Over == s.Seq+1
			for i := range l.N {
				c := &s.C[i]
				known = known || slices.Contains([]int64{c.Rev, c.Num, c.Highest, c.SeenRev}, s.Seq+1)
			}
			return !s.Gap && known
		},
		func(l *Limits, s *State, _ int) {
			for _, v := range s.revisions(l) {
				if v != &s.Seq && *v > s.Seq {
					*v++
				}
			}
			s.Gap = true
		}},
}

func (s *State) forgetLate() { s.IsLate, s.LateOdd, s.Over, s.Late = false, false, 0, Rec{} }

func (s *State) forgetCopy() { s.IsCopy, s.CopySeq, s.Copy = false, 0, Rec{} }

// notified has a candidate that is connected know of a removal.
func (s *State) notified(i int) { s.C[i].Removed = s.C[i].Removed || s.C[i].Link == Fine }

// disturb takes note, for assertions, that history was changed.
func (s *State) disturb(l *Limits) {
	s.Top, s.LateOdd = 0, s.IsLate
	for i := range l.N {
		c := &s.C[i]
		c.Excused, c.Odd = c.Excused || c.St != Candidate, c.Odd || c.Seen != 0
	}
}

// Remade makes what a candidate knows that of an old bucket.
func (c *Cand) Remade() {
	c.Outdated++
	if c.Former++; c.St == Candidate {
		c.Former = 0
	}
	if c.SeenOld++; c.Seen < Record {
		c.SeenOld = 0
	}
}

// anyOld reports whether anybody remembers a bucket before this one.
func (s *State) anyOld(l *Limits) bool {
	old := s.Key.Old != 0 || s.IsLate && s.Late.Old != 0
	for i := range l.N {
		c := &s.C[i]
		old = old || c.Outdated != 0 || c.Former != 0 || c.SeenOld != 0
	}
	return old
}
