package replay

import "github.com/natscampaign/election/internal/model"

// readCampaigning returns what becomes of a candidate that reads the key to campaign. It may leave the key to others though it could
// write: until its turn comes, or because a notification alone made it read.
func (f *follower) readCampaigning(e *Event, p possible) (all []possible) {
	if e.Fails {
		all = append(all, p)
	} else {
		for _, r := range f.answers(e, p) {
			all = append(all, f.readOne(e, p, r)...)
		}
	}
	name := "FailToRead" // the client creates over a marker
	if !e.Fails && e.Entry != nil && e.Entry.Record {
		name = "Announce"
	}
	s := f.scratch(p, f.see(e.Entry, p))
	if f.try(&s, f.hinted(&s, name)...) {
		all = append(all, uninformed(p, p.keep(&s, f.at))...)
	}
	return all
}

// answers returns what a candidate may have read: where there is no record, the marker or nothing.
func (f *follower) answers(e *Event, p possible) []model.Rec {
	r := f.see(e.Entry, p)
	switch r.Kind {
	case model.Marker, model.Tombstone:
		return []model.Rec{r, f.see(nil, p)}
	case model.Release:
		unnamed := r
		unnamed.Named = false
		return []model.Rec{r, unnamed}
	}
	if r.Kind == model.Record && e.Entry.Bucket.IsZero() { // a bare name does not say which bucket its writer knew
		old := r
		old.Old = max(p.Former, p.Outdated)
		return []model.Rec{r, old}
	}
	return []model.Rec{r}
}

func (f *follower) readOne(e *Event, p possible, r model.Rec) (all []possible) {
	s := f.scratch(p, r)
	name := "Read"
	if e.Entry != f.key {
		s.IsCopy, s.Copy, name = true, r, "ReadCopy"
	}
	if !f.try(&s, f.hinted(&s, name)...) {
		return nil
	}
	all = uninformed(p, p.keep(&s, f.at))
	for _, q := range all {
		if y := f.scratch(q, r); f.try(&y, "Yield") {
			all = append(all, q.keep(&y, f.at))
		}
	}
	return all
}

// hinted puts a notification before a campaign for which it is not yet time otherwise.
func (f *follower) hinted(s *attempt, name string) []string {
	if trial := s.State; f.limits.Step(&trial, 0, name) {
		return []string{name}
	}
	return []string{"Forge", name}
}

// uninformed adds that what was read did not make the candidate load the bucket's info, or that this failed: strangers do not say which
// bucket they know.
func uninformed(before, read possible) []possible {
	all := []possible{read}
	if before.Outdated != read.Outdated {
		read.Outdated, read.Highest = before.Outdated, max(before.Highest, read.SeenRev)
		all = append(all, read)
	}
	return all
}

// sendsWin compares a write that may win the key.
func (f *follower) sendsWin(w *Write, busy bool) bool {
	f.resigns = false
	return f.become(func(p possible) (all []possible) {
		ready := []possible{p}
		if p.Seen == 0 { // it cannot read, and does not try any more
			ready = nil
			if f.readFailed {
				for _, q := range f.idle(p, busy) {
					s := f.scratch(q, model.Rec{Own: model.Stranger})
					if f.try(&s, f.hinted(&s, "FailToRead")...) {
						ready = append(ready, q.keep(&s, f.at))
					}
				}
			}
		}
		for _, q := range ready {
			age := f.trace.age(w.Bucket, f.buckets)
			if q.St != model.Candidate || q.Sent != 0 || !f.writesOver(q, w) || q.Outdated < age {
				continue
			}
			if q.Outdated > age { // it asked while it held the key; in the model it does so once it does not
				q.Outdated, q.Highest = age, 0
				q.path |= 1 << model.Number("LoadInfo")
			}
			if due := f.limits.Owes(&q.Cand); rounded(due) <= int64(w.Left) {
				q.owes = int64(w.Left)
				all = append(all, q)
			}
		}
		return all
	})
}

// writesOver reports whether a write is over what the candidate has read.
func (f *follower) writesOver(p possible, w *Write) bool {
	if p.Seen == model.Nothing || p.Seen == model.Blind {
		return w.Create || w.Expect == 0
	}
	return !w.Create && int64(w.Expect) == p.SeenRev
}

// servesWin has the server carry out a write that wins the key.
func (f *follower) servesWin(w *Write, p possible) []possible {
	s := f.scratch(p, f.see(w.Before, p))
	s.Seq = int64(w.Rev) - 1
	if w.Outcome != Applied {
		if !f.try(&s, "Mute", "WriteUnanswered", "Recover") || s.Key.Rev != int64(w.Rev) {
			return nil
		}
		return []possible{p.keep(&s, f.at)}
	}
	if !f.try(&s, "WriteAndFreeze") || s.C[0].Sent == 0 || !f.try(&s, "Recover") {
		return nil
	}
	s.C[0].Sent = max(1, s.C[0].Sent-int64(f.at-w.Sent))
	return []possible{p.keep(&s, f.at)}
}

// receivesWin has the sender of such a write learn that it did not win, or cannot know.
func (f *follower) receivesWin(w *Write, p possible) []possible {
	s := f.scratch(p, f.see(w.Before, p))
	switch {
	case w.Outcome == Applied, w.Accepted && !w.Late:
		return []possible{p}
	case w.Outcome == Unsent:
		if !f.try(&s, "WriteRefused") {
			return nil
		}
	case w.Outcome == Refused:
		if !f.try(&s, "Write") || s.C[0].St != model.Candidate {
			if s = f.scratch(p, s.Key); !f.try(&s, "WriteRefused") {
				return nil
			}
		}
	case w.Served && !w.Late:
		if !f.try(&s, "Mute", "WriteUnanswered", "Recover") {
			return nil
		}
	default:
		if !f.try(&s, "HoldUp", "WriteUnanswered", "Recover") {
			return nil
		}
	}
	return []possible{p.keep(&s, f.at)}
}

// begins begins the term of a win once the bucket's info is loaded.
func (f *follower) begins(w *Write, p possible, informed bool) (all []possible) {
	if p.Sent == 0 {
		return []possible{p}
	}
	s := f.scratch(p, f.see(f.key, p))
	steps := []string{"ReceiveWin"}
	if !informed {
		steps = []string{"LoseInfo", "ReceiveWin", "Recover"}
	}
	if !f.try(&s, steps...) {
		return nil
	}
	if s.C[0].St == model.Leader { // where the reply was late, leadership counts from the renewal
		later := p
		later.SeenNamed = false
		all = f.begins(w, later, informed)
	}
	waited := int64(f.at - w.At)
	q := p.keep(&s, f.at)
	due := []int64{q.Counts}
	if q.St == model.Elect {
		due = append(due, p.owes, int64(f.plan.TTL))
	}
	for _, d := range due {
		if d < q.Counts {
			continue
		}
		next := q
		next.owes = 0
		if next.Counts = max(0, d-waited); q.St == model.Drain {
			next.Counts = 0 // the release passes on all of it
		}
		all = append(all, next)
	}
	return all
}
