package model

// ofClock are the transitions of the process Clock: one tick, when nothing is due any more for candidates that are not in trouble. Timers
// of a clock that errs stand still, or run twice.
var ofClock = []Transition{
	{"NewRound",
		func(l *Limits, s *State, _ int) bool {
			return l.canTick(s) && l.peace(s) && (s.Faults < l.Faults || s.Slips < l.Slips)
		},
		func(l *Limits, s *State, _ int) {
			s.Faults, s.Slips = l.Faults, l.Slips
			for i := range l.N {
				c := &s.C[i]
				if s.leads(i) {
					c.Excused, s.Top = false, c.Num
				} else {
					c.Removed = false
				}
				c.Highest = s.Key.Rev
			}
			l.squeeze(s)
		}},
	{"Tick", func(l *Limits, s *State, _ int) bool { return l.canTick(s) }, func(l *Limits, s *State, _ int) { l.tick(s, l.N, 0) }},
	tickOf("TickSlow0", 0, 0), tickOf("TickFast0", 0, 2), tickOf("TickSlow1", 1, 0), tickOf("TickFast1", 1, 2),
	tickOf("TickSlow2", 2, 0), tickOf("TickFast2", 2, 2),
}

// tickOf returns a tick in which the clock of one candidate advances by a rate instead of 1.
func tickOf(name string, odd int, rate int64) Transition {
	return Transition{name,
		func(l *Limits, s *State, _ int) bool { return odd < l.N && l.canTick(s) && s.Slips > 0 },
		func(l *Limits, s *State, _ int) { s.Slips--; l.tick(s, odd, rate) }}
}

func (l *Limits) tick(s *State, odd int, rate int64) {
	if s.Key.Kind != Nothing {
		s.Key.Age++
	}
	switch {
	case s.IsCopy && s.Copy.Age < l.TTL+l.Late:
		s.Copy.Age++
	case s.IsCopy && s.Copy.Age == l.TTL+l.Late:
		s.forgetCopy()
	}
	for i := range l.N {
		by := int64(1)
		if i == odd {
			by = rate
		}
		for range by {
			l.older(s, i, 1)
		}
	}
}

// canTick reports whether time may pass.
func (l *Limits) canTick(s *State) bool {
	for i := range l.N {
		if s.urgent(i) {
			return false
		}
	}
	switch s.Key.Kind {
	case Nothing:
		return true
	case Marker:
		return s.Key.Age < 1
	}
	return s.Key.Age < l.TTL+l.Late
}

// urgent reports whether something is due for candidate i.
func (s *State) urgent(i int) bool {
	c := &s.C[i]
	return c.Link != Frozen && (c.Seen != 0 || c.Sent != 0 || (s.holder(i) || !c.Work) && c.Next == 0 ||
		c.Work && c.St != Leader && c.Link != Hanging)
}

// peace reports whether somebody leads with a fresh lease, and nobody is in trouble.
func (l *Limits) peace(s *State) bool {
	any := false
	for i := range l.N {
		c := &s.C[i]
		calm := s.leads(i) && s.Key.mine(i) && s.Key.Rev == c.Rev && c.Former == 0 && c.Lease == l.Lease() && s.Key.Age == 0
		if any = any || calm; c.Link != Fine || c.Seen != 0 || !calm && (c.St != Candidate || c.Work) {
			return false
		}
	}
	return any && !s.IsLate && !s.IsCopy
}
