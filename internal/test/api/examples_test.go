package api

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
)

// An example without the output that it is to have is compiled, and never run.
func TestEveryPublicPackageHasAnExampleThatRuns(t *testing.T) {
	g := NewWithT(t)
	for _, p := range packages(t) {
		if !p.public() {
			continue
		}
		names, err := filepath.Glob(filepath.Join("..", "..", "..", filepath.FromSlash(p.path), "*_test.go"))
		g.Expect(err).NotTo(HaveOccurred())
		var tests []*ast.File
		for _, name := range names {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			g.Expect(err).NotTo(HaveOccurred())
			tests = append(tests, f)
		}
		if !slices.ContainsFunc(doc.Examples(tests...), func(e *doc.Example) bool { return e.Output != "" }) {
			t.Errorf("package %s has no example that runs: add one, with the comment // Output:", p.name())
		}
	}
}
