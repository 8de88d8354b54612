package election

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"slices"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
)

func TestEveryReasonBelongsToOneState(t *testing.T) {
	g := NewWithT(t)
	file, err := parser.ParseFile(gotoken.NewFileSet(), "state.go", nil, 0)
	g.Expect(err).NotTo(HaveOccurred())
	var declared, listed []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Type != nil && spec.Type.(*ast.Ident).Name == "Reason" {
			word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			g.Expect(err).NotTo(HaveOccurred())
			declared = append(declared, word)
		}
		return true
	})
	for _, reasons := range reasonsTo {
		for _, r := range reasons {
			listed = append(listed, string(r))
		}
	}
	slices.Sort(declared)
	slices.Sort(listed)
	g.Expect(declared).To(HaveLen(17))
	g.Expect(listed).To(Equal(declared))
}
