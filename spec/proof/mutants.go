package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is a rule that is wrong in one place.
type mutant struct {
	name   string
	breaks func(r *rule)
}

// guard has a transition happen on another condition.
func guard(transition, name, text string) func(*rule) {
	return func(r *rule) {
		t := r.find(transition)
		if t.guards[name] == "" {
			panic("no guard is named " + name)
		}
		t.guards[name] = text
	}
}

// set has a transition set a variable to something else.
func set(transition, variable, text string) func(*rule) {
	return func(r *rule) { r.find(transition).sets[variable] = text }
}

var mutants = []mutant{
	{"no deadline", func(r *rule) { r.leads = "(and (= (state x) 2) (not (excused x)))" }},
	{"no stand-down after an expiry", set("expiry", "left", "0.0")},
	{"a stand-down after a deletion as after an expiry", set("deletion", "left", "standDown")},
	{"a stand-down that ends too early", guard("the win is acknowledged", "counts after the stand-down", "true")},
	{"leadership counts from any renewal", set("a renewal is acknowledged", "led", "true")},
	{"the lease begins with the answer", guard("a renewal is acknowledged", "by the clock", "(<= u (+ now lease))")},
	{"the lease of a win begins with the answer", guard("the win is acknowledged", "by the clock", "(<= u (+ now lease))")},
	{"a renewal over any record", guard("renewal", "of the record that it knows", "(and (= kind 1) (knows c) (not (doubt c)))")},
	{"adopts what it never wrote", guard("a renewal is acknowledged", "renewed", "(or (= (state c) 1) (= (state c) 2))")},
	{"takes over whatever is stored", guard("takeover of a lapsed lease", "over what it saw", "true")},
	{"takes over at once", guard("takeover of a lapsed lease", "lapsed", "true")},
	{"believes the time that a notification states", func(r *rule) {
		t := r.find("a notification")
		t.choices["w"], t.sets["seen"] = "Real", "w"
		t.guards["past"] = "(<= w now)"
	}},
	{"times a lease by an announcement", guard("takeover of a lapsed lease", "over what it saw", "(= (sight c) rev)")},
	{"takes what a stranger can choose for the stamp", func(r *rule) { r.find("a stranger writes").everyone = nil }},
	{"believes a short lease", guard("takeover of a lapsed lease", "lapsed", "(>= s (+ (seen c) (ite (= kind 5) states lapse)))")},
	{"leads at once over what should have expired", set("takeover of what should have expired", "stated", "left")},
	{"leads over a release that a stranger wrote", set("win over a stranger's release", "stated", "0.0")},
	{"concludes from a notification that the holder wrote nothing more", set("a stranger's record is read", "over",
		"(+ (ite (and (= (sight c) wasRev) (>= wasRev 0)) (seen c) now) lapse)")},
	{"concludes that whatever a stranger replaced", set("a stranger's record is read", "over", "(+ (ite (read c) (seen c) now) lapse)")},
	{"leads over any release", set("win", "stated", "(ite (= kind 2) 0.0 left)")},
	{"a release passes no stand-down on", set("release", "left", "0.0")},
	{"a renewal states no stand-down", set("renewal", "left", "0.0")},
	{"releases while it leads", guard("release", "drains", "(knows c)")},
	{"releases before the work has returned", guard("release", "after the work", "true")},
	{"releases the key of another", guard("release", "of its own record", "(= kind 1)")},
	{"a witness releases the key of a living process", guard("release by a witness", "of a dead process", "true")},
	{"a witness releases the key of another", guard("release by a witness", "of its record", "(= kind 1)")},
	{"a witness passes only the settle time on", set("release by a witness", "left", "settle")},
	{"revisions do not grow", guard("win", "revisions grow", "true")},
	{"gives up when a renewal is not answered", guard("a refusal proves the loss", "somebody else wrote, or it was removed", "(doubt c)")},
	{"leads on although the history went back", set("a refusal names a lower revision", "state", "(state c)")},
	{"keeps what it saw when it may have missed something", func(r *rule) {
		delete(r.find("the history goes back").all, "sight")
		delete(r.find("the history goes back").all, "read")
	}},
	{"all terms have one number", set("win", "number", "1")},
	{"the server expires keys at any time", guard("expiry", "by the server's clock", "true")},
	{"too short a stand-down for the clock of the server", func(r *rule) { delete(r.assumptions, "stand-down after an expiry") }},
	{"too early a takeover for the clocks", func(r *rule) { delete(r.assumptions, "takeover of a lapsed lease") }},
}

