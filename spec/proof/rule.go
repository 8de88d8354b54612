package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The kinds of what is stored under the key.
const (
	nothing   = "0" // not even a marker
	record    = "1" // of a holder
	release   = "2"
	marker    = "3" // of an expiry
	tombstone = "4" // of a deletion
	foreign   = "5" // what a stranger wrote: a copy of the holder's record, a release, a bare name
)

// The states of a candidate. It has not won yet while it campaigns, or does not know it.
const (
	campaigns = "0"
	elect     = "1"
	leader    = "2"
	drains    = "3" // leadership has ended; the key is kept until the work has returned, if it can be
	dead      = "4"
)

// The variables of the state, and their sorts. Those of a candidate are functions of it.
var ofKey = map[string]string{
	"now":    "Real",
	"rev":    "Int",  // the last revision, and
	"stamp":  "Int",  // the server's stamp of it: a number that nobody knows before
	"kind":   "Int",  // of what is stored
	"own":    "Cand", // who wrote the record or the release
	"sent":   "Real", // when what is stored was sent, and
	"stored": "Real", // when it was stored
	"left":   "Real", // how long whoever wins now has to stand down: of a record as its writer states it
	"clear":  "Real", // nobody but the holder leads from this time on: a bound that nobody knows
	"states": "Real", // the lease that a stranger's record states
	// What the last stranger replaced: its revision, as the header says that the server has checked, or -1; its stamp; and when it was stored.
	"wasRev":    "Int",
	"wasStamp":  "Int",
	"wasStored": "Real",
}

var ofCandidate = map[string]string{
	"state":   "Int",
	"won":     "Bool", // its acquisition was stored, at the revision
	"number":  "Int",
	"base":    "Real", // what clear was then
	"stated":  "Real", // and left
	"knows":   "Bool", // that it has won
	"led":     "Bool",
	"works":   "Bool",
	"counts":  "Real", // leadership counts from the first renewal that is sent at this time or later
	"until":   "Real", // the lease, by its last acknowledged write
	"learnt":  "Real", // when it learnt of that
	"doubt":   "Bool", // a write of its own was stored, and it does not know that yet:
	"asked":   "Real", // when that write was sent
	"sight":   "Int",  // the revision that it read or was notified of last,
	"mark":    "Int",  // with this stamp,
	"seen":    "Real", // and when that came first
	"read":    "Bool", // it has read the two
	"knowsOf": "Bool", // it has read what the last stranger wrote, and knows that
	"over":    "Real", // all leases from before the stranger are over from this time on
	"gone":    "Bool", // it has given up what it held
	// It won before the server last lost writes, by a restart after a power cut or from a copy. The history is another one since, and nothing is
	// promised of its term any more:
	"excused": "Bool",
	"told":    "Bool", // and it knows that
}

// assumptions are all that is assumed of the durations; docs/MODEL.md has them. early is by how much the server may expire a key too early.
var assumptions = map[string]string{
	"durations":                  "(and (> ttl 0) (> lease 0) (>= standDown 0) (>= lapse 0) (>= settle 0) (>= early 0) (< early ttl))",
	"stand-down after an expiry": "(<= lease (+ (- ttl early) standDown))",
	"takeover of a lapsed lease": "(<= lease lapse)",
}

var durations = []string{"ttl", "lease", "standDown", "lapse", "settle", "early"}

// transition is what happens at one instant. The candidate that acts is c. Choices are what the rule leaves open. A guard holds of the key and c; one of
// everyone holds of every candidate x. The rule has those guards only that the proof needs: so a dead candidate may die again.
type transition struct {
	name     string
	in       string // where the program does it, or of sessions spec/session.pml; for readers only
	choices  map[string]string
	guards   map[string]string
	everyone map[string]string
	sets     map[string]string // of the key, and of c
	all      map[string]string // of every candidate x
}

// language is what a rule is written in: its variables, and what its invariant says with them.
type language struct {
	key, candidate               map[string]string // the variables of the state, and their sorts
	durations                    []string
	aboutKey, aboutOne, aboutTwo []lemma
	initially                    func(who []string) []string // the first state, as far as it is about some candidates
}

// rule is a transition system, or a weakening of one.
type rule struct {
	*language
	name        string
	transitions []transition
	assumptions map[string]string
	leads       string                  // that x leads now
	more        func(rule) []obligation // what follows from the invariant besides; nil for nothing
}

