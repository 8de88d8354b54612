package replay

import "github.com/natscampaign/election/internal/model"

// event follows one event of the candidate.
func (f *follower) event(i int, e *Event) bool {
	if e.Kind == Sends || e.Kind == Asks {
		if !f.only(func(p possible) bool { return !p.awaits }) {
			return false
		}
	}
	switch e.Kind {
	case Starts:
		f.leave()
		*f = follower{
			replay: f.replay, who: f.who, plan: f.plan, limits: f.limits, at: e.At, states: []possible{{}},
			gone: f.plan.Unmodelled || f.vanished, vanished: f.vanished, released: f.released,
		}
	case Crashes:
		f.become(func(p possible) []possible {
			if s := f.scratch(p, model.Rec{Own: model.Stranger}); f.try(&s, "Crash") {
				return []possible{p.keep(&s, f.at)}
			}
			return []possible{p}
		})
		f.leave()
		f.gone = true
	case Ends:
		f.leave()
		f.gone = true
	case Vanishes:
		f.leave()
		f.gone, f.vanished = true, true
	case Quits:
		f.quits = true
	case Resigns:
		f.resigns = true
	case Sends:
		return f.sends(e)
	case Serves:
		return f.serves(e.Write)
	case Receives:
		return f.receives(i, e.Write)
	case Asks:
		f.busyRead = e.Busy
		for i := range f.states {
			f.states[i].held = f.holds(f.states[i])
		}
	case Reads:
		f.readFailed, f.read = e.Fails, e
		return f.reads(e, f.loads(i))
	case AsksInfo:
		f.requests++
	case HasMarker:
		f.resign()
		return f.become(func(p possible) []possible {
			all := []possible{p}
			if p.awaits {
				all = append(all, f.readOf(f.read, p, notLoaded)...)
			}
			if p.St == model.Candidate && p.Seen == 0 && f.key != nil && !f.key.Record { // the marker came after it had read that there is nothing
				all = append(all, f.readCampaigning(&Event{Entry: f.key}, p)...)
			}
			return all
		})
	case HasInfo:
		f.requests--
		return f.hasInfo(i, e)
	case Told:
		f.become(func(p possible) []possible {
			q := p
			q.Removed = true
			return []possible{p, q}
		})
	case Shows:
		if n := f.next[i]; f.touched == e.At || n > 0 && f.trace.Events[n].At == e.At {
			return true
		}
		return f.show(e.State)
	}
	return true
}

// neverRevision is the least revision that asks for a refusal.
const neverRevision = 1 << 61

func (f *follower) sends(e *Event) bool {
	w := e.Write
	f.received = false
	if f.flight = w; w.Expect >= neverRevision { // a probe: it changes nothing
		f.flight = nil
		return true
	}
	switch {
	case w.Deletes:
		return w.Expect == f.released
	case w.Releases:
		return f.sendsRelease(w, e.Busy)
	case w.Wins:
		return f.sendsWin(w, e.Busy)
	}
	return f.sendsRenewal(w)
}

func (f *follower) serves(w *Write) bool {
	if f.flight != w || !w.Accepted || w.Late || w.Deletes {
		return true
	}
	if w.Wins {
		return f.become(func(p possible) []possible { return f.servesWin(w, p) })
	}
	return f.become(func(p possible) []possible { return f.servesHeld(w, p) })
}

func (f *follower) receives(i int, w *Write) bool {
	if f.flight != w || w.Deletes {
		return true
	}
	f.received = true
	if w.Wins {
		return f.become(func(p possible) []possible { return f.receivesWin(w, p) })
	}
	if w.Outcome == Applied && !w.Releases {
		loads := f.loads(i)
		return f.become(func(p possible) []possible {
			all := f.confirms(p, notLoaded)
			if loads {
				all = append(all, p)
			}
			return all
		})
	}
	f.refused = nil
	if w.Outcome == Refused {
		f.refused = w
	}
	return f.become(func(p possible) []possible { return f.receivesHeld(w, p) })
}

