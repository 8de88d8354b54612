package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// A proof that proves anything at all proves nothing. So the invariant must break as soon as the rule lacks a condition.

// weakening is the rule without one of its conditions.
type weakening struct {
	without string
	rule    rule
}

// spare is what the program does although the proof does not need it: a candidate that takes over a lapsed lease has waited for as long as its holder may lead.
var spare = []string{"takeover of a lapsed lease / left", "takeover of a lapsed lease / stated"}

// weakenings leave out each guard of a rule, each thing that a candidate forgets when others act, and each stand-down.
func weakenings(of func() rule) (all []weakening) {
	for i, t := range of().transitions {
		leaveOut := func(name string, change func(t *transition)) {
			r := of()
			change(&r.transitions[i])
			if without := r.name + t.name + " / " + name; !slices.Contains(spare, without) {
				all = append(all, weakening{without, r})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(t.guards)) {
			leaveOut(name, func(t *transition) { delete(t.guards, name) })
		}
		for _, name := range slices.Sorted(maps.Keys(t.everyone)) {
			leaveOut(name, func(t *transition) { delete(t.everyone, name) })
		}
		for _, name := range slices.Sorted(maps.Keys(t.all)) {
			leaveOut(name, func(t *transition) { delete(t.all, name) })
		}
		for _, name := range []string{"left", "stated"} {
			if chosen := t.choices[t.sets[name]] != ""; t.sets[name] != "" && !chosen {
				leaveOut(name, func(t *transition) { t.sets[name] = "0.0" })
			}
		}
	}
	return all
}

// breaks returns the first obligation that z3 finds broken by a rule, of those that are not known; "" if there is none.
func (r rule) breaks(known map[obligation]bool) string {
	for _, o := range r.obligations() {
		if o.want == holds && !known[o] && solve(solvers[0], o.script).answer == happens {
			return o.name
		}
	}
	return ""
}

// weaken prints what each weakening breaks. It returns how many break nothing.
func weaken() (harmless int) {
	known := map[obligation]bool{} // they are the same for the rule as it is
	for _, o := range slices.Concat(elections().obligations(), sessions().obligations()) {
		known[o] = true
	}
	all := slices.Concat(weakenings(elections), weakenings(sessions))
	broken := make([]string, len(all))
	var running sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i, w := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			broken[i] = w.rule.breaks(known)
		})
	}
	running.Wait()
	for i, w := range all {
		if broken[i] == "" {
			harmless++
			broken[i] = "NOTHING"
		}
		fmt.Printf("without %-75s breaks %s\n", w.without, broken[i])
	}
	return harmless
}
