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
// must catch each by the promise that it breaks, and so must the schedules with up to two faults.
var mutants = []mutant{
	{"no deadline", "P1", []patch{{
		"internal/timing/timing.go",
		"return t.TTL - t.Margin }",
		"if MUTANT { return 1000 * t.TTL }; return t.TTL - t.Margin }",
	}}},
	{"no stand-down", "P2", []patch{{
		"internal/core/term.go",
		"	b := c.bucket.Timing // which",
		"	if MUTANT { standDown = 0 }\n	b := c.bucket.Timing // which",
	}}},
	{"lead by any win", "P2", []patch{{
		"internal/core/term.go",
		"AtOnce:   a.written.Leads",
		"AtOnce:   MUTANT || a.written.Leads",
	}}},
	{"lead by a win over the release of a leader-elect", "P2", []patch{{
		"internal/core/term.go",
		"a.written.Leads && standDown == 0",
		"(MUTANT && a.named || a.written.Leads && standDown == 0)",
	}}},
	{"release before work ends", "P3", []patch{{
		"internal/core/drain.go",
		"	case r.Quiet:\n",
		"	case r.Quiet || MUTANT:\n",
	}}},
	{"abdicate on any error", "P6", []patch{{
		"internal/core/lead.go",
		"t.renewAt = now.Add(retryDelay(left))",
		"t.renewAt = now.Add(retryDelay(left)); if MUTANT { c.endLeadership(now, t, Deleted) }",
	}}},
	{"adopt a ghost", "P7", []patch{{
		"internal/core/campaign.go",
		"			b.acquisition = c.acquisitionOver(now, s)\n",
		"			b.acquisition = c.acquisitionOver(now, s)\n			if a := b.acquisition; MUTANT { a.revision, a.sent, a.acknowledged, a.written = a.over, now, now, &s.Record; c.won(now); return }\n",
	}}},
	{"believe a notification", "P2", []patch{
		{
			"internal/core/campaign.go",
			"	c.finishRead(now, b.state, r.Err, false)\n	switch {",
			"	if h := c.reading.hint; MUTANT && h != nil && h.vacant() { r.State, r.Err = record.State{Read: now, Revision: h.Revision, Written: h.Written, Removal: h.Removal, Record: h.Record}, nil }\n	c.finishRead(now, b.state, r.Err, false)\n	switch {",
		},
		{
			"internal/core/key.go", // which nothing that is notified passes otherwise
			"	r, known := &s.Record, c.key.holder.commitment\n",
			"	r, known := &s.Record, c.key.holder.commitment; if MUTANT { return true }\n",
		},
	}},
	{"accept any release", "P2", []patch{{
		"internal/core/key.go",
		"	if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {",
		"	if MUTANT { return true }; if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {",
	}}},
	{"adopt what it never wrote", "P2", []patch{
		{"internal/core/doubt.go", "return !doubtful && !d.forgot", "return !MUTANT && !doubtful && !d.forgot"},
		{"internal/core/doubt.go", "(doubtful || d.forgot ||", "(MUTANT || doubtful || d.forgot ||"},
	}},
	{"ignore a lower foreign revision", "P11", []patch{
		{"internal/core/lead.go", "if y.refusal.named && y.refusal.last > 0 &&", "if !MUTANT && y.refusal.named && y.refusal.last > 0 &&"},
		{"internal/core/lead.go", "case s.Revision >= t.Number:", "case !MUTANT && s.Revision >= t.Number:"},
	}},
	{"renew over whatever is stored", "P2", []patch{{
		"internal/core/lead.go",
		"func (c *Candidate) resolve(now time.Time) {\n	t, y := c.term, c.try\n",
		"func (c *Candidate) resolve(now time.Time) {\n	t, y := c.term, c.try\n	if MUTANT && y.refusal.named { t.revision = y.refusal.last; c.renewalFailed(now, y.refusal.err); return }\n",
	}}},
	{"win over a record that it has not read", "P8", []patch{
		{"internal/core/acquisition.go", "a := &acquisition{over: s.Revision,", "a := &acquisition{over: over,"},
		{"internal/core/acquisition.go", "	// A release to which the history was rewound", "	over := s.Revision; if MUTANT { over++ }\n	// A release to which the history was rewound"},
	}},
	{"take over too early", "P2", []patch{{
		"internal/timing/timing.go",
		"	return lease + lease/rateAllowance",
		"	if MUTANT { return lease / 2 }; return lease + lease/rateAllowance",
	}}},
	{"allow for no difference of speeds", "P2", []patch{{
		"internal/timing/timing.go",
		"	lease = max(lease, ttl-DefaultMargin(ttl))\n",
		"	lease = max(lease, ttl-DefaultMargin(ttl)); if MUTANT { return lease }\n",
	}}},
	{"believe the time of a forged notification", "P2", []patch{{
		"internal/core/lapse.go",
		"	case same && w.shows(s): //",
		"	case same && (MUTANT || w.shows(s)): //",
	}}},
	{"take over after a gap", "P2", []patch{{
		"internal/core/lapse.go",
		"func (c *Candidate) missedSome() { c.key.lastWrite.attempt = 0 }",
		"func (c *Candidate) missedSome() { if MUTANT { return }; c.key.lastWrite.attempt = 0 }",
	}}},
	{"take over a record without a lease", "P2", []patch{
		{"internal/core/lapse.go", "!c.isHolder() && k.lastWrite.attempt != 0 && k.lastWrite.lease > 0 &&", "!c.isHolder() && (MUTANT || k.lastWrite.attempt != 0 && k.lastWrite.lease > 0) &&"},
		{"internal/core/lapse.go", "!s.Unconditional && s.Record.Lease() > 0 &&", "(MUTANT || !s.Unconditional && s.Record.Lease() > 0) &&"},
		{"internal/core/lapse.go", "s.Record.Bucket().Equal(c.bucket.Created) &&", "(MUTANT || s.Record.Bucket().Equal(c.bucket.Created)) &&"},
		{"internal/core/acquisition.go", "return a.reason != Vacant && !a.bucketCreated.Equal(b.Created)", "return a.reason != Vacant && !a.bucketCreated.Equal(b.Created) && !(MUTANT && a.reason == Lapsed)"},
	}},
	{"pass on no stand-down", "P2", []patch{{
		"internal/core/lead.go",
		"r.StandDownMs = record.Milliseconds(t.Counts.Sub(sent))",
		"r.StandDownMs = record.Milliseconds(t.Counts.Sub(sent)); if MUTANT { r.StandDownMs = 0 }",
	}}},
}

type mutant struct {
	name    string
	promise string
	patches []patch
}

// patch replaces a text that occurs once in a file. MUTANT stands for whether its mutant was chosen.
type patch struct{ file, text, by string }

// chooser is a package of that program that knows which mutant was chosen.
const chooser = "package mutant\n\nimport \"os\"\n\nvar chosen = os.Getenv(\"MUTANT\")\n\nfunc Is(name string) bool { return name == chosen }\n"

// mutantSchedules is how many schedules the simulator may need.
const mutantSchedules = "5000"

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
			expectCaught(t, m.promise+": .*", program, m.name, "^TestSchedules$", "-promise", m.promise)
			expectCaught(t, `P\d+: .*`, program, m.name, "^TestAllSchedules")
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
