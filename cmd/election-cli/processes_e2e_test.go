package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/drill/chaos"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// skipWithoutProcesses skips a test that runs a drill on processes in short mode and on systems without support.
func skipWithoutProcesses(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a drill on processes takes half a minute")
	}
	if !host.HasClock {
		t.Skip("this system cannot stop and continue processes")
	}
}

func TestADrillOnProcessesPassesAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	svg := filepath.Join(t.TempDir(), "drill.svg")
	r := drillInTime(t, func(r *chaos.Report) bool { return len(r.Faults) >= 3 }, "--svg", svg, "--lose-replies", "2%", "--fault", "kill", "--fault", "stop", "--fault", "cut", "--fault", "handover", "--fault", "step-down")
	g.Expect(r.Overlap).To(BeZero())
	g.Expect(r.OutOfOrder).To(BeZero())
	g.Expect(r.Unneeded).To(BeZero())
	g.Expect(r.Late).To(BeEmpty())
	g.Expect(r.Seed).To(Equal(uint64(1)))
	g.Expect(r.RepliesLost).To(BeNumerically(">", 0))
	g.Expect(r.Samples).To(BeNumerically(">", 1000))
	g.Expect(len(r.Faults)).To(BeNumerically(">=", 3))
	g.Expect(len(r.Changes)).To(BeNumerically(">=", 1))
	for _, f := range r.Faults {
		for _, took := range f.Failover {
			g.Expect(took).To(BeNumerically("<=", f.Bound), f.Kind)
		}
	}
	drawing, err := os.ReadFile(svg)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(clitest.SVGTexts(g, drawing)).To(ContainElements("candidate-1", "candidate-3", "server-3", "fault lasts", "0 ms with two leaders"))
}

// busyGap is a pause of a drill's sampler that shows a host too busy for the time limits of a drill with a TTL of 2 s. The sampler takes a
// sample every 2 ms, and a leader may take a quarter of the TTL to renew.
const busyGap = 50 * time.Millisecond

// drillWith runs a drill on processes, which must pass and leave no files behind, and returns its report. On a host that is too busy for the time
// limits of a drill it repeats a drill that failed by those alone, with twice the times. Whatever else a drill finds fails the test at once.
func drillWith(t *testing.T, args ...string) *chaos.Report {
	t.Helper()
	return drillInTime(t, func(*chaos.Report) bool { return true }, args...)
}

// drillInTime is drillWith for a test that has a limit of its own, to which a busy host may not keep: inTime says whether a drill kept to it. The last
// drill that it repeats has four times the times of the first, and need not have kept to the limit.
func drillInTime(t *testing.T, inTime func(*chaos.Report) bool, args ...string) *chaos.Report {
	t.Helper()
	skipWithoutProcesses(t)
	g := NewWithT(t)
	for ttl := 2 * time.Second; ; ttl *= 2 {
		cmd, stdout, stderr := command(t, append([]string{"drill", "--processes", "--candidates", "3", "--seed", "1", "--json",
			"--for", (6 * ttl).String(), "--ttl", ttl.String()}, args...)...)
		temp := t.TempDir()
		cmd.Env = append(os.Environ(), "TMPDIR="+temp)
		err := cmd.Run()
		var r chaos.Report
		if json.Unmarshal(stdout.Bytes(), &r) == nil {
			expectSchema(g, "drill-processes", stdout.String())
			wrong := r.Overlap > 0 || r.WorkOverlap > 0 || r.Overtaken > 0 || r.OutOfOrder > 0 || r.TermsOutOfOrder > 0
			failed := err != nil || r.Records <= 50
			late := failed && time.Duration(r.LongestGap) > busyGap || !failed && !inTime(&r)
			if late && !wrong && ttl < 8*time.Second {
				t.Logf("this host is too busy for a TTL of %v: the longest pause was %v, %s", ttl, time.Duration(r.LongestGap),
					cmp.Or(r.FailureReason(), "and a fault lasted longer than this test allows"))
				continue
			}
		}
		g.Expect(err).NotTo(HaveOccurred(), func() string { return stderr.String() + stdout.String() })
		g.Expect(r.Records).To(BeNumerically(">", 50))
		left, err := os.ReadDir(temp)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(left).To(BeEmpty(), "no histories and no data of servers remain")
		return &r
	}
}