// reads has the candidate read the key. If it then loads the bucket's info, what it read may count from then on.
func (f *follower) reads(e *Event, loads bool) bool {
	f.resign()
	return f.become(func(p possible) []possible {
		all := f.readOf(e, p, notLoaded)
		if (loads || e.Entry == nil || !e.Entry.Record) && f.holds(p) { // or it asks for the marker
			p.awaits = true
			all = append(all, p)
		}
		return all
	})
}

// readOf returns what becomes of a candidate that reads the key.
func (f *follower) readOf(e *Event, p possible, i info) (all []possible) {
	p.awaits = false
	switch {
	case p.resolving && f.holds(p):
		return f.readResolving(e, p, i)
	case p.St == model.Elect, p.St == model.Leader:
		return f.readHolding(e, p, i)
	case p.St == model.Drain && f.refused != nil && f.refused.Releases:
		all = f.readDraining(e, p)
	case p.St == model.Drain: // it was about to verify when it was asked to end
		all = f.readHolding(e, p, i)
	case e.Fails, p.held: // its term ended
		p.resolving = false
		all = append(all, p)
	}
	for _, q := range f.idle(p, f.busyRead) {
		all = append(all, f.readCampaigning(e, q)...)
	}
	return all
}

// hasInfo has the candidate load the bucket's info, or fail to.
func (f *follower) hasInfo(n int, e *Event) bool {
	i := loaded
	if e.Fails {
		i = failed
	}
	f.resign()
	age := int8(0)
	if !e.Fails {
		age = f.trace.age(e.Bucket, f.buckets)
	}
	more := f.requests > 0 || f.loads(n) // the answer to another request may be the one
	return f.become(func(p possible) (all []possible) {
		for _, q := range f.informedOf(p.before(age), i) {
			all = append(all, q.after(age))
		}
		if more || !p.awaits && (p.Sent == 0 || !f.received) {
			all = append(all, p)
		}
		return all
	})
}

// informedOf returns what becomes of a candidate that has loaded the bucket's info, or failed to.
func (f *follower) informedOf(p possible, i info) (all []possible) {
	switch {
	case p.awaits:
		all = f.readOf(f.read, p, i)
		for _, q := range all { // a leader that has lost the key asks whether the bucket was made again
			if i == loaded && q.Outdated != 0 && !f.holds(q) {
				q.Outdated, q.Highest = 0, 0
				all = append(all, q)
			}
		}
		return all
	case p.Sent > 0 && f.received && f.holds(p):
		return f.confirms(p, i)
	case p.Sent > 0 && f.received:
		return f.begins(f.flight, p, i == loaded)
	case i == failed:
		return nil
	}
	if f.buckets > 1 { // the source of notifications asks for itself
		q := p
		q.Highest = 0
		all = append(all, q)
	}
	if !f.holds(p) && (p.Work || p.Seen != 0) { // in the model it asks before: it may ask while its work returns, and between a read and a write
		q := p
		q.Outdated, q.Highest = 0, 0
		q.path |= 1 << model.Number("LoadInfo")
		all = append(all, q)
	}
	if p.Work {
		return all
	}
	for _, q := range f.idle(p, false) {
		if s := f.scratch(q, model.Rec{}); f.try(&s, "LoadInfo") {
			all = append(all, q.keep(&s, f.at))
		}
	}
	return all
}

// before returns what a candidate was before the bucket was made again so many times: the bucket's info is as old as that.
func (p possible) before(age int8) possible {
	p.Outdated, p.Former, p.SeenOld = max(0, p.Outdated-age), max(0, p.Former-age), max(0, p.SeenOld-age)
	return p
}

// after returns what it is now.
func (p possible) after(age int8) possible {
	for range age {
		p.Remade()
	}
	return p
}
