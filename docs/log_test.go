package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/clitest"
)

// unlogged are the folders whose code no operator runs.
var unlogged = []string{"bench", "deploy", "examples", "fence/recipes", "internal/drill/chaos", "internal/test/clitest", "internal/test/natstest", "internal/test/sim", "internal/test/witnesstest", "spec", "testdata"}

// sink is a function that logs one of its arguments as the message.
type sink struct {
	message int // the index of that argument
	level   int // the index of the level; -1 if every message is a warning or worse
}

// logger collects the messages of one package that are logged as warnings or errors.
type logger struct {
	files    []*ast.File
	sinks    map[string]sink // by the name of the function
	messages map[string]bool // by their constant beginning; true if all of the message is constant
}

// warningsOf returns the messages that the files of a package log as warnings or errors.
func warningsOf(files []*ast.File) map[string]bool {
	l := &logger{files: files, sinks: map[string]sink{"Warn": {0, -1}, "Error": {0, -1}, "Log": {2, 1}}}
	for before := 0; before != len(l.sinks); { // until no other function turns out to log what it is given
		before, l.messages = len(l.sinks), map[string]bool{}
		for _, f := range l.files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
					l.function(fn)
				}
			}
		}
	}
	return l.messages
}

// function looks in a function for what is logged: by calls of sinks, and by events that have a level and a message.
func (l *logger) function(fn *ast.FuncDecl) {
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			s, ok := l.sinks[nameOf(n.Fun)]
			switch {
			case !ok || s.message >= len(n.Args):
			case s.level < 0:
				l.logs(fn, nil, n.Args[s.message])
			default:
				l.logs(fn, n.Args[s.level], n.Args[s.message])
			}
		case *ast.CompositeLit:
			if level, message := field(n, "Level"), field(n, "Message"); level != nil && message != nil {
				l.logs(fn, level, message)
			}
		}
		return true
	})
}

// logs takes note that a function logs a message: its own, or one that it is given. Without a level it is a warning or worse.
func (l *logger) logs(fn *ast.FuncDecl, level, message ast.Expr) {
	if minor(fn, level) {
		return
	}
	if i := parameter(fn, message); i >= 0 {
		if _, known := l.sinks[fn.Name.Name]; !known {
			l.sinks[fn.Name.Name] = sink{i, parameter(fn, level)}
		}
	}
	for _, text := range l.constants(fn, message) {
		l.messages[text.beginning] = text.whole
	}
}

// minor reports whether a level is none but debug or info: by its name, or by those of all levels that the function assigns to it.
func minor(fn *ast.FuncDecl, level ast.Expr) bool {
	harmless := func(e ast.Expr) bool {
		return slices.Contains([]string{"LevelDebug", "LevelInfo", "Debug", "Info"}, nameOf(e))
	}
	if nameOf(level) == "" || harmless(level) {
		return nameOf(level) != ""
	}
	assigned := assignments(fn, nameOf(level))
	return len(assigned) > 0 && !slices.ContainsFunc(assigned, func(e ast.Expr) bool { return !harmless(e) })
}

// assignments returns what a function assigns to a variable.
func assignments(fn *ast.FuncDecl, variable string) (assigned []ast.Expr) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, to := range a.Lhs {
				if nameOf(to) == variable {
					assigned = append(assigned, a.Rhs[i])
				}
			}
		}
		return true
	})
	return assigned
}

// field returns what a composite literal gives a field; nil if it gives it nothing.
func field(c *ast.CompositeLit, name string) ast.Expr {
	for _, e := range c.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok && nameOf(kv.Key) == name {
			return kv.Value
		}
	}
	return nil
}

// parameter returns the index of the parameter of a function that an expression names; -1 if it names none.
func parameter(fn *ast.FuncDecl, e ast.Expr) int {
	i := 0
	for _, p := range fn.Type.Params.List {
		for _, name := range p.Names {
			if name.Name == nameOf(e) {
				return i
			}
			i++
		}
	}
	return -1
}

// constant is a message, or what is constant at its beginning.
type constant struct {
	beginning string
	whole     bool
}

