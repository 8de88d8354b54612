package sessions

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
	"github.com/natscampaign/election/internal/timing"
)

// script is what the seed of a schedule decides.
type script struct {
	seed    uint64
	ttl     time.Duration
	timing  timing.Timing
	latency time.Duration
	keys    []string
	plans   []plan
	rounds  []round

	claimsAtOnce int           // how many writes of claims may be under way
	logs         time.Duration // how long the loop of an election takes at most to log what it reports
}

// plan is a process.
type plan struct {
	name        string
	drift       int64
	unslewed    int64
	onlySlewed  bool
	work        bool
	callbacks   time.Duration
	lingers     []time.Duration // of each key
	workReturns time.Duration
	startsLater bool
	witness     bool
}

// round is a time of trouble, and the quiet after it.
type round struct {
	length time.Duration
	faults []fault
	acts   []act
}

// fault lasts for a while.
type fault struct {
	kind          faultKind
	start, length time.Duration
	victim        int // -1 for all
	chance        float64
	delay         time.Duration
}

// hits reports whether a process suffers the fault.
func (f *fault) hits(p *process) bool { return f.victim < 0 || f.victim == p.index }

// faultKind is a kind of fault.
type faultKind int

const (
	requestLost faultKind = iota
	requestLate
	replyLost
	replyLate
	conflict
	staleRead
	linkCut
	frozen
	deliveryLate
	numFaults
)

var faultNames = [numFaults]string{"requests lost", "requests late", "replies lost", "replies late", "transient conflicts", "stale reads", "link cut", "process frozen", "deliveries late"}

// act happens at once.
type act struct {
	kind   actKind
	at     time.Duration
	victim int
	key    int
	draw   time.Duration
	chance uint64
}

// actKind is a kind of act.
type actKind int

const (
	start actKind = iota
	stop
	crash
	stopKey
	loopPanics
	resign
	transfer
	evict
	forgeClaim
	usurp
	closeByStranger
	spoilSession
	forgeClaimRelease
	forgeSessionRelease
	restore
	clone
	forgeSettled
	rewind
	remake
	numActs
)

var actNames = [numActs]string{
	"starts", "is stopped", "crashes", "stops a key", "the loop of a key panics", "resigns a key", "hands a key over", "an operator evicts a claim",
	"a stranger writes a claim of a session that never was", "a stranger takes a claim with a session of its own", "a stranger closes a session", "a stranger overwrites a session",
	"a stranger forges the release of a claim", "a stranger forges the release of a session", "a stranger restores an older record", "a clone renews a session",
	"a stranger writes that the bucket is settled", "history goes back", "the bucket is made again",
}

// What else must occur.
const (
	witnessed = "released by a witness"
	late      = "released by a witness that is late"
	led       = "term led"
	rewound   = "two leaders after history went back"
	hidden    = "two leaders, of whom a history that went back has hidden the second from the first"
	believed  = "two leaders after a forged release of a term of which the second knew nothing"
)

var others = [...]string{witnessed, late, led}

// newScript returns the script of a seed, without faults and acts whose names contain one of the given texts.
func newScript(seed uint64, without ...string) *script {
	d := virtual.NewDice(seed, 1)
	s := &script{seed: seed, ttl: virtual.Pick(d, 2*time.Second, 5*time.Second, 15*time.Second), latency: d.Between(time.Millisecond/4, 3*time.Millisecond)}
	var durations timing.Durations
	if d.Chance(0.5) {
		interval := s.ttl / 4
		durations.Interval = &interval
	}
	t, err := durations.Timing(s.ttl)
	if err != nil {
		panic(err)
	}
	s.timing = t
	for i := range 1 + d.IntN(3) {
		s.keys = append(s.keys, fmt.Sprintf("k%d", i))
	}
	if d.Chance(0.5) {
		s.claimsAtOnce = 1
	}
	if d.Chance(0.3) {
		s.logs = d.UpTo(s.ttl / 40)
	}
	slewed := d.Chance(0.25)
	for i := range 2 + d.IntN(3) {
		p := plan{
			name: string(rune('a' + i)), work: d.Chance(0.7), callbacks: d.UpTo(s.ttl / 20),
			startsLater: i > 0 && d.Chance(0.2), witness: d.Chance(0.5),
		}
		for range s.keys {
			p.lingers = append(p.lingers, d.UpTo(s.ttl/4))
		}
		if d.Chance(0.1) {
			p.lingers[d.IntN(len(s.keys))] = d.UpTo(3 * s.ttl)
		}
		if d.Chance(0.1) {
			p.workReturns = d.Between(s.ttl/2, 5*s.ttl)
		}
		if slewed {
			p.drift = d.Int64N(2*judge.MaxDrift+1) - judge.MaxDrift
			if d.Chance(0.5) {
				p.drift = virtual.Pick(d, int64(-judge.MaxDrift), int64(judge.MaxDrift))
			}
			p.unslewed = d.Int64N(2*judge.MaxUnslewed+1) - judge.MaxUnslewed
			p.onlySlewed = d.Chance(0.3)
		}
		s.plans = append(s.plans, p)
	}
	for range 1 + d.IntN(3) {
		s.rounds = append(s.rounds, s.newRound(d, without))
	}
	return s
}

func (s *script) newRound(d *virtual.Dice, without []string) round {
	r := round{length: d.Between(s.ttl, 8*s.ttl)}
	leftOut := func(name string) bool {
		return slices.ContainsFunc(without, func(text string) bool { return strings.Contains(name, text) })
	}
	for range d.IntN(6) {
		f := fault{kind: faultKind(d.IntN(int(numFaults))), start: d.UpTo(r.length), length: d.UpTo(2 * s.ttl), victim: d.IntN(len(s.plans)+1) - 1, chance: d.Float64(), delay: d.UpTo(2 * s.ttl)}
		if !leftOut(faultNames[f.kind]) {
			r.faults = append(r.faults, f)
		}
	}
	rare := d.Chance(0.15)
	for range d.IntN(8) {
		a := act{kind: actKind(d.IntN(int(numActs))), at: d.UpTo(r.length), victim: d.IntN(len(s.plans)), key: d.IntN(len(s.keys)), draw: d.UpTo(2 * s.ttl), chance: d.Uint64()}
		if a.kind == rewind && !rare || leftOut(actNames[a.kind]) {
			continue
		}
		r.acts = append(r.acts, a)
	}
	slices.SortStableFunc(r.acts, func(a, b act) int { return int(a.at - b.at) })
	return r
}

// String lists the script.
func (s *script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "TTL %v, interval %v, latency %v, keys %v, claims at once %v\n", s.ttl, s.timing.Interval, s.latency, s.keys, s.claimsAtOnce)
	for _, p := range s.plans {
		fmt.Fprintf(&b, "  %+v\n", p)
	}
	for _, r := range s.rounds {
		fmt.Fprintf(&b, "round of %v\n", r.length)
		for _, f := range r.faults {
			fmt.Fprintf(&b, "  %v %+v\n", faultNames[f.kind], f)
		}
		for _, a := range r.acts {
			fmt.Fprintf(&b, "  %v %+v\n", actNames[a.kind], a)
		}
	}
	return b.String()
}
