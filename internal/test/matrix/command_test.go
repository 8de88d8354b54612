package matrix

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/timeutil"
)

// tool runs the command against a server.
type tool struct {
	*testing.T
	*WithT
	url string
}

// prepare returns a call of the command, which ends with the test at the latest.
func (c *tool) prepare(args ...string) *exec.Cmd {
	c.Helper()
	path, err := command()
	c.Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(path, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "NATS_") || strings.HasPrefix(s, "ELECTION_") })
	if c.url != "" {
		cmd.Env = append(cmd.Env, "NATS_URL="+c.url)
	}
	c.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// run runs the command, which must succeed, and returns its output.
func (c *tool) run(args ...string) string {
	c.Helper()
	stdout, _ := c.runVerbose(args...)
	return stdout
}

// runVerbose is run that returns what the command writes to stderr, too.
func (c *tool) runVerbose(args ...string) (out, messages string) {
	c.Helper()
	var stdout, stderr bytes.Buffer
	cmd := c.prepare(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	c.Expect(cmd.Run()).To(Succeed(), "%q: %s%s", args, &stdout, &stderr)
	return stdout.String(), stderr.String()
}

// leads waits until a candidate leads.
func (c *tool) leads(name string) {
	c.run("wait", key, "--leader", name, "--max-wait", timeout.String())
}

func testCommand(t *testing.T, v version) {
	c := &tool{t, NewWithT(t), natstest.StartProgram(t, v.program).URL()}
	c.run("bucket", "add", "--ttl", ttl.String())
	c.run("bucket", "add", "--ttl", ttl.String()) // it exists with this configuration
	watch := c.prepare("watch", "--json")
	var events bytes.Buffer
	watch.Stdout = &events
	c.Expect(watch.Start()).To(Succeed())
	for _, name := range []string{"web-1", "web-2"} {
		c.Expect(c.prepare("campaign", key, "--name", name, "--interval", "1s").Start()).To(Succeed())
		c.run("wait", key, "--max-wait", timeout.String())
	}
	leader := filepath.Join(t.TempDir(), "leader.json")
	c.Expect(c.prepare("file", "file", leader).Start()).To(Succeed())
	c.leads("web-1")
	c.Eventually(func() string { return c.run("candidates", key) }).WithTimeout(timeout).Should(And(ContainSubstring("web-1"), ContainSubstring("web-2")))
	c.run("transfer", key, "--to", "web-2")
	c.leads("web-2")
	c.run("resign", key)
	c.leads("web-1")
	c.Expect(c.run("ls")).To(ContainSubstring("web-1"))
	c.Expect(c.run("info", key)).To(ContainSubstring("web-1"))
	c.Expect(c.run("bucket", "info")).To(ContainSubstring("ELECTION"))
	c.Expect(c.run("check", key, "--ignore", "no-markers")).To(ContainSubstring("OK"))
	c.run("pause", key)
	c.run("resign", key, "--force") // although no other candidate is ready
	c.run("wait", key, "--vacant", "--max-wait", timeout.String())
	c.run("resume", key)
	c.run("wait", key, "--max-wait", timeout.String())
	c.run("evict", key, "--force")
	c.run("wait", key, "--max-wait", timeout.String())
	c.Expect(c.run("run", "job", "--", "sh", "-c", "echo $ELECTION_TOKEN")).NotTo(BeEmpty())
	c.Eventually(func() error { return c.prepare("file", "--check", leader).Run() }).WithTimeout(timeout).Should(Succeed())
	c.Expect(watch.Process.Kill()).To(Succeed())
	_ = watch.Wait()
	c.Expect(events.String()).To(And(ContainSubstring("web-1"), ContainSubstring("web-2")))
	c.run("bucket", "rm", "--force")
	v.saw("the commands of election-cli", "works")
}

// drill runs a drill on servers of the version, and returns for how long two led, and its progress.
func (c *tool) drill(v version, args ...string) (overlap timeutil.Seconds, progress string) {
	c.Helper()
	out, progress := c.runVerbose(append([]string{"drill", "--json"}, args...)...)
	var report struct {
		ServerVersion string           `json:"server_version"`
		Overlap       timeutil.Seconds `json:"overlap_s"`
	}
	c.Expect(json.Unmarshal([]byte(out), &report)).To(Succeed())
	c.Expect(report.ServerVersion).To(Equal(v.exact))
	return report.Overlap, progress
}

func testDrill(t *testing.T, v version) {
	c := &tool{t, NewWithT(t), natstest.StartProgram(t, v.program).URL()}
	overlap, _ := c.drill(v, "--rounds", "1")
	v.saw("`drill`, time with two leaders", "%d ms", overlap.Milliseconds())
}

// drillProcesses runs a drill on candidates and servers as processes.
func (c *tool) drillProcesses(v version, program string, faults ...string) (overlap timeutil.Seconds, progress string) {
	c.Helper()
	args := []string{"--processes", "--nats-server", program, "--for", "12s", "--ttl", ttl.String(), "--candidates", "3", "--seed", "1"}
	for _, fault := range faults {
		args = append(args, "--fault", fault)
	}
	return c.drill(v, args...)
}

func testProcesses(t *testing.T, v version) {
	skipWithoutProcesses(t)
	c := &tool{t, NewWithT(t), ""}
	overlap, _ := c.drillProcesses(v, v.program, "kill", "cut", "revoke", "kill-server")
	v.saw("`drill --processes`, three servers, time with two leaders", "%d ms", overlap.Milliseconds())
}

// testStuckCluster has one server start in a cluster of its own, as if it did not take part in the drill's.
func testStuckCluster(t *testing.T, v version) {
	skipWithoutProcesses(t)
	c := &tool{t, NewWithT(t), ""}
	program := filepath.Join(t.TempDir(), "nats-server")
	c.Expect(os.WriteFile(program, []byte(`#!/bin/sh
if grep -q '"server_name":"server-3"' "$2" && [ ! -e "$0.apart" ]; then
	sed 's/"name":"drill"/"name":"apart"/' "$2" >"$0.apart"
	exec "`+v.program+`" -c "$0.apart"
fi
exec "`+v.program+`" "$@"
`), 0o700)).To(Succeed())
	_, progress := c.drillProcesses(v, program, "kill")
	c.Expect(progress).To(ContainSubstring("restarts servers"))
}

// testBucketEdit follows the fix of each finding about a bucket that has lost its settings while a candidate leads.
func testBucketEdit(t *testing.T, v version) {
	g := newGround(t, v, election.BucketConfig{TTL: ttl, MaxBytes: 1 << 20})
	a := g.candidate("a")
	g.awaitLeader(a)
	term, _ := a.Term()
	stream, err := g.js.Stream(t.Context(), "KV_"+bucketName)
	g.Expect(err).NotTo(HaveOccurred())
	cfg := stream.CachedInfo().Config
	cfg.MaxAge, cfg.MaxMsgsPerSubject, cfg.RePublish, cfg.Metadata, cfg.Discard = 0, 5, nil, nil, jetstream.DiscardOld
	_, err = g.js.UpdateStream(t.Context(), cfg)
	g.Expect(err).NotTo(HaveOccurred())

	problems := func() (found []admin.Finding) {
		all, err := admin.Check(t.Context(), g.bucket)
		g.Expect(err).NotTo(HaveOccurred())
		return slices.DeleteFunc(all, func(f admin.Finding) bool {
			return f.Severity == admin.SeverityInfo || f.Code == "no-markers" && !v.atLeast(2, 11, 0) // which needs another server
		})
	}
	c := &tool{t, g.WithT, g.server.URL()}
	for _, code := range []string{"no-ttl", "history", "republish", "discard-old"} {
		g.Expect(problems()).To(ContainElement(HaveField("Code", code)))
	}
	for found := problems(); len(found) > 0; found = problems() {
		_, command, _ := strings.Cut(found[0].Fix, "'election-cli ")
		command, _, _ = strings.Cut(command, "'")
		t.Log(found[0].Code + ": election-cli " + command + "\n" + c.run(strings.Fields(command)...))
		g.Expect(problems()).NotTo(ContainElement(HaveField("Code", found[0].Code)))
	}
	g.Consistently(func() uint64 { now, _ := a.Term(); return now.Number }, 2*ttl).Should(Equal(term.Number), "the leader leads on")
	g.Expect(c.run("check", key, "--bucket", bucketName, "--ignore", "no-markers", "--ignore", "no-standby")).To(ContainSubstring("OK"))
}

// testPinned follows the fix of a time of creation that is not pinned, where check finds that, and does what has some servers report another time.
func testPinned(t *testing.T, v version) {
	g := newGround(t, v, election.BucketConfig{TTL: 15 * time.Second})
	a := g.candidate("a", election.WithCampaignInterval(time.Second))
	g.awaitLeader(a)
	term, _ := a.Term()
	stream := func() *jetstream.StreamInfo {
		var s jetstream.Stream
		g.Eventually(func() (err error) { s, err = g.js.Stream(t.Context(), "KV_"+bucketName); return err }).WithTimeout(timeout).Should(Succeed())
		return s.CachedInfo()
	}
	change := func(alter func(*jetstream.StreamConfig)) {
		cfg := stream().Config
		alter(&cfg)
		_, err := g.js.UpdateStream(t.Context(), cfg)
		g.Expect(err).NotTo(HaveOccurred())
	}
	change(func(cfg *jetstream.StreamConfig) { cfg.Metadata = nil })
	notPinned := func() *admin.Finding {
		all, err := admin.Check(t.Context(), g.bucket)
		g.Expect(err).NotTo(HaveOccurred())
		if i := slices.IndexFunc(all, func(f admin.Finding) bool { return f.Code == "not-pinned" }); i >= 0 {
			return &all[i]
		}
		return nil
	}
	if v.atLeast(2, 14, 9) {
		g.Expect(notPinned()).To(BeNil())
	} else {
		_, command, _ := strings.Cut(notPinned().Fix, "'election-cli ")
		command, _, _ = strings.Cut(command, "'")
		(&tool{t, g.WithT, g.server.URL()}).run(strings.Fields(command)...)
		g.Expect(notPinned()).To(BeNil())
	}
	created := stream().Created
	for _, description := range []string{"changed", "changed again"} {
		g.server.Kill()
		g.server.Resume(t)
		change(func(cfg *jetstream.StreamConfig) { cfg.Description = description })
	}
	g.server.Kill()
	g.server.Resume(t)
	if now := stream().Created; now.Equal(created) {
		v.saw("a stream's time of creation after changes and restarts", "the same")
	} else {
		v.saw("a stream's time of creation after changes and restarts", "another: pinned")
	}
	a.link.Disconnect() // so that the leader looks whether the bucket is the same
	g.Consistently(func() uint64 { now, _ := a.Term(); return now.Number }, ttl).Should(Equal(term.Number), "the leader leads on")
}
