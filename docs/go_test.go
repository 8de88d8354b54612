package docs_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/clitest"
)

// repository is the path to the root of the module.
const repository = ".."

// foreign lists the blocks that show another library, by page and first line of code, with the reason why they are only parsed.
var foreign = map[string]string{
	`docs/REFERENCE.md: registry := prometheus.NewRegistry()`: "OpenTelemetry, which is no dependency",
}

// packages lists what a fragment may use without an import, by the name that it uses.
var packages = func() map[string]string {
	byName := map[string]string{
		"election": module, "nats": "github.com/nats-io/nats.go", "jetstream": "github.com/nats-io/nats.go/jetstream",
		"prometheus": "github.com/prometheus/client_golang/prometheus", "http": "net/http", "slog": "log/slog", "signal": "os/signal", "sql": "database/sql",
	}
	for _, name := range []string{"admin", "connect", "dashboards", "fence", "gocronelector", "group", "mutex", "observe", "semaphore"} {
		byName[name] = module + "/" + name
	}
	for _, name := range []string{"context", "errors", "fmt", "log", "os", "strconv", "syscall", "time"} {
		byName[name] = name
	}
	return byName
}()

const module = "github.com/natscampaign/election"

// known is what a fragment may use without declaring it, as the text around it says what it is.
const known = `
var (
	ctx       context.Context
	nc        *nats.Conn
	js        jetstream.JetStream
	bucket    *election.Bucket
	candidate *election.Election
	db        *sql.DB
	term      election.Term
	host      string
)
func check(error) {}
func work(context.Context, election.Term) error { return nil }
func refresh(context.Context) {}
`

// wrappers make a file of a fragment: declarations, or statements of a function.
var wrappers = [][2]string{
	{"", ""},
	{"func _() {", "\n}"},
	{"func _() error {", "\nreturn nil\n}"},
}

func TestGoBlocksCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles: not with -short")
	}
	g := NewWithT(t)
	pages, err := clitest.Pages(repository)
	g.Expect(err).NotTo(HaveOccurred())
	sources := goSources(g)
	imports := newImports(t)
	listed := map[string]bool{}
	for _, p := range pages {
		for _, b := range p.Blocks {
			if b.Language != "go" {
				continue
			}
			first, _, _ := strings.Cut(b.Text, "\n")
			name := b.Page + ": " + first
			if foreign[name] != "" {
				listed[name] = true
				if !parses(b, wrappers...) {
					t.Errorf("%s:%d: does not parse", b.Page, b.Line)
				}
				continue
			}
			if strings.Contains(sources, plain(b.Text)) { // and so is compiled there
				continue
			}
			for _, problem := range imports.compile(b) {
				t.Errorf("%s:%v", b.Page, problem)
			}
		}
	}
	g.Expect(listed).To(HaveLen(len(foreign)), "a block is listed that is not there any more")
}

// plain returns a text with single blanks for white space.
func plain(text string) string { return strings.Join(strings.Fields(text), " ") }

// goSources returns all Go code of the repository, those of nested modules too: their tests compile it.
func goSources(g *WithT) string {
	var all strings.Builder
	g.Expect(filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != repository && strings.HasPrefix(d.Name(), "."), d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		all.WriteString(plain(string(text)) + "\n")
		return err
	})).To(Succeed())
	return all.String()
}

// parses reports whether a fragment, in one of the wrappers, is Go.
func parses(b clitest.Block, in ...[2]string) bool {
	return slices.ContainsFunc(in, func(w [2]string) bool {
		_, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+w[0]+"\n"+b.Text+w[1], parser.SkipObjectResolution)
		return err == nil
	})
}

// imports finds what blocks import in the build cache.
type imports struct {
	fset    *token.FileSet
	exports map[string]string
	types.Importer
}

func newImports(t *testing.T) *imports {
	t.Helper()
	var paths []string
	for _, path := range packages {
		paths = append(paths, path)
	}
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = repository, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	i := &imports{fset: token.NewFileSet(), exports: map[string]string{}}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		i.exports[path] = file
	}
	i.Importer = importer.ForCompiler(i.fset, "gc", func(path string) (io.ReadCloser, error) {
		if i.exports[path] == "" {
			return nil, fmt.Errorf("no block may import %s so far: add it to the packages of this test", path)
		}
		return os.Open(i.exports[path])
	})
	return i
}

