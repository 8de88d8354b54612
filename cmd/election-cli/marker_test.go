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
	"github.com/natscampaign/election/internal/leaderfile"
)

func TestWhatIsNoMarkerIsNeitherReplacedNorRemoved(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	folder := t.TempDir()
	precious, long := filepath.Join(folder, "precious"), filepath.Join(folder, "long")
	g.Expect(os.WriteFile(precious, []byte("do not lose me"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(long, []byte(strings.Repeat(" ", leaderfile.MaxSize)+string(textOf(g, aMarker(time.Now())))), 0o600)).To(Succeed())
	places := []string{precious, long, folder}
	if runtime.GOOS != "windows" {
		link := filepath.Join(folder, "link")
		g.Expect(aMarker(time.Now()).Write(filepath.Join(folder, "marker"))).To(Succeed())
		g.Expect(os.Symlink("marker", link)).To(Succeed())
		places = append(places, link)
	}
	for _, path := range places {
		before, err := os.Lstat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(aMarker(time.Now()).Write(path)).NotTo(Succeed(), path)
		g.Expect(leaderfile.Remove(path)).NotTo(Succeed(), path)
		code, _, stderr := runs(t, "file", "jobs", path, "-s", "nats://127.0.0.1:1")
		g.Expect(code).To(Equal(cli.ExitFailure))
		g.Expect(stderr).To(And(ContainSubstring(path), Or(ContainSubstring("move it away"), ContainSubstring("symbolic link"))))
		after, err := os.Lstat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.SameFile(before, after)).To(BeTrue(), path)
		g.Expect(after.Size()).To(Equal(before.Size()), path)
	}
	g.Expect(os.ReadFile(precious)).To(BeEquivalentTo("do not lose me"))
}

func TestCheckAsksNoServerAndItsExitCodeIsTheVerdict(t *testing.T) {
	t.Setenv("NATS_URL", "nats://127.0.0.1:1")
	g := NewWithT(t)
	folder := t.TempDir()
	at := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		g.Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
		return path
	}
	now := time.Now()
	tooLong := aMarker(now)
	tooLong.Expiry = now.Add(time.Hour)
	for _, c := range []struct {
		path string
		code int
		says string
	}{
		{at("fresh", textOf(g, aMarker(now))), cli.ExitOK, ""},
		{at("stale", textOf(g, aMarker(now.Add(-time.Hour)))), cli.ExitNegative, "expired"},
		{at("future", textOf(g, aMarker(now.Add(time.Hour)))), cli.ExitNegative, "set back"},
		{at("absurd", textOf(g, tooLong)), cli.ExitNegative, "later than the TTL"},
		{at("blank", nil), cli.ExitNegative, "empty"},
		{filepath.Join(folder, "none"), cli.ExitNegative, "no such file"},
		{at("foreign", []byte("hello")), cli.ExitFailure, "no marker"},
		{folder, cli.ExitFailure, "no marker"},
	} {
		code, stdout, stderr := try("file", "--check", c.path)
		g.Expect(code).To(Equal(c.code), c.path)
		g.Expect(stdout).To(BeEmpty(), c.path)
		g.Expect(stderr).To(ContainSubstring(c.says), c.path)
		g.Expect(stderr == "").To(Equal(c.code == cli.ExitOK), "all is well without a word: "+c.path)

		code, stdout, _ = try("file", "--check", c.path, "--json")
		g.Expect(code).To(Equal(c.code), c.path)
		if c.code == cli.ExitFailure {
			continue
		}
		var v leaderfile.Freshness
		g.Expect(json.Unmarshal([]byte(stdout), &v)).To(Succeed(), stdout)
		g.Expect(v.Fresh).To(Equal(c.code == cli.ExitOK))
		g.Expect(v.Reason).To(ContainSubstring(c.says))
		g.Expect(v.Path).To(Equal(c.path))
	}
}

func TestAMarkerIsShownPrintable(t *testing.T) {
	g := NewWithT(t)
	m := aMarker(time.Now())
	m.Name = "web\x1b[31m"
	path := filepath.Join(t.TempDir(), "leader.json")
	g.Expect(m.Write(path)).To(Succeed())
	_, stdout, _ := try("file", "--check", path, "--json")
	g.Expect(stdout).To(And(ContainSubstring(`web\\x1b[31m`), Not(ContainSubstring(`\u001b`))))
}

// aMarker is one that was written at the given time, with a TTL of 10 s.
func aMarker(written time.Time) leaderfile.Marker {
	return leaderfile.Marker{
		Marker: "election-cli", Key: "jobs", Bucket: "B", Name: "web-1", Term: 7, Token: "0-7",
		Since: written, Written: written, Expiry: written.Add(9 * time.Second), TTLS: 10,
	}
}

func textOf(g Gomega, m leaderfile.Marker) []byte {
	text, err := json.Marshal(m)
	g.Expect(err).NotTo(HaveOccurred())
	return text
}
