package leaderfile

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/clitest"
)

// aMarker is one that was written at the given time, with a TTL of 10 s.
func aMarker(written time.Time) Marker {
	return Marker{
		Marker: markerKind, Key: "jobs", Bucket: "B", Name: "web-1", Term: 7, Token: "0-7",
		Since: written, Written: written, Expiry: written.Add(9 * time.Second), TTLS: 10,
	}
}

func textOf(g Gomega, m Marker) []byte {
	text, err := json.Marshal(m)
	g.Expect(err).NotTo(HaveOccurred())
	return text
}

func TestAMarkerIsTrustedFromItsWritingToItsExpiryOnly(t *testing.T) {
	g := NewWithT(t)
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := aMarker(written)
	g.Expect(m.Doubt(written)).To(BeEmpty())
	g.Expect(m.Doubt(m.Expiry.Add(-1))).To(BeEmpty())
	g.Expect(m.Doubt(m.Expiry)).To(ContainSubstring("expired"))
	g.Expect(m.Doubt(m.Expiry.Add(time.Hour))).To(ContainSubstring("expired 1h0m0s ago"))
	g.Expect(m.Doubt(written.Add(-1))).To(ContainSubstring("clock of this host was set back"))
	g.Expect(m.Doubt(written.Add(-time.Hour))).To(ContainSubstring("was written in 1h0m0s"))
	m.Expiry = written.Add(time.Minute)
	g.Expect(m.Doubt(written)).To(ContainSubstring("later than the TTL of 10s allows"))
	m.TTLS = 0.5
	m.Expiry = written.Add(time.Second)
	g.Expect(m.Doubt(written.Add(time.Second / 2))).To(BeEmpty())
}

func TestWhatIsNoMarkerIsTakenForAnothersFile(t *testing.T) {
	g := NewWithT(t)
	good := aMarker(time.Now())
	_, err := parseMarker(textOf(g, good))
	g.Expect(err).NotTo(HaveOccurred())
	for what, spoil := range map[string]func(*Marker){
		"kind": func(m *Marker) { m.Marker = "" }, "key": func(m *Marker) { m.Key = "" }, "name": func(m *Marker) { m.Name = "" },
		"term": func(m *Marker) { m.Term = 0 }, "token": func(m *Marker) { m.Token = "" }, "no TTL": func(m *Marker) { m.TTLS = 0 },
		"TTL": func(m *Marker) { m.TTLS = 1e9 }, "expiry": func(m *Marker) { m.Expiry = time.Time{} }, "written": func(m *Marker) { m.Written = time.Time{} },
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

func TestAMarkerThatCannotBeRemovedHoldsTheKeyUntilNobodyTrustsIt(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	blocked := filepath.Join(t.TempDir(), "file")
	g.Expect(os.WriteFile(blocked, nil, 0o600)).To(Succeed())
	deadline := time.Now().Add(300 * time.Millisecond)
	k := &keeper{path: filepath.Join(blocked, "leader.json"), log: slog.New(slog.DiscardHandler), ahead: MinAhead, deadline: deadline}
	g.Expect(k.clear()).To(MatchError(ContainSubstring("cannot be removed")))
	g.Expect(time.Now()).To(BeTemporally(">=", deadline))
}

// TestAMarkerIsWrittenAnewWhenTheWallClockWasStepped has the wall clock be what it is, and the marker be from before the step.
func TestAMarkerIsWrittenAnewWhenTheWallClockWasStepped(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	term := clitest.New(t, clitest.Quiet).Lead()
	path := filepath.Join(t.TempDir(), "leader.json")
	k := &keeper{path: path, log: slog.New(slog.DiscardHandler), ahead: MinAhead, about: aMarker(time.Now())}
	written := func() bool {
		_ = os.Remove(path)
		g.Expect(k.look(term)).To(Succeed())
		_, err := os.Stat(path)
		return err == nil
	}
	g.Expect(written()).To(BeTrue())
	g.Expect(written()).To(BeFalse(), "nothing has changed")
	for range 2 {
		*(*uint64)(unsafe.Pointer(&k.deadline)) -= 2 << 30 // two seconds, of the wall clock's reading alone
		g.Expect(written()).To(BeTrue())
		g.Expect(written()).To(BeFalse())
	}
	*(*uint64)(unsafe.Pointer(&k.deadline)) += 10000 // nanoseconds, as readings of clocks differ
	g.Expect(written()).To(BeFalse())
}

// FuzzMarker reads the content of a file that may be a marker, and judges it.
func FuzzMarker(f *testing.F) {
	written := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	text, err := json.Marshal(aMarker(written))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{string(text), "", "\x00\x00", "null", "{}", "[]", "hello", `{"marker":"election-cli","ttl_s":1e999}`,
		`{"marker":"election-cli","key":"k","name":"n","term":1,"token":"t","written":"0001-01-02T00:00:00Z","expiry":"9999-12-31T23:59:59Z","ttl_s":3600}`} {
		f.Add([]byte(s), int64(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, after int64) {
		m, err := parseMarker(text)
		if err != nil {
			return
		}
		now := written.Add(time.Duration(after))
		if m.Doubt(now) == "" && (!now.Before(m.Expiry) || now.Before(m.Written) || m.Expiry.Sub(now) > time.Hour) {
			t.Errorf("%s is trusted at %v", text, now)
		}
		if _, err := json.Marshal(m.shown()); err != nil {
			t.Errorf("%s cannot be shown: %v", text, err)
		}
	})
}
