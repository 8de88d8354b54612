package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestWhatIsNotMeantToBeSeenIsEscaped(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]string{
		"web-1":                `web-1`,
		"Grüße 世界":             `Grüße 世界`,
		"\x1b[31mred\x1b[0m":   `\x1b[31mred\x1b[0m`,
		"a\nb\rc\td\x00":       `a\nb\rc\td\x00`,
		"\u009b31m":            `\u009b31m`,
		"\u202egnp\u2066":      `\u202egnp\u2066`,
		"a\u200bb\ufeff":       `a\u200bb\ufeff`,
		"a\u3164b\u2800\ufe0f": "a\\u3164b\\u2800\ufe0f",
		"a\u00a0b\u2028":       `a\u00a0b\u2028`,
		"\xff\xc3":             `\xff\xc3`,
		"\ufffd":               "\ufffd",
		"":                     ``,
	} {
		g.Expect(printable(text)).To(Equal(want), "%q", text)
	}
	g.Expect(printable(strings.Repeat("é", longestText))).To(Equal(strings.Repeat("é", longestText)))
	g.Expect(printable(strings.Repeat("é", longestText+1))).To(Equal(strings.Repeat("é", longestText) + "…"))
}

func TestOfMuchMetadataTheSamePartIsShownEachTime(t *testing.T) {
	g := NewWithT(t)
	l := election.Leader{Metadata: map[string]string{"long": strings.Repeat("x", 5000)}}
	for i := range 500 {
		l.Metadata[fmt.Sprintf("key-%03d", i)] = "v"
	}
	first := shown(l).Metadata
	g.Expect(first).To(HaveLen(longestMetadata))
	g.Expect(first).To(HaveKey("key-000"))
	g.Expect(shown(l).Metadata).To(Equal(first))
	g.Expect(l.Metadata).To(HaveLen(501), "what is shown is a copy")
	g.Expect(shown(election.Leader{Metadata: map[string]string{"long": strings.Repeat("x", 5000)}}).Metadata["long"]).To(HaveLen(longestValue + len("…")))
}

func TestTimesAreHumanAndExact(t *testing.T) {
	g := NewWithT(t)
	g.Expect(exactly(time.Time{})).To(Equal("-"))
	g.Expect(exactly(time.Date(2026, 11, 21, 3, 4, 5, 6_700_000, time.Local))).To(Equal("2026-11-21 03:04:05.006"))
	g.Expect(ago(90 * time.Second)).To(Equal("1m30s ago"))
	g.Expect(ago(100*time.Hour + 29*time.Minute)).To(Equal("4d4h ago"))
	g.Expect(ago(47 * time.Hour)).To(Equal("47h0m0s ago"))
	g.Expect(ago(-2 * time.Second)).To(Equal("in 2s"))
}

func TestAGridThatGoesToNoTerminalIsColumnsSetApartByTabs(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	table := &grid{title: "t", header: []string{"a", "b"}}
	table.add("1", "2")
	table.add("3", printable("4\t5\n"))
	g.Expect(table.writeTo(&out)).To(Succeed())
	g.Expect(out.String()).To(Equal("1\t2\n3\t4\\t5\\n\n"))
}

func TestTheTitleOfATableIsNoFormat(t *testing.T) {
	g := NewWithT(t)
	table := &grid{title: "100%s", header: []string{"a"}}
	table.add(strings.Repeat("w", 3*widestCell))
	text := table.render()
	g.Expect(text).To(ContainSubstring("100%s"))
	for line := range strings.Lines(text) {
		g.Expect(len([]rune(line))).To(BeNumerically("<=", widestCell+5))
	}
	g.Expect(strings.Count(text, "w")).To(Equal(3*widestCell), "nothing is lost")
}

func TestASheetAlignsItsLabels(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	s := &sheet{}
	s.add("A", "1")
	s.add("Nothing", "")
	s.add("Long", "2")
	s.add("", "3")
	g.Expect(s.writeTo(&out, style{})).To(Succeed())
	g.Expect(out.String()).To(Equal("     A: 1\n  Long: 2\n        3\n"))
}

func TestWithoutATerminalNothingIsDestroyedUnlessForced(t *testing.T) {
	g := NewWithT(t)
	null, err := os.Open(os.DevNull)
	g.Expect(err).NotTo(HaveOccurred())
	defer null.Close()
	r, w, err := os.Pipe()
	g.Expect(err).NotTo(HaveOccurred())
	defer r.Close()
	defer w.Close()
	for _, in := range []*os.File{null, r} {
		tool := &tool{stdin: in, stderr: &bytes.Buffer{}}
		g.Expect(tool.confirm(context.Background(), false, "Really?")).To(MatchError(ContainSubstring("--force")))
		g.Expect(tool.confirm(context.Background(), true, "Really?")).To(Succeed())
	}
}
