package main

import (
	"fmt"
	"maps"
)

// Sessions: one renewal for all keys of a process. The rule is about one key, and any number of sessions, whose candidates are. A session claims the key
// once; one that claims it again is another session here, which only adds behaviour. A bucket that was made again is left to spec/session.pml, but for this:
// when the key is first claimed, leaders of an earlier bucket may still lead for a lease from the beginning.

// What is stored under the key, and what is stored of a session.
const (
	unclaimed = "0"
	claimed   = "1" // by a session
	freed     = "2" // its session released the claim
	evicted   = "3" // or somebody overwrote it

	open     = "1"
	closed   = "2" // anybody did that, rightly or not
	released = "3" // its process, when all work had returned, or a witness of its death
)

func sessions() rule {
	return rule{
		&language{
			map[string]string{
				"now": "Real", "begin": "Real", // when the bucket was made
				"kind": "Int", "own": "Cand", "rev": "Int", "stored": "Real", // whose claim is stored, its number, since when
				"left":    "Real", // how long the next claim has to wait for the leases before that of its owner
				"lost":    "Real", // when it was evicted
				"settled": "Bool", // the bucket is known to be older than any lease of an earlier bucket
				"clear":   "Real", // nobody but the owner leads from this time on: a bound that nobody knows
			},
			map[string]string{
				"state":  "Int",                                   // of its process: it has not begun, it runs, it is over
				"record": "Int", "opened": "Real", "shut": "Real", // what is stored of it, since when, and when somebody closed it
				"renewal": "Int", "sent": "Real", "kept": "Real", // the last renewal, when it was sent and stored
				"doubt": "Bool", "good": "Bool", // that renewal is not known yet; it came after a claim that was the session's own
				"until": "Real",                                                    // the lease, by the last renewal that is known and verified
				"won":   "Bool", "number": "Int", "base": "Real", "counts": "Real", // its claim was stored; what clear was then; when it may lead
				"mine": "Bool", "stops": "Bool", "works": "Bool", // it takes the claim for its own; it hands over
				"watches": "Bool", "watch": "Int", "watched": "Real", // the renewal of the owner's session that it saw last, and when
			},
			[]string{"lease", "lapse"},
			[]lemma{
				{"kinds", "Something of the four kinds is stored.", "(and (>= kind 0) (<= kind 3) (>= left 0))"},
				{"past", "What was stored is past.", "(and (<= begin now) (<= stored now) (<= lost now))"},
				{"unclaimed", "Leaders of an earlier bucket lead for a lease from the beginning at most.", "(=> (= kind 0) (<= clear (+ begin lease)))"},
				{"claimed", "A claim states a wait that is long enough.", "(=> (= kind 1) (<= clear (+ stored left)))"},
				{"freed", "So does a claim that was released.", "(=> (= kind 2) (<= clear (+ stored left)))"},
				{"settled", "A bucket is settled only when no leader of an earlier bucket leads.", "(=> settled (<= (+ begin lease) now))"},
				{"bound", "Nobody leads longer than a lease from now.", "(<= clear (+ now lease))"},
				{"evicted", "Nobody leads a lease after an eviction.", "(=> (= kind 3) (<= clear (+ lost lease)))"},
			},
			[]lemma{
				{"states", "A process is in one of three states, and a session is stored once it has begun.", "(and (>= (state x) 0) (<= (state x) 2) (>= (record x) 0) (<= (record x) 3) (=> (= (state x) 0) (and (= (record x) 0) (not (won x)))))"},
				{"past", "What happened to a session is past.", "(=> (not (= (state x) 0)) (and (<= begin (opened x)) (<= (opened x) now) (<= (sent x) (kept x)) (<= (kept x) now) (=> (= (record x) 2) (and (<= (kept x) (shut x)) (<= (shut x) now)))))"},
				{"lease", "A lease is from the last renewal at most.", "(=> (not (= (state x) 0)) (<= (until x) (+ (sent x) lease)))"},
				{"released", "A session that is released works no more.", "(=> (= (record x) 3) (= (state x) 2))"},
				{"belief", "Only a process that runs has a claim, and only such a one works.", "(and (=> (mine x) (and (= (state x) 1) (won x))) (=> (works x) (and (mine x) (<= (counts x) now))))"},
				{"waits", "Leadership counts after all leases of earlier terms.", "(=> (won x) (and (<= (base x) (counts x)) (<= (number x) rev)))"},
				{"owner", "The owner's claim is the last.", "(=> (and (= kind 1) (= own x)) (and (won x) (= (base x) clear) (= (number x) rev)))"},
				{"over", "The lease of everybody else who has the claim, as he believes, is over by then.", "(=> (and (mine x) (not (and (= kind 1) (= own x)))) (and (<= (until x) clear) (=> (and (doubt x) (good x)) (<= (+ (sent x) lease) clear))))"},
				{"watch", "Nobody sees a renewal before it is stored.", "(=> (and (watches x) (= kind 1)) (and (<= (watch x) (renewal own)) (<= (watched x) now) (=> (= (watch x) (renewal own)) (>= (watched x) (kept own)))))"},
			},
			[]lemma{
				{"terms", "Two claims have two numbers.", "(=> (and (won x) (won y) (not (= x y))) (not (= (number x) (number y))))"},
				{"earlier terms", "The lease of an earlier term is over when a later one may begin to lead.", "(=> (and (won x) (won y) (mine x) (< (number x) (number y))) (and (<= (until x) (base y)) (=> (and (doubt x) (good x)) (<= (+ (sent x) lease) (base y)))))"},
			},
			func(who []string) []string {
				all := []string{"(= kind 0)", "(= left 0)", "(= stored now)", "(= lost now)", "(= begin now)", "(= clear (+ now lease))", "(not settled)"}
				for _, x := range who {
					all = append(all, about("(and (= (state x) 0) (= (record x) 0) (not (won x)) (not (mine x)) (not (works x)) (not (watches x)))", x, ""))
				}
				return all
			},
		},
		"sessions: ",
		claims(),
		map[string]string{"durations": "(and (> lease 0) (>= lapse lease))"},
		"(and (mine x) (<= (counts x) now) (< now (until x)))",
		nil,
	}
}

