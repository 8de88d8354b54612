package leaderfile

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/natscampaign/election/internal/test/natstest"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/clitest"
)

// contentWritten returns the content of a leader file that was written at the given time, with a TTL of 10 s.
func contentWritten(written time.Time) Content {
	return Content{
		Program: programName, Key: "jobs", Bucket: "B", Name: "web-1", Term: 7, Token: "0-7",
		Since: written, Written: written, Expiry: written.Add(9 * time.Second), TTLS: 10,
	}
}

func textOf(g Gomega, c Content) []byte {
	text, err := json.Marshal(c)
	g.Expect(err).NotTo(HaveOccurred())
	return text
}

func TestALeaderFileIsFreshOnlyFromWhenItIsWrittenToItsExpiry(t *testing.T) {
	g := NewWithT(t)
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := contentWritten(written)
	g.Expect(c.StaleReason(written)).To(BeEmpty())
	g.Expect(c.StaleReason(c.Expiry.Add(-1))).To(BeEmpty())
	g.Expect(c.StaleReason(c.Expiry)).To(ContainSubstring("expired"))
	g.Expect(c.StaleReason(c.Expiry.Add(time.Hour))).To(ContainSubstring("expired 1h0m0s ago"))
	g.Expect(c.StaleReason(written.Add(-1))).To(ContainSubstring("clock was set back"))
	g.Expect(c.StaleReason(written.Add(-time.Hour))).To(ContainSubstring("was written 1h0m0s later than this"))
	c.Expiry = written.Add(time.Minute)
	g.Expect(c.StaleReason(written)).To(ContainSubstring("later than the TTL of 10s allows"))
	c.TTLS = 0.5
	c.Expiry = written.Add(time.Second)
	g.Expect(c.StaleReason(written.Add(time.Second / 2))).To(BeEmpty())
}

func TestIncompleteOrOtherContentIsNotALeaderFile(t *testing.T) {
	g := NewWithT(t)
	good := contentWritten(time.Now())
	_, err := parse(textOf(g, good))
	g.Expect(err).NotTo(HaveOccurred())
	for what, damage := range map[string]func(*Content){
		"program": func(c *Content) { c.Program = "" }, "key": func(c *Content) { c.Key = "" }, "name": func(c *Content) { c.Name = "" },
		"term": func(c *Content) { c.Term = 0 }, "token": func(c *Content) { c.Token = "" }, "no TTL": func(c *Content) { c.TTLS = 0 },
		"TTL": func(c *Content) { c.TTLS = 1e9 }, "expiry": func(c *Content) { c.Expiry = time.Time{} }, "written": func(c *Content) { c.Written = time.Time{} },
	} {
		c := good
		damage(&c)
		_, err := parse(textOf(g, c))
		g.Expect(err).To(MatchError(errNotLeaderFile), what)
	}
	for _, text := range []string{"important", "{}", "[]", "null", `{"name":"web-1"}`, string(textOf(g, good)) + "x"} {
		_, err := parse([]byte(text))
		g.Expect(err).To(MatchError(errNotLeaderFile), text)
	}
	for _, text := range []string{"", "\x00\x00\x00"} {
		_, err := parse([]byte(text))
		g.Expect(err).To(MatchError(errEmpty), "a power cut may leave %q", text)
	}
}

func TestALeaderHoldsTheKeyUntilALeaderFileThatItCannotRemoveExpires(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	g := NewWithT(t)
	blocked := filepath.Join(t.TempDir(), "file")
	g.Expect(os.WriteFile(blocked, nil, 0o600)).To(Succeed())
	deadline := time.Now().Add(300 * time.Millisecond)
	m := &Maintainer{path: filepath.Join(blocked, "leader.json"), log: slog.New(slog.DiscardHandler), margin: MinMargin, deadline: deadline}
	g.Expect(m.removeAtEnd()).To(MatchError(ContainSubstring("cannot be removed")))
	g.Expect(time.Now()).To(BeTemporally(">=", deadline))
}

// A test cannot step the wall clock. This test changes the wall clock reading in the deadline of the file instead.
func TestTheLeaderFileIsWrittenAgainAfterAStepOfTheWallClock(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	term := clitest.New(t, clitest.LongTTL).StartLeader()
	path := filepath.Join(t.TempDir(), "leader.json")
	m := &Maintainer{path: path, log: slog.New(slog.DiscardHandler), margin: MinMargin, template: contentWritten(time.Now())}
	written := func() bool {
		_ = os.Remove(path)
		g.Expect(m.update(term)).To(Succeed())
		_, err := os.Stat(path)
		return err == nil
	}
	g.Expect(written()).To(BeTrue())
	g.Expect(written()).To(BeFalse(), "nothing has changed")
	for range 2 {
		*(*uint64)(unsafe.Pointer(&m.deadline)) -= 2 << 30 // two seconds, in the wall clock reading only
		g.Expect(written()).To(BeTrue())
		g.Expect(written()).To(BeFalse())
	}
	*(*uint64)(unsafe.Pointer(&m.deadline)) += 10000 // nanoseconds: the time between readings of the two clocks
	g.Expect(written()).To(BeFalse())
}

// FuzzLeaderFile parses arbitrary content of a file. Content that parses must never be fresh before it was written, after its expiry or for
// longer than the maximum TTL, and Check must be able to show it.
func FuzzLeaderFile(f *testing.F) {
	written := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	text, err := json.Marshal(contentWritten(written))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{string(text), "", "\x00\x00", "null", "{}", "[]", "hello", `{"marker":"election-cli","ttl_s":1e999}`,
		`{"marker":"election-cli","key":"k","name":"n","term":1,"token":"t","written":"0001-01-02T00:00:00Z","expiry":"9999-12-31T23:59:59Z","ttl_s":3600}`} {
		f.Add([]byte(s), int64(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, after int64) {
		c, err := parse(text)
		if err != nil {
			return
		}
		now := written.Add(time.Duration(after))
		if c.StaleReason(now) == "" && (!now.Before(c.Expiry) || now.Before(c.Written) || c.Expiry.Sub(now) > time.Hour) {
			t.Errorf("%s is fresh at %v", text, now)
		}
		if _, err := json.Marshal(c.printable()); err != nil {
			t.Errorf("%s cannot be shown: %v", text, err)
		}
	})
}