func elections() rule {
	return rule{
		&language{ofKey, ofCandidate, durations, aboutKey, aboutOne, aboutTwo, initially}, "", transitions(), maps.Clone(assumptions),
		"(and (= (state x) 2) (< now (until x)) (not (excused x)))",
		func(r rule) []obligation { return append(r.growing(), r.again()) },
	}
}

// find returns the transition of a name.
func (r rule) find(name string) *transition {
	i := slices.IndexFunc(r.transitions, func(t transition) bool { return t.name == name })
	if i < 0 {
		panic("no transition is named " + name)
	}
	return &r.transitions[i]
}

// ofEveryone returns what the guards of a transition say of some candidates.
func (t *transition) ofEveryone(who []string) (all []string) {
	for _, guard := range sorted(t.everyone) {
		for _, x := range who {
			all = append(all, about(guard, x, ""))
		}
	}
	return all
}

func transitions() []transition {
	max := func(a, b string) string { return fmt.Sprintf("(ite (>= %s %s) %s %s)", a, b, a, b) }
	store := func(t transition, sets map[string]string) transition { // something is stored at this instant
		if t.choices == nil {
			t.choices = map[string]string{}
		}
		t.choices["r"], t.choices["m"] = "Int", "Int"
		t.guards["revisions grow"] = "(> r rev)"
		t.everyone = map[string]string{"nobody knew the stamp": "(not (= (mark x) m))"}
		t.sets = map[string]string{"rev": "r", "stamp": "m", "sent": "now", "stored": "now"}
		maps.Copy(t.sets, sets)
		return t
	}
	write := func(t transition, sets map[string]string) transition { // c's write is stored over what is there
		t.choices = map[string]string{"s": "Real"}
		t.guards["sent before"] = "(<= s now)"
		t = store(t, map[string]string{"kind": record, "own": "c", "sent": "s"})
		maps.Copy(t.sets, sets)
		return t
	}
	acquisition := func(clear, left string) map[string]string {
		return map[string]string{
			"won": "true", "number": "r", "base": clear, "stated": left, "left": left, "clear": clear, "doubt": "true", "asked": "s",
		}
	}
	// from when on the holder does not lead either, if it writes nothing more
	ends := "(ite (= kind 1) " + max("clear", "(+ sent lease)") + " clear)"
	holds := "(and (= kind 1) (= own c))"
	saw := "(and (= (sight c) rev) (= (mark c) stamp))"      // the read at the takeover shows the revision and the stamp
	seen := func(sets map[string]string) map[string]string { // what c saw before says nothing new
		maps.Copy(sets, map[string]string{"sight": "r", "mark": "m", "seen": "(ite (and (= r (sight c)) (= m (mark c))) (seen c) now)"})
		return sets
	}
	hasNotWon := "(and (or (= (state c) 0) (= (state c) 4)) (not (won c)))" // it may be dead by now: its write was under way
	atOnce := "(and (< now u) (= (stated c) 0))"                            // over a release that leaves nothing to stand down for
	count := "(and (not (led c)) (>= (asked c) (counts c)))"                // leadership counts from this renewal
	return []transition{
		{
			name: "time passes", in: "tick", choices: map[string]string{"t": "Real"},
			guards: map[string]string{"forwards": "(>= t now)"},
			sets:   map[string]string{"now": "t"},
		},
		write(transition{name: "win", in: "bidding.contest", guards: map[string]string{
			"has not won": hasNotWon, "vacant": "(not (or (= kind 1) (= kind 5)))",
		}}, acquisition("clear", "left")),
		write(transition{name: "takeover of a lapsed lease", in: "Candidate.hasLapsed", guards: map[string]string{
			"has not won": hasNotWon, "over what it saw": saw,
			"lapsed": "(>= s (+ (seen c) " + max("lapse", "(ite (= kind 5) states 0.0)") + "))", // no shorter lease is believed
		}}, acquisition(ends, "left")),
		write(transition{name: "takeover of what should have expired", in: "Candidate.outlived", guards: map[string]string{
			"has not won": hasNotWon, // for how long it has stood does not matter
		}}, acquisition(ends, max("left", "lapse"))),
		write(transition{name: "win over a stranger's release", in: "Candidate.inheritFrom", guards: map[string]string{
			"has not won": hasNotWon, "a stranger's": "(= kind 5)",
		}}, acquisition("clear", "(ite (knowsOf c) "+max("0.0", "(- (over c) s)")+" lapse)")),
		write(transition{name: "renewal", in: "Candidate.renew", guards: map[string]string{
			"of the record that it knows": "(and " + holds + " (knows c) (not (doubt c)))", "sent after it learnt of that": "(>= s (learnt c))",
		}}, map[string]string{
			"doubt": "true", "asked": "s",
			"left": "(ite (led c) 0.0 " + max("0.0", "(- (counts c) s)") + ")", // what is left of its own stand-down
		}),
		{
			name: "the win is acknowledged", in: "newTerm", choices: map[string]string{"u": "Real", "n": "Real"},
			guards: map[string]string{
				"won": "(and (= (state c) 0) (won c) (doubt c))", "counts after the stand-down": "(>= n (+ now (stated c)))", "by the clock": "(<= u (+ (asked c) lease))",
			},
			sets: map[string]string{
				"doubt": "false", "knows": "true", "learnt": "now", "until": "u", "counts": "n",
				"state": "(ite " + atOnce + " 2 (ite (< now u) 1 3))", "led": atOnce, "works": atOnce,
			},
		},
		{
			name: "a renewal is acknowledged", in: "Candidate.extend", choices: map[string]string{"u": "Real"},
			guards: map[string]string{
				"renewed": "(and (or (= (state c) 1) (= (state c) 2)) (doubt c))", "by the clock": "(<= u " + max("(until c)", "(+ (asked c) lease)") + ")",
				"the lease is not over": "(< now (until c))",
			},
			sets: map[string]string{
				"doubt": "false", "learnt": "now", "until": "u",
				"state": "(ite " + count + " 2 (state c))", "led": "(or (led c) " + count + ")", "works": "(or (works c) " + count + ")",
			},
		},
		{
			name: "an acknowledgement comes too late", in: "Candidate.extend",
			guards: map[string]string{"renewed": "(and (knows c) (doubt c))"},
			sets:   map[string]string{"doubt": "false", "learnt": "now", "state": "(ite (= (state c) 4) 4 3)"},
		},
		{
			name: "leadership ends", in: "Candidate.endLeadership",
			guards: map[string]string{"holds": "(or (= (state c) 1) (= (state c) 2))"},
			sets:   map[string]string{"state": drains},
		},
		{
			name: "the work returns", in: "releasing.waited",
			sets: map[string]string{"works": "false"},
		},
		store(transition{
			name: "release", in: "releasing.release",
			guards: map[string]string{"drains": "(and (= (state c) 3) (knows c))", "of its own record": holds, "after the work": "(not (works c))"},
		}, map[string]string{"kind": release, "left": "(ite (led c) 0.0 " + max("0.0", "(- (counts c) now)") + ")"}),
		{
			name: "death", in: "a crash",
			sets: map[string]string{"state": dead, "works": "false"},
		},
		store(transition{
			name: "release by a witness", in: "releaser",
			guards: map[string]string{"of a dead process": "(= (state c) 4)", "of its record": holds},
		}, map[string]string{"kind": release, "left": max("left", "settle")}),
		store(transition{
			name: "expiry", in: "Server",
			guards: map[string]string{"by the server's clock": "(>= now (- (+ stored ttl) early))"},
		}, map[string]string{"kind": marker, "left": "standDown", "clear": ends}),
		store(transition{
			name: "deletion", in: "Evict", guards: map[string]string{},
		}, map[string]string{"kind": tombstone, "left": "lapse", "clear": ends}),
		func() transition { // who is first over a holder's record: what was known of an earlier stranger does not matter
			t := store(transition{
				name: "a stranger writes", in: "Server", choices: map[string]string{"h": "Int", "l": "Real", "w": "Real"},
				guards: map[string]string{"a condition that the server has checked, or none": "(or (= h rev) (= h (- 1)))", "past": "(>= l 0)"},
			}, map[string]string{"kind": foreign, "left": "l", "states": "w", "clear": ends, "wasRev": "h", "wasStamp": "stamp", "wasStored": "stored"})
			t.all = map[string]string{"knowsOf": "(and (= kind 5) (knowsOf x))"}
			return t
		}(),
		{
			name: "a refusal proves the loss", in: "Candidate.interpret",
			guards: map[string]string{"held": "(knows c)", "somebody else wrote, or it was removed": "(not " + holds + ")"},
			sets:   map[string]string{"gone": "true", "state": "(ite (= (state c) 4) 4 3)"},
		},
		{
			name: "the history goes back", in: "Server",
			choices: map[string]string{
				"k": "Int", "o": "Cand", "v": "Real", "w": "Real", "l": "Real", "r": "Int", "m": "Int", "h": "Int", "n": "Int", "u": "Real",
			},
			guards: map[string]string{
				"to what was stored before": "(and (<= v w) (<= w now) (>= k 0) (<= k 5) (>= l 0) (=> (or (= k 1) (= k 2)) (won o)))",
				"to an earlier revision":    "(and (>= r 0) (< r rev) (< h r) (<= u w))",
			},
			sets: map[string]string{
				"kind": "k", "own": "o", "sent": "v", "stored": "w", "left": "l", "rev": "r", "stamp": "m", "clear": "u", "wasRev": "h", "wasStamp": "n", "wasStored": "u",
			},
			all: map[string]string{"excused": "(or (excused x) (won x))", "sight": "(- 1)", "read": "false"}, // a candidate that may have missed something forgets what it saw
		},
		{
			name: "a refusal names a lower revision", in: "Candidate.interpret",
			guards: map[string]string{"of a history that went back": "(and (knows c) (excused c))"},
			sets:   map[string]string{"told": "true", "state": "(ite (= (state c) 4) 4 3)"},
		},
		{
			name: "a notification", in: "Candidate.changed", choices: map[string]string{"r": "Int", "m": "Int"}, // of what was written, or will be, or never
			guards: map[string]string{},
			sets:   seen(map[string]string{"read": "(and (read c) (= r (sight c)) (= m (mark c)))"}),
		},
		{
			name: "a read", in: "Candidate.finishRead", choices: map[string]string{"r": "Int", "m": "Int"},
			guards: map[string]string{
				"of what is stored, or was": "(or (and (= r rev) (= m stamp)) (and (>= r 0) (< r rev) (=> (= r wasRev) (= m wasStamp))))",
			},
			sets: seen(map[string]string{"read": "true"}),
		},
		{
			name: "a stranger's record is read", in: "Candidate.replacedLast",
			sets: map[string]string{
				"knowsOf": "true",
				"over":    "(+ (ite (and (read c) (= (sight c) wasRev)) (seen c) now) lapse)", // the holder wrote nothing in between, or may have
			},
		},
	}
}

