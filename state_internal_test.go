package election

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	. "github.com/onsi/gomega"
)

// The public names have their values beside them, for who reads the documentation. Package core has the same ones.
func TestStatesAndReasonsAreThoseOfTheDecisions(t *testing.T) {
	g := NewWithT(t)
	public, decided := constants(t, "state.go"), constants(t, "internal/core/reason.go")
	states := map[string]string{"Follower": "CandidateState", "Leader": "LeaderState", "LeaderElect": "LeaderElectState"}
	expected := map[string]string{"UnknownState": "0", "ReasonStarted": `"started"`} // before any decision
	for name, value := range decided {
		if state, ok := states[name]; ok {
			expected[state] = value
		} else {
			expected["Reason"+name] = value
		}
	}
	g.Expect(public).To(Equal(expected))
}

// constants returns the values of the constants of a file that are literals.
func constants(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				values[spec.Names[0].Name] = literal.Value
			}
		}
		return true
	})
	return values
}
