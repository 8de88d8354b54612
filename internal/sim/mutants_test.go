package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// mutants break the library by patches of its sources. All are built into one program, where the environment chooses one. The simulator
// must catch each by the promise that it breaks, if one is named, and the replay by a step that the model does not have, unless all that would
// show the mutant is left out of the model.
var mutants = []mutant{
	{"no deadline", "P1", []patch{{
		"internal/settings/timing.go",
		"return t.TTL - t.Margin }",
		"if MUTANT { return 1000 * t.TTL }; return t.TTL - t.Margin }",
	}}},
	{"no stand-down", "P2", []patch{{
		"campaign.go",
		"t := newActiveTerm(",
		"if MUTANT { standDown = 0 }; t := newActiveTerm(",
	}}},
	{"lead by any win", "P2", []patch{{
		"campaign.go",
		"t.leadsAtOnce = ",
		"t.leadsAtOnce = MUTANT || ",
	}}},
	{"lead by a win over the release of a leader-elect", "P2", []patch{{
		"campaign.go",
		"a.written.Leads && standDown == 0",
		"(MUTANT && a.named || a.written.Leads && standDown == 0)",
	}}},
	{"release before work ends", "P3", []patch{{
		"release.go",
		"for quiet != nil || returned != nil {",
		"for !MUTANT && (quiet != nil || returned != nil) {",
	}}},
	{"abdicate on any error", "P6", []patch{{
		"lead.go",
		"t.next = time.Now().Add(retryDelay(left))",
		"t.next = time.Now().Add(retryDelay(left)); if MUTANT { t.end(ReasonDeleted) }",
	}}},
	{"adopt a ghost", "P7", []patch{{
		"campaign.go",
		"err := r.acquire(call, &a)",
		"if MUTANT && a.reason == ReasonReclaimed { cancel(); a.revision, a.since, a.acknowledged = a.over, time.Now(), time.Now(); return r.newTerm(ctx, a) }; err := r.acquire(call, &a)",
	}}},
	{"believe a notification", "P2", []patch{
		{
			"internal/notify/listener.go",
			"// NextChange returns",
			"func (l *Listener) Last() Change { last, _ := lastOf.Load(l); c, _ := last.(Change); return c }\n\nvar lastOf sync.Map\n\n// NextChange returns",
		},
		{
			"internal/notify/hints.go",
			"	l.changed.Broadcast()\n",
			"	l.changed.Broadcast(); if MUTANT { lastOf.Store(l, c) }\n",
		},
		{
			"campaign.go",
			"s, err = r.readKey(ctx)",
			"s, err = r.readKey(ctx); if c := r.listener.Last(); MUTANT && vacancy { s, err = kv.State{Read: time.Now(), Revision: c.Revision, Written: c.Written, Removal: c.Removal, Record: c.Record}, nil }",
		},
		{
			"internal/notify/endings.go", // which nothing that is notified passes otherwise
			"	r, known := s.Record, l.holder.commitment\n",
			"	r, known := s.Record, l.holder.commitment; if MUTANT { return true }\n",
		},
	}},
	{"accept any release", "P2", []patch{{
		"internal/notify/endings.go",
		"	if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {",
		"	if MUTANT { return true }; if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {",
	}}},
	{"adopt what it never wrote", "P2", []patch{
		{"doubt.go", "return newer && !doubtful && !d.forgot", "return !MUTANT && newer && !doubtful && !d.forgot"},
		{"doubt.go", "(doubtful || d.forgot ||", "(MUTANT || doubtful || d.forgot ||"},
	}},
	{"ignore a lower foreign revision", "P11", []patch{
		{"lead.go", "if named && last > 0 && last < t.revision {", "if !MUTANT && named && last > 0 && last < t.revision {"},
		{"reads.go", "case s.Revision >= t.term.Number:", "case !MUTANT && s.Revision >= t.term.Number:"},
	}},
	{"renew over whatever is stored", "", []patch{{
		"lead.go",
		"	last, named := kv.LastSequence(refusal)\n",
		"	last, named := kv.LastSequence(refusal); if MUTANT && named { t.revision = last; return refusal }\n",
	}}},
	{"win over a record that it has not read", "", []patch{
		{"acquisition.go", "a := acquisition{over: s.Revision,", "a := acquisition{over: over,"},
		{"acquisition.go", "	// A release to which the history was rewound", "	over := s.Revision; if MUTANT { over++ }\n	// A release to which the history was rewound"},
	}},
	{"pass on no stand-down", "", []patch{{
		"lead.go",
		"rec.StandDownMs = record.Milliseconds(t.counts.Sub(sent))",
		"rec.StandDownMs = record.Milliseconds(t.counts.Sub(sent)); if MUTANT { rec.StandDownMs = 0 }",
	}}},
}

