package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// story is a run with two leaders, which is possible as soon as an assumption is violated by any amount: so the inequality is exact.
type story struct {
	name, assumption string
	violated         string // the assumption, violated by a billionth of the TTL
	steps            []string
}

// act is a step of a story: the candidate, and the transition.
func act(step string) (who, name string) {
	who, name, _ = strings.Cut(step, ": ")
	return who, name
}

var allStories = []story{
	{
		"a stand-down after an expiry that is too short", "stand-down after an expiry", "(= lease (+ (- ttl early) standDown (/ ttl 1000000000)))",
		[]string{
			"a: win", "a: the win is acknowledged", "a: time passes", "a: renewal", "a: a renewal is acknowledged", "a: time passes", "a: expiry",
			"b: win", "b: the win is acknowledged", "b: time passes", "b: renewal", "b: a renewal is acknowledged",
		},
	},
	{
		"a takeover that is too early", "takeover of a lapsed lease", "(= lease (+ lapse (/ ttl 1000000000)))",
		[]string{
			"a: win", "a: the win is acknowledged", "a: time passes", "a: renewal", "a: a renewal is acknowledged",
			"b: a notification", "b: time passes", "b: takeover of a lapsed lease", "b: the win is acknowledged",
		},
	},
}

// stories are the questions whether the runs are possible.
func stories() []obligation {
	var all []obligation
	for _, s := range allStories {
		all = append(all, obligation{"two leaders / " + s.name, s.script(), happens})
	}
	return all
}

// at returns the text about the state before a step, done by a candidate.
func (l *language) at(text string, step int, who string) string {
	return name.ReplaceAllStringFunc(text, func(n string) string {
		switch {
		case n == "c":
			return who
		case l.key[n] != "" || l.candidate[n] != "" || slices.Contains([]string{"m", "n", "r", "s", "t", "u"}, n):
			return fmt.Sprintf("%s.%d", n, step)
		}
		return n
	})
}

// script is the question whether the run is possible: from the first state on, by transitions whose guards hold, with both leading at its end.
func (s story) script() string {
	rule := elections()
	delete(rule.assumptions, s.assumption)
	var b strings.Builder
	b.WriteString("(declare-sort Cand 0)\n(declare-const a Cand)\n(declare-const b Cand)\n(declare-const nobody Cand)\n(declare-const own.0 Cand)\n")
	for _, d := range rule.durations {
		fmt.Fprintf(&b, "(declare-const %s Real)\n", d)
	}
	for _, v := range slices.Sorted(maps.Keys(rule.key)) {
		if v != "own" {
			fmt.Fprintf(&b, "(declare-const %s.0 %s)\n", v, rule.key[v])
		}
	}
	for _, f := range slices.Sorted(maps.Keys(rule.candidate)) {
		fmt.Fprintf(&b, "(declare-fun %s.0 (Cand) %s)\n", f, rule.candidate[f])
	}
	texts := append(sorted(rule.assumptions), s.violated, "(distinct a b nobody)", "(= own.0 nobody)", "(= now.0 0)")
	for _, t := range rule.initially([]string{"a", "b", "own"}) {
		texts = append(texts, rule.at(t, 0, ""))
	}
	for i, step := range s.steps {
		who, what := act(step)
		t := rule.find(what)
		for _, v := range slices.Sorted(maps.Keys(t.choices)) {
			fmt.Fprintf(&b, "(declare-const %s.%d %s)\n", v, i, t.choices[v])
		}
		for _, g := range append(sorted(t.guards), t.ofEveryone([]string{"a", "b", "nobody"})...) {
			texts = append(texts, rule.at(g, i, who))
		}
		for _, v := range slices.Sorted(maps.Keys(rule.key)) {
			fmt.Fprintf(&b, "(define-fun %s.%d () %s %s)\n", v, i+1, rule.key[v], rule.at(or(t.sets[v], v), i, who))
		}
		for _, f := range slices.Sorted(maps.Keys(rule.candidate)) {
			after := rule.at(or(t.all[f], fmt.Sprintf("(%s x)", f)), i, who)
			if set := t.sets[f]; set != "" {
				after = fmt.Sprintf("(ite (= x %s) %s %s)", who, rule.at(set, i, who), after)
			}
			fmt.Fprintf(&b, "(define-fun %s.%d ((x Cand)) %s %s)\n", f, i+1, rule.candidate[f], after)
		}
	}
	for _, who := range []string{"a", "b"} {
		texts = append(texts, rule.at(about(rule.leads, who, ""), len(s.steps), ""))
	}
	return script(b.String(), texts...)
}
