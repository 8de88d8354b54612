package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A faultKind is one way in which a bucket, a link or a process misbehaves for a while.
type faultKind int

const (
	lateRequest   faultKind = iota // writes arrive late, maybe long after they were given up
	lostRequest                    // requests never arrive
	lateReply                      // replies come late
	lostReply                      // writes are applied, replies are lost
	conflict                       // a passing 10164: some other write seems to be in flight
	noStream                       // the stream has no leader: half a second, and not applied
	noQuorum                       // writes are applied when the fault ends; until then others get 10164 and reads are old
	staleRead                      // reads show the key as it was a while ago
	edgeRenewal                    // a renewal arrives just before the key expires, is acknowledged, and wiped by the marker
	linkCut                        // nothing gets through; what is tried meanwhile fails at once
	linkCutBuffer                  // nothing gets through; what is tried meanwhile is sent when the link is back
	processStall                   // the process pauses: no call, reply, update, callback or work of it goes on
	watchMissed                    // watchers miss updates
	watchLate                      // watchers get updates late
	watchBlind                     // watchers go blind for good, without a sign
	watchEnded                     // watchers end
	serverAway                     // the server restarts: nobody is answered, and watchers are blind afterwards
	readFails                      // reads of the key are not answered, or are refused
	statusFails                    // requests for the state of the bucket are not answered, or are refused
	watchForged                    // watchers get updates that the bucket never had; see forgery.go
	watchReplayed                  // watchers get updates again that were true once
	numFaultKinds
)

// firstFaults are the kinds that scripts had when they were first written, and firstActs likewise; see script.more.
const (
	firstFaults = readFails
	firstActs   = actReadsEnd
)

var faultNames = [numFaultKinds]string{
	"late request", "lost request", "late reply", "lost reply", "passing conflict", "no stream leader", "no quorum", "stale read",
	"renewal at the edge", "link cut", "link cut, buffered", "process stall", "watch update missed", "watch update late",
	"watcher blind", "watcher ended", "server restart", "read fails", "status fails",
	"watch update forged", "watch update replayed",
}

func (k faultKind) String() string { return faultNames[k] }

// fault is a time in which requests of its victim fare badly.
type fault struct {
	kind   faultKind
	start  time.Duration // since the round began
	length time.Duration
	victim int           // a slot, or one of the following
	chance float64       // that a request is hit
	delay  time.Duration // the longest, for what comes late
}

const (
	holder   = -1 // whoever holds the key when the fault begins
	everyone = -2
)

// An actKind is something that an operator, somebody else or the server does at once.
type actKind int

const (
	actStart      actKind = iota // of a candidate: as a new one, or again after its context ended
	actStop                      // by Stop
	actCancel                    // by the end of its context
	actCrash                     // it is gone, and nothing it holds is released
	actResign                    // of whoever holds the key
	actDelete                    // the key is deleted
	actPurge                     // the key is purged
	actOverwrite                 // a record of nobody we know is put under the key
	actScribble                  // a bare name is
	actTaken                     // somebody like a candidate of Choria creates the key if it is free
	actRemake                    // the bucket is deleted and made again
	actForget                    // the bucket loses all it held, with its sequence, and does not tell
	actClock                     // the server's clock steps
	actRate                      // the server's clock changes its rate
	actReadsEnd                  // reads of the key fail for good, for one candidate
	actStatusEnds                // requests for the state of the bucket fail for good, for one candidate
	actClose                     // the connection of one candidate is closed for good
	actRewind                    // the bucket goes back to what it was a while ago, and does not tell
	numActKinds
)

var actNames = [numActKinds]string{
	"start", "stop", "cancel", "crash", "resign", "delete", "purge", "foreign record", "bare name", "foreign create",
	"bucket made again", "sequence reset", "clock step", "clock rate", "reads fail for good", "status fails for good",
	"connection closed", "history rewound",
}

func (k actKind) String() string { return actNames[k] }

// concerns says whether such an act is done to one candidate.
func (k actKind) concerns() bool { return k <= actResign || k >= actReadsEnd && k <= actClose }

// act is one of these at a time of the round.
type act struct {
	kind   actKind
	at     time.Duration
	slot   int           // the candidate, for what happens to one; holder is possible
	step   time.Duration // of the clock
	rate   float64       // of the clock, from now on, less 1
	back   time.Duration // how far history is rewound
	blinds bool          // whether that blinds all watchers
}