// constants returns what a message may be: a literal, a sum that begins with literals, or a variable to which literals are assigned.
func (l *logger) constants(fn *ast.FuncDecl, e ast.Expr) (found []constant) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return []constant{{text, true}}
		}
	case *ast.BinaryExpr:
		for _, left := range l.constants(fn, e.X) {
			if !left.whole {
				found = append(found, left)
				continue
			}
			right := l.constants(fn, e.Y)
			if len(right) == 0 {
				right = []constant{{}}
			}
			for _, r := range right {
				found = append(found, constant{left.beginning + r.beginning, r.whole})
			}
		}
	case *ast.Ident:
		for _, assigned := range assignments(fn, e.Name) {
			found = append(found, l.constants(fn, assigned)...)
		}
	}
	return found
}

// nameOf returns the name of a function, a constant or a variable.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// warnings returns the messages of all code that an operator may see, by their constant beginning.
func warnings(g *WithT) map[string]bool {
	byFolder := map[string][]*ast.File{}
	g.Expect(filepath.WalkDir(repository, func(file string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(file, repository+string(filepath.Separator)))
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(unlogged, name) || file != repository && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		byFolder[path.Dir(name)] = append(byFolder[path.Dir(name)], parsed)
		return err
	})).To(Succeed())
	all := map[string]bool{}
	for _, files := range byFolder {
		maps.Copy(all, warningsOf(files))
	}
	return all
}

// logSection returns the messages that a page lists in its section of log messages, by the first cells of the rows of its tables.
func logSection(page string) (listed []string) {
	_, section, _ := strings.Cut(page, "\n## Log messages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| (`.+?) \\|").FindAllStringSubmatch(section, -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, m[1])
		}
	}
	return listed
}

// names reports whether what a page lists names a message: all of it, or its beginning and three dots.
func names(listed, message string, whole bool) bool {
	beginning, cut := strings.CutSuffix(listed, "…")
	return listed == message && whole || cut && strings.HasPrefix(message, beginning)
}

func TestTheRunbookListsEveryWarningAndErrorOfTheLog(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile("OPERATIONS.md")
	g.Expect(err).NotTo(HaveOccurred())
	listed := logSection(string(page))
	logged := warnings(g)
	g.Expect(len(logged)).To(BeNumerically(">", 70), "the code is read")
	for message, whole := range logged {
		if !slices.ContainsFunc(listed, func(l string) bool { return names(l, message, whole) }) {
			t.Errorf("docs/OPERATIONS.md, Log messages: no row for %q", message)
		}
	}
	sources, err := clitest.GoSources(repository)
	g.Expect(err).NotTo(HaveOccurred())
	for _, l := range listed {
		beginning := strings.TrimSuffix(l, "…")
		if !strings.Contains(sources, `"`+beginning) || beginning == l && !strings.Contains(sources, `"`+l+`"`) {
			t.Errorf("docs/OPERATIONS.md, Log messages: no code logs %q", l)
		}
	}
}

func TestAWarningIsFoundHoweverItIsLogged(t *testing.T) {
	g := NewWithT(t)
	file, err := parser.ParseFile(token.NewFileSet(), "", `package p
func f() {
	log.Warn("one", "error", err)
	log.Error("two " + "and more: " + fmt.Sprint(x))
	log.Info("not this")
	log.Log(ctx, slog.LevelInfo, "nor this")
	log.Log(ctx, level(), "three")
	warn("four", err)
	note(Debug, "nor this either")
	note(Warn, "five")
	err.Error()
	http.Error(w, "six is no message", 404)
}
func warn(what string, err error) { log.Log(ctx, level, what, "error", err) }
func note(level Level, message string) { report(Event{Level: level, Message: message}) }
func g() {
	level, message := slog.LevelDebug, "seven"
	if late {
		level = slog.LevelInfo
	}
	log.Log(ctx, level, message)
}
func h() {
	level, message := slog.LevelDebug, "eight"
	if late {
		level, message = slog.LevelWarn, "nine"
	}
	log.Log(ctx, level, message)
}
`, parser.SkipObjectResolution)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warningsOf([]*ast.File{file})).To(Equal(map[string]bool{
		"one": true, "two and more: ": false, "three": true, "four": true, "five": true, "eight": true, "nine": true,
	}))
	g.Expect(names("two and …", "two and more: ", false)).To(BeTrue())
	g.Expect(names("two and more: ", "two and more: ", false)).To(BeFalse(), "more follows")
	g.Expect(names("one", "one and more", true)).To(BeFalse())
	g.Expect(logSection("\n## Log messages\n\n| message | meaning |\n|---|---|\n| `a`, `b …` | `c` |\n## Next\n| `d` |\n")).To(Equal([]string{"a", "b …"}))
}
