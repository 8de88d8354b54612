package sim

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// mutants are ways to break the library, each by a patch of its sources, and the promise that must show it. One without a
// patch is the library as it is, while that does not keep the promise yet.
var mutants = []struct {
	name    string
	file    string
	promise string
	patches [][2]string // texts, and what takes their places
}{
	{"no deadline", "options.go", "P1", [][2]string{{
		"return t.ttl - t.margin }",
		"return 1000 * t.ttl }",
	}}},
	{"no stand-down", "campaign.go", "P2", [][2]string{{
		"w.since, w.acknowledged, w.standDown(f))",
		"w.since, w.acknowledged, w.standDown(f)*0)",
	}}},
	{"release before work ends", "lead.go", "P3", [][2]string{{
		"for silence != nil || worked != nil {",
		"for false {",
	}}},
	{"abdicate on any error", "renew.go", "P6", [][2]string{{
		"t.next = time.Now().Add(spacing(left))",
		"t.next = time.Now().Add(spacing(left))\n\tt.end(reasonDeleted)",
	}}},
	{"adopt a ghost", "campaign.go", "P7", [][2]string{{
		"err := e.write(call, &w)",
		"if w.reason == reasonReclaimed {\n\t\t\tw.revision, w.since, w.acknowledged = w.over, time.Now(), time.Now()\n\t\t\treturn e.take(ctx, w)\n\t\t}\n\t\terr := e.write(call, &w)",
	}}},
	{"believe a notification", "campaign.go", "P2", [][2]string{{
		"s, err = e.readKey(ctx)",
		"s, err = e.readKey(ctx)\n\tif a := e.ear.Load(); notified {\n\t\ts = keyState{time.Now(), a.last.revision, a.last.written, a.last.removal, a.last.record}\n\t\terr = nil\n\t}",
	}}},
	{"ignore a lower foreign revision", "renew.go", "P11", [][2]string{
		{"if named && last > 0 && last < t.revision {", "if false {"},
		{"case s.revision >= t.term.Number:", "case false:"},
	}},
}

// mutantSchedules is within how many schedules a mutant must be caught.
const mutantSchedules = "2000"

// TestMutantsAreCaught builds the library with each mutation and has the simulator find it.
func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the library several times")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			root := copyModule(t)
			for _, patch := range m.patches {
				mutate(t, filepath.Join(root, m.file), patch[0], patch[1])
			}
			output := simulate(t, root, m.promise)
			verdict := regexp.MustCompile(`\n\s*(` + m.promise + `: .*)`).FindStringSubmatch(output)
			if verdict == nil {
				t.Fatalf("the mutant was not caught, or does not build:\n%s", output)
			}
			t.Logf("caught: %s", verdict[1])
		})
	}
}

// mutate patches a file.
func mutate(t *testing.T, file, before, after string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), before); n != 1 {
		t.Fatalf("the text to replace is there %d times in %s, not once: renew the patch", n, file)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(source), before, after, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyModule copies what the simulator needs of this module to a directory of the test's.
func copyModule(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, pattern := range []string{"go.mod", "go.sum", "*.go", "internal/lease/*.go", "internal/reach/*.go", "internal/watch/*.go", "internal/sim/*.go"} {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range files {
			name, _ := filepath.Rel(filepath.Join("..", ".."), from)
			if strings.HasSuffix(name, "_test.go") && filepath.Base(name) != "sim_test.go" {
				continue
			}
			content, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// simulate runs schedules in a copy of the module, which is to break the promise, and returns what it prints.
func simulate(t *testing.T, root, promise string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "./internal/sim", "-run", "^TestSchedules$", "-args", "-schedules", mutantSchedules, "-promise", promise)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	output, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("the mutant was not caught within %s schedules:\n%s", mutantSchedules, output)
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		t.Fatalf("go test does not run: %v", err)
	}
	return string(output)
}
