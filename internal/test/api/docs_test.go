package api

import (
	"go/ast"
	"go/doc/comment"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/clitest"
)

// codeWithin is the number of lines, as go doc shows them, within which the code of a package documentation begins.
const codeWithin = 15

// A newcomer copies the code first, and reads the rest later.
func TestPackageDocumentationShowsCodeFirst(t *testing.T) {
	g := NewWithT(t)
	for _, p := range packages(t) {
		if !p.public() {
			continue
		}
		f := p.documented()
		g.Expect(f).NotTo(BeNil(), "package %s has no documentation", p.name())
		lines := strings.Split(string(new(comment.Printer).Text(new(comment.Parser).Parse(f.Doc.Text()))), "\n")
		first := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "\t") })
		if first < 0 || first >= codeWithin {
			t.Errorf("the documentation of package %s shows no code within its first %d lines: begin with a sentence and a program", p.name(), codeWithin)
		}
	}
}

// The first block of each package documentation is Go. Later ones may be drawings. A block that needs another module is also in the tests of a
// nested module, word for word, and is compiled there: gocronelector/gocrontest has one.
func TestCodeOfPackageDocumentationCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles: not with -short")
	}
	g := NewWithT(t)
	root := filepath.Join("..", "..", "..")
	compiler := clitest.NewCompiler(t, root)
	sources, err := clitest.GoSources(root)
	g.Expect(err).NotTo(HaveOccurred())
	for _, p := range packages(t) {
		if !p.public() {
			continue
		}
		for n, b := range p.blocks(t) {
			if n > 0 && !strings.HasPrefix(b.Text, "package ") && !clitest.ParsesAsGo(b) {
				continue
			}
			if strings.Contains(sources, clitest.PlainText(b.Text)) { // and so is compiled there
				continue
			}
			for _, problem := range compiler.Compile(b) {
				t.Errorf("%s:%s", b.Page, problem)
			}
			if formatted, err := format.Source([]byte(b.Text)); err == nil && string(formatted) != b.Text {
				t.Errorf("%s:%d: gofmt would write:\n%s", b.Page, b.Line, formatted)
			}
		}
	}
}

// documented returns the file that has the package documentation; nil if none has.
func (p *pkg) documented() *ast.File {
	if i := slices.IndexFunc(p.files, func(f *ast.File) bool { return f.Doc != nil }); i >= 0 {
		return p.files[i]
	}
	return nil
}

// blocks returns the code of the package documentation.
func (p *pkg) blocks(t *testing.T) (blocks []clitest.Block) {
	t.Helper()
	g := NewWithT(t)
	f := p.documented()
	g.Expect(f).NotTo(BeNil(), "package %s has no documentation", p.name())
	file := p.fset.Position(f.Package).Filename
	source, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	page, err := filepath.Rel(filepath.Join("..", "..", ".."), file)
	g.Expect(err).NotTo(HaveOccurred())
	lines := strings.Split(string(source), "\n")
	for _, content := range new(comment.Parser).Parse(f.Doc.Text()).Content {
		code, ok := content.(*comment.Code)
		if !ok {
			continue
		}
		first, _, _ := strings.Cut(code.Text, "\n")
		blocks = append(blocks, clitest.Block{Page: filepath.ToSlash(page), Line: slices.Index(lines, "//\t"+first) + 1, Text: code.Text})
	}
	g.Expect(blocks).NotTo(BeEmpty(), "the documentation of package %s shows no code", p.name())
	return blocks
}