// breakRule asks z3 which obligations each mutant breaks, and prints the first. It returns how many mutants break none.
func breakRule(keep string) (survived int) {
	known := map[obligation]bool{} // what is the same for the rule as it is
	for _, o := range theRule().obligations() {
		known[o] = true
	}
	for _, m := range mutants {
		r := theRule()
		m.breaks(&r)
		all := slices.DeleteFunc(r.obligations(), func(o obligation) bool { return o.want != holds || known[o] })
		broken := ""
		for _, o := range all {
			if solve(solvers[0], o.script).answer == happens {
				broken = o.name
				write(keep, m.name, "Mutant: "+m.name+"\nBroken: "+o.name+"\n\n"+counterexample(o.script))
				break
			}
		}
		if broken == "" {
			survived++
			broken = "NOTHING"
		}
		fmt.Printf("mutant %-52s breaks %s\n", m.name, broken)
	}
	for _, s := range allStories {
		write(keep, s.name, s.tell())
	}
	return survived
}

// write writes a file, if a folder is given.
func write(folder, name, text string) {
	if folder != "" {
		file := filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".txt")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			panic(err)
		}
	}
}

// valuesOf returns what z3 finds for some terms, as decimal numbers.
func valuesOf(script string, terms []string) map[string]string {
	const decimals = "(set-option :pp.decimal true)\n(set-option :pp.decimal_precision 12)\n"
	answer, found, _ := strings.Cut(output(solvers[0], decimals+script+"(get-value ("+strings.Join(terms, "\n")+"))\n"), "\n")
	if answer != happens {
		panic("z3 answers " + answer)
	}
	values := map[string]string{}
	for line := range strings.Lines(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(found), "("), ")")) {
		line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "("), ")")
		for _, term := range terms {
			if value, ok := strings.CutPrefix(line, term+" "); ok {
				values[term] = strings.TrimSuffix(value, ".0")
			}
		}
	}
	return values
}

// counterexample returns the state before and after a transition in which an invariant is lost.
func counterexample(script string) string {
	var terms []string
	for _, v := range slices.Sorted(maps.Keys(ofKey)) {
		if v != "own" {
			terms = append(terms, v)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(ofCandidate)) {
		for _, x := range []string{"c", "p", "q", "own"} {
			terms = append(terms, "("+f+" "+x+")")
		}
	}
	if !strings.Contains(script, "(declare-const c Cand)") { // no transition happens
		terms = slices.DeleteFunc(terms, func(t string) bool { return strings.HasSuffix(t, " c)") })
	} else {
		for _, t := range slices.Clone(terms) {
			terms = append(terms, after(t))
		}
	}
	for _, x := range []string{"c", "p", "q"} {
		if strings.Contains(script, "(declare-const c Cand)") || x != "c" {
			terms = append(terms, "(= "+x+" own)")
		}
	}
	values := valuesOf(script, terms)
	var b strings.Builder
	for _, t := range terms {
		if strings.Contains(t, "^") {
			continue
		}
		fmt.Fprintf(&b, "%-14s %s", t, values[t])
		if now := values[after(t)]; now != values[t] && now != "" && !strings.HasPrefix(t, "(= ") {
			fmt.Fprintf(&b, " → %s", now)
		}
		b.WriteString("\n")
	}
	return b.String()
}
