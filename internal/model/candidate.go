package model

// A Transition is a step of the model. Its name is that in spec/election.pml.
type Transition struct {
	Name string
	Can  func(l *Limits, s *State, i int) bool // the guard; i is a candidate, and means nothing for the server and the clock
	Do   func(l *Limits, s *State, i int)
}

// ofCandidate are the transitions of the process Candidate.
var ofCandidate = []Transition{
	// campaign
	{"Read",
		func(_ *Limits, s *State, i int) bool {
			vacant := s.Key.Kind != Record && (s.Key.Kind != Release || s.Key.Own != int8(i))
			return s.idle(i) && s.C[i].Link == Fine && (s.C[i].Next == 0 || vacant || s.Key.mine(i))
		},
		func(l *Limits, s *State, i int) { l.read(s, i, &s.Key) }},
	{"ReadCopy",
		func(_ *Limits, s *State, i int) bool {
			return s.idle(i) && s.C[i].Link == Fine && s.C[i].Next == 0 && s.IsCopy
		},
		func(l *Limits, s *State, i int) { l.read(s, i, &s.Copy) }},
	{"LoadInfo",
		func(_ *Limits, s *State, i int) bool { return s.idle(i) && s.C[i].Outdated != 0 && s.C[i].Link == Fine },
		func(_ *Limits, s *State, i int) { s.C[i].Outdated, s.C[i].Highest = 0, 0 }},
	{"Announce",
		func(_ *Limits, s *State, i int) bool {
			c := &s.C[i]
			return s.idle(i) && c.Link == Fine && c.Next == 0 && s.Key.kept() && !s.Key.mine(i)
		},
		func(l *Limits, s *State, i int) {
			l.read(s, i, &s.Key)
			s.C[i].Seen = Blind
		}},
	{"FailToRead",
		func(_ *Limits, s *State, i int) bool {
			return s.idle(i) && s.C[i].Next == 0 && (s.C[i].Link == Fine && s.Faults > 0 || s.cutOff(i))
		},
		func(l *Limits, s *State, i int) {
			c := &s.C[i]
			if c.Link == Fine {
				s.Faults--
			}
			if c.Link == Cut || c.Unanswered && s.cutOff(i) { // or it receives no reply to an attempt that is always refused
				c.Next = l.Interval
			} else {
				c.Seen = Blind
			}
		}},
	{"Write",
		func(_ *Limits, s *State, i int) bool { return s.writes(i) && s.reaches(i) },
		func(l *Limits, s *State, i int) {
			if !l.win(s, i) {
				l.lost(s, i)
				return
			}
			s.C[i].Rev = s.Key.Rev
			l.newTerm(s, i, l.Lease())
			l.squeeze(s)
		}},
	{"WriteAndFreeze", writesFine, fault(func(l *Limits, s *State, i int) {
		if !l.win(s, i) {
			l.lost(s, i)
			return
		}
		c := &s.C[i]
		c.Link, c.Rev, c.Sent = Frozen, s.Key.Rev, l.Lease()+1
		l.squeeze(s)
	})},
	{"WriteUnanswered",
		func(_ *Limits, s *State, i int) bool { return s.writes(i) && s.cutOff(i) },
		func(l *Limits, s *State, i int) {
			c := &s.C[i]
			c.GivenUp = true
			switch c.Link {
			case Mute:
				l.win(s, i)
			case Holding:
				expect := int64(0)
				if c.Seen != Nothing && c.Seen != Blind {
					expect = c.SeenRev
				}
				s.hold(i, Record, l.Owes(c), false, 0, expect)
			}
			l.lost(s, i)
			c.Unanswered = true
			l.squeeze(s)
		}},
	{"WriteRefused", writesFine, fault((*Limits).lost)},
	{"Yield", writesFine, fault(func(l *Limits, s *State, i int) {
		s.unread(i)
		s.C[i].Next = l.Interval
	})},
	{"ReceiveWin",
		func(_ *Limits, s *State, i int) bool {
			return s.C[i].Sent > 0 && s.reaches(i) && s.C[i].St == Candidate
		},
		func(l *Limits, s *State, i int) { l.newTerm(s, i, s.C[i].Sent-1) }},

	// lead, or renew while work returns
	{"Renew",
		func(_ *Limits, s *State, i int) bool { return s.renews(i) && s.up(i) && s.Key.Rev == s.C[i].Rev },
		func(l *Limits, s *State, i int) {
			ready := s.C[i].Counts == 0
			l.renew(s, i)
			l.confirm(s, i, l.Lease(), ready)
			l.squeeze(s)
		}},
	{"RenewAndFreeze",
		func(_ *Limits, s *State, i int) bool {
			return s.renews(i) && s.C[i].Link == Fine && s.Key.Rev == s.C[i].Rev && s.Faults > 0
		},
		fault(func(l *Limits, s *State, i int) {
			c := &s.C[i]
			c.Ready = c.Counts == 0
			l.renew(s, i)
			c.Sent, c.Link = l.Lease()+1, Frozen
			l.squeeze(s)
		})},
	{"ReceiveRenewal",
		func(_ *Limits, s *State, i int) bool { return s.holder(i) && s.C[i].Sent > 0 && s.up(i) },
		func(l *Limits, s *State, i int) { l.confirm(s, i, s.C[i].Sent-1, s.C[i].Ready) }},
	{"RefusedAndRead", refused, func(l *Limits, s *State, i int) { l.resolve(s, i, false, true, &s.Key) }},
	{"RefusedNamedAndRead", refused, func(l *Limits, s *State, i int) { l.resolve(s, i, true, true, &s.Key) }},
	{"RefusedNamedAndReadCopy", refusedBesideCopy, func(l *Limits, s *State, i int) { l.resolve(s, i, true, true, &s.Copy) }},
	{"RefusedAndReadCopy", refusedBesideCopy, func(l *Limits, s *State, i int) { l.resolve(s, i, false, true, &s.Copy) }},
	{"RefusedNamedUnread",
		func(l *Limits, s *State, i int) bool { return refused(l, s, i) && s.Faults > 0 },
		fault(func(l *Limits, s *State, i int) { l.resolve(s, i, true, false, &s.Key) })},
	{"RefusedUnread",
		func(_ *Limits, s *State, i int) bool { return s.renews(i) && s.up(i) && s.Faults > 0 },
		fault(func(l *Limits, s *State, i int) { l.resolve(s, i, false, false, &s.Key) })},
	{"RefusedInFlight",
		func(_ *Limits, s *State, i int) bool {
			return s.renews(i) && s.up(i) && s.Key.Rev == s.C[i].Rev && s.Faults > 0
		},
		fault(func(l *Limits, s *State, i int) { l.resolve(s, i, false, true, &s.Key) })},
	{"Verify",
		func(_ *Limits, s *State, i int) bool { return verifies(s, i) && s.tells(&s.Key, i) },
		func(l *Limits, s *State, i int) { l.verify(s, i, &s.Key) }},
	{"VerifyCopy",
		func(_ *Limits, s *State, i int) bool { return verifies(s, i) && s.IsCopy && s.tells(&s.Copy, i) },
		func(l *Limits, s *State, i int) { l.verify(s, i, &s.Copy) }},
	{"RenewUnanswered",
		func(_ *Limits, s *State, i int) bool { return s.renews(i) && s.cutOff(i) },
		func(l *Limits, s *State, i int) {
			c := &s.C[i]
			c.Pending = true
			retry(c)
			switch {
			case c.Link == Mute && s.Key.Rev == c.Rev:
				s.store(int8(i), Record, s.StillDue(i), false, c.Outdated, l.Lease())
			case c.Link == Holding:
				s.hold(i, Record, s.StillDue(i), false, l.Lease(), c.Rev)
			}
			l.squeeze(s)
		}},

	// the end of leadership, and the release
	{"Resign",
		func(_ *Limits, s *State, i int) bool {
			return (s.C[i].St == Leader || s.C[i].St == Elect) && s.Faults > 0 && s.C[i].Link != Frozen
		},
		fault(func(_ *Limits, s *State, i int) {
			c := &s.C[i]
			if c.St = Drain; !c.Work {
				c.Next = 0
			}
		})},
	{"CallBack",
		func(_ *Limits, s *State, i int) bool { return s.C[i].St == Elect && !s.C[i].Work && s.Faults > 0 },
		fault(func(_ *Limits, s *State, i int) { s.C[i].Work = true })},
	{"WorkReturns",
		func(_ *Limits, s *State, i int) bool {
			return s.C[i].Work && s.C[i].St != Leader && s.C[i].Link != Frozen
		},
		func(_ *Limits, s *State, i int) {
			c := &s.C[i]
			if c.Work = false; c.St == Drain {
				c.Next = 0
			}
			if c.Link == Hanging {
				c.Link = Fine
			}
		}},
	{"Release",
		func(_ *Limits, s *State, i int) bool { return s.releases(i) },
		func(l *Limits, s *State, i int) { l.release(s, i, false) }},
	{"ReleaseNaming",
		func(_ *Limits, s *State, i int) bool { return s.releases(i) && s.C[i].Led },
		func(l *Limits, s *State, i int) { l.release(s, i, true) }},
	{"ReleaseRefused",
		func(_ *Limits, s *State, i int) bool { return s.releases(i) && s.up(i) && s.Faults > 0 },
		fault(func(_ *Limits, s *State, i int) { s.C[i].Next = 1 })},
	{"GiveUpRelease",
		func(_ *Limits, s *State, i int) bool {
			c := &s.C[i]
			return c.St == Drain && !c.Work && c.Sent == 0 && c.Link != Frozen
		},
		(*Limits).over},
	{"AbandonWork",
		func(_ *Limits, s *State, i int) bool { return s.C[i].St == Drain && s.C[i].Link == Hanging },
		(*Limits).over},

	// trouble
	{"Crash",
		func(_ *Limits, s *State, i int) bool { return s.Faults > 0 && s.holder(i) },
		fault(func(l *Limits, s *State, i int) {
			l.over(s, i)
			c := &s.C[i]
			c.Work, c.Link, c.GivenUp, c.Unanswered, c.Removed, c.Outdated, c.Highest = false, Fine, false, false, false, 0, 0
			if s.Key.Own == int8(i) {
				s.Key.Own = Stranger
			}
			if s.IsCopy && s.Copy.Own == int8(i) {
				s.Copy.Own = Stranger
			}
			if s.IsLate && s.Late.Own == int8(i) {
				s.Late.Own = Stranger
			}
		})},
	{"CutOff",
		func(l *Limits, s *State, i int) bool { return fine(l, s, i) && s.holder(i) },
		fault(func(_ *Limits, s *State, i int) { s.C[i].Link = Cut })},
	{"Mute", fine, fault(func(_ *Limits, s *State, i int) { s.C[i].Link = Mute })},
	{"HoldUp", fine, fault(func(_ *Limits, s *State, i int) { s.C[i].Link = Holding })},
	{"LoseInfo", fine, fault(func(_ *Limits, s *State, i int) { s.C[i].Link = NoInfo })},
	{"Freeze", fine, fault(func(_ *Limits, s *State, i int) { s.C[i].Link = Frozen })},
	{"Hang",
		func(l *Limits, s *State, i int) bool { return fine(l, s, i) && s.C[i].Work && s.C[i].Sent == 0 },
		fault(func(_ *Limits, s *State, i int) { s.C[i].Link = Hanging })},
	{"Recover",
		func(_ *Limits, s *State, i int) bool { return s.C[i].Link != Fine && s.C[i].Link != Hanging },
		func(_ *Limits, s *State, i int) { s.C[i].Link = Fine }},
	{"Forge",
		func(l *Limits, s *State, i int) bool { return fine(l, s, i) && s.idle(i) },
		fault(func(_ *Limits, s *State, i int) { s.C[i].Next = 0 })},
}

// fault makes a step one that costs a fault.
func fault(do func(*Limits, *State, int)) func(*Limits, *State, int) {
	return func(l *Limits, s *State, i int) {
		s.Faults--
		do(l, s, i)
	}
}

// fine reports whether something can go wrong with the link or the process of candidate i.
func fine(_ *Limits, s *State, i int) bool { return s.Faults > 0 && s.C[i].Link == Fine }

func writesFine(l *Limits, s *State, i int) bool { return fine(l, s, i) && s.writes(i) }

// refused reports whether a renewal of candidate i would be refused.
func refused(_ *Limits, s *State, i int) bool {
	return s.renews(i) && s.up(i) && s.Key.Rev != s.C[i].Rev
}

func refusedBesideCopy(l *Limits, s *State, i int) bool { return refused(l, s, i) && s.IsCopy }

// verifies reports whether candidate i reads the key if it is notified.
func verifies(s *State, i int) bool {
	return s.holder(i) && s.C[i].Sent == 0 && s.up(i)
}

// renew writes a renewal.
func (l *Limits) renew(s *State, i int) {
	s.store(int8(i), Record, s.StillDue(i), false, s.C[i].Outdated, l.Lease())
	s.C[i].Rev = s.Key.Rev
}
