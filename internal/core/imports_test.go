package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// passive are the packages that decide: this one, the one for sessions, and package shell.
var passive = []string{".", "../session", "../shell"}

// allowed are the packages that they import. None of them reads a clock, makes a request or starts a goroutine for them: of timeutil they use what compares.
var allowed = []string{
	"sync/atomic", "github.com/natscampaign/election/internal/core",
	"bytes", "cmp", "crypto/sha256", "encoding/binary", "errors", "fmt", "hash/fnv", "hash/maphash", "maps", "slices", "strings", "time",
	"github.com/natscampaign/election/internal/lease", "github.com/natscampaign/election/internal/record", "github.com/natscampaign/election/internal/timeutil",
	"github.com/natscampaign/election/internal/timing",
}

func TestDecisionsNeedNoClockNoRequestAndNoGoroutine(t *testing.T) {
	g := NewWithT(t)
	var files []string
	for _, folder := range passive {
		found, err := filepath.Glob(filepath.Join(folder, "*.go"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found).NotTo(BeEmpty())
		files = append(files, found...)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, 0)
		g.Expect(err).NotTo(HaveOccurred())
		for _, spec := range parsed.Imports {
			if path := strings.Trim(spec.Path.Value, `"`); !slices.Contains(allowed, path) {
				t.Errorf("%v: imports %s", set.Position(spec.Pos()), path)
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%v: has a goroutine or a channel", set.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}, n.Sel.Name) {
					t.Errorf("%v: reads a clock, time.%s", set.Position(n.Pos()), n.Sel.Name)
				}
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "timeutil" && n.Sel.Name != "Earlier" && n.Sel.Name != "Later" {
					t.Errorf("%v: waits or draws, timeutil.%s", set.Position(n.Pos()), n.Sel.Name)
				}
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "record" && (n.Sel.Name == "NewID" || n.Sel.Name == "NewSecret") {
					t.Errorf("%v: has a random number of its own, record.%s", set.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestNothingThatDecisionsNeedReachesTheNetwork(t *testing.T) {
	g := NewWithT(t)
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, passive...)...).Output()
	g.Expect(err).NotTo(HaveOccurred())
	for _, path := range strings.Fields(string(out)) {
		if path == "net" || path == "os/exec" || strings.HasPrefix(path, "net/") || strings.Contains(path, "nats-io") {
			t.Errorf("depends on %s", path)
		}
	}
}
