package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestPrintableEscapesInvisibleCharacters(t *testing.T) {
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
		g.Expect(Printable(text)).To(Equal(want), "%q", text)
	}
	g.Expect(Printable(strings.Repeat("é", MaxText))).To(Equal(strings.Repeat("é", MaxText)))
	g.Expect(Printable(strings.Repeat("é", MaxText+1))).To(Equal(strings.Repeat("é", MaxText) + "…"))
}

func TestTimestampsAndAges(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Timestamp(time.Time{})).To(Equal("-"))
	g.Expect(Timestamp(time.Date(2026, 11, 21, 3, 4, 5, 6_700_000, time.Local))).To(Equal("2026-11-21 03:04:05.006"))
	g.Expect(Ago(90 * time.Second)).To(Equal("1m30s ago"))
	g.Expect(Ago(100*time.Hour + 29*time.Minute)).To(Equal("4d4h ago"))
	g.Expect(Ago(47 * time.Hour)).To(Equal("47h0m0s ago"))
	g.Expect(Ago(-2 * time.Second)).To(Equal("in 2s"))
}

func TestATableIsSeparatedByTabsWithoutATerminal(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	table := &Table{Title: "t", Header: []string{"a", "b"}}
	table.Add("1", "2")
	table.Add("3", Printable("4\t5\n"))
	g.Expect(table.Print(&out, Style{})).To(Succeed())
	g.Expect(out.String()).To(Equal("1\t2\n3\t4\\t5\\n\n"))
}

func TestATableWrapsLongCellsAndPrintsItsTitleVerbatim(t *testing.T) {
	g := NewWithT(t)
	table := &Table{Title: "100%s", Header: []string{"a"}}
	table.Add(strings.Repeat("w", 3*maxCellWidth))
	text := table.render(Style{})
	g.Expect(text).To(ContainSubstring("100%s"))
	for line := range strings.Lines(text) {
		g.Expect(len([]rune(line))).To(BeNumerically("<=", maxCellWidth+5))
	}
	g.Expect(strings.Count(text, "w")).To(Equal(3*maxCellWidth), "wrapping loses nothing")
}

func TestATableFitsItsTerminalAndLosesNothingThatMatters(t *testing.T) {
	g := NewWithT(t)
	table := &Table{Title: "Elections", Header: []string{"Election", "Since", "Leader", "Host"}, Least: []string{"Host", "Since"}}
	election, leader := strings.Repeat("e", 40), strings.Repeat("é", 35)
	table.Add(election, strings.Repeat("s", 30), leader, "h1")
	for width := 25; width < 160; width++ {
		text := table.render(Style{Width: width})
		for line := range strings.Lines(text) {
			g.Expect(len([]rune(strings.TrimSuffix(line, "\n")))).To(BeNumerically("<=", max(width, len("Left out: Since, Host. See --wide."))), "%d columns:\n%s", width, text)
		}
		g.Expect(strings.Count(text, "é")).To(Equal(35), text)
		g.Expect(strings.Contains(text, "h1")).To(Equal(!strings.Contains(text, "Left out: Since, Host.")), text)
		g.Expect(strings.Contains(text, "Left out")).To(Equal(!strings.Contains(text, "ss")), text)
	}
	g.Expect(table.render(Style{Width: 100})).To(ContainSubstring("Left out: Since. See --wide."), "a host still fits where its age does not")
	g.Expect(table.render(Style{Width: 100}.Wide(true))).NotTo(ContainSubstring("Left out"))
}

func TestALineHasAsMuchOfItsRestAsFits(t *testing.T) {
	g := NewWithT(t)
	bold := Style{Colour: true}.Paint(Bold, "12")
	g.Expect(Style{Width: 5}.Line(bold, "345", "6")).To(Equal(bold + "345"))
	g.Expect(Style{Width: 4}.Line(bold, "345", "6")).To(Equal(bold))
	g.Expect(Style{}.Line(bold, "345", "6")).To(Equal(bold + "3456"))
}

func TestAPropertyListAlignsItsLabels(t *testing.T) {
	g := NewWithT(t)
	l := &PropertyList{}
	l.Add("A", "1")
	l.Add("Nothing", "")
	l.Add("Long", "2")
	l.Add("", "3")
	g.Expect(l.Text(Style{})).To(Equal("     A: 1\n  Long: 2\n        3\n"))
}