// plan is what one candidate is like.
type plan struct {
	name           string
	standDown      time.Duration // of these negative is the library's default
	interval       time.Duration
	margin         time.Duration
	splay          time.Duration
	releaseTimeout time.Duration
	backoff        time.Duration // 0: none

	plain, deaf, unread bool          // writes bare names; may not watch; may not read
	works               bool          // is run with work
	fair                bool          // has chance decide who comes first
	won, lost, campaign time.Duration // how long its callbacks take
	panics              bool          // in callbacks and work, now and then
	linger              time.Duration // for how long work goes on that was told to stop
	quits               time.Duration // after which work returns by itself; 0 for never
	absent              bool          // not started at first
}

// round is a time of trouble, after which quiet returns.
type round struct {
	length   time.Duration
	calm     time.Duration // for how long the quiet lasts once there is a leader
	handover bool          // whether the leader then resigns
	faults   []fault
	acts     []act
}

// script is all that is decided beforehand about a schedule.
type script struct {
	seed       uint64
	ttl        time.Duration
	markers    bool          // whether expiries are announced
	replicated bool          // whether a write may be in the way of another for as long as there is no quorum
	named      bool          // whether a refusal names the last sequence of the key
	latency    time.Duration // of a message one way
	lateness   time.Duration // the longest of an expiry
	plans      []plan
	rounds     []round
}

// markerTTL is how long the marker of an expiry stays, where expiries are announced.
func (s *script) markerTTL() time.Duration { return min(s.ttl, time.Second) }

// newScript writes the script of a seed, without faults and acts whose names contain one of the given texts.
func newScript(seed uint64, without ...string) *script {
	r := &dice{rand.New(rand.NewPCG(seed, 0x656c656374696f6e))}
	s := &script{
		seed:       seed,
		ttl:        pick[time.Duration](r, 1, 2, 2, 3, 5, 10) * time.Second,
		markers:    r.chance(0.6),
		replicated: r.chance(0.5),
		latency:    r.between(100*time.Microsecond, 3*time.Millisecond),
		lateness:   pick[time.Duration](r, 5, 50, 350) * time.Millisecond,
	}
	everybodyDeaf := r.chance(0.15)
	for i := range 2 + min(r.IntN(7), r.IntN(7)) {
		p := s.newPlan(r, i)
		p.deaf = p.deaf || everybodyDeaf
		s.plans = append(s.plans, p)
	}
	wild := r.chance(0.3) // clocks that are wrong by more than anybody allows for
	for range 1 + min(r.IntN(3), r.IntN(3)) {
		s.rounds = append(s.rounds, s.newRound(r, wild))
	}
	for i := range s.plans { // last, so that seeds from before there was this mean what they meant
		s.plans[i].fair = r.chance(0.2)
	}
	for i := range s.rounds {
		n := &s.rounds[i]
		s.more(r, n)
		unwanted := func(name string) bool {
			return slices.ContainsFunc(without, func(text string) bool { return strings.Contains(name, text) })
		}
		n.faults = slices.DeleteFunc(n.faults, func(f fault) bool { return unwanted(f.kind.String()) })
		n.acts = slices.DeleteFunc(n.acts, func(a act) bool { return unwanted(a.kind.String()) })
	}
	s.named = !s.replicated || r.chance(0.5) // nats-server 2.15 names it; others answer 10164 where the stream is replicated
	return s
}