// compile returns what is wrong with a block, each with the line of the page. A block is a program, or a fragment that is wrapped into one.
func (i *imports) compile(b clitest.Block) (problems []string) {
	if strings.HasPrefix(b.Text, "package ") {
		return i.check(b, "", "", "")
	}
	tried := false
	for n, w := range wrappers {
		if last := n == len(wrappers)-1; !parses(b, w) && (!last || tried) {
			continue
		}
		found := i.check(b, i.header(b), w[0], w[1])
		if !tried || len(found) < len(problems) {
			problems = found
		}
		if tried = true; len(problems) == 0 {
			break
		}
	}
	return problems
}

var selector = regexp.MustCompile(`\b([a-z]\w*)\.[A-Z]`)

// header returns the beginning of the file of a fragment: what it imports, and what it may use.
func (i *imports) header(b clitest.Block) string {
	var used []string
	for _, m := range selector.FindAllStringSubmatch(b.Text+known, -1) {
		if path, ok := packages[m[1]]; ok && !slices.Contains(used, path) {
			used = append(used, path)
		}
	}
	var header strings.Builder
	header.WriteString("package p\n")
	for _, path := range used {
		fmt.Fprintf(&header, "import %q\n", path)
	}
	return header.String()
}

// check compiles a file. What a fragment declares and then does not use, the text around it does.
func (i *imports) check(b clitest.Block, header, before, after string) (problems []string) {
	fragment := header != ""
	lines := map[string]bool{}
	add := func(pos token.Position, message string) {
		if text := fmt.Sprintf("%d: %s", pos.Line, message); !lines[text] {
			lines[text] = true
			problems = append(problems, text)
		}
	}
	text := header + before + "\n//line " + b.Page + ":" + fmt.Sprint(b.Line) + "\n" + b.Text + after
	file, err := parser.ParseFile(i.fset, "", text, parser.SkipObjectResolution)
	if list := (scanner.ErrorList{}); errors.As(err, &list) {
		add(list[0].Pos, list[0].Msg)
		return problems
	}
	files := []*ast.File{file}
	if fragment {
		declared := i.declarations(header, file)
		files = append(files, declared)
	}
	config := types.Config{Importer: i, Error: func(err error) {
		if e := (types.Error{}); errors.As(err, &e) && !(fragment && e.Soft) {
			add(i.fset.Position(e.Pos), e.Msg)
		}
	}}
	_, _ = config.Check("p", i.fset, files, nil)
	return problems
}

// declarations returns a file with what is known, but for what the fragment declares itself.
func (i *imports) declarations(header string, fragment *ast.File) *ast.File {
	file, err := parser.ParseFile(i.fset, "known", header+known, parser.SkipObjectResolution)
	if err != nil {
		panic(err)
	}
	own := map[string]bool{}
	for _, d := range fragment.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			own[f.Name.Name] = true
		}
	}
	file.Decls = slices.DeleteFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && own[f.Name.Name]
	})
	return file
}

func TestABlockThatDoesNotCompileIsFoundWithItsLine(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles: not with -short")
	}
	g := NewWithT(t)
	i := newImports(t)
	for text, want := range map[string]string{
		"package main\n\nfunc main() { undefined() }\n":                                   "12: undefined: undefined",
		"e, err := election.NewElection(host, \"k\", bucket)\nelection.Nothing(e, err)\n": "11: undefined: election.Nothing",
		"check(candidate.Run(ctx, work))\nx :=\n":                                         "",
		"func f() int { return \"\" }\n":                                                  `10: cannot use "" (untyped string constant) as int value in return statement`,
	} {
		g.Expect(i.compile(clitest.Block{Page: "p.md", Line: 10, Text: text})).To(ContainElement(ContainSubstring(want)), text)
	}
	for _, text := range []string{
		"package main\n\nimport \"log\"\n\nfunc main() { log.Print() }\n",
		"e, err := election.NewElection(host, \"k\", bucket)\nif err != nil {\n\treturn err\n}\n",
		"e, err := election.NewElection(host, \"k\", bucket)\nif err != nil {\n\treturn\n}\n",
		"func check(err error) { log.Print(err) }\n",
	} {
		g.Expect(i.compile(clitest.Block{Page: "p.md", Line: 10, Text: text})).To(BeEmpty(), text)
	}
}
