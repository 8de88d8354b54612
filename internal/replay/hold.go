package replay

import "github.com/natscampaign/election/internal/model"

// sendsRenewal compares a renewal.
func (f *follower) sendsRenewal(w *Write) bool {
	f.resign()
	return f.become(func(p possible) []possible {
		due := p.Counts
		if p.Led {
			due = 0
		}
		held := p.St == model.Elect || p.St == model.Leader || p.St == model.Drain && p.Work
		if !held || p.Sent != 0 || p.Rev != int64(w.Expect) || rounded(due) != int64(w.Left) || p.Outdated != f.trace.age(w.Bucket, f.buckets) {
			return nil
		}
		p.resolving, p.again, p.sent = false, false, p.Cand
		return []possible{p}
	})
}

// sendsRelease compares a release.
func (f *follower) sendsRelease(w *Write, busy bool) bool {
	f.resign()
	return f.become(func(p possible) []possible {
		s := f.scratch(p, model.Rec{Own: model.Stranger})
		if s.C[0].Work && (busy || !f.try(&s, "WorkReturns")) {
			return nil
		}
		due := s.StillDue(0)
		if s.C[0].St != model.Drain || s.C[0].Rev != int64(w.Expect) || rounded(due) > int64(w.Left) {
			return nil
		}
		p.Cand, p.resolving, p.sent = s.C[0], false, s.C[0]
		return []possible{p}
	})
}

// asSent returns a state in which the candidate is as it was when it sent its write, as far as the write depends on that, and what to put
// back after the step.
func (f *follower) asSent(p possible, key model.Rec) (s *attempt, restore func()) {
	s = ptr(f.scratch(p, key))
	c := &s.C[0]
	now := *c
	c.St, c.Work, c.Counts, c.Next = p.sent.St, p.sent.Work, p.sent.Counts, 0
	return s, func() {
		if c.St != model.Candidate {
			c.St, c.Work, c.Counts = now.St, now.Work, now.Counts
		}
	}
}

// servesHeld has the server carry out a renewal or a release.
func (f *follower) servesHeld(w *Write, p possible) []possible {
	if !f.holds(p) {
		return []possible{p} // its lease ended meanwhile
	}
	s, restore := f.asSent(p, f.see(w.Before, p))
	s.Seq = int64(w.Rev) - 1
	steps := []string{"RenewAndFreeze", "Recover"}
	switch answered := w.Outcome == Applied; {
	case w.Releases && answered && s.StillDue(0) == 0 && s.C[0].Led:
		steps = []string{"ReleaseNaming"}
	case w.Releases && answered:
		steps = []string{"Release"}
	case w.Releases:
		steps = []string{"Mute", "Release", "Recover"}
	case !answered:
		steps = []string{"Mute", "RenewUnanswered", "Recover"}
	}
	if !f.try(s, steps...) || s.Key.Rev != int64(w.Rev) {
		return nil
	}
	restore()
	if c := &s.C[0]; c.Sent > 0 {
		c.Sent = max(1, c.Sent-int64(f.at-w.Sent))
	}
	return []possible{f.pending(w, p).keep(s, f.at)}
}

// holds reports whether a state is one of a holder.
func (f *follower) holds(p possible) bool { return p.St != model.Candidate }

// pending takes note of an attempt to renew whose outcome is not known.
func (f *follower) pending(w *Write, p possible) possible {
	if !w.Releases && w.Outcome == Unknown {
		if !p.Pending {
			p.since = int64(w.Sent)
		}
		p.since = min(p.since, int64(w.Sent))
	}
	return p
}

// receivesHeld has the sender of a renewal or a release learn its outcome.
func (f *follower) receivesHeld(w *Write, p possible) []possible {
	if !f.holds(p) {
		p.GivenUp = p.GivenUp || w.Outcome == Unknown && !w.Releases
		return []possible{p}
	}
	if w.Accepted && !w.Late && w.Outcome != Applied {
		return []possible{p} // done when it was served
	}
	s, restore := f.asSent(p, f.see(w.Before, p))
	c := &s.C[0]
	var steps []string
	switch {
	case w.Outcome == Applied:
		return []possible{p}
	case w.Outcome == Refused && !w.Releases && w.Named && 0 < w.Last && int64(w.Last) < c.Rev:
		s.Key.Rev = int64(w.Last)
		steps = []string{"RefusedNamedUnread"}
	case w.Outcome == Refused && !w.Releases:
		p.resolving = true
		return []possible{p}
	case w.Releases && w.Outcome != Unknown:
		steps = []string{"ReleaseRefused"}
	case w.Releases && !(w.Served && !w.Late):
		steps = []string{"HoldUp", "Release", "Recover"}
	case w.Releases:
		steps = []string{"Mute", "Release", "Recover"}
	case w.Outcome == Unsent:
		steps = []string{"RefusedUnread"}
	case w.Served && w.Late:
		steps = []string{"HoldUp", "RenewUnanswered", "Recover"}
	default:
		steps = []string{"CutOff", "RenewUnanswered", "Recover"}
	}
	if !f.try(s, steps...) {
		return nil
	}
	restore()
	return []possible{f.pending(w, p).keep(s, f.at)}
}