// system declares the durations, the named candidates, and the state before and after a transition. A name of the state after ends with ^.
func (l *language) system(t *transition, who []string) string {
	var b strings.Builder
	b.WriteString("(declare-sort Cand 0)\n")
	for _, d := range l.durations {
		fmt.Fprintf(&b, "(declare-const %s Real)\n", d)
	}
	for _, w := range who {
		fmt.Fprintf(&b, "(declare-const %s Cand)\n", w)
	}
	for _, v := range slices.Sorted(maps.Keys(l.key)) {
		fmt.Fprintf(&b, "(declare-const %s %s)\n", v, l.key[v])
	}
	for _, f := range slices.Sorted(maps.Keys(l.candidate)) {
		fmt.Fprintf(&b, "(declare-fun %s (Cand) %s)\n", f, l.candidate[f])
	}
	if t == nil {
		return b.String()
	}
	for _, v := range slices.Sorted(maps.Keys(t.choices)) {
		fmt.Fprintf(&b, "(declare-const %s %s)\n", v, t.choices[v])
	}
	for _, v := range slices.Sorted(maps.Keys(l.key)) {
		fmt.Fprintf(&b, "(define-fun %s^ () %s %s)\n", v, l.key[v], or(t.sets[v], v))
	}
	for _, f := range slices.Sorted(maps.Keys(l.candidate)) {
		after := or(t.all[f], fmt.Sprintf("(%s x)", f))
		if set := t.sets[f]; set != "" {
			after = fmt.Sprintf("(ite (= x c) %s (%s x))", set, f)
		}
		fmt.Fprintf(&b, "(define-fun %s^ ((x Cand)) %s %s)\n", f, l.candidate[f], after)
	}
	return b.String()
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
