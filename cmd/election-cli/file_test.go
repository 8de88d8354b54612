package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/leaderfile"
)

func TestAFileThatIsNotALeaderFileIsNeitherReplacedNorRemoved(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	folder := t.TempDir()
	other, long := filepath.Join(folder, "other"), filepath.Join(folder, "long")
	g.Expect(os.WriteFile(other, []byte("another program's data"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(long, []byte(strings.Repeat(" ", leaderfile.MaxSize)+string(textOf(g, contentWritten(time.Now())))), 0o600)).To(Succeed())
	paths := []string{other, long, folder}
	if runtime.GOOS != "windows" {
		link := filepath.Join(folder, "link")
		g.Expect(contentWritten(time.Now()).Write(filepath.Join(folder, "leader.json"))).To(Succeed())
		g.Expect(os.Symlink("leader.json", link)).To(Succeed())
		paths = append(paths, link)
	}
	for _, path := range paths {
		before, err := os.Lstat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(contentWritten(time.Now()).Write(path)).NotTo(Succeed(), path)
		g.Expect(leaderfile.Remove(path)).NotTo(Succeed(), path)
		code, _, stderr := runInProcess("file", "jobs", path, "-s", "nats://127.0.0.1:1")
		g.Expect(code).To(Equal(cli.ExitFailure))
		g.Expect(stderr).To(And(ContainSubstring(path), Or(ContainSubstring("move the file away"), ContainSubstring("symbolic link"))))
		after, err := os.Lstat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.SameFile(before, after)).To(BeTrue(), path)
		g.Expect(after.Size()).To(Equal(before.Size()), path)
	}
	g.Expect(os.ReadFile(other)).To(BeEquivalentTo("another program's data"))
}

func TestFileCheckNeedsNoServerAndItsExitCodeIsTheResult(t *testing.T) {
	t.Setenv("NATS_URL", "nats://127.0.0.1:1")
	g := NewWithT(t)
	folder := t.TempDir()
	at := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		g.Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
		return path
	}
	now := time.Now()
	tooLong := contentWritten(now)
	tooLong.Expiry = now.Add(time.Hour)
	for _, c := range []struct {
		path   string
		code   int
		reason string
	}{
		{at("fresh", textOf(g, contentWritten(now))), cli.ExitOK, ""},
		{at("stale", textOf(g, contentWritten(now.Add(-time.Hour)))), cli.ExitNegative, "expired"},
		{at("future", textOf(g, contentWritten(now.Add(time.Hour)))), cli.ExitNegative, "set back"},
		{at("absurd", textOf(g, tooLong)), cli.ExitNegative, "later than the TTL"},
		{at("blank", nil), cli.ExitNegative, "empty"},
		{filepath.Join(folder, "none"), cli.ExitNegative, "no such file"},
		{at("foreign", []byte("hello")), cli.ExitFailure, "not a leader file"},
		{folder, cli.ExitFailure, "not a leader file"},
	} {
		code, stdout, stderr := runInProcess("file", "--check", c.path)
		g.Expect(code).To(Equal(c.code), c.path)
		g.Expect(stdout).To(BeEmpty(), c.path)
		g.Expect(stderr).To(ContainSubstring(c.reason), c.path)
		g.Expect(stderr == "").To(Equal(c.code == cli.ExitOK), "stderr is empty only if the file is fresh: "+c.path)

		code, stdout, _ = runInProcess("file", "--check", c.path, "--json")
		g.Expect(code).To(Equal(c.code), c.path)
		if c.code == cli.ExitFailure {
			continue
		}
		expectSchema(g, "file-check", stdout)
		var result leaderfile.CheckResult
		g.Expect(json.Unmarshal([]byte(stdout), &result)).To(Succeed(), stdout)
		g.Expect(result.Fresh).To(Equal(c.code == cli.ExitOK))
		g.Expect(result.Reason).To(ContainSubstring(c.reason))
		g.Expect(result.Path).To(Equal(c.path))
	}
}

func TestFileCheckMakesTheContentPrintable(t *testing.T) {
	g := NewWithT(t)
	content := contentWritten(time.Now())
	content.Name = "web\x1b[31m"
	path := filepath.Join(t.TempDir(), "leader.json")
	g.Expect(content.Write(path)).To(Succeed())
	_, stdout, _ := runInProcess("file", "--check", path, "--json")
	g.Expect(stdout).To(And(ContainSubstring(`web\\x1b[31m`), Not(ContainSubstring(`\u001b`))))
}

// contentWritten returns the content of a leader file that was written at the given time, with a TTL of 10 s.
func contentWritten(written time.Time) leaderfile.Content {
	return leaderfile.Content{
		Program: "election-cli", Key: "jobs", Bucket: "B", Name: "web-1", Term: 7, Token: "0-7",
		Since: written, Written: written, Expiry: written.Add(9 * time.Second), TTLS: 10,
	}
}

func textOf(g Gomega, c leaderfile.Content) []byte {
	text, err := json.Marshal(c)
	g.Expect(err).NotTo(HaveOccurred())
	return text
}
