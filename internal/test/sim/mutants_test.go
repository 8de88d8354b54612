package sim

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
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
	{name: "no deadline", promise: "P1", patches: []patch{{
		"internal/timing/timing.go",
		"return t.TTL - t.Margin }",
		"if MUTANT { return 1000 * t.TTL }; return t.TTL - t.Margin }",
	}}},
	{name: "no stand-down", promise: "P2", patches: []patch{{
		"internal/core/term.go",
		"	b := c.bucket.Timing // which",
		"	if MUTANT { standDown = 0 }\n	b := c.bucket.Timing // which",
	}}},
	{name: "lead by any win", promise: "P2", patches: []patch{{
		"internal/core/term.go",
		"AtOnce:   a.written.Leads",
		"AtOnce:   MUTANT || a.written.Leads",
	}}},
	{name: "lead by a win over the release of a leader-elect", promise: "P2", patches: []patch{{
		"internal/core/term.go",
		"a.written.Leads && standDown == 0",
		"(MUTANT && a.named || a.written.Leads && standDown == 0)",
	}}},
	{name: "release before work ends", promise: "P3", patches: []patch{{
		"internal/core/releasing.go",
		"	case quiet:\n",
		"	case quiet || MUTANT:\n",
	}}},
	{name: "abdicate on any error", promise: "P6", patches: []patch{{
		"internal/core/renewing.go",
		"t.renewAt = now.Add(retryDelay(left))",
		"t.renewAt = now.Add(retryDelay(left)); if MUTANT { c.endLeadership(now, t, Deleted) }",
	}}},
	{name: "adopt a ghost", promise: "P7", patches: []patch{{
		"internal/core/bidding.go",
		"			b.second = true\n",
		"			b.second = true\n			if a := c.acquisitionOver(now, s); MUTANT { b.acquisition, a.revision, a.sent, a.acknowledged, a.written = a, a.replaces, now, now, &s.Record; return b.won(c, now) }\n",
	}}},
	{name: "believe a notification", promise: "P2", patches: []patch{
		{
			"internal/core/bidding.go",
			"	c.finishRead(now, b.state, r.Err, false)\n	switch {",
			"	if h := c.reading.hint; MUTANT && h != nil && h.vacant() { r.State, r.Err = record.State{Read: now, Revision: h.Revision, Written: h.Written, Removal: h.Removal, Record: h.Record}, nil }\n	c.finishRead(now, b.state, r.Err, false)\n	switch {",
		},
		{
			"internal/core/key.go", // which nothing that is notified passes otherwise
			"	r, known := &s.Record, c.key.holder.commitment\n",
			"	r, known := &s.Record, c.key.holder.commitment; if MUTANT { return true }\n",
		},
	}},
	{name: "accept any release", promise: "P2", patches: []patch{{
		"internal/core/key.go",
		"	if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {",
		"	if MUTANT { return true }; if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {",
	}}},
	{name: "trust a release of an earlier bucket", promise: "P2", patches: []patch{{
		"internal/core/acquisition.go",
		"	case a.fromEarlierBucket(b):\n		return longest\n",
		"	case !MUTANT && a.fromEarlierBucket(b):\n		return longest\n",
	}}},
	{name: "pass a stand-down on by a deletion", promise: "P2", random: true, patches: []patch{{
		"internal/core/releasing.go",
		"{ return c.Direct && r.StandDownMs == 0 }",
		"{ return c.Direct && (MUTANT || r.StandDownMs == 0) }",
	}}},
	{name: "keep the releases of locks", promise: "P8", random: true, patches: []patch{{
		"internal/core/releasing.go",
		"c.bucket.Remembers && c.Order == ByRank",
		"c.bucket.Remembers && (MUTANT || c.Order == ByRank)",
	}}},
	{name: "adopt what it never wrote", promise: "P2", patches: []patch{
		{"internal/core/doubt.go", "return !doubtful && !d.forgot", "return !MUTANT && !doubtful && !d.forgot"},
		{"internal/core/doubt.go", "(doubtful || d.forgot ||", "(MUTANT || doubtful || d.forgot ||"},
	}},
	{name: "ignore a lower foreign revision", promise: "P11", patches: []patch{
		{"internal/core/proof.go", "{ return f.named && 0 < f.last", "{ return !MUTANT && f.named && 0 < f.last"},
		{"internal/core/proof.go", "case s.Revision >= t.Number:", "case !MUTANT && s.Revision >= t.Number:"},
	}},
	{name: "renew over whatever is stored", promise: "P2", patches: []patch{{
		"internal/core/renewing.go",
		"		y.refusal, y.step = refusalOf(r), RenewingRefused\n",
		"		y.refusal, y.step = refusalOf(r), RenewingRefused\n		if MUTANT && y.refusal.named { t.revision = y.refusal.last; return y.failed(c, now, y.refusal.err) }\n",
	}}},
	{name: "win over a record that it has not read", promise: "P8", patches: []patch{
		{"internal/core/acquisition.go", "a := &acquisition{replaces: s.Revision,", "a := &acquisition{replaces: over,"},
		{"internal/core/acquisition.go", "	// A release to which the history was rewound", "	over := s.Revision; if MUTANT { over++ }\n	// A release to which the history was rewound"},
	}},
	{name: "take over too early", promise: "P2", patches: []patch{{
		"internal/timing/timing.go",
		"	if unslewed {\n",
		"	if MUTANT { return lease / 2 }; if unslewed {\n",
	}}},
	{name: "allow for no difference of speeds", promise: "P2", patches: []patch{{
		"internal/timing/timing.go",
		"	lease = max(lease, ttl-DefaultMargin(ttl))\n",
		"	lease = max(lease, ttl-DefaultMargin(ttl)); if MUTANT { return lease }\n",
	}}},
	{name: "allow for as much as NTP slews", promise: "P2", patches: []patch{{
		"internal/timing/timing.go",
		"	return lease + lease*2/11",
		"	if MUTANT { return lease + lease/200 }; return lease + lease*2/11",
	}, {
		"internal/timing/timing.go",
		"		return lease + lease*1012/11_000",
		"		if MUTANT { return lease + lease/200 }; return lease + lease*1012/11_000",
	}}},
	{name: "time a lease by a clock that is slewed", promise: "P2", patches: []patch{{
		"internal/core/lapse.go",
		"		passed -= to.slewed - from.slewed\n",
		"		if !MUTANT { passed -= to.slewed - from.slewed }\n",
	}}},
	{name: "time a write by its announcement", promise: "P2", patches: []patch{{
		"internal/core/lapse.go",
		"	return revision == w.revision && written.Equal(w.written) &&",
		"	return revision == w.revision && (MUTANT || written.Equal(w.written)) &&",
	}}},
	{name: "time an earlier lease by a write that was only notified", promise: "P2", patches: []patch{{
		"internal/core/lapse.go",
		"	return k.occupied && k.lastWrite.read &&",
		"	return k.occupied && (MUTANT || k.lastWrite.read) &&",
	}}},
	{name: "take over after a gap", promise: "P2", patches: []patch{{
		"internal/core/lapse.go",
		"func (c *Candidate) forgetTiming() { c.key.lastWrite.timedFrom = instant{} }",
		"func (c *Candidate) forgetTiming() { if MUTANT { return }; c.key.lastWrite.timedFrom = instant{} }",
	}}},
	{name: "take over a record without a lease", promise: "P2", patches: []patch{
		{"internal/core/lapse.go", "!k.lastWrite.superseded && k.lastWrite.lease > 0 &&", "!k.lastWrite.superseded && (MUTANT || k.lastWrite.lease > 0) &&"},
		{"internal/core/lapse.go", "!s.Unconditional && s.Record.Lease() > 0 &&", "(MUTANT || !s.Unconditional && s.Record.Lease() > 0) &&"},
		{"internal/core/lapse.go", "s.Record.Bucket().Equal(c.bucket.Created) &&", "(MUTANT || s.Record.Bucket().Equal(c.bucket.Created)) &&"},
		{"internal/core/acquisition.go", "return a.reason != Vacant && !a.bucketCreated.Equal(b.Created)", "return a.reason != Vacant && !a.bucketCreated.Equal(b.Created) && !(MUTANT && a.reason == Lapsed)"},
	}},
	{name: "wait for what never expires", promise: "P8", patches: []patch{{
		"internal/core/lapse.go",
		"	return c.key.occupied && !now.Before(c.expiredBy())",
		"	return !MUTANT && c.key.occupied && !now.Before(c.expiredBy())",
	}}},
	{name: "stand down for any lease that is stated", promise: "P8", patches: []patch{{
		"internal/core/bucket.go",
		"	return min(r.Lease(), longest)",
		"	if MUTANT { return r.Lease() }; return min(r.Lease(), longest)",
	}}},
	{name: "wait for a target that is gone", promise: "P8", random: true, patches: []patch{{
		"internal/core/releasing.go",
		"		campaign = min(campaign, others+targetHeadStart)\n",
		"		if !MUTANT { campaign = min(campaign, others+targetHeadStart) }\n",
	}}},
	{name: "ask about a bucket that is known", promise: "P8", random: true, patches: []patch{{
		"internal/core/acquisition.go",
		"	return a.reason == Released && !a.unproven &&",
		"	return !MUTANT && a.reason == Released && !a.unproven &&",
	}}},
	{name: "pass on no stand-down", promise: "P2", patches: []patch{{
		"internal/core/renewing.go",
		"r.StandDownMs = record.Milliseconds(t.LeadsFrom.Sub(sent))",
		"r.StandDownMs = record.Milliseconds(t.LeadsFrom.Sub(sent)); if MUTANT { r.StandDownMs = 0 }",
	}}},
	{name: "end the context of work late", promise: "P3", patches: []patch{{
		"internal/shell/term.go",
		"		t.Driver.EndContext()\n",
		"		if !MUTANT || l.Left(now, s.Candidate.Boot) <= 0 { t.Driver.EndContext() }\n",
	}}},
	{name: "leave OnLost out", promise: "P4", patches: []patch{{
		"internal/shell/calls.go",
		"		return Call{Kind: Lost}, true\n",
		"		if MUTANT { return Call{Kind: Campaign}, true }; return Call{Kind: Lost}, true\n",
	}}},
	{name: "call OnWon for a leader-elect", promise: "P4", patches: []patch{{
		"internal/shell/shell.go",
		"	case core.LeadershipCounts:\n",
		"	case core.StateChanged:\n		if MUTANT && e.State == core.LeaderElect && s.term != nil && s.Calls.announced == nil { s.Calls.announced = s.term; s.Calls.campaigns = nil; s.startCalls(s.Calls.leadership(s.term)) }\n	case core.LeadershipCounts:\n",
	}}},
	{name: "show a leader-elect as leader", promise: "P2", patches: []patch{{
		"internal/shell/term.go",
		"	t.SetLease(l)\n",
		"	if MUTANT && l.State == core.LeaderElect { early := *l; early.State = core.Leader; t.SetLease(&early) } else { t.SetLease(l) }\n",
	}}},
	{name: "show a lease that was cut as it was before", promise: "P3", random: true, patches: []patch{{
		"internal/shell/term.go",
		"	if before == l {\n",
		"	if before == l || MUTANT && before != nil && l.State == core.Follower && before.State != core.Follower && l.Left(now, s.Candidate.Boot) > 0 {\n",
	}}},
	{name: "release without waiting for the work", promise: "P3", patches: []patch{{
		"internal/shell/shell.go",
		"		r.Quiet = op.Quiet && s.isQuiet()\n",
		"		r.Quiet = op.Quiet && (MUTANT || s.isQuiet())\n",
	}}},
	{name: "release without waiting for callbacks", promise: "P3", random: true, patches: []patch{{
		"internal/shell/shell.go",
		"{ return !s.Calls.busy && s.working == nil }",
		"{ return (MUTANT || !s.Calls.busy) && s.working == nil }",
	}}},
	{name: "keep the old instance after another process was found to use it", promise: "P9", random: true, patches: []patch{{
		"internal/shell/shell.go",
		"	return s.Notice(now, core.NewRules{Rules: rules})\n",
		"	if MUTANT { return nil }; return s.Notice(now, core.NewRules{Rules: rules})\n",
	}}},
	{name: "wake the loop no earlier when something has changed", promise: "P8", random: true, patches: []patch{{
		"internal/shell/shell.go",
		"waits && !op.Until.IsZero() && (s.wakeAt.IsZero()",
		"!MUTANT && waits && !op.Until.IsZero() && (s.wakeAt.IsZero()",
	}}},
	{name: "set the timer at the deadline once", promise: "P4", random: true, patches: []patch{
		{"internal/shell/term.go", "	t.Driver.Expire(l.Left(now, s.Candidate.Boot))\n", "	if !MUTANT || before == nil { t.Driver.Expire(l.Left(now, s.Candidate.Boot)) }\n"},
		{"internal/shell/term.go", "!first && left > 0 {", "!MUTANT && !first && left > 0 {"},
	}},
}

