package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/test/schedules"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
)

// world is one schedule while it runs.
type world struct {
	virtual.Engine
	script     *script
	explored   *explored // nil if the seed decides
	journal    *judge.Journal
	judge      *judge.Judge
	server     *server
	slots      []*slot
	candidates []*candidate // all that ever existed
	tally      judge.Tally
	coverage   *schedules.Coverage

	faults      []*activeFault
	roundBegan  time.Time
	troubleEnds time.Time // of this round
	quiet       bool
	forgedAny   bool // whether any notification or release was forged, or anything repeated
	closing     bool
	silent      bool           // the API of JetStream answers nobody
	checkTimer  *virtual.Timer // of the next check
	lastLed     time.Time      // when a leader was last seen
}

// epoch is when all schedules begin.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Run plays the schedule of a seed, without faults and acts whose names contain one of the given texts. The seed decides everything: the
// schedule is the same each time.
func Run(seed uint64, without ...string) *schedules.Result {
	return run(newScript(seed, without...), nil)
}

// run plays a schedule. If faults are given, these are all that happen to requests, and nothing is random.
func run(s *script, faults *explored) *schedules.Result {
	w := &world{explored: faults, script: s, Engine: virtual.Engine{Now: epoch}, journal: &judge.Journal{Began: epoch}, tally: judge.Tally{}, troubleEnds: epoch, coverage: schedules.NewCoverage(steps)}
	w.judge = judge.New(s.ttl, s.longest(), s.named, w.journal, w.tally)
	w.judge.TTLChanged(s.initial())
	w.server = newServer(w)
	for i := range s.plans {
		w.slots = append(w.slots, &slot{index: i, plan: &s.plans[i]})
	}
	if slices.ContainsFunc(s.plans, func(p plan) bool { return p.drift != 0 }) {
		w.count(differentSpeeds)
	}
	for _, sl := range w.slots {
		if !sl.plan.startsLater {
			w.start(sl)
		}
	}
	for i := range s.rounds {
		w.playTrouble(&s.rounds[i])
		w.playQuiet(s.rounds[i].quiet)
		if s.rounds[i].handover && !w.judge.Failed() {
			w.tryHandover(s.rounds[i].targetGone, s.rounds[i].apiSilent)
		}
		if idle := s.rounds[i].idle; idle > 0 && !w.judge.Failed() {
			w.tryRestart(idle)
		}
		if w.judge.Failed() {
			break
		}
	}
	w.finish()
	return &schedules.Result{
		Seed: s.seed, Failures: w.judge.Failures, Tally: w.tally, Overlaps: w.judge.Longest, Coverage: w.coverage,
		Timeline: func() string { return fmt.Sprintf("seed %d: %v%v%v", s.seed, s, faults, w.journal) },
	}
}

// pass has time pass.
func (w *world) pass(d time.Duration) { w.RunUntil(w.Now.Add(max(d, 0))) }

// playTrouble plays one round up to the quiet after it.
func (w *world) playTrouble(r *round) {
	w.quiet = false
	w.roundBegan = w.Now
	w.troubleEnds = w.roundBegan.Add(r.length)
	w.note("", "trouble begins")
	timers := make([]*virtual.Timer, 0, len(r.faults)+len(r.acts))
	for i := range r.faults {
		f := &r.faults[i]
		timers = append(timers, w.After(f.start, func() { w.beginFault(f) }))
	}
	for i := range r.acts {
		a := &r.acts[i]
		timers = append(timers, w.After(a.at, func() { w.perform(a) }))
	}
	w.pass(r.length)
	for _, t := range timers {
		t.Stop()
	}
}

// finishLimit is how long candidates may take to return once all are stopped: a TTL of an hour would be too short for none.
const finishLimit = 24 * time.Hour

// finish stops all candidates and has the judge look once more.
func (w *world) finish() {
	w.closing = true
	w.note("", "all candidates are stopped")
	for _, s := range w.slots {
		if s.current != nil {
			w.stop(s.current)
		}
	}
	for end := w.Now.Add(finishLimit); w.anyRuns() && w.Now.Before(end); {
		w.pass(time.Second)
	}
	for _, c := range w.candidates {
		if c.running && !c.crashed {
			w.judge.Fail(w.Now, "P8", c.name, "has not returned %v after it was stopped", finishLimit)
		}
	}
	w.observe()
	w.judge.Finish(w.Now)
}

func (w *world) anyRuns() bool {
	for _, c := range w.candidates {
		if c.running && !c.crashed {
			return true
		}
	}
	return false
}

// checkSoon has the judge look once all have reacted to what happens now.
func (w *world) checkSoon() { w.checkBy(w.Now.Add(1)) }

func (w *world) checkBy(at time.Time) {
	if !w.checkTimer.Waits() || at.Before(w.checkTimer.At) {
		w.checkTimer.Stop()
		w.checkTimer = w.At(at, w.check)
	}
}

// check has the judge look, and again when the next lease must have ended.
func (w *world) check() {
	w.observe()
	if w.judge.CheckWorkContexts(w.Now) {
		w.checkSoon()
	}
	if next := w.judge.NextDeadline(w.Now); !next.IsZero() {
		w.checkBy(next)
	}
}

// observe has the judge look at all candidates now.
func (w *world) observe() {
	if w.judge.Observe(w.Now) {
		w.lastLed = w.Now
	}
}

func (w *world) note(name, what string) {
	w.journal.Add(judge.Event{At: w.Now, Name: name, What: what})
}

func (w *world) count(what string) { w.tally[what]++ }
