package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// aMarker is one that was written at the given time, with a TTL of 10 s.
func aMarker(written time.Time) marker {
	return marker{
		Marker: markerKind, Key: "jobs", Bucket: "B", Name: "web-1", Term: 7, Token: "0-7",
		Since: written, Written: written, Expiry: written.Add(9 * time.Second), TTLS: 10,
	}
}

func textOf(g Gomega, m marker) []byte {
	text, err := json.Marshal(m)
	g.Expect(err).NotTo(HaveOccurred())
	return text
}

func TestAMarkerIsTrustedFromItsWritingToItsExpiryOnly(t *testing.T) {
	g := NewWithT(t)
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := aMarker(written)
	g.Expect(m.doubt(written)).To(BeEmpty())
	g.Expect(m.doubt(m.Expiry.Add(-1))).To(BeEmpty())
	g.Expect(m.doubt(m.Expiry)).To(ContainSubstring("expired"))
	g.Expect(m.doubt(m.Expiry.Add(time.Hour))).To(ContainSubstring("expired 1h0m0s ago"))
	g.Expect(m.doubt(written.Add(-1))).To(ContainSubstring("clock of this host was set back"))
	g.Expect(m.doubt(written.Add(-time.Hour))).To(ContainSubstring("was written in 1h0m0s"))
	m.Expiry = written.Add(time.Minute)
	g.Expect(m.doubt(written)).To(ContainSubstring("later than the TTL of 10s allows"))
	m.TTLS = 0.5
	m.Expiry = written.Add(time.Second)
	g.Expect(m.doubt(written.Add(time.Second / 2))).To(BeEmpty())
}

func TestWhatIsNoMarkerIsTakenForAnothersFile(t *testing.T) {
	g := NewWithT(t)
	good := aMarker(time.Now())
	_, err := parseMarker(textOf(g, good))
	g.Expect(err).NotTo(HaveOccurred())
	for what, spoil := range map[string]func(*marker){
		"kind": func(m *marker) { m.Marker = "" }, "key": func(m *marker) { m.Key = "" }, "name": func(m *marker) { m.Name = "" },
		"term": func(m *marker) { m.Term = 0 }, "token": func(m *marker) { m.Token = "" }, "no TTL": func(m *marker) { m.TTLS = 0 },
		"TTL": func(m *marker) { m.TTLS = 1e9 }, "expiry": func(m *marker) { m.Expiry = time.Time{} }, "written": func(m *marker) { m.Written = time.Time{} },
	} {
		m := good
		spoil(&m)
		_, err := parseMarker(textOf(g, m))
		g.Expect(err).To(MatchError(errForeign), what)
	}
	for _, text := range []string{"important", "{}", "[]", "null", `{"name":"web-1"}`, string(textOf(g, good)) + "x"} {
		_, err := parseMarker([]byte(text))
		g.Expect(err).To(MatchError(errForeign), text)
	}
	for _, text := range []string{"", "\x00\x00\x00"} {
		_, err := parseMarker([]byte(text))
		g.Expect(err).To(MatchError(errBlank), "%q is what a loss of power may leave", text)
	}
}

