package replay

import (
	"slices"
	"time"

	"github.com/natscampaign/election/internal/model"
)

// possible is a state in which a candidate may be.
type possible struct {
	model.Cand
	sent      model.Cand // what it was when it sent the write that is under way
	owes      int64      // the stand-down that its win names
	since     int64      // it knows its attempts to renew that were sent at this time or later
	resolving bool       // a renewal was refused, and the key is read
	again     bool       // … once more
	held      bool       // it held the key when it began to read
	awaits    bool       // what it read last counts once the bucket's info is loaded
	path      path       // the transitions that surely led here
}

// follower follows one candidate.
type follower struct {
	*replay
	who      int
	plan     *Plan
	limits   model.Limits
	states   []possible
	at       time.Duration
	gone     bool // not followed now
	vanished bool // nor ever again

	quits, resigns bool
	flight         *Write // on its way
	received       bool   // its outcome
	refused        *Write // a renewal or a release
	requests       int    // for the bucket's info, under way; the source of notifications makes some too
	busyRead       bool   // callbacks or work ran when the read began
	readFailed     bool   // the last read
	read           *Event // the last
	released       uint64 // the revision of its last release
	touched        time.Duration
}

// path is a set of transitions, by their numbers.
type path uint64

// attempt is a state of the model in which one candidate is the only one, and the path to it.
type attempt struct {
	model.State
	path path
}

// trouble is how many faults the model has for each step of a replay.
const trouble = 100

// scratch returns a state of the model in which this candidate is the only one.
func (f *follower) scratch(p possible, key model.Rec) attempt {
	s := attempt{model.State{Key: key, Seq: key.Rev, Faults: trouble}, p.path}
	s.C[0] = p.Cand
	return s
}

// try makes steps, and reports whether the model has them all.
func (f *follower) try(s *attempt, names ...string) bool {
	for _, name := range names {
		if !f.limits.Step(&s.State, 0, name) {
			return false
		}
		s.path |= 1 << model.Number(name)
	}
	return true
}

// keep takes over what became of the candidate.
func (p possible) keep(s *attempt, now time.Duration) possible {
	p.Cand, p.path = s.C[0], s.path
	if !p.Pending {
		p.since = int64(now)
	}
	return p
}

// pass lets time pass up to now.
func (f *follower) pass(now time.Duration) {
	if by := int64(now - f.at); by > 0 {
		for i := range f.states {
			p := &f.states[i]
			s := f.scratch(*p, model.Rec{Own: model.Stranger})
			f.limits.Pass(&s.State, 0, by)
			*p = p.keep(&s, now)
		}
		f.at = now
	}
}

// become replaces the possible states by all to which they lead. It reports false if none is left.
func (f *follower) become(next func(p possible) []possible) bool {
	var all []possible
	for _, p := range f.states {
		for _, q := range next(p) {
			all = join(all, q)
		}
	}
	if len(all) == 0 {
		return false
	}
	f.states = all
	f.widest = max(f.widest, len(all))
	return true
}

// join adds a state, unless it is there: then both paths lead to it.
func join(all []possible, q possible) []possible {
	for i := range all {
		same := q
		if same.path = all[i].path; same == all[i] {
			all[i].path &= q.path
			return all
		}
	}
	return append(all, q)
}

// leave counts the transitions that the candidate has surely made. It is not followed any more.
func (f *follower) leave() {
	if len(f.states) == 0 {
		return
	}
	all := ^path(0)
	for _, p := range f.states {
		all &= p.path
	}
	for _, name := range model.Names() {
		if n := model.Number(name); n < 64 && all&(1<<n) != 0 {
			f.made[name]++
		}
	}
	f.states = nil
}

// only keeps the states for which a condition holds.
func (f *follower) only(such func(p possible) bool) bool {
	return f.become(func(p possible) []possible {
		if such(p) {
			return []possible{p}
		}
		return nil
	})
}

// see returns an entry as this candidate sees it.
func (f *follower) see(e *Entry, p possible) model.Rec {
	switch {
	case e == nil:
		return model.Rec{Kind: model.Nothing, Own: model.Stranger}
	case !e.Record && e.Expired:
		return model.Rec{Kind: model.Marker, Own: model.Stranger, Rev: int64(e.Rev)}
	case !e.Record:
		return model.Rec{Kind: model.Tombstone, Own: model.Stranger, Rev: int64(e.Rev)}
	}
	r := model.Rec{Kind: model.Record, Own: model.Stranger, Rev: int64(e.Rev), Left: int64(e.Left)}
	if e.Release {
		r.Kind, r.Named = model.Release, slices.Contains(e.Successors, f.plan.Name)
	}
	r.Old = f.trace.age(e.Bucket, f.buckets)
	if e.By == f.who {
		r.Own = 0
		if w := e.Write; w != nil && !w.Wins && !w.Releases && w.Outcome == Unknown && w.Returned && p.Pending && int64(w.Sent) >= p.since {
			r.Lease = max(0, f.limits.Lease()-int64(f.at-w.Sent))
		}
	}
	return r
}

// rounded returns a duration as records have it.
func rounded(d int64) int64 {
	ms := int64(time.Millisecond)
	return (max(0, d) + ms - 1) / ms * ms
}

// idle returns what becomes of a candidate that campaigns, with a term that it gave up before.
func (f *follower) idle(p possible, busy bool) []possible {
	s := f.scratch(p, model.Rec{Kind: model.Nothing, Own: model.Stranger})
	c := &s.C[0]
	switch {
	case c.St == model.Candidate:
	case c.St != model.Drain && !(f.asked() && f.try(&s, "Resign")):
		return nil
	case c.Work:
		if busy || !f.try(&s, "Hang", "AbandonWork") {
			return nil
		}
	case !f.try(&s, "GiveUpRelease"):
		return nil
	}
	if c.St == model.Drain && !f.try(&s, "GiveUpRelease") {
		return nil
	}
	if c.Work && (busy || !f.try(&s, "WorkReturns")) {
		return nil
	}
	c.Link = model.Fine
	return []possible{p.keep(&s, f.at)}
}

// asked reports whether the candidate was asked to end its term.
func (f *follower) asked() bool { return f.quits || f.resigns }

// resign adds that the candidate has resigned, if it was asked to.
func (f *follower) resign() {
	if !f.asked() {
		return
	}
	f.become(func(p possible) []possible {
		all := []possible{p}
		for _, steps := range [][]string{{"Resign"}, {"CallBack", "Resign"}} {
			if s := f.scratch(p, model.Rec{}); f.try(&s, steps...) {
				all = append(all, p.keep(&s, f.at))
			}
		}
		return all
	})
}

// show compares what the candidate reports.
func (f *follower) show(reported State) bool {
	f.resign()
	return f.only(func(p possible) bool {
		switch {
		case reported == NotRunning:
			return true
		case reported == Leads:
			return p.St == model.Leader && p.Lease > 0
		case reported == IsElect:
			return p.St == model.Elect
		}
		return p.St == model.Candidate || p.St == model.Drain
	})
}
