package model

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestTransitionsHaveTheNamesOfThePromelaText(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../spec/election.pml")
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, found := range regexp.MustCompile(`:: /\* (\w+) \*/ d_step`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, found[1])
	}
	g.Expect(names).To(HaveLen(strings.Count(string(text), "d_step")), "a transition of the Promela text has no name")
	g.Expect(Names()).To(ConsistOf(names))
}

// TestStatesAreAsManyAsSPINVisits visits all states of small configurations. spec/check.sh has SPIN do the same, and compares its numbers
// with the same file.
func TestStatesAreAsManyAsSPINVisits(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes much time: not with -short")
	}
	g := NewWithT(t)
	text, err := os.ReadFile("../../spec/states.txt")
	g.Expect(err).NotTo(HaveOccurred())
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		fields := strings.Fields(line)
		t.Run(fields[0], func(t *testing.T) {
			var n [6]int
			for i := range n {
				n[i], err = strconv.Atoi(fields[i+1])
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
			}
			l := &Limits{N: n[0], Faults: int8(n[1]), Slips: int8(n[2]), Early: int64(n[3]), TTL: 4, Interval: 2, Margin: 1, StandDown: 2, Late: 1}
			states, transitions := visit(l)
			NewWithT(t).Expect([]int{states, transitions}).To(Equal(n[4:]))
		})
	}
}

// visit visits every state, and returns how many there are and how many transitions lead from one to another.
func visit(l *Limits) (states, transitions int) {
	first := l.Initial()
	seen, queue := map[State]bool{first: true}, []State{first}
	for len(queue) > 0 {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		l.Each(&s, func(_ string, next *State) {
			if transitions++; !seen[*next] {
				seen[*next] = true
				queue = append(queue, *next)
			}
		})
	}
	return len(seen), transitions
}
