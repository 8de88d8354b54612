package sim

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/test/schedules"
	"github.com/natscampaign/election/internal/test/sim/judge"
)

// An Explorer plays all schedules of a configuration with up to a number of faults: each kind of fault at each request, and each act at each quarter of
// a TTL. The candidates are those of the library, and the judge is that of all schedules.
//
// Nothing in such a schedule is random: candidates do not wait at random, and every message takes the same time. So a schedule is its faults, and the
// requests that a further fault can hit are those of the schedule without it.
type Explorer struct {
	Candidates int
	Faults     int  // at once, at most
	Connected  bool // the candidates know their connection
	Markers    bool // the server announces expiries
	Speeds     bool // the candidates' clocks run at different speeds
	Quarters   int  // how long the trouble lasts, in quarters of a TTL

	Report func(*schedules.Result) (goOn bool) // is called with each schedule that breaks a promise
	Part   func(first int) bool                // whether the schedules are played whose first fault has this number; nil for all

	Schedules int // that were played
	Requests  int // that were made in all of them
	Singles   int // schedules with one fault
	Coverage  *schedules.Coverage
}

// exploreTTL is the TTL of the bucket.
const exploreTTL = 2 * time.Second

// disruption is one fault of a schedule: of a request, or an act.
type disruption struct {
	request int // the number of the request, from 0; -1 for an act
	kind    requestFault
	delay   time.Duration
	act     act
	fault   fault // an act that lasts
}

// requestFault is what happens to one request.
type requestFault int

const (
	noRequestFault requestFault = iota
	losesRequest
	losesReply
	delaysRequest
	delaysReply
	conflicts
	hasNoLeader
	readsStale
)

var requestFaultNames = [...]string{"none", "request lost", "reply lost", "late request", "late reply", "transient conflict", "no stream leader", "stale read"}

// String describes the disruption.
func (d disruption) String() string {
	switch {
	case d.request >= 0:
		return fmt.Sprintf("%s of request %d by %v", requestFaultNames[d.kind], d.request, d.delay)
	case d.fault.length > 0:
		return fmt.Sprintf("%v of %d at %v for %v", d.fault.kind, d.fault.victim, d.fault.start, d.fault.length)
	}
	return fmt.Sprintf("%v of %d at %v", d.act.kind, d.act.slot, d.act.at)
}

// explored is what a world is told of the disruptions of requests.
type explored struct {
	disruptions []disruption
	requests    int // that were made
}

// String describes the disruptions.
func (x *explored) String() string {
	if x == nil {
		return ""
	}
	return fmt.Sprintln(x.disruptions)
}

// fate returns what happens to the next request.
func (x *explored) fate(o op) fate {
	n := x.requests
	x.requests++
	f := fate{}
	for _, d := range x.disruptions {
		if d.request != n {
			continue
		}
		switch d.kind {
		case losesRequest:
			f.requestLost = true
		case losesReply:
			f.replyLost = true
		case delaysRequest:
			f.requestDelay = d.delay
		case delaysReply:
			f.replyDelay = d.delay
		case conflicts:
			f.conflict = o.writes()
		case hasNoLeader:
			f.err, f.replyDelay = jetstream.ErrNoStreamResponse, noStreamTime
		case readsStale:
			f.stale = judge.StaleLimit
		}
	}
	return f
}

// Run plays all schedules. It returns false if Report ended it.
func (x *Explorer) Run() bool {
	x.Coverage = schedules.NewCoverage(steps)
	requests, ok := x.play(nil)
	return ok && x.extend(nil, requests, 0)
}