func TestWhatIsNoMarkerIsNeitherReplacedNorRemoved(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	folder := t.TempDir()
	precious, long := filepath.Join(folder, "precious"), filepath.Join(folder, "long")
	g.Expect(os.WriteFile(precious, []byte("do not lose me"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(long, []byte(strings.Repeat(" ", longestMarker)+string(textOf(g, aMarker(time.Now())))), 0o600)).To(Succeed())
	places := []string{precious, long, folder}
	if runtime.GOOS != "windows" {
		link := filepath.Join(folder, "link")
		g.Expect(aMarker(time.Now()).write(filepath.Join(folder, "marker"))).To(Succeed())
		g.Expect(os.Symlink("marker", link)).To(Succeed())
		places = append(places, link)
	}
	for _, path := range places {
		before, err := os.Lstat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(aMarker(time.Now()).write(path)).NotTo(Succeed(), path)
		g.Expect(removeMarker(path)).NotTo(Succeed(), path)
		code, _, stderr := runs(t, "file", "jobs", path, "-s", "nats://127.0.0.1:1")
		g.Expect(code).To(Equal(exitError))
		g.Expect(stderr).To(And(ContainSubstring(path), Or(ContainSubstring("move it away"), ContainSubstring("symbolic link"))))
		after, err := os.Lstat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.SameFile(before, after)).To(BeTrue(), path)
		g.Expect(after.Size()).To(Equal(before.Size()), path)
	}
	g.Expect(os.ReadFile(precious)).To(BeEquivalentTo("do not lose me"))
}

func TestAMarkerThatCannotBeRemovedHoldsTheKeyUntilNobodyTrustsIt(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	blocked := filepath.Join(t.TempDir(), "file")
	g.Expect(os.WriteFile(blocked, nil, 0o600)).To(Succeed())
	deadline := time.Now().Add(300 * time.Millisecond)
	k := &keeper{path: filepath.Join(blocked, "leader.json"), log: slog.New(slog.DiscardHandler), ahead: shortestAhead, deadline: deadline}
	g.Expect(k.clear()).To(MatchError(ContainSubstring("cannot be removed")))
	g.Expect(time.Now()).To(BeTemporally(">=", deadline))
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
		{at("fresh", textOf(g, aMarker(now))), exitOK, ""},
		{at("stale", textOf(g, aMarker(now.Add(-time.Hour)))), exitNegative, "expired"},
		{at("future", textOf(g, aMarker(now.Add(time.Hour)))), exitNegative, "set back"},
		{at("absurd", textOf(g, tooLong)), exitNegative, "later than the TTL"},
		{at("blank", nil), exitNegative, "empty"},
		{filepath.Join(folder, "none"), exitNegative, "no such file"},
		{at("foreign", []byte("hello")), exitError, "no marker"},
		{folder, exitError, "no marker"},
	} {
		code, stdout, stderr := try("file", "--check", c.path)
		g.Expect(code).To(Equal(c.code), c.path)
		g.Expect(stdout).To(BeEmpty(), c.path)
		g.Expect(stderr).To(ContainSubstring(c.says), c.path)
		g.Expect(stderr == "").To(Equal(c.code == exitOK), "all is well without a word: "+c.path)

		code, stdout, _ = try("file", "--check", c.path, "--json")
		g.Expect(code).To(Equal(c.code), c.path)
		if c.code == exitError {
			continue
		}
		var v freshness
		g.Expect(json.Unmarshal([]byte(stdout), &v)).To(Succeed(), stdout)
		g.Expect(v.Fresh).To(Equal(c.code == exitOK))
		g.Expect(v.Reason).To(ContainSubstring(c.says))
		g.Expect(v.Path).To(Equal(c.path))
	}
}

func TestAMarkerIsShownPrintable(t *testing.T) {
	g := NewWithT(t)
	m := aMarker(time.Now())
	m.Name = "web\x1b[31m"
	path := filepath.Join(t.TempDir(), "leader.json")
	g.Expect(m.write(path)).To(Succeed())
	_, stdout, _ := try("file", "--check", path, "--json")
	g.Expect(stdout).To(And(ContainSubstring(`web\\x1b[31m`), Not(ContainSubstring(`\u001b`))))
}

func TestALockIsHeldByOneAndGoneAfterwards(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "lock")
	release, err := lockFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = lockFile(path)
	g.Expect(err).To(MatchError(errLocked))
	release()
	again, err := lockFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	again()
	if runtime.GOOS != "windows" {
		g.Expect(path).NotTo(BeAnExistingFile())
	}
	g.Expect(os.WriteFile(path, []byte("precious"), 0o600)).To(Succeed())
	_, err = lockFile(path)
	g.Expect(err).To(MatchError(ContainSubstring("move it away")))
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("precious"))
}