// confirms has a holder learn that a renewal was applied. info says whether it loaded the bucket's info then, and whether that failed.
func (f *follower) confirms(p possible, info info) []possible {
	if p.Sent == 0 || !f.holds(p) {
		return []possible{p}
	}
	s := f.scratch(p, f.see(f.key, p))
	if !f.informed(&s, info) || !f.try(&s, info.around("ReceiveRenewal")...) {
		return nil
	}
	return []possible{p.keep(&s, f.at)}
}

// info says whether a holder loaded the bucket's info.
type info int

const (
	notLoaded info = iota
	loaded
	failed
)

// around puts the trouble around a step in which the bucket's info is not to be had.
func (i info) around(name string) []string {
	if i == failed {
		return []string{"LoseInfo", name, "Recover"}
	}
	return []string{name}
}

// informed reports whether the holder had to load the bucket's info, if it did not. If it did, it had a reason.
func (f *follower) informed(s *attempt, i info) bool {
	if i == notLoaded {
		return !f.limits.Unsure(&s.C[0])
	}
	s.C[0].Unsure = true
	return true
}

// readResolving returns what becomes of a holder whose renewal was refused and that has read the key.
func (f *follower) readResolving(e *Event, p possible, i info) (all []possible) {
	w := f.refused
	if e.Fails {
		key, name := f.see(nil, p), "RefusedUnread"
		if w.Named {
			key.Rev, name = int64(w.Last), "RefusedNamedUnread"
		}
		return f.resolved(p, key, nil, name, notLoaded)
	}
	for _, r := range f.answers(e, p) {
		key, name, copied := r, "RefusedAndRead", (*model.Rec)(nil)
		switch {
		case w.Named && int64(w.Last) == r.Rev:
			name = "RefusedNamedAndRead"
		case w.Named:
			key, name, copied = model.Rec{Kind: model.Record, Own: model.Stranger, Rev: int64(w.Last)}, "RefusedNamedAndReadCopy", &r
		case r.Rev == p.Rev:
			name = "RefusedInFlight"
		case e.Entry != f.key:
			name, copied = "RefusedAndReadCopy", &r
		}
		all = append(all, f.resolved(p, key, copied, name, i)...)
	}
	if e.Entry == nil || !e.Entry.Record {
		p.again = true
		all = append(all, p) // it may read once more
	}
	return all
}

// resolved makes the step of a renewal that was refused.
func (f *follower) resolved(p possible, key model.Rec, copied *model.Rec, name string, i info) []possible {
	s, restore := f.asSent(p, key)
	if copied != nil {
		s.IsCopy, s.Copy = true, *copied
	}
	c := &s.C[0]
	c.Failed, c.Unsure = c.Failed || p.again, c.Unsure || i != notLoaded
	if !f.try(s, i.around(name)...) || f.unchecked(p, c, i) {
		return nil
	}
	led := c.St == model.Leader && p.St == model.Elect
	if restore(); led {
		c.St, c.Work = model.Leader, true
	}
	p.resolving, p.again = false, false
	return []possible{p.keep(s, f.at)}
}

// unchecked reports whether a holder took over an attempt, and did not load the bucket's info though it had reason to.
func (f *follower) unchecked(p possible, c *model.Cand, i info) bool {
	return i == notLoaded && p.Pending && c.St != model.Candidate && !c.Pending && f.limits.Unsure(&p.Cand)
}

// readHolding returns what becomes of a holder that reads the key on account of a notification.
func (f *follower) readHolding(e *Event, p possible, i info) (all []possible) {
	if e.Fails {
		return []possible{p}
	}
	for _, r := range f.answers(e, p) {
		s := f.scratch(p, r)
		c := &s.C[0]
		name := "Verify"
		if c.Next = max(1, c.Next); e.Entry != f.key {
			s.IsCopy, s.Copy, name = true, r, "VerifyCopy"
		}
		if i != notLoaded {
			c.Unsure = true
		}
		if !f.try(&s, i.around(name)...) {
			all = append(all, p) // nothing new
			continue
		}
		if f.unchecked(p, c, i) {
			continue
		}
		all = append(all, p.keep(&s, f.at))
	}
	return all
}

// readDraining returns what becomes of a holder that reads the key because its release was refused.
func (f *follower) readDraining(e *Event, p possible) (all []possible) {
	all = append(all, p)
	if e.Fails {
		return all
	}
	for _, r := range f.answers(e, p) {
		s := f.scratch(p, r)
		if s.C[0].Next = 0; r.Rev != p.Rev && f.try(&s, "Release") {
			all = append(all, p.keep(&s, f.at))
		}
	}
	return all
}
