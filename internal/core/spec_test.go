package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestSpecNamesWhatDecides expects that each rule of the Promela text names functions and fields of this package, as "[Type.name]", so that a
// reader finds the rule in both texts.
func TestSpecNamesWhatDecides(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../spec/election.pml")
	g.Expect(err).NotTo(HaveOccurred())
	known := namesOfThisPackage(t)
	found := 0
	for i, line := range strings.Split(string(text), "\n") {
		_, comment, _ := strings.Cut(line, "/*")
		for _, list := range regexp.MustCompile(`\[([A-Z]?[a-zA-Z]+(\.[a-zA-Z]+)?(, [A-Z]?[a-zA-Z]+(\.[a-zA-Z]+)?)*)\]`).FindAllStringSubmatch(comment, -1) {
			for _, name := range strings.Split(list[1], ", ") {
				if !strings.Contains(name, ".") && len(name) < 3 || strings.HasPrefix(name, "record.") {
					continue // an index, or what another package has
				}
				if found++; !known[name] {
					t.Errorf("spec/election.pml:%d: there is no %s", i+1, name)
				}
			}
		}
	}
	g.Expect(found).To(BeNumerically(">", 40))
}

// namesOfThisPackage returns the names of types, of their methods, and of the fields of structures.
func namesOfThisPackage(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					receiver := n.Recv.List[0].Type
					if pointer, ok := receiver.(*ast.StarExpr); ok {
						receiver = pointer.X
					}
					names[receiver.(*ast.Ident).Name+"."+n.Name.Name] = true
				}
			case *ast.TypeSpec:
				names[n.Name.Name] = true
				if structure, ok := n.Type.(*ast.StructType); ok {
					for _, field := range structure.Fields.List {
						for _, name := range field.Names {
							names[n.Name.Name+"."+name.Name] = true
						}
					}
				}
			}
			return true
		})
	}
	return names
}
