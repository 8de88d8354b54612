package sim

import (
	"context"
	"fmt"
	"sync"
	"testing/synctest"
	"time"
)

// world is one schedule while it runs.
type world struct {
	mu         sync.Mutex // guards everything; never held across a call of the library that may wait
	script     *script
	journal    *journal
	judge      *judge
	server     *server
	slots      []*slot
	candidates []*candidate // all there ever were
	runs       sync.WaitGroup
	tally      tally

	active      []*window // faults under way
	began       time.Time // of the round
	troubleEnds time.Time // of the round
	quiet       bool
	deceived    bool // whether any update was forged or replayed
	closing     bool
	probing     *time.Timer
	probeAt     time.Time
	lastLed     time.Time // when somebody was last seen to lead
}

// window is a fault under way.
type window struct {
	fault
	slot  int // everyone, or a slot
	until time.Time
}

func (a *window) hits(slot int) bool { return a.slot == everyone || a.slot == slot }

// Result is what came of a schedule.
type Result struct {
	Seed     uint64
	Failures []string                 // what promise was broken, and how; empty if none was
	Tally    tally                    // what occurred, and how often
	Overlaps map[string]time.Duration // the longest of those that the contract allows, by what allows them
	timeline func() string
}

// Timeline tells the schedule.
func (r *Result) Timeline() string { return r.timeline() }

// Run plays the schedule of a seed, without kinds of trouble whose names contain one of the given texts. It must be called in
// a bubble of testing/synctest.
func Run(seed uint64, without ...string) *Result {
	s := newScript(seed, without...)
	now := time.Now()
	w := &world{script: s, journal: &journal{began: now}, tally: tally{}, troubleEnds: now}
	w.judge = newJudge(s.ttl, w.journal, w.tally)
	w.judge.named = s.named
	w.server = newServer(w)
	w.probing = time.AfterFunc(time.Hour, w.probe)
	for i := range s.plans {
		w.slots = append(w.slots, &slot{index: i, plan: &s.plans[i]})
	}
	w.mu.Lock()
	for _, sl := range w.slots {
		if !sl.plan.absent {
			w.start(sl)
		}
	}
	w.mu.Unlock()
	for i := range s.rounds {
		w.trouble(&s.rounds[i])
		w.calm(s.rounds[i].calm)
		if s.rounds[i].handover && !w.failed() {
			w.handOver()
		}
		if w.failed() {
			break
		}
	}
	w.close()
	return &Result{
		Seed: seed, Failures: w.judge.failures, Tally: w.tally, Overlaps: w.judge.longest,
		timeline: func() string { return fmt.Sprintf("seed %d: %v%v", seed, s, w.journal) },
	}
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.judge.failures) > 0
}

// trouble plays one round up to the quiet after it.
func (w *world) trouble(r *round) {
	w.mu.Lock()
	w.quiet = false
	w.began = time.Now()
	w.troubleEnds = w.began.Add(r.length)
	w.note("", "trouble begins")
	w.mu.Unlock()
	timers := make([]*time.Timer, 0, len(r.faults)+len(r.acts))
	for i := range r.faults {
		f := &r.faults[i]
		timers = append(timers, time.AfterFunc(f.start, func() { w.open(f) }))
	}
	for i := range r.acts {
		a := &r.acts[i]
		timers = append(timers, time.AfterFunc(a.at, func() { w.perform(a) }))
	}
	time.Sleep(r.length)
	synctest.Wait()
	for _, t := range timers {
		t.Stop()
	}
}

// open lets a fault begin.
func (w *world) open(f *fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	a := &window{fault: *f, slot: f.victim, until: now.Add(f.length)}
	if f.victim == holder {
		a.slot = w.holding()
	}
	w.journal.add(event{at: now, what: f.kind.String() + " begins", d: f.length, note: w.victims(a)})
	for _, s := range w.slots {
		if a.hits(s.index) {
			w.hamper(s, a, now)
		}
	}
	if f.length <= 0 {
		return
	}
	w.active = append(w.active, a)
	time.AfterFunc(f.length, func() { w.over(a) })
}

// hamper begins what does not depend on a call.
func (w *world) hamper(s *slot, a *window, now time.Time) {
	x := (*watcher)(nil)
	if s.now != nil && s.now.watcher != nil && !s.now.watcher.ended {
		x = s.now.watcher
	}
	switch {
	case a.kind == watchForged, a.kind == watchReplayed: // which excuses nothing
	case s.now != nil:
		s.now.ledger.troubled = latest(s.now.ledger.troubled, a.until)
	}
	switch a.kind {
	case linkCut, linkCutBuffer:
		s.cutUntil, s.buffered, s.catchesUp = latest(s.cutUntil, a.until), a.kind == linkCutBuffer, a.chance > 0.5
		if x != nil && a.chance < 0.3 {
			x.blind = true
		}
	case processStall:
		s.stalledUntil = latest(s.stalledUntil, a.until)
	case watchBlind, serverAway:
		if x == nil {
			return
		}
		x.blind = true
	case watchEnded:
		if x == nil {
			return
		}
		x.end()
	case watchForged, watchReplayed:
		w.deceive(s, a, 0)
	default:
		return
	}
	if now.Before(a.until) {
		w.hit(a.kind)
	}
}

