package api

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var update = flag.Bool("update", false, "write the lists of exported names in testdata anew")

// The lists are in testdata, one file per package and one line per name. Write them anew with: go test ./internal/test/api -update
func TestExportedNamesChangeOnlyOnPurpose(t *testing.T) {
	g := NewWithT(t)
	listed := map[string]bool{}
	for _, p := range packages(t) {
		if !p.public() {
			continue
		}
		file := filepath.Join("testdata", p.name()+".txt")
		listed[file] = true
		now := exported(t, p)
		if *update {
			g.Expect(os.MkdirAll("testdata", 0o755)).To(Succeed())
			g.Expect(os.WriteFile(file, []byte(strings.Join(now, "\n")+"\n"), 0o644)).To(Succeed())
		}
		content, err := os.ReadFile(file)
		if !errors.Is(err, fs.ErrNotExist) {
			g.Expect(err).NotTo(HaveOccurred())
		}
		before := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
		for _, line := range only(before, now) {
			t.Errorf("package %s no longer has: %s", p.name(), line)
		}
		for _, line := range only(now, before) {
			t.Errorf("package %s has a new name: %s", p.name(), line)
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		g.Expect(listed).To(HaveKey(file), "the list of a package that is gone: remove the file")
	}
	if t.Failed() {
		t.Log("if this is on purpose: go test ./internal/test/api -update")
	}
}

// only returns the lines of a that are not in b, but for empty ones.
func only(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return line == "" || slices.Contains(b, line) })
}

// exported returns a line for each exported name of a package, with its type.
func exported(t *testing.T, p *pkg) []string {
	t.Helper()
	d, err := doc.NewFromFiles(p.fset, p.files, module)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	l := lister{pkg: p}
	l.values(d.Consts)
	l.values(d.Vars)
	l.funcs(d.Funcs)
	for _, typ := range d.Types {
		l.values(typ.Consts)
		l.values(typ.Vars)
		l.funcs(typ.Funcs)
		l.funcs(typ.Methods)
		for _, spec := range typ.Decl.Specs {
			l.typ(spec.(*ast.TypeSpec))
		}
	}
	slices.Sort(l.lines)
	return l.lines
}

// lister collects lines.
type lister struct {
	*pkg
	lines []string
}

func (l *lister) add(format string, a ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, a...))
}

// source returns a node as source code in one line.
func (l *lister) source(node any) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, l.fset, node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// values adds variables, and constants with their values.
func (l *lister) values(values []*doc.Value) {
	for _, v := range values {
		typ, repeated := "", []ast.Expr(nil) // a constant without a type and a value repeats those of the constant before it
		for iota, s := range v.Decl.Specs {
			spec := s.(*ast.ValueSpec)
			if spec.Type != nil || len(spec.Values) > 0 {
				typ, repeated = "", spec.Values
			}
			if spec.Type != nil {
				typ = " " + l.source(spec.Type)
			}
			for i, name := range spec.Names {
				if !name.IsExported() {
					continue
				}
				value := ""
				if v.Decl.Tok == token.CONST && i < len(repeated) {
					value = strings.ReplaceAll(" = "+l.source(repeated[i]), "iota", fmt.Sprintf("iota[%d]", iota))
				}
				l.add("%s %s%s%s", v.Decl.Tok, name, typ, value)
			}
		}
	}
}

// funcs adds functions, and methods, those of embedded types that are not exported too.
func (l *lister) funcs(funcs []*doc.Func) {
	for _, f := range funcs {
		decl := &ast.FuncDecl{Name: f.Decl.Name, Type: f.Decl.Type}
		if f.Decl.Recv != nil {
			decl.Recv = &ast.FieldList{List: []*ast.Field{{Type: f.Decl.Recv.List[0].Type}}} // without a name, which says nothing to users
		}
		l.add("%s", l.source(decl))
	}
}

// typ adds a type, with its exported fields and methods.
func (l *lister) typ(spec *ast.TypeSpec) {
	name, kind, members := spec.Name.Name, "", (*ast.FieldList)(nil)
	switch t := spec.Type.(type) {
	case *ast.StructType:
		kind, members = "struct", t.Fields
	case *ast.InterfaceType:
		kind, members = "interface", t.Methods
	default:
		kind = l.source(spec.Type)
	}
	if spec.Assign.IsValid() {
		kind = "= " + kind
	}
	if spec.TypeParams != nil {
		var params []string
		for _, f := range spec.TypeParams.List {
			for _, n := range f.Names {
				params = append(params, n.Name+" "+l.source(f.Type))
			}
		}
		kind = "[" + strings.Join(params, ", ") + "] " + kind
	}
	l.add("type %s %s", name, kind)
	if members == nil {
		return
	}
	for _, f := range members.List {
		tag := ""
		if f.Tag != nil {
			tag = " " + f.Tag.Value
		}
		if len(f.Names) == 0 {
			l.add("type %s: embeds %s%s", name, l.source(f.Type), tag)
		}
		for _, n := range f.Names {
			l.add("type %s: %s %s%s", name, n, l.source(f.Type), tag)
		}
	}
}
