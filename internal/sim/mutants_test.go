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

// mutants break the library by patches of its sources. The simulator must catch each by the promise that it breaks, if one is named, and
// the replay by a step that the model does not have.
var mutants = []struct {
	name    string
	promise string
	patches []patch
}{
	{"no deadline", "P1", []patch{{"internal/settings/timing.go",
		"return t.TTL - t.Margin }",
		"return 1000 * t.TTL }",
	}}},
	{"no stand-down", "P2", []patch{{"campaign.go",
		"a.since, a.acknowledged, standDown)",
		"a.since, a.acknowledged, 0*standDown)",
	}}},
	{"lead by any win", "P2", []patch{{"campaign.go",
		"t.leadsAtOnce = a.written.Leads && standDown == 0",
		"t.leadsAtOnce = true",
	}}},
	{"lead by a win over the release of a leader-elect", "P2", []patch{{"campaign.go",
		"t.leadsAtOnce = a.written.Leads && standDown == 0",
		"t.leadsAtOnce = a.named",
	}}},
	{"release before work ends", "P3", []patch{{"lead.go",
		"for quiet != nil || returned != nil {",
		"for false {",
	}}},
	{"abdicate on any error", "P6", []patch{{"lead.go",
		"t.next = time.Now().Add(retryDelay(left))",
		"t.next = time.Now().Add(retryDelay(left))\n\tt.end(ReasonDeleted)",
	}}},
	{"adopt a ghost", "P7", []patch{{"campaign.go",
		"err := r.acquire(call, &a)",
		"if a.reason == ReasonReclaimed {\n\t\t\ta.revision, a.since, a.acknowledged = a.over, time.Now(), time.Now()\n\t\t\treturn r.newTerm(ctx, a)\n\t\t}\n\t\terr := r.acquire(call, &a)",
	}}},
	{"believe a notification", "P2", []patch{
		{"internal/notify/listener.go",
			"// News returns",
			"func (l *Listener) Last() Change { last, _ := lastOf.Load(l); c, _ := last.(Change); return c }\n\nvar lastOf sync.Map\n\n// News returns",
		},
		{"internal/notify/listener.go",
			"	l.changed.Broadcast()\n",
			"	l.changed.Broadcast()\n	lastOf.Store(l, c)\n",
		},
		{"campaign.go",
			"s, err = r.readKey(ctx)",
			"s, err = r.readKey(ctx)\n\tif c := r.listener.Last(); vacancy {\n\t\ts = kv.State{time.Now(), c.Revision, c.Written, c.Removal, c.Record}\n\t\terr = nil\n\t}",
		},
	}},
	{"ignore a lower foreign revision", "P11", []patch{
		{"lead.go", "if named && last > 0 && last < t.revision {", "if false {"},
		{"lead.go", "case s.Revision >= t.term.Number:", "case false:"},
	}},
	{"renew over whatever is stored", "", []patch{{"lead.go",
		"	last, named := kv.LastSequence(refusal)\n	if named && last > 0",
		"	last, named := kv.LastSequence(refusal)\n	if named {\n		t.revision = last\n		return refusal\n	}\n	if named && last > 0",
	}}},
	{"win over a record that it has not read", "", []patch{{"campaign.go",
		"a := acquisition{over: s.Revision,",
		"a := acquisition{over: s.Revision + 1,",
	}}},
	{"pass on no stand-down", "", []patch{{"lead.go",
		"rec.StandDownMs = record.Milliseconds(t.counts.Sub(sent))",
		"rec.StandDownMs = 0",
	}}},
}

// patch replaces a text that occurs once in a file.
type patch struct{ file, text, by string }

// mutantSchedules is how many schedules the simulator may need.
const mutantSchedules = "2000"

func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the library several times")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			root := copyModule(t)
			for _, patch := range m.patches {
				mutate(t, filepath.Join(root, patch.file), patch.text, patch.by)
			}
			program := build(t, root)
			if m.promise != "" {
				expectCaught(t, m.promise+": .*", program, "^TestSchedules$", "-promise", m.promise)
			}
			expectCaught(t, "the model has no such step: .*", program, "^TestSchedulesFollowTheModel$")
		})
	}
}

// mutate replaces a text of a file.
func mutate(t *testing.T, file, before, after string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), before); n != 1 {
		t.Fatalf("the text of the patch occurs %d times in %s, not once: adapt the patch to the library", n, file)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(source), before, after, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// modulePackages are the packages in internal that the simulator and the root package import.
var modulePackages = []string{"control", "enum", "kv", "lease", "model", "notify", "record", "replay", "settings", "sim", "timeutil", "validate", "version", "wakeup"}

// copyModule copies the packages that the simulator needs to a temporary directory.
func copyModule(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	patterns := []string{"go.mod", "go.sum", "*.go"}
	for _, name := range modulePackages {
		patterns = append(patterns, filepath.Join("internal", name, "*.go"))
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range files {
			name, _ := filepath.Rel(filepath.Join("..", ".."), from)
			if strings.HasSuffix(name, "_test.go") && filepath.Base(name) != "sim_test.go" && filepath.Base(name) != "replay_test.go" {
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

// build builds the tests of the simulator in a copy of the module.
func build(t *testing.T, root string) (program string) {
	t.Helper()
	program = filepath.Join(root, "sim.test")
	cmd := exec.Command("go", "test", "-vet=off", "-c", "-o", program, "./internal/sim")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not build: %v\n%s", err, output)
	}
	return program
}

// expectCaught plays schedules of a mutant, and expects a verdict.
func expectCaught(t *testing.T, verdict, program, test string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, program, append([]string{"-test.run", test, "-schedules", mutantSchedules}, args...)...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("the tests did not run: %v", err)
	}
	found := regexp.MustCompile(`\n\s*(` + verdict + `)`).FindStringSubmatch(string(output))
	if err == nil || found == nil {
		t.Fatalf("%s did not catch the mutant within %s schedules:\n%s", test, mutantSchedules, output)
	}
	t.Logf("caught: %s", found[1])
}
