package core

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var update = flag.Bool("update", false, "draw docs/ROLES.md anew")

// TestDrawingOfTheRolesIsThatOfTheirSteps draws docs/ROLES.md from the table of steps, which the simulator holds true.
func TestDrawingOfTheRolesIsThatOfTheirSteps(t *testing.T) {
	g := NewWithT(t)
	const file = "../../docs/ROLES.md"
	drawn := drawRoles()
	if *update {
		g.Expect(os.WriteFile(file, []byte(drawn), 0o644)).To(Succeed())
	}
	stored, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(stored)).To(Equal(drawn), "draw it anew: go test ./internal/core -run Drawing -args -update")
}

// roleTexts say what each role is, in the order in which a candidate comes to them.
var roleTexts = []struct{ name, text string }{
	{"waiting", "The candidate holds no key. It waits for its next campaign, for a notification that is a reason to read the key, or for the end of the leader's lease."},
	{"bidding", "One campaign: read the key, then write over exactly what was read. Or only a read, because a notification was a reason to."},
	{"holding", "The candidate leads, or waits as leader-elect for its leadership to count."},
	{"renewing", "One try to renew the lease. Whatever fails, short of proof that the key was lost, leaves the term as it is until the next try."},
	{"releasing", "Leadership has ended. Callbacks and work return while the key is renewed; then it is released."},
	{"finished", "The run returns, or goes on as another instance because another process uses this one."},
}

func TestEachStepHasARoleWordsAndAWayToIt(t *testing.T) {
	g := NewWithT(t)
	reached := map[Step]bool{NotRunning: true}
	words := map[string]Step{}
	for _, s := range Steps() {
		for _, next := range s.Follow() {
			g.Expect(next).NotTo(Equal(s), "a step that goes on is no move")
			reached[next] = true
		}
	}
	for _, s := range Steps()[1:] {
		g.Expect(reached).To(HaveKey(s), "%v: %v", s.Role(), s)
		g.Expect(s.String()).NotTo(BeEmpty(), "step %d", s)
		g.Expect(slices.ContainsFunc(roleTexts, func(r struct{ name, text string }) bool { return r.name == s.Role() })).To(BeTrue(), s.Role())
		words[s.Role()+s.String()] = s
	}
	g.Expect(words).To(HaveLen(len(Steps())-1), "no two steps of a role have the same words")
}

// drawRoles returns the text of docs/ROLES.md.
func drawRoles() string {
	var b strings.Builder
	b.WriteString(`# The roles of a candidate

A candidate is in one role at a time, and a role is in one step at a time: one wait, or one request. Each role has a file of its own in
` + "`internal/core`" + `, with one switch over its steps. The steps, their words and what may follow each are the table in ` + "`internal/core/step.go`" + `. This page
is drawn from that table by a test. The simulator fails if a candidate goes from one step to another in a way that the table does not have.

The words are what ` + "`/healthz`" + ` gives as "doing", and ` + "`Status.Step`" + ` with the name of the role before them.
`)
	for _, r := range roleTexts {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```mermaid\nstateDiagram-v2\n", r.name, r.text)
		for _, s := range Steps() {
			if s.Role() == r.name {
				fmt.Fprintf(&b, "    s%d: %s\n", s, s)
			}
		}
		var lines []string
		for _, s := range Steps() {
			for _, next := range s.Follow() {
				from, to := fmt.Sprintf("s%d", s), fmt.Sprintf("s%d", next)
				switch {
				case s.Role() != r.name && next.Role() != r.name:
					continue
				case s.Role() != r.name:
					from = outside(s)
				case next.Role() != r.name:
					to = outside(next)
				}
				if line := fmt.Sprintf("    %s --> %s\n", from, to); !slices.Contains(lines, line) {
					lines = append(lines, line)
				}
			}
		}
		b.WriteString(strings.Join(lines, ""))
		b.WriteString("```\n")
	}
	return b.String()
}

// outside returns the name of the role of a step, as a state of a drawing of another role.
func outside(s Step) string {
	if s == NotRunning {
		return "[*]"
	}
	return s.Role()
}