// plays returns a limit for drillInTime: on a busy host, candidates may come to lead so late that little time is left for faults.
func plays(kinds ...string) func(*chaos.Report) bool {
	return func(r *chaos.Report) bool {
		return !slices.ContainsFunc(kinds, func(kind string) bool {
			return !slices.ContainsFunc(r.Faults, func(f drill.Fault) bool { return f.Kind == kind && f.Count > 0 })
		})
	}
}

// drillThatLeads starts a drill that keeps its files in the given folder, and returns when a candidate leads and the other runs.
func drillThatLeads(t *testing.T, temp string, flags ...string) (p *process, stdout *bytes.Buffer) {
	t.Helper()
	cmd, stdout, _ := command(t, append([]string{"drill", "--processes", "--ttl", "2s", "--candidates", "2"}, flags...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	g := NewWithT(t)
	p = followLog(g, cmd)
	p.says("leads")
	g.Eventually(func() ([]string, error) { return filepath.Glob(filepath.Join(temp, "*", "*.history")) }).Should(HaveLen(2), "both candidates run")
	return p, stdout
}

func TestNoProcessOutlivesADrillThatIsKilled(t *testing.T) {
	skipWithoutProcesses(t)
	t.Parallel()
	g := NewWithT(t)
	temp := t.TempDir()
	p, _ := drillThatLeads(t, temp)
	p.kill()
	histories, err := filepath.Glob(filepath.Join(temp, "*", "*.history"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(histories).To(HaveLen(2))
	g.Eventually(func() string { return lastBeats(g, histories) }).WithPolling(2 * processes.BeatInterval).
		Should(Satisfy(func(now string) bool {
			time.Sleep(2 * processes.BeatInterval)
			return now == lastBeats(g, histories)
		}))
}

// lastBeats returns the last line of each history. It changes while a candidate runs.
func lastBeats(g Gomega, histories []string) string {
	var all []string
	for _, path := range histories {
		text, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		all = append(all, lines[len(lines)-1])
	}
	return strings.Join(all, "\n")
}

func TestAnInterruptedDrillEndsItsProcessesAndRemovesItsFiles(t *testing.T) {
	skipWithoutProcesses(t)
	t.Parallel()
	g := NewWithT(t)
	temp := t.TempDir()
	p, stdout := drillThatLeads(t, temp)
	g.Expect(p.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	p.says("interrupted")
	g.Expect(p.cmd.Wait()).NotTo(Succeed())
	g.Expect(p.cmd.ProcessState.ExitCode()).To(Equal(cli.ExitInterrupted))
	g.Expect(stdout.String()).To(BeEmpty())
	left, err := os.ReadDir(temp)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}

func TestKilledLeaderOfADrillWithAWitnessIsReplacedWithinItsLease(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	longest := func(r *chaos.Report) float64 {
		kill := slices.IndexFunc(r.Faults, func(f drill.Fault) bool { return f.Kind == "kill" })
		g.Expect(kill).NotTo(Equal(-1))
		return slices.Max(r.Faults[kill].Failover)
	}
	// The lease of a leader that is killed is over after more than half of the TTL, for most kills.
	inTime := func(r *chaos.Report) bool { return plays("kill")(r) && longest(r) < float64(r.TTL)/2 }
	r := drillInTime(t, inTime, "--witness", "--fault", "kill")
	g.Expect(longest(r)).To(BeNumerically("<", float64(r.TTL)/2))
}

// A session campaigns for all keys of its process. Closing it, its death and its lost link concern all of them, a transfer only one.
func TestKeysOfSessionsAreLedAndWorkedOnByOneProcessEach(t *testing.T) {
	t.Parallel()
	r := drillWith(t, "--sessions", "10", "--replicas", "1", "--fault", "kill", "--fault", "cut", "--fault", "handover", "--fault", "transfer")
	g := NewWithT(t)
	g.Expect(r.Keys).To(Equal(10))
	g.Expect(r.Terms).To(BeNumerically(">", 10), "some keys changed hands")
	g.Expect([]any{r.Overlap, r.WorkOverlap, r.Overtaken, r.TermsOutOfOrder}).To(HaveEach(BeZero()))
}

func TestARateIsAFractionOrAPercentage(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]float64{"0": 0, "0%": 0, "1%": 0.01, "0.01": 0.01, "2.5%": 0.025, "50%": 0.5} {
		g.Expect(parseRate(text)).To(BeNumerically("~", want, 1e-9), text)
	}
	for _, text := range []string{"", "%", "-1%", "51%", "x", "1%%", "NaN", "Inf"} {
		_, err := parseRate(text)
		g.Expect(err).To(HaveOccurred(), text)
	}
}

// A leader that may still write needs none of its other permissions, and no message of a stranger ends its term.
func TestALeaderKeepsLeadingWhilePermissionsAreRevokedAndChangesAreForged(t *testing.T) {
	t.Parallel()
	leadsOn := func(r *chaos.Report) bool { return len(r.Changes) == 0 && plays("revoke", "forge")(r) }
	r := drillInTime(t, leadsOn, "--fault", "revoke", "--fault", "forge")
	g := NewWithT(t)
	g.Expect(r.Changes).To(BeEmpty())
	g.Expect(r.Overlap).To(BeZero())
	g.Expect(r.Terms).To(Equal(1))
	g.Expect(plays("revoke", "forge")(r)).To(BeTrue())
}

// In this drill the bucket forgets renewals and whole terms.
func TestALeaderStandsDownAtOnceWhenItDetectsARewind(t *testing.T) {
	t.Parallel()
	r := drillInTime(t, plays(chaos.Rewind), "--replicas", "1", "--fault", "rewind")
	g := NewWithT(t)
	g.Expect(r.Overlap).To(BeZero())
	g.Expect(r.TermsOutOfOrder).To(BeZero())
	g.Expect(plays(chaos.Rewind)(r)).To(BeTrue())
}

func TestADrillPassesOnANATSServerProgram(t *testing.T) {
	skipWithoutProcesses(t)
	t.Parallel()
	g := NewWithT(t)
	program, version, err := natstest.InstallServer("")
	g.Expect(err).NotTo(HaveOccurred())
	r := drillInTime(t, func(r *chaos.Report) bool { return len(r.Faults) > 0 }, "--nats-server", program, "--fault", "kill-server", "--fault", "revoke", "--fault", "restart-servers", "--fault", "stop")
	g.Expect(r.ServerVersion).To(Equal(version))
	g.Expect(r.Faults).NotTo(BeEmpty())
}

func TestNoNATSServerProgramOutlivesADrillThatIsKilled(t *testing.T) {
	skipWithoutProcesses(t)
	t.Parallel()
	g := NewWithT(t)
	program, _, err := natstest.InstallServer("")
	g.Expect(err).NotTo(HaveOccurred())
	temp := t.TempDir()
	p, _ := drillThatLeads(t, temp, "--nats-server", program)
	files, err := filepath.Glob(filepath.Join(temp, "*", "server-*.conf"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(3))
	listens := func(file string) bool {
		var config struct{ Listen string }
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Unmarshal(text, &config)).To(Succeed())
		c, err := net.DialTimeout("tcp", config.Listen, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	for _, file := range files {
		g.Expect(listens(file)).To(BeTrue())
	}
	p.kill()
	for _, file := range files {
		g.Eventually(func() bool { return listens(file) }).Should(BeFalse())
	}
	next, _, _ := command(t, "server", "--port", "0")
	next.Env = append(os.Environ(), "TMPDIR="+temp)
	server := follow(g, next)
	server.says("nats://")
	g.Expect(filepath.Dir(files[0])).NotTo(BeAnExistingFile(), "the next server deletes what a killed drill left")
	server.interrupt()
}