// over lets a fault end.
func (w *world) over(a *window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.active {
		if other == a {
			w.active = append(w.active[:i:i], w.active[i+1:]...)
			break
		}
	}
	w.journal.add(event{at: time.Now(), what: a.kind.String() + " ends", note: w.victims(a)})
}

func (w *world) victims(a *window) string {
	if a.slot == everyone {
		return "for everyone"
	}
	return "for " + w.slots[a.slot].plan.name
}

// holding returns the slot of whoever holds the key, by chance any if nobody does.
func (w *world) holding() int {
	if e := w.server.current; e != nil && e.write != nil && e.write.by != nil {
		for _, s := range w.slots {
			if s.now != nil && s.now.ledger == e.write.by {
				return s.index
			}
		}
	}
	return int(mix(w.script.seed, uint64(len(w.journal.events))) % uint64(len(w.slots)))
}

// perform carries out an act.
func (w *world) perform(a *act) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.probeSoon()
	now := time.Now()
	index := a.slot
	if index == holder {
		index = w.holding()
	}
	s := w.slots[index]
	if a.kind == actStart {
		if s.now == nil || !s.now.running {
			w.start(s)
			w.count(a.kind.String())
		}
		return
	}
	if a.kind.concerns() {
		if s.now == nil {
			return
		}
		w.journal.add(event{at: now, who: s.now.name, what: a.kind.String()})
		w.count(a.kind.String())
		w.order(s.now, a.kind)
		return
	}
	w.journal.add(event{at: now, what: a.kind.String()})
	if w.disturb(a, now) {
		w.count(a.kind.String())
	}
}

// order has a candidate do as it is told.
func (w *world) order(c *candidate, kind actKind) {
	switch kind {
	case actStop:
		w.stop(c)
	case actCancel:
		c.wanted = false
		w.judge.leaves(c.ledger)
		c.cancel()
	case actCrash:
		w.crash(c)
	case actResign:
		w.judge.leaves(c.ledger)
		w.runs.Add(1)
		go func() {
			defer w.runs.Done()
			ctx, cancel := context.WithTimeout(context.Background(), w.script.ttl)
			defer cancel()
			_ = c.Resign(ctx) // it may hold nothing
		}()
	case actReadsEnd:
		c.unread, c.ledger.unread = true, true
	case actStatusEnds:
		c.lost = true
	case actClose:
		w.disconnect(c)
	}
}

// disturb does something to the bucket that no candidate does, and says whether it could.
func (w *world) disturb(a *act, now time.Time) bool {
	s := w.server
	switch a.kind {
	case actClock:
		s.setClock(now, a.step, s.rate)
		return true
	case actRate:
		s.setClock(now, 0, a.rate)
		return true
	case actRemake, actForget:
		s.reset(now, a.kind == actRemake)
		return true
	case actRewind:
		return s.rewind(now, a)
	}
	q := &write{always: true, sent: now}
	switch a.kind {
	case actDelete, actPurge:
		if s.current == nil || s.current.marks() {
			return false
		}
		q.remove, q.purge = true, a.kind == actPurge
	case actOverwrite:
		q.value = []byte(fmt.Sprintf(`{"name":"stranger","instance":"stranger","attempt":"%d","since":"2000-01-01T00:00:00Z"}`, s.seq))
	case actScribble:
		q.value = []byte("stranger")
	case actTaken:
		if s.current != nil {
			return false
		}
		q.value = []byte("stranger")
	}
	return s.apply(now, q, false) == nil
}

// close stops everybody and looks whether all is well afterwards.
func (w *world) close() {
	w.mu.Lock()
	w.closing = true
	w.note("", "everybody is stopped")
	for _, s := range w.slots {
		if s.now != nil {
			w.stop(s.now)
		}
	}
	w.mu.Unlock()
	w.runs.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observe()
	w.server.expiry.Stop()
	w.probing.Stop()
	w.judge.close()
}

// probeSoon looks at everybody as soon as all that can be done now is done. The caller holds mu.
func (w *world) probeSoon() { w.probeBy(time.Now().Add(1)) }

func (w *world) probeBy(at time.Time) {
	if w.probeAt.IsZero() || at.Before(w.probeAt) {
		w.probeAt = at
		w.probing.Reset(max(time.Until(at), 0))
	}
}

// probe looks at everybody, and comes back when the next lease must have ended.
func (w *world) probe() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probeAt = time.Time{}
	w.observe()
	if w.judge.lingers(time.Now()) {
		w.probeSoon()
	}
	if next := w.judge.nextDeadline(time.Now()); !next.IsZero() {
		w.probeBy(next)
	}
}

// observe looks at everybody now.
func (w *world) observe() {
	if w.judge.observe(time.Now()) {
		w.lastLed = time.Now()
	}
}

func (w *world) note(who, what string) {
	w.journal.add(event{at: time.Now(), who: who, what: what})
}

func (w *world) count(what string) { w.tally[what]++ }

func (w *world) hit(k faultKind) { w.tally[faultNames[k]]++ }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
