package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/test/sim/judge"
	"github.com/natscampaign/election/internal/test/virtual"
)

// round is a time of trouble and the quiet after it.
type round struct {
	length     time.Duration // of the trouble
	quiet      time.Duration // how long the quiet lasts once a candidate leads
	handover   bool          // whether the leader then resigns
	targetGone bool          // it hands over instead, to a candidate that crashes
	idle       time.Duration // how long all candidates are stopped after that, until one starts; 0 for not at all
	apiSilent  bool          // and the API of JetStream answers nobody meanwhile
	faults     []fault
	acts       []act
}

// script is everything that the seed decides beforehand.
type script struct {
	seed        uint64
	ttl         time.Duration
	markers     bool          // whether the server announces expiries by markers
	replicated  bool          // whether a write without a quorum blocks others
	named       bool          // whether a refusal names the last sequence of the key
	pinned      bool          // whether the metadata of the stream says when it was created
	republishes bool          // whether the bucket republishes what it commits
	changesTTL  bool          // whether the TTL of the bucket is now and then up to twice as long
	beginsShort bool          // whether it is the shortest at first, and then up to six times as long
	remembers   bool          // whether releases never expire
	latency     time.Duration // of a message one way
	lateness    time.Duration // the longest delay of an expiry
	plans       []plan
	rounds      []round
}

// markerTTL returns how long the marker of an expiry stays.
func (s *script) markerTTL() time.Duration { return min(s.ttl, time.Second) }

// longest returns the longest TTL that the bucket has in this script; ttl is the shortest.
func (s *script) longest() time.Duration {
	switch {
	case s.beginsShort:
		return 6 * s.ttl
	case s.changesTTL:
		return 2 * s.ttl
	}
	return s.ttl
}

// initial returns the TTL with which the bucket is made.
func (s *script) initial() time.Duration {
	if s.beginsShort {
		return s.ttl
	}
	return s.longest()
}

// newScript writes the script of a seed. It leaves out faults and acts whose names contain one of the given texts.
func newScript(seed uint64, without ...string) *script {
	r := virtual.NewDice(seed, 0x656c656374696f6e)
	s := &script{
		seed:       seed,
		ttl:        virtual.Pick[time.Duration](r, 1, 2, 2, 3, 5, 10) * time.Second,
		markers:    r.Chance(0.6),
		replicated: r.Chance(0.5),
		latency:    r.Between(100*time.Microsecond, 3*time.Millisecond),
		lateness:   virtual.Pick[time.Duration](r, 5, 50, 350) * time.Millisecond,
	}
	nobodyWatches := r.Chance(0.15)
	for i := range 2 + min(r.IntN(7), r.IntN(7)) {
		p := s.newPlan(r, i)
		p.noWatch = p.noWatch || nobodyWatches
		s.plans = append(s.plans, p)
	}
	wild := r.Chance(0.3) // clocks err by more than any option allows for
	for range 1 + min(r.IntN(3), r.IntN(3)) {
		s.rounds = append(s.rounds, s.newRound(r, wild))
	}
	unwanted := func(name string) bool {
		return slices.ContainsFunc(without, func(text string) bool { return strings.Contains(name, text) })
	}
	for i := range s.rounds {
		s.addLaterKinds(r, &s.rounds[i])
	}
	s.named = !s.replicated || r.Chance(0.5) // nats-server 2.15 names it; others answer 10164 for a replicated stream
	s.addStrangers(r)
	s.addConnections(r)
	s.addSpeeds(virtual.NewDice(seed, 0x7370656564)) // which leaves the rest of a script what its seed meant before
	s.addIntruders(virtual.NewDice(seed, 0x696e7472756465))
	s.addReleases(virtual.NewDice(seed, 0x72656c65617365))
	s.addUntold(virtual.NewDice(seed, 0x756e746f6c64))
	for i := range s.rounds {
		n := &s.rounds[i]
		n.faults = slices.DeleteFunc(n.faults, func(f fault) bool { return unwanted(f.kind.String()) })
		n.acts = slices.DeleteFunc(n.acts, func(a act) bool { return unwanted(a.kind.String()) })
	}
	return s
}

// newRound decides what goes wrong in a round.
func (s *script) newRound(r *virtual.Dice, wild bool) round {
	n := round{length: r.Between(2*s.ttl, 6*s.ttl), quiet: r.UpTo(s.ttl), handover: r.Chance(0.4)}
	for range 1 + r.IntN(6) {
		n.faults = append(n.faults, s.newFault(r, n.length, faultKind(r.IntN(int(originalFaults)))))
	}
	for range r.IntN(6) {
		n.acts = append(n.acts, s.newAct(r, n.length, wild))
	}
	n.sortActs()
	return n
}