// extend plays all schedules that have one fault more than the given ones, and so on. requests is how many requests the present one makes, and from is
// the number of the first act that may be added: acts that are exchanged are the same schedule.
func (x *Explorer) extend(with []disruption, requests, from int) bool {
	if len(with) == x.Faults {
		return true
	}
	number := 0
	next := func(d disruption, acts int) bool {
		number++
		if len(with) == 0 && x.Part != nil && !x.Part(number) {
			return true
		}
		more := append(with[:len(with):len(with)], d)
		n, ok := x.play(more)
		if len(with) == 0 {
			x.Singles++
		}
		return ok && x.extend(more, n, acts)
	}
	first := 0
	for _, d := range with { // faults of requests come in the order of these
		if d.request >= first {
			first = d.request + 1
		}
	}
	acts := x.acts()
	for i := from; i < len(acts); i++ {
		if !next(acts[i], i) {
			return false
		}
	}
	for request := first; request < requests; request++ {
		for kind := losesRequest; kind <= readsStale; kind++ {
			delays := []time.Duration{0}
			switch kind {
			case delaysRequest:
				delays = []time.Duration{exploreTTL / 4, exploreTTL / 2, exploreTTL, exploreTTL * 3 / 2}
			case delaysReply:
				delays = []time.Duration{exploreTTL / 8, exploreTTL / 5}
			}
			for _, delay := range delays {
				if !next(disruption{request: request, kind: kind, delay: delay}, len(acts)) {
					return false
				}
			}
		}
	}
	return true
}

// acts returns all acts, at each quarter of a TTL, and all faults that last, for some quarters.
func (x *Explorer) acts() (all []disruption) {
	for quarter := range x.Quarters {
		at := time.Duration(quarter)*exploreTTL/4 + 50*time.Millisecond // not just when everything else happens
		add := func(a act) {
			a.at = at
			all = append(all, disruption{request: -1, act: a})
		}
		for _, kind := range []actKind{actDelete, actPurge, actForeignRecord, actForeignCreate, actRecreate, actResetSequence} {
			add(act{kind: kind})
		}
		for back := range 2 {
			add(act{kind: actRewind, back: exploreTTL / 2 * time.Duration(1+back)})
		}
		add(act{kind: actRelease, draw: 1})
		for draw := range uint64(6) {
			add(act{kind: actIntrude, slot: holder, draw: draw})
		}
		add(act{kind: actNever})
		add(act{kind: actOverlong, draw: 2})
		for slot := range x.Candidates {
			for _, kind := range []actKind{actCrash, actStop, actCancel, actResign, actClone} {
				add(act{kind: kind, slot: slot})
			}
			for _, kind := range []faultKind{linkCut, processFrozen, notificationForged, watcherStalled} {
				for _, quarters := range []int{1, 3, 5} {
					all = append(all, disruption{request: -1, fault: fault{
						kind: kind, start: at, length: time.Duration(quarters) * exploreTTL / 4, victim: slot, chance: 1, delay: exploreTTL / 4,
					}})
				}
			}
		}
	}
	return all
}

// drift returns by how many millionths the clock of a candidate runs faster: that of the first, which comes to lead, is the slowest.
func (x *Explorer) drift(i int) int64 {
	switch {
	case !x.Speeds:
		return 0
	case i == 0:
		return -judge.MaxDrift
	}
	return judge.MaxDrift
}

// play plays one schedule, and returns how many requests it made.
func (x *Explorer) play(disruptions []disruption) (requests int, goOn bool) {
	s := &script{ttl: exploreTTL, markers: x.Markers, remembers: x.Markers, named: true, pinned: true, republishes: true, latency: time.Millisecond}
	for i := range x.Candidates {
		s.plans = append(s.plans, plan{
			name: string(rune('a' + i)), standDown: -1, interval: -1, margin: -1, splay: 0, releaseTimeout: -1, connected: x.Connected, direct: x.Connected, order: core.ByRank,
			drift:      x.drift(i),
			onlySlewed: x.Speeds && i == 2,
			hasWork:    true, workLingers: exploreTTL / 4 / time.Duration(1+i), // so that a release waits for it, and the key is renewed meanwhile
		})
	}
	r := round{length: time.Duration(x.Quarters) * exploreTTL / 4, quiet: exploreTTL / 4}
	for _, d := range disruptions {
		switch {
		case d.request >= 0:
		case d.fault.length > 0:
			r.faults = append(r.faults, d.fault)
		default:
			r.acts = append(r.acts, d.act)
		}
	}
	r.sortActs()
	s.rounds = []round{r}
	faults := &explored{disruptions: disruptions}
	result := run(s, faults)
	x.Schedules++
	x.Requests += faults.requests
	x.Coverage.Add(result.Coverage)
	if len(result.Failures) > 0 {
		goOn = x.Report(result)
		return faults.requests, goOn
	}
	return faults.requests, true
}
