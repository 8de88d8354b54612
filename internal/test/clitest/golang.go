package clitest

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
)

// packages lists what a fragment may use without an import, by the name that it uses.
var packages = func() map[string]string {
	byName := map[string]string{
		"election": module, "nats": "github.com/nats-io/nats.go", "jetstream": "github.com/nats-io/nats.go/jetstream",
		"prometheus": "github.com/prometheus/client_golang/prometheus", "http": "net/http", "slog": "log/slog", "signal": "os/signal", "sql": "database/sql",
	}
	for _, name := range []string{"admin", "connect", "dashboards", "fence", "gocronelector", "group", "mutex", "observe", "semaphore", "session", "witness"} {
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

// PlainText returns a text with single blanks for white space.
func PlainText(text string) string { return strings.Join(strings.Fields(text), " ") }

// GoSources returns all Go code below the root of the module as plain text, that of nested modules too: their tests compile it. It leaves out
// the code within comments.
func GoSources(root string) (string, error) {
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."), d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "//\t") {
				all.WriteString(PlainText(line) + " ")
			}
		}
		return err
	})
	return PlainText(all.String()), err
}

// ParsesAsGo reports whether a block is Go: a file, declarations or statements.
func ParsesAsGo(b Block) bool {
	if _, err := parser.ParseFile(token.NewFileSet(), "", b.Text, parser.SkipObjectResolution); err == nil {
		return true
	}
	return parses(b, wrappers...)
}

// parses reports whether a fragment, in one of the wrappers, is Go.
func parses(b Block, in ...[2]string) bool {
	return slices.ContainsFunc(in, func(w [2]string) bool {
		_, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+w[0]+"\n"+b.Text+w[1], parser.SkipObjectResolution)
		return err == nil
	})
}

// Compiler compiles blocks of Go. It finds what they import in the build cache.
type Compiler struct {
	fset    *token.FileSet
	exports map[string]string
	types.Importer
}

// NewCompiler returns a compiler for blocks that import packages of the module whose root is given, and some others.
func NewCompiler(t *testing.T, root string) *Compiler {
	t.Helper()
	var paths []string
	for _, path := range packages {
		paths = append(paths, path)
	}
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = root, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	c := &Compiler{fset: token.NewFileSet(), exports: map[string]string{}}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		c.exports[path] = file
	}
	c.Importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		if c.exports[path] == "" {
			return nil, fmt.Errorf("no block may import %s so far: add it to the packages in clitest", path)
		}
		return os.Open(c.exports[path])
	})
	return c
}

// Compile returns what is wrong with a block, each with the line of the page. A block is a program, or a fragment that is wrapped into one.
func (c *Compiler) Compile(b Block) (problems []string) {
	if strings.HasPrefix(b.Text, "package ") {
		return c.check(b, "", "", "")
	}
	tried := false
	for n, w := range wrappers {
		if last := n == len(wrappers)-1; !parses(b, w) && (!last || tried) {
			continue
		}
		found := c.check(b, c.header(b), w[0], w[1])
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
func (c *Compiler) header(b Block) string {
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
func (c *Compiler) check(b Block, header, before, after string) (problems []string) {
	fragment := header != ""
	lines := map[string]bool{}
	add := func(pos token.Position, message string) {
		if text := fmt.Sprintf("%d: %s", pos.Line, message); !lines[text] {
			lines[text] = true
			problems = append(problems, text)
		}
	}
	text := header + before + "\n//line " + b.Page + ":" + fmt.Sprint(b.Line) + "\n" + b.Text + after
	file, err := parser.ParseFile(c.fset, "", text, parser.SkipObjectResolution)
	if list := (scanner.ErrorList{}); errors.As(err, &list) {
		add(list[0].Pos, list[0].Msg)
		return problems
	}
	files := []*ast.File{file}
	if fragment {
		declared := c.declarations(header, file)
		files = append(files, declared)
	}
	config := types.Config{Importer: c, Error: func(err error) {
		if e := (types.Error{}); errors.As(err, &e) && !(fragment && e.Soft) {
			add(c.fset.Position(e.Pos), e.Msg)
		}
	}}
	_, _ = config.Check("p", c.fset, files, nil)
	return problems
}

// declarations returns a file with what is known, but for what the fragment declares itself.
func (c *Compiler) declarations(header string, fragment *ast.File) *ast.File {
	file, err := parser.ParseFile(c.fset, "known", header+known, parser.SkipObjectResolution)
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
