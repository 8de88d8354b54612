package sim

import (
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	"github.com/natscampaign/election/internal/replay"
	"github.com/natscampaign/election/internal/sim/judge"
	"github.com/natscampaign/election/internal/sim/tracer"
)

// world is one schedule while it runs.
type world struct {
	mu         sync.Mutex // guards everything; not held across calls of the library that may wait
	script     *script
	journal    *judge.Journal
	judge      *judge.Judge
	trace      *tracer.Tracer
	server     *server
	slots      []*slot
	candidates []*candidate // all that ever existed
	runs       sync.WaitGroup
	tally      judge.Tally

	faults      []*activeFault
	roundBegan  time.Time
	troubleEnds time.Time // of this round
	quiet       bool
	forgedAny   bool // whether any notification or release was forged, or anything repeated
	closing     bool
	checkTimer  *time.Timer // of the next check
	checkAt     time.Time
	lastLed     time.Time // when a leader was last seen
}

// Result is the outcome of a schedule.
type Result struct {
	Seed     uint64
	Failures []string                 // the promises that were broken, and how
	Tally    judge.Tally              // what occurred, and how often
	Overlaps map[string]time.Duration // the longest allowed overlap of two leaders, by its excuse
	Trace    *replay.Trace            // for a replay by the model
	timeline func() string
}

// Timeline returns the script and the journal of the schedule.
func (r *Result) Timeline() string { return r.timeline() }

// Run plays the schedule of a seed, without faults and acts whose names contain one of the given texts. It must be called
// in a bubble of testing/synctest.
func Run(seed uint64, without ...string) *Result {
	s := newScript(seed, without...)
	now := time.Now()
	w := &world{script: s, journal: &judge.Journal{Began: now}, tally: judge.Tally{}, troubleEnds: now}
	w.judge = judge.New(s.ttl, s.longest(), s.named, w.journal, w.tally)
	w.trace = tracer.New(now, s.ttl)
	if s.changesTTL {
		w.trace.End() // in the model it never changes
	}
	w.server = newServer(w)
	w.checkTimer = time.AfterFunc(time.Hour, w.check)
	for i := range s.plans {
		w.slots = append(w.slots, &slot{index: i, plan: &s.plans[i]})
	}
	w.mu.Lock()
	for _, sl := range w.slots {
		if !sl.plan.startsLater {
			w.start(sl)
		}
	}
	w.mu.Unlock()
	for i := range s.rounds {
		w.playTrouble(&s.rounds[i])
		w.playQuiet(s.rounds[i].quiet)
		if s.rounds[i].handover && !w.failed() {
			w.tryHandover()
		}
		if w.failed() {
			break
		}
	}
	w.finish()
	return &Result{
		Seed: seed, Failures: w.judge.Failures, Tally: w.tally, Overlaps: w.judge.Longest, Trace: &w.trace.Trace,
		timeline: func() string { return fmt.Sprintf("seed %d: %v%v", seed, s, w.journal) },
	}
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.judge.Failed()
}

// playTrouble plays one round up to the quiet after it.
func (w *world) playTrouble(r *round) {
	w.mu.Lock()
	w.quiet = false
	w.roundBegan = time.Now()
	w.troubleEnds = w.roundBegan.Add(r.length)
	w.note("", "trouble begins")
	w.mu.Unlock()
	timers := make([]*time.Timer, 0, len(r.faults)+len(r.acts))
	for i := range r.faults {
		f := &r.faults[i]
		timers = append(timers, time.AfterFunc(f.start, func() { w.beginFault(f) }))
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

// finish stops all candidates and has the judge look once more.
func (w *world) finish() {
	w.mu.Lock()
	w.closing = true
	w.note("", "all candidates are stopped")
	for _, s := range w.slots {
		if s.current != nil {
			w.stop(s.current)
		}
	}
	w.mu.Unlock()
	w.runs.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observe()
	w.server.expiryTimer.Stop()
	w.checkTimer.Stop()
	w.judge.Finish(time.Now())
}

// checkSoon has the judge look once the library has reacted to what happens now. The caller holds mu.
func (w *world) checkSoon() { w.checkBy(time.Now().Add(1)) }

func (w *world) checkBy(at time.Time) {
	if w.checkAt.IsZero() || at.Before(w.checkAt) {
		w.checkAt = at
		w.checkTimer.Reset(max(time.Until(at), 0))
	}
}

// check has the judge look, and again when the next lease must have ended.
func (w *world) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkAt = time.Time{}
	w.observe()
	for _, c := range w.candidates {
		if c.running && !c.crashed {
			w.trace.Shown(c.ledger, c.State())
		}
	}
	if w.judge.CheckWorkContexts(time.Now()) {
		w.checkSoon()
	}
	if next := w.judge.NextDeadline(time.Now()); !next.IsZero() {
		w.checkBy(next)
	}
}

// observe has the judge look at all candidates now.
func (w *world) observe() {
	if w.judge.Observe(time.Now()) {
		w.lastLed = time.Now()
	}
}

func (w *world) note(name, what string) {
	w.journal.Add(judge.Event{At: time.Now(), Name: name, What: what})
}

func (w *world) count(what string) { w.tally[what]++ }
