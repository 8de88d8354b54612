package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/natscampaign/election/internal/core"
)

// move is a change of the step of one candidate.
type move struct{ from, to core.Step }

func (m move) String() string { return fmt.Sprintf("%v → %v", m.from.WithRole(), m.to.WithRole()) }

// Coverage is what schedules have reached of the steps of candidates.
type Coverage struct {
	moves  map[move]int
	states map[string]bool // the steps of all candidates at one instant, whichever candidate is in which
}

// add adds what other schedules have reached.
func (v *Coverage) add(other *Coverage) {
	if v.moves == nil {
		v.moves, v.states = map[move]int{}, map[string]bool{}
	}
	for m, n := range other.moves {
		v.moves[m] += n
	}
	maps.Copy(v.states, other.states)
}

// unreached returns the steps that no schedule reached, and the moves that none made.
func (v *Coverage) unreached() (steps []core.Step, moves []move) {
	reached := map[core.Step]bool{core.NotRunning: true}
	for m := range v.moves {
		reached[m.to] = true
	}
	for _, s := range core.Steps() {
		if !reached[s] {
			steps = append(steps, s)
		}
		for _, to := range s.Follow() {
			if v.moves[move{s, to}] == 0 {
				moves = append(moves, move{s, to})
			}
		}
	}
	return steps, moves
}

// String says how much was reached, and what was not.
func (v *Coverage) String() string {
	steps, moves := v.unreached()
	var b strings.Builder
	fmt.Fprintf(&b, "sim: %d of %d steps, %d moves, %d states (the steps of all candidates at one instant)\n", len(core.Steps())-len(steps), len(core.Steps()), len(v.moves), len(v.states))
	for _, s := range steps {
		fmt.Fprintf(&b, "sim: never reached: %s\n", s.WithRole())
	}
	for _, m := range moves {
		fmt.Fprintf(&b, "sim: never made: %v\n", m)
	}
	return b.String()
}

// stepped is called at each step of a candidate. A step that is not among those that may follow is a fault of the table in package core, or of a role.
func (c *candidate) stepped(from, to core.Step) {
	w := c.w
	w.coverage.moves[move{from, to}]++
	w.note(c.name, to.WithRole())
	if !slices.Contains(from.Follow(), to) {
		w.judge.Fail(w.Now, "step", c.name, "%v, which the table of steps does not know", move{from, to})
	}
	all := make([]string, 0, len(w.candidates))
	for _, other := range w.candidates {
		if !other.crashed {
			all = append(all, string(rune('A'+other.core.Step())))
		}
	}
	slices.Sort(all)
	w.coverage.states[strings.Join(all, "")] = true
}