type mutant struct {
	name    string
	promise string
	patches []patch
}

// unmodelled are the mutants that the replay cannot show, and why.
var unmodelled = map[string]string{"accept any release": "in the model no stranger forges a release"}

// patch replaces a text that occurs once in a file. MUTANT stands for whether its mutant was chosen.
type patch struct{ file, text, by string }

// chooser is a package of that program that knows which mutant was chosen.
const chooser = "package mutant\n\nimport \"os\"\n\nvar chosen = os.Getenv(\"MUTANT\")\n\nfunc Is(name string) bool { return name == chosen }\n"

// mutantSchedules is how many schedules the simulator may need.
const mutantSchedules = "2000"

func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the library")
	}
	program := buildMutants(t)
	if output, err := simulate(program, "none", "^TestSchedules$"); err != nil {
		t.Fatalf("the library breaks a promise without a mutant: %v\n%s", err, output)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if m.promise != "" {
				expectCaught(t, m.promise+": .*", program, m.name, "^TestSchedules$", "-promise", m.promise)
			}
			if unmodelled[m.name] == "" {
				expectCaught(t, "the model has no such step: .*", program, m.name, "^TestSchedulesFollowTheModel$")
			}
		})
	}
}

// buildMutants builds the tests of this package with all mutants, and returns the program. The patched files take the place of those of the
// library for this build only.
func buildMutants(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	patched := map[string]string{filepath.Join(root, "internal", "mutant", "mutant.go"): chooser}
	for _, m := range mutants {
		for _, p := range m.patches {
			file := filepath.Join(root, p.file)
			source, ok := patched[file]
			if !ok {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				source = string(content)
			}
			if n := strings.Count(source, p.text); n != 1 {
				t.Fatalf("the text %q of the patch for %q occurs %d times in %s, not once: adapt the patch to the library", p.text, m.name, n, p.file)
			}
			patched[file] = strings.Replace(source, p.text, strings.ReplaceAll(p.by, "MUTANT", fmt.Sprintf("mutant.Is(%q)", m.name)), 1)
		}
	}
	folder, replace := t.TempDir(), map[string]string{}
	for file, source := range patched {
		if strings.Contains(source, "mutant.Is(") {
			source = strings.Replace(source, "\nimport (", "\nimport (\n\t\"github.com/natscampaign/election/internal/mutant\"", 1)
		}
		replace[file] = filepath.Join(folder, fmt.Sprint(len(replace), ".go"))
		writeFile(t, replace[file], []byte(source))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	program, list := filepath.Join(folder, "sim.test"), filepath.Join(folder, "overlay.json")
	writeFile(t, list, overlay)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", list, "-o", program, ".")
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the mutants do not build: %v\n%s", err, output)
	}
	return program
}

func writeFile(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// simulate plays schedules with a mutant, and returns what a test says of them.
func simulate(program, mutant, test string, args ...string) (output []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"-test.run", test, "-schedules", mutantSchedules}, args...)...)
	cmd.Env = append(os.Environ(), "MUTANT="+mutant)
	return cmd.CombinedOutput()
}

// expectCaught plays schedules with a mutant, and expects a verdict.
func expectCaught(t *testing.T, verdict, program, mutant, test string, args ...string) {
	t.Helper()
	output, err := simulate(program, mutant, test, args...)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("the tests did not run: %v", err)
	}
	found := regexp.MustCompile(`\n\s*(` + verdict + `)`).FindStringSubmatch(string(output))
	if err == nil || found == nil {
		t.Fatalf("%s did not catch the mutant within %s schedules:\n%s", test, mutantSchedules, output)
	}
	t.Logf("caught: %s", found[1])
}