// more adds the kinds of trouble that scripts did not have at first. They are drawn last, so that everything else in a script
// is what its seed meant before.
func (s *script) more(r *dice, n *round) {
	for _, f := range []struct {
		kind   faultKind
		chance float64
	}{{readFails, 0.15}, {statusFails, 0.15}, {watchForged, 0.35}, {watchReplayed, 0.2}} {
		if r.chance(f.chance) {
			n.faults = append(n.faults, s.newFault(r, n.length, f.kind))
		}
	}
	for _, a := range []struct {
		kind   actKind
		chance float64
	}{{actReadsEnd, 0.05}, {actStatusEnds, 0.08}, {actClose, 0.15}, {actRewind, 0.35}} {
		if r.chance(a.chance) {
			n.acts = append(n.acts, act{
				kind: a.kind, at: r.upTo(n.length), slot: pick(r, holder, r.IntN(len(s.plans))),
				back: r.between(s.ttl/5, 2*s.ttl), blinds: r.chance(0.5),
			})
		}
	}
	slices.SortStableFunc(n.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
}

// newPlan decides what a candidate is like.
func (s *script) newPlan(r *dice, i int) plan {
	p := plan{
		name:      string(rune('a' + i)),
		standDown: -1, interval: -1, margin: -1, splay: -1, releaseTimeout: -1,
		plain:  r.chance(0.08),
		deaf:   r.chance(0.15),
		unread: r.chance(0.05),
		works:  r.chance(0.4),
		panics: r.chance(0.05),
		absent: i > 1 && r.chance(0.3),
	}
	if r.chance(0.4) {
		p.standDown = pick(r, 0, 20*time.Millisecond, s.ttl/4, s.ttl/2, s.ttl)
	}
	if r.chance(0.3) {
		p.interval = pick(r, s.ttl/3, s.ttl/2)
	}
	if r.chance(0.2) {
		p.margin = pick(r, 0, s.ttl/20, s.ttl/10)
	}
	if r.chance(0.5) {
		p.splay = 0
	}
	if r.chance(0.3) {
		p.releaseTimeout = pick(r, 0, s.ttl/4, 2*s.ttl)
	}
	if r.chance(0.2) {
		p.backoff = pick(r, 0, s.ttl/8, s.ttl/2, 2*s.ttl)
	}
	slow := func() time.Duration {
		if r.chance(0.75) {
			return 0
		}
		return pick(r, time.Millisecond, r.upTo(s.ttl/4), r.upTo(2*s.ttl))
	}
	p.won, p.lost, p.linger = slow(), slow(), slow()
	if r.chance(0.1) {
		p.campaign = r.upTo(s.ttl / 2)
	}
	if r.chance(0.15) {
		p.quits = r.upTo(3 * s.ttl)
	}
	return p
}

// newRound decides what goes wrong in a round, and what is done in it.
func (s *script) newRound(r *dice, wild bool) round {
	n := round{length: r.between(2*s.ttl, 6*s.ttl), calm: r.upTo(s.ttl), handover: r.chance(0.4)}
	for range 1 + r.IntN(6) {
		n.faults = append(n.faults, s.newFault(r, n.length, faultKind(r.IntN(int(firstFaults)))))
	}
	for range r.IntN(6) {
		n.acts = append(n.acts, s.newAct(r, n.length, wild))
	}
	slices.SortStableFunc(n.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	return n
}

// newFault decides the course of a fault in a round of the given length.
func (s *script) newFault(r *dice, length time.Duration, kind faultKind) fault {
	f := fault{
		kind:   kind,
		start:  r.upTo(length),
		length: pick(r, r.upTo(s.ttl/10), r.upTo(s.ttl/2), r.upTo(s.ttl*3/2), r.upTo(3*s.ttl)),
		victim: s.victim(r),
		chance: pick(r, 0.2, 0.5, 0.9, 1),
		delay:  pick(r, 5*time.Millisecond, s.ttl/20, s.ttl/4, s.ttl),
	}
	f.length = min(f.length, length-f.start)
	return f
}

func (s *script) victim(r *dice) int {
	switch {
	case r.chance(0.5):
		return holder
	case r.chance(0.2):
		return everyone
	}
	return r.IntN(len(s.plans))
}

func (s *script) newAct(r *dice, length time.Duration, wild bool) act {
	a := act{kind: actKind(r.IntN(int(firstActs))), at: r.upTo(length), slot: r.IntN(len(s.plans))}
	if r.chance(0.4) { // the ordinary ones are as many as all others
		a.kind = pick(r, actStart, actStop, actCancel, actCrash, actResign)
	}
	if a.kind != actStart && r.chance(0.5) {
		a.slot = holder
	}
	a.step = r.between(-40*time.Millisecond, 40*time.Millisecond)
	a.rate = float64(r.IntN(2001)-1000) / 1e5
	if wild {
		a.step = r.between(-s.ttl/2, s.ttl*9/10)
		a.rate *= 10
	}
	return a
}

// dice makes choices.
type dice struct{ *rand.Rand }

func (r *dice) chance(p float64) bool { return r.Float64() < p }

func (r *dice) upTo(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d) + 1)) }

func (r *dice) between(low, high time.Duration) time.Duration { return low + r.upTo(high-low) }

func pick[T any](r *dice, of ...T) T { return of[r.IntN(len(of))] }

// String tells the script.
func (s *script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "TTL %v, markers %v, replicated %v, sequences named %v, latency %v, lateness of expiry up to %v\n", s.ttl, s.markers, s.replicated, s.named, s.latency, s.lateness)
	for _, p := range s.plans {
		fmt.Fprintf(&b, "  candidate %+v\n", p)
	}
	for i, n := range s.rounds {
		fmt.Fprintf(&b, "  round %d: trouble for %v\n", i+1, n.length)
		for _, f := range n.faults {
			fmt.Fprintf(&b, "    %v at %v for %v, victim %d, chance %v, delay up to %v\n", f.kind, f.start, f.length, f.victim, f.chance, f.delay)
		}
		for _, a := range n.acts {
			fmt.Fprintf(&b, "    %v at %v, slot %d, step %v, rate %v, back %v, blinds %v\n", a.kind, a.at, a.slot, a.step, a.rate, a.back, a.blinds)
		}
	}
	return b.String()
}