type mutant struct {
	name    string
	promise string
	patches []patch
	random  bool // only the schedules that a seed decides try what it breaks
}

// patch replaces a text that occurs once in a file. MUTANT stands for whether its mutant was chosen.
type patch struct{ file, text, by string }

// chooser is a package of that program that knows which mutant was chosen.
const chooser = "package mutant\n\nimport \"os\"\n\nvar chosen = os.Getenv(\"MUTANT\")\n\nfunc Is(name string) bool { return name == chosen }\n"

var withMutants = flag.Bool("mutants", false, "break the library in each way that the simulator must notice")

// mutantSchedules is how many schedules the simulator may need.
const mutantSchedules = "5000"

func TestMutantsAreCaught(t *testing.T) {
	if !*withMutants {
		t.Skip("takes minutes of the processor: give -mutants")
	}
	program := buildMutants(t)
	if output, err := simulate(program, "none", "^TestSchedules$"); err != nil {
		t.Fatalf("the library breaks a promise without a mutant: %v\n%s", err, output)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			expectCaught(t, m.promise+": .*", program, m.name, "^TestSchedules$", "-promise", m.promise)
			if !m.random {
				expectCaught(t, `P\d+: .*`, program, m.name, "^TestAllSchedules")
			}
		})
	}
}

// buildMutants builds the tests of this package with all mutants, and returns the program. The patched files take the place of those of the
// library for this build only.
func buildMutants(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
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
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
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