func (n *round) sortActs() {
	slices.SortStableFunc(n.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
}

// addLaterKinds adds the kinds of trouble that the first scripts did not have. It draws them after these, so that those
// stay what the seed meant before. A new kind does not belong here, for the kinds below are drawn from the same dice: it has dice of its own, as
// in addSpeeds.
func (s *script) addLaterKinds(r *virtual.Dice, n *round) {
	for _, f := range []struct {
		kind   faultKind
		chance float64
	}{{readFails, 0.15}, {statusFails, 0.15}, {notificationForged, 0.35}, {notificationReplayed, 0.2}} {
		if r.Chance(f.chance) {
			n.faults = append(n.faults, s.newFault(r, n.length, f.kind))
		}
	}
	for _, a := range []struct {
		kind   actKind
		chance float64
	}{{actReadsFail, 0.05}, {actStatusFails, 0.08}, {actClose, 0.15}, {actRewind, 0.35}} {
		if r.Chance(a.chance) {
			n.acts = append(n.acts, act{
				kind: a.kind, at: r.UpTo(n.length), slot: virtual.Pick(r, holder, r.IntN(len(s.plans))),
				back: r.Between(s.ttl/5, 2*s.ttl), stallsWatches: r.Chance(0.5),
			})
		}
	}
	n.sortActs()
}

// addStrangers adds what strangers, copies and operators do to a bucket of which the first scripts knew nothing.
func (s *script) addStrangers(r *virtual.Dice) {
	s.pinned = r.Chance(0.5)
	s.changesTTL = r.Chance(0.1)
	kinds := map[actKind]float64{actRelease: 0.1, actCopy: 0.1, actClone: 0.1, actCreated: 0.15}
	if s.changesTTL {
		kinds[actTTL] = 0.9
		for i := range s.plans { // defaults would follow the TTL
			p := &s.plans[i]
			p.standDown, p.interval, p.margin = p.standDownOf(s.ttl), p.intervalOf(s.ttl), p.marginOf(s.ttl)
		}
	}
	for i := range s.rounds {
		n := &s.rounds[i]
		for kind := actRelease; kind <= actTTL; kind++ {
			if r.Chance(kinds[kind]) {
				n.acts = append(n.acts, act{
					kind: kind, at: r.UpTo(n.length), slot: virtual.Pick(r, holder, r.IntN(len(s.plans))),
					ttl: virtual.Pick(r, s.ttl, s.ttl*3/2, 2*s.ttl), draw: r.Uint64(),
				})
			}
		}
		n.sortActs()
	}
}

// addConnections decides which candidates know their connection, and what that allows: republished notifications, a roster of the candidates or the
// queue of a lock, priorities, and requests of operators.
func (s *script) addConnections(r *virtual.Dice) {
	s.republishes = r.Chance(0.7)
	all, order := r.Chance(0.5), virtual.Pick(r, core.ByRank, core.ByRank, core.ByRank, core.ByArrival, core.ByChance)
	for i := range s.plans {
		p := &s.plans[i]
		p.connected, p.order = all || r.Chance(0.5), order
		if r.Chance(0.3) {
			p.priority = r.IntN(3)
		}
		p.preempts = p.priority > 0 && r.Chance(0.3)
	}
	for i := range s.rounds {
		n := &s.rounds[i]
		if r.Chance(0.3) {
			n.acts = append(n.acts, act{kind: actTransfer, at: r.UpTo(n.length), slot: holder})
		}
		if r.Chance(0.15) {
			at := r.UpTo(n.length)
			n.acts = append(n.acts, act{kind: actPause, at: at}, act{kind: actResume, at: at + r.UpTo(n.length-at)})
		}
		n.sortActs()
	}
}

// differentSpeeds counts schedules in which the clocks of candidates run at different speeds.
const differentSpeeds = "clocks at different speeds"

// addSpeeds has the clocks of candidates run at different speeds, in some schedules.
func (s *script) addSpeeds(r *virtual.Dice) {
	if !r.Chance(0.25) {
		return
	}
	for i := range s.plans {
		p := &s.plans[i]
		p.drift = virtual.Pick(r, -judge.MaxDrift, judge.MaxDrift, r.Int64N(2*judge.MaxDrift+1)-judge.MaxDrift)
		p.unslewed = virtual.Pick[int64](r, 0, -judge.MaxUnslewed, judge.MaxUnslewed)
		p.onlySlewed = r.Chance(0.3)
	}
}

// addIntruders adds what somebody does who may write the key and knows how candidates decide, and a handover to a candidate that is gone.
func (s *script) addIntruders(r *virtual.Dice) {
	for i := range s.rounds {
		n := &s.rounds[i]
		for _, a := range []struct {
			kind   actKind
			chance float64
		}{{actIntrude, 0.15}, {actNever, 0.08}, {actOverlong, 0.08}, {actGone, 0.1}} {
			if r.Chance(a.chance) {
				n.acts = append(n.acts, act{kind: a.kind, at: r.UpTo(n.length), slot: holder, draw: r.Uint64()})
			}
		}
		n.sortActs()
		n.targetGone, n.apiSilent = r.Chance(0.2), r.Chance(0.3)
	}
}

// addUntold has the TTL become longer than it ever was, and decides which candidates are not told that it has changed.
func (s *script) addUntold(r *virtual.Dice) {
	s.beginsShort = s.changesTTL && r.Chance(0.5)
	for _, n := range s.rounds {
		for i := range n.acts {
			a := &n.acts[i]
			if a.kind != actTTL {
				continue
			}
			if a.untold = r.Uint64(); r.Chance(0.3) {
				a.untold = 0
			}
			if s.beginsShort {
				a.ttl = virtual.Pick(r, s.ttl, 2*s.ttl, 6*s.ttl, 6*s.ttl)
			}
		}
	}
}

// addReleases decides which releases are deletions, whether they last, and when all candidates stop for a while: in the quiet, or in the trouble, where
// the history may go back to a release of any age.
func (s *script) addReleases(r *virtual.Dice) {
	s.remembers = s.markers && r.Chance(0.7)
	for i := range s.plans {
		s.plans[i].direct = s.plans[i].connected && r.Chance(0.9)
	}
	for i := range s.rounds {
		n := &s.rounds[i]
		if r.Chance(0.3) {
			n.idle = r.Between(s.ttl/2, 4*s.ttl)
		}
		if !s.remembers || !r.Chance(0.3) {
			continue
		}
		n.length += 4 * s.ttl
		stops := r.UpTo(s.ttl)
		for slot := range s.plans {
			n.acts = append(n.acts, act{kind: actStop, at: stops, slot: slot}, act{kind: actStart, at: stops + r.Between(s.ttl, 4*s.ttl), slot: slot})
		}
		if r.Chance(0.4) {
			n.acts = append(n.acts, act{kind: actRewind, at: n.length - r.UpTo(s.ttl), back: r.Between(s.ttl, n.length), stallsWatches: r.Chance(0.5)})
		}
		n.sortActs()
	}
}

// newFault decides the course of a fault in a round of the given length.
func (s *script) newFault(r *virtual.Dice, length time.Duration, kind faultKind) fault {
	f := fault{
		kind:   kind,
		start:  r.UpTo(length),
		length: virtual.Pick(r, r.UpTo(s.ttl/10), r.UpTo(s.ttl/2), r.UpTo(s.ttl*3/2), r.UpTo(3*s.ttl)),
		victim: s.victim(r),
		chance: virtual.Pick(r, 0.2, 0.5, 0.9, 1),
		delay:  virtual.Pick(r, 5*time.Millisecond, s.ttl/20, s.ttl/4, s.ttl),
	}
	f.length = min(f.length, length-f.start)
	return f
}

func (s *script) victim(r *virtual.Dice) int {
	switch {
	case r.Chance(0.5):
		return holder
	case r.Chance(0.2):
		return everyone
	}
	return r.IntN(len(s.plans))
}

func (s *script) newAct(r *virtual.Dice, length time.Duration, wild bool) act {
	a := act{kind: actKind(r.IntN(int(originalActs))), at: r.UpTo(length), slot: r.IntN(len(s.plans))}
	if r.Chance(0.4) { // the ordinary acts are as many as all others
		a.kind = virtual.Pick(r, actStart, actStop, actCancel, actCrash, actResign)
	}
	if a.kind != actStart && r.Chance(0.5) {
		a.slot = holder
	}
	a.step = r.Between(-40*time.Millisecond, 40*time.Millisecond)
	a.rate = float64(r.IntN(2001)-1000) / 1e5
	if wild {
		a.step = r.Between(-s.ttl/2, s.ttl*9/10)
		a.rate *= 10
	}
	return a
}

// String describes the script.
func (s *script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "TTL %v to %v, pinned %v, markers %v, remembers %v, replicated %v, sequences named %v, latency %v, expiries up to %v late\n", s.ttl, s.longest(), s.pinned, s.markers, s.remembers, s.replicated, s.named, s.latency, s.lateness)
	for _, p := range s.plans {
		fmt.Fprintf(&b, "  candidate %+v\n", p)
	}
	for i, n := range s.rounds {
		fmt.Fprintf(&b, "  round %d: trouble for %v\n", i+1, n.length)
		for _, f := range n.faults {
			fmt.Fprintf(&b, "    %v at %v for %v, victim %d, chance %v, delay up to %v\n", f.kind, f.start, f.length, f.victim, f.chance, f.delay)
		}
		for _, a := range n.acts {
			fmt.Fprintf(&b, "    %v at %v, slot %d, step %v, rate %v, back %v, stalls watchers %v, TTL %v, draw %d\n", a.kind, a.at, a.slot, a.step, a.rate, a.back, a.stallsWatches, a.ttl, a.draw)
		}
	}
	return b.String()
}
