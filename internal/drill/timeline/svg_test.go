package timeline

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/clitest"
)

// exampleTimeline returns a short timeline with one of everything.
func exampleTimeline() *Timeline {
	return &Timeline{
		Title: "Drill", Subtitle: "a subtitle", Verdict: "0 ms with two leaders", Passed: true, Length: 12 * time.Second,
		Rows: []Row{
			{"a", []Span{{PhaseElect, 0, 1500 * time.Millisecond}, {PhaseLeader, 1500 * time.Millisecond, 6 * time.Second}}},
			{"b", []Span{{PhaseOut, 0, time.Second}, {PhaseCandidate, time.Second, 12 * time.Second}}},
		},
		Rounds: []time.Duration{0},
		Marks: []Mark{
			{At: 0, Row: 0, Fault: "start", Outcome: "1.50 s"},
			{At: 5 * time.Second, Row: 0, Fault: "cut", Outcome: "3.00 s"},
			{At: 5200 * time.Millisecond, Row: 1, Fault: "stop", Outcome: "3.00 s"},
		},
		Cuts:  []Cut{{0, 5 * time.Second, 8 * time.Second}},
		Terms: []Term{{"k", 4, 0, 1500 * time.Millisecond}},
	}
}

func TestADrawingIsWellFormedAndLabelled(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	g.Expect(exampleTimeline().Write(&out)).To(Succeed())
	g.Expect(clitest.SVGTexts(g, out.Bytes())).To(ContainElements("Drill", "a subtitle", "0 ms with two leaders", "a", "b",
		"candidate", "leader", "link is cut", "start", "1.50 s", "term 4", "round 1", "0 s", "10 s"))
	for _, colour := range barColour {
		g.Expect(out.String()).To(ContainSubstring(colour))
	}
}

func TestATooltipHasTheTimeInTheWholeTimeline(t *testing.T) {
	g := NewWithT(t)
	long := exampleTimeline()
	long.Piece = 5 * time.Second
	var out bytes.Buffer
	g.Expect(long.Write(&out)).To(Succeed())
	g.Expect(clitest.SVGTexts(g, out.Bytes())).To(ContainElements("start at 0.00 s: 1.50 s", "stop at 5.20 s: 3.00 s"))
}

func TestThePiecesOfALongTimelineShowAllOfIt(t *testing.T) {
	g := NewWithT(t)
	long := exampleTimeline()
	long.Piece = 5 * time.Second
	long.Shaded = []Span{{From: 4 * time.Second, To: 6 * time.Second}}
	pieces := long.pieces()
	g.Expect(pieces).To(HaveLen(3))
	g.Expect(pieces[0].Rows[0].Spans).To(Equal([]Span{{PhaseElect, 0, 1500 * time.Millisecond}, {PhaseLeader, 1500 * time.Millisecond, 5 * time.Second}}))
	g.Expect(pieces[1].Rows[0].Spans).To(Equal([]Span{{PhaseLeader, 0, time.Second}}))
	g.Expect(pieces[2].Rows[0].Spans).To(BeEmpty())
	g.Expect(pieces[0].Marks).To(HaveLen(1))
	g.Expect(pieces[1].Marks).To(HaveLen(2))
	g.Expect(pieces[1].Marks[1].At).To(Equal(200 * time.Millisecond))
	g.Expect(pieces[1].Cuts).To(Equal([]Cut{{0, 0, 3 * time.Second}}))
	g.Expect(pieces[1].Terms).To(HaveLen(1), "a continued bar has its number again")
	g.Expect(pieces[2].Terms).To(BeEmpty())
	g.Expect(pieces[1].Shaded).To(Equal([]Span{{From: 0, To: time.Second}}))
	var out bytes.Buffer
	g.Expect(long.Write(&out)).To(Succeed())
	g.Expect(clitest.SVGTexts(g, out.Bytes())).To(ContainElements("0 s", "5 s", "10 s", "bucket takes no writes"))
	g.Expect(strings.Count(out.String(), ">Drill<")).To(Equal(1), "one heading")
}

func TestADrawingEscapesText(t *testing.T) {
	g := NewWithT(t)
	const hostile = "<script>alert('x')</script> & \x1b[31m \"q\""
	d := exampleTimeline()
	d.Title, d.Subtitle, d.Verdict, d.Rows[0].Name, d.Marks[0].Fault, d.Marks[0].Outcome = hostile, hostile, hostile, hostile, hostile, hostile
	var out bytes.Buffer
	g.Expect(d.Write(&out)).To(Succeed())
	g.Expect(out.String()).NotTo(ContainSubstring("<script"))
	g.Expect(clitest.SVGTexts(g, out.Bytes())).NotTo(BeEmpty())
}

func TestLabelsCoverNeitherOtherLabelsNorTheirLines(t *testing.T) {
	g := NewWithT(t)
	var marks []Mark
	for i, x := range []float64{0, 10, 35, 36, 90, 95, 300, 301, 302, 303, 340} {
		marks = append(marks, Mark{Fault: fmt.Sprint(i), x: x, end: x + 50})
	}
	lanes := assignLanes(marks)
	for i, a := range marks {
		g.Expect(a.lane).To(BeNumerically("<", lanes))
		for j, b := range marks {
			if i == j || b.x < a.x || b.lane < a.lane { // the line of b only crosses the lanes below its own
				continue
			}
			g.Expect(a.end).To(BeNumerically("<=", b.x), "label %d reaches the line of %d", i, j)
		}
	}
	g.Expect(assignLanes(nil)).To(BeZero())
}

func TestADrawingOfAnyLengthIsSmallAndHasFiniteNumbers(t *testing.T) {
	g := NewWithT(t)
	for _, length := range []time.Duration{0, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		d := exampleTimeline()
		d.Length = length
		d.Marks = nil
		for i := range 200 {
			d.Marks = append(d.Marks, Mark{At: length * time.Duration(i) / 200, Fault: "stop", Outcome: "1.00 s"})
		}
		var out bytes.Buffer
		g.Expect(d.Write(&out)).To(Succeed())
		g.Expect(out.Len()).To(BeNumerically("<", 400_000), length.String())
		g.Expect(out.String()).NotTo(Or(ContainSubstring("NaN"), ContainSubstring("Inf")), length.String())
		clitest.SVGTexts(g, out.Bytes())
	}
}
