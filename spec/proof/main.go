package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// obligation is one question to the solvers.
type obligation struct {
	name, script, want string
}

// solvers answer a script on their standard input.
var solvers = [][]string{
	{"z3", "-in", "-T:600"},
	{"cvc5", "--lang", "smt2", "--tlimit", "600000", "--quiet"},
}

// verdict is what one solver answered, after how long.
type verdict struct {
	answer string
	took   time.Duration
}

func main() {
	show := flag.String("print", "", "print the script of an `OBLIGATION`, and ask nobody")
	flag.Parse()
	if err := prove(*show); err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

// prove asks all solvers all questions, and prints what they answer.
func prove(show string) error {
	all := slices.Concat(elections().obligations(), sessions().obligations(), rates(), stories())
	for _, o := range all {
		if o.name == show {
			fmt.Print(o.script)
			return nil
		}
	}
	if show != "" {
		return fmt.Errorf("there is no obligation %q: run without -print for their names", show)
	}
	began := time.Now()
	failed := report(all, ask(all))
	harmless := weaken()
	fmt.Printf("%.1f s\n", time.Since(began).Seconds())
	if failed > 0 || harmless > 0 {
		return fmt.Errorf("%d answers are not as they should be, and %d conditions of the rule can be left out without harm", failed, harmless)
	}
	return nil
}

// obligations are what makes the invariant one, and what follows from it.
func (r rule) obligations() []obligation {
	all := []obligation{r.first()}
	for i := range r.transitions {
		all = append(all, r.kept(&r.transitions[i])...)
		all = append(all, r.possible(&r.transitions[i]))
	}
	all = append(all, r.alone())
	if r.more != nil {
		all = append(all, r.more(r)...)
	}
	for i := range all {
		all[i].name = r.name + all[i].name
	}
	return all
}

const (
	holds   = "unsat" // of the contrary
	happens = "sat"
)

// script is a question: whether all of some texts can be true.
func script(declarations string, texts ...string) string {
	var b strings.Builder
	b.WriteString("(set-logic ALL)\n" + declarations)
	for _, t := range texts {
		fmt.Fprintf(&b, "(assert %s)\n", t)
	}
	b.WriteString("(check-sat)\n")
	return b.String()
}

// first is that the invariant holds before anything has happened.
func (r rule) first() obligation {
	who := []string{"p", "q", "own"}
	conclusion := and(r.invariant(who)...)
	return obligation{"first", script(r.system(nil, []string{"p", "q"}), append(append(sorted(r.assumptions), r.initially(who)...), "(not "+conclusion+")")...), holds}
}

// initially is the first state, as far as it is about some candidates: nothing is stored, and nobody has done anything.
func initially(who []string) []string {
	all := []string{"(= kind 0)", "(= rev 0)", "(= wasRev (- 1))", "(= sent now)", "(= stored now)", "(= left standDown)", "(= clear now)"}
	for _, x := range who {
		all = append(all, about("(and (= (state x) 0) (not (won x)) (not (knows x)) (not (led x)) (not (works x)) (not (doubt x)) (not (gone x)) (not (excused x)) (not (told x)) (not (read x)))", x, ""),
			about("(and (= (learnt x) now) (= (seen x) now) (= (sight x) 0))", x, ""))
	}
	return all
}

// before is the state before a transition, of which the invariant holds, and that the transition happens.
func (r rule) before(t *transition) []string {
	who := []string{"c", "p", "q", "own"}
	all := append(sorted(r.assumptions), r.invariant(who)...)
	return append(append(all, sorted(t.guards)...), t.ofEveryone(who)...)
}

// kept are the obligations of one transition: it keeps each lemma.
func (r rule) kept(t *transition) []obligation {
	declarations := r.system(t, []string{"c", "p", "q"})
	var all []obligation
	for _, lemmas := range [][]lemma{r.aboutKey, r.aboutOne, r.aboutTwo} {
		for _, l := range lemmas {
			conclusion := "(not " + r.after(about(l.text, "p", "q")) + ")"
			all = append(all, obligation{t.name + " / " + l.name, script(declarations, append(r.before(t), conclusion)...), holds})
		}
	}
	return all
}

// possible is that a transition can happen, in a state of which the invariant holds.
func (r rule) possible(t *transition) obligation {
	return obligation{t.name + " / can happen", script(r.system(t, []string{"c", "p", "q"}), r.before(t)...), happens}
}

// alone is that at most one candidate leads.
func (r rule) alone() obligation {
	texts := append(sorted(r.assumptions), r.invariant([]string{"p", "q", "own"})...)
	texts = append(texts, "(not (= p q))", about(r.leads, "p", ""), about(r.leads, "q", ""))
	return obligation{"at most one candidate leads", script(r.system(nil, []string{"p", "q"}), texts...), holds}
}

// again is that somebody may lead after a history with another leader went back.
func (r rule) again() obligation {
	texts := append(sorted(r.assumptions), r.invariant([]string{"p", "q", "own"})...)
	texts = append(texts, "(and (excused p) (led p) (not (= kind 0)))", about(r.leads, "q", ""))
	return obligation{"somebody leads after the history went back", script(r.system(nil, []string{"p", "q"}), texts...), happens}
}

// growing are that who begins to lead has a higher number than everybody who has led in the same history.
func (r rule) growing() []obligation {
	var all []obligation
	for i, t := range r.transitions {
		if t.sets["led"] != "" {
			texts := append(r.before(&r.transitions[i]), "(not (led c))", "(led^ c)", "(led p)", "(not (= p c))", "(not (excused c))", "(not (excused p))", "(>= (number p) (number c))")
			all = append(all, obligation{t.name + " / numbers grow", script(r.system(&r.transitions[i], []string{"c", "p", "q"}), texts...), holds})
		}
	}
	return all
}

// ask asks each solver each question, two at a time.
func ask(all []obligation) [][]verdict {
	verdicts := make([][]verdict, len(all))
	var running sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i, o := range all {
		verdicts[i] = make([]verdict, len(solvers))
		for j, command := range solvers {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				verdicts[i][j] = solve(command, o.script)
			})
		}
	}
	running.Wait()
	return verdicts
}

func solve(command []string, script string) verdict {
	began := time.Now()
	answer, _, _ := strings.Cut(output(command, script), "\n")
	return verdict{answer, time.Since(began)}
}

// output returns what a solver prints; the error if it prints nothing.
func output(command []string, script string) string {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if text := strings.TrimSpace(string(out)); text != "" || err == nil {
		return text
	}
	return err.Error()
}

// report prints a line for each solver, and each obligation that is not discharged. It returns how many these are.
func report(all []obligation, verdicts [][]verdict) (failed int) {
	for j, command := range solvers {
		var total, longest time.Duration
		slowest := ""
		for i, o := range all {
			v := verdicts[i][j]
			total += v.took
			if v.took > longest {
				longest, slowest = v.took, o.name
			}
			if v.answer != o.want {
				failed++
				fmt.Printf("%s: %s: %s instead of %s\n", command[0], o.name, v.answer, o.want)
			}
		}
		fmt.Printf("%-5s %3d obligations, %.1f s, at most %.2f s (%s)\n", command[0], len(all), total.Seconds(), longest.Seconds(), slowest)
	}
	return failed
}
