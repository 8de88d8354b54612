// Package api has tests of the module as a whole: what it exports, what its documentation shows, and which package imports which.
package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const module = "github.com/natscampaign/election"

// pkg is one package of the module.
type pkg struct {
	path  string // from the root of the module, with slashes; "." is the root
	fset  *token.FileSet
	files []*ast.File // without tests
}

// packages parses every package of the module, in the order of their paths. Directories with a go.mod of their own are other modules.
func packages(t *testing.T) []*pkg {
	t.Helper()
	g := NewWithT(t)
	root := filepath.Join("..", "..", "..")
	found := map[string]*pkg{}
	g.Expect(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if hidden := strings.HasPrefix(d.Name(), ".") && d.Name() != ".."; hidden || d.Name() == "testdata" || err == nil && path != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if found[rel] == nil {
			found[rel] = &pkg{path: rel, fset: token.NewFileSet()}
		}
		f, err := parser.ParseFile(found[rel].fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		found[rel].files = append(found[rel].files, f)
		return err
	})).To(Succeed())
	var list []*pkg
	for _, p := range found {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *pkg) int { return strings.Compare(a.path, b.path) })
	g.Expect(list).NotTo(BeEmpty())
	return list
}

// name returns what the package is called in messages and in the names of files.
func (p *pkg) name() string {
	if p.path == "." {
		return "election"
	}
	return strings.ReplaceAll(p.path, "/", "-")
}

// public reports whether other modules can import the package.
func (p *pkg) public() bool {
	return p.files[0].Name.Name != "main" && !slices.Contains(strings.Split(p.path, "/"), "internal")
}

// imports returns the packages of the module that the package imports.
func (p *pkg) imports(t *testing.T) (list []string) {
	for _, f := range p.files {
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if path == module {
				list = append(list, ".")
			} else if below, found := strings.CutPrefix(path, module+"/"); found {
				list = append(list, below)
			}
		}
	}
	return list
}
