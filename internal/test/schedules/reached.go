package schedules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table says of each step which may follow.
type Table []Step

// Step is a step, by its name, and the names of those that may follow.
type Step struct {
	Name   string
	Follow []string
}

// TableOf returns the table of some steps.
func TableOf[S any](steps []S, name func(S) string, follow func(S) []S) (t Table) {
	for _, s := range steps {
		step := Step{Name: name(s)}
		for _, next := range follow(s) {
			step.Follow = append(step.Follow, name(next))
		}
		t = append(t, step)
	}
	return t
}

// Move is a change of the step of one machine.
type Move struct{ From, To string }

func (m Move) String() string { return fmt.Sprintf("%v → %v", m.From, m.To) }

// Coverage is what schedules have reached of a table.
type Coverage struct {
	table  Table
	moves  map[Move]int
	states map[string]bool
}

// NewCoverage returns the coverage of a table of which nothing was reached.
func NewCoverage(t Table) *Coverage {
	return &Coverage{table: t, moves: map[Move]int{}, states: map[string]bool{}}
}

// Moved counts a move, and reports whether the table has it.
func (v *Coverage) Moved(m Move) bool {
	if v.moves[m]++; v.moves[m] > 1 {
		return true
	}
	return slices.ContainsFunc(v.table, func(s Step) bool { return s.Name == m.From && slices.Contains(s.Follow, m.To) })
}

// Reached takes note of a state: a letter for the step of each machine, whichever machine is in which.
func (v *Coverage) Reached(steps []byte) {
	slices.Sort(steps)
	v.states[string(steps)] = true
}

// Add adds what other schedules have reached.
func (v *Coverage) Add(other *Coverage) {
	for m, n := range other.moves {
		v.moves[m] += n
	}
	maps.Copy(v.states, other.states)
}

// unreached returns the steps that no schedule reached, and the moves that none made.
func (v *Coverage) unreached() (steps []string, moves []Move) {
	reached := map[string]bool{}
	for m := range v.moves {
		reached[m.From], reached[m.To] = true, true
	}
	for _, s := range v.table {
		if !reached[s.Name] {
			steps = append(steps, s.Name)
		}
		for _, to := range s.Follow {
			if m := (Move{s.Name, to}); v.moves[m] == 0 {
				moves = append(moves, m)
			}
		}
	}
	return steps, moves
}

// String says how much was reached, and what was not.
func (v *Coverage) String() string {
	steps, moves := v.unreached()
	var b strings.Builder
	fmt.Fprintf(&b, "sim: %d of %d steps, %d moves, %d states (the steps of all at one instant)\n", len(v.table)-len(steps), len(v.table), len(v.moves), len(v.states))
	for _, s := range steps {
		fmt.Fprintf(&b, "sim: never reached: %s\n", s)
	}
	for _, m := range moves {
		fmt.Fprintf(&b, "sim: never made: %v\n", m)
	}
	return b.String()
}