func claims() []transition {
	max := func(a, b string) string { return fmt.Sprintf("(ite (>= %s %s) %s %s)", a, b, a, b) }
	// take is the write of a claim over what is there: n is from when on it counts, b whether c learns of it at once
	take := func(name, clear string, guards map[string]string) transition {
		t := transition{
			name: "claim " + name, in: "Take", choices: map[string]string{"n": "Real", "y": "Real", "z": "Real", "r": "Int", "b": "Bool"},
			guards: map[string]string{"runs": "(= (state c) 1)", "has not claimed": "(not (won c))", "claims are numbered": "(> r rev)"},
			sets: map[string]string{
				"kind": claimed, "own": "c", "rev": "r", "stored": "now", "left": max("0.0", "(- n now)"), "clear": clear,
				"won": "true", "number": "r", "base": clear, "counts": "n", "mine": "b", "stops": "false",
			},
			all: map[string]string{"watches": "false"},
		}
		maps.Copy(t.guards, guards)
		return t
	}
	stated := "(and (>= n (+ y left)) (>= y stored))" // what the claim that is replaced states, since it was seen
	others := "(and (= kind 1) (not (= own c)))"
	return []transition{
		{
			name: "time passes", in: "Tick", choices: map[string]string{"t": "Real"},
			guards: map[string]string{"forwards": "(>= t now)"},
			sets:   map[string]string{"now": "t"},
		},
		{
			name: "open", in: "Open", choices: map[string]string{"s": "Real", "u": "Real"},
			guards: map[string]string{"new": "(= (state c) 0)", "sent before": "(<= s now)", "by the clock": "(<= u (+ s lease))"},
			sets: map[string]string{
				"state": "1", "record": open, "opened": "now", "renewal": "1", "sent": "s", "kept": "now", "until": "u", "doubt": "false", "good": "false",
			},
		},
		{
			name: "renewal", in: "Renew", choices: map[string]string{"s": "Real"}, // of a process that runs, or of one that is over by now
			guards: map[string]string{"open": "(and (= (record c) 1) (not (= (state c) 0)))", "in order": "(and (>= s (sent c)) (<= s now))"},
			sets:   map[string]string{"renewal": "(+ (renewal c) 1)", "sent": "s", "kept": "now", "doubt": "true", "good": "(and (= kind 1) (= own c))"},
		},
		{
			name: "the renewal is verified", in: "Renew", choices: map[string]string{"u": "Real"},
			guards: map[string]string{"renewed": "(and (= (state c) 1) (doubt c))", "by the clock": "(<= u (+ (sent c) lease))"},
			sets:   map[string]string{"doubt": "false", "until": "u", "mine": "(and (mine c) (good c))", "works": "(and (works c) (good c))"},
		},
		{
			name: "the process is over", in: "Expire, Crash", // its lease has ended, it has learnt that the session is over, or it has died
			guards: map[string]string{"runs": "(= (state c) 1)"},
			sets:   map[string]string{"state": "2", "mine": "false", "works": "false"},
		},
		take("of what was never claimed", "clear", map[string]string{"unclaimed": "(= kind 0)", "waits": "(or (>= n (+ (opened c) lapse)) (and settled (>= n now)))"}),
		take("of a claim that was released", "clear", map[string]string{"released": "(= kind 2)", "waits": stated}),
		take("of a claim that was evicted", "clear", map[string]string{"evicted": "(= kind 3)", "waits": "(and (>= n (+ z lapse)) (>= z lost))"}),
		take("of a session that was released", "clear", map[string]string{"released": "(and " + others + " (= (record own) 3))", "waits": stated}),
		take("of a session that was closed", max("clear", "(+ (sent own) lease)"), map[string]string{
			"closed": "(and " + others + " (= (record own) 2))", "waits": stated,
			"waits for the session": "(ite (and (watches c) (= (watch c) (renewal own))) (>= n (+ (watched c) lapse)) (and (>= n (+ z lapse)) (>= z (shut own))))",
		}),
		{
			name: "the claim is known", in: "Adopt",
			guards: map[string]string{"runs": "(= (state c) 1)", "its own": "(and (= kind 1) (= own c))"},
			sets:   map[string]string{"mine": "true", "stops": "false"},
		},
		{
			name: "work begins", in: "Lead",
			guards: map[string]string{"leads": "(and (mine c) (not (stops c)) (<= (counts c) now) (< now (until c)))"},
			sets:   map[string]string{"works": "true"},
		},
		{
			name: "leadership is to end", in: "Stop",
			sets: map[string]string{"stops": "true"},
		},
		{name: "the work returns", in: "Return", sets: map[string]string{"works": "false"}},
		{
			name: "release of the claim", in: "Release",
			guards: map[string]string{"its own": "(and (mine c) (= kind 1) (= own c))", "after the work": "(and (stops c) (not (works c)))"},
			sets:   map[string]string{"kind": freed, "stored": "now", "left": max("0.0", "(- (counts c) now)"), "mine": "false"},
		},
		{
			name: "release of the session", in: "End", // by its process, which restates the wait: of a claim of which it knows nothing, the longest
			guards: map[string]string{"after the work": "(and (not (= (state c) 0)) (not (works c)))"},
			sets: map[string]string{
				"record": released, "state": "2", "mine": "false",
				"stored": "(ite (and (= kind 1) (= own c)) now stored)",
				"left":   fmt.Sprintf("(ite (and (= kind 1) (= own c)) (ite (mine c) %s lapse) left)", max("0.0", "(- (counts c) now)")),
			},
		},
		{
			name: "release of the session by a witness", in: "CrashWitnessed", // of the death of its process, who knows of no wait
			guards: map[string]string{"after the work": "(and (not (= (state c) 0)) (not (works c)))"},
			sets:   map[string]string{"record": released, "state": "2", "mine": "false"},
		},
		{
			name: "the bucket is settled", in: "Settle", // by a write which demands that the session is stored still
			guards: map[string]string{"stored": "(= (state c) 1)", "for so long": "(>= now (+ (opened c) lapse))"},
			sets:   map[string]string{"settled": "true"},
		},
		{
			name: "somebody closes a session", in: "Close, RogueClose",
			guards: map[string]string{"open": "(= (record c) 1)"},
			sets:   map[string]string{"record": closed, "shut": "now"},
		},
		{
			name: "eviction", in: "Evict",
			sets: map[string]string{"kind": evicted, "lost": "now", "clear": "(+ now lease)"},
		},
		{
			name: "a renewal is seen", in: "See", choices: map[string]string{"r": "Int"},
			guards: map[string]string{"stored": "(<= r (renewal own))"},
			sets:   map[string]string{"watches": "true", "watch": "r", "watched": "now"},
		},
	}
}
