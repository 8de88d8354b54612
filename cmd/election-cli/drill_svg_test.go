package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func sketch() *timeline {
	return &timeline{
		title: "Drill", subtitle: "a subtitle", verdict: "0 ms with two leaders", passed: true, length: 12 * time.Second,
		rows: []timelineRow{
			{"a", []span{{phaseElect, 0, 1500 * time.Millisecond}, {phaseLeader, 1500 * time.Millisecond, 6 * time.Second}}},
			{"b", []span{{phaseOut, 0, time.Second}, {phaseCandidate, time.Second, 12 * time.Second}}},
		},
		rounds: []time.Duration{0},
		marks: []timelineMark{
			{at: 0, member: 0, what: "start", took: "1.50 s"},
			{at: 5 * time.Second, member: 0, what: "cut", took: "3.00 s"},
			{at: 5200 * time.Millisecond, member: 1, what: "stop", took: "3.00 s"},
		},
		cuts:  []cut{{0, 5 * time.Second, 8 * time.Second}},
		terms: []ledTerm{{"k", 4, 0, 1500 * time.Millisecond}},
	}
}

// texts parses a drawing and returns all text in it.
func texts(g Gomega, svg []byte) []string {
	var found []string
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		g.Expect(err).NotTo(HaveOccurred())
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			found = append(found, string(text))
		}
	}
}

func TestDrawingIsWellFormedAndNamesWhatItShows(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	g.Expect(sketch().write(&out)).To(Succeed())
	g.Expect(texts(g, out.Bytes())).To(ContainElements("Drill", "a subtitle", "0 ms with two leaders", "a", "b",
		"candidate", "leader", "link is cut", "start", "1.50 s", "term 4", "round 1", "0 s", "10 s"))
	for _, colour := range barColour {
		g.Expect(out.String()).To(ContainSubstring(colour))
	}
}

func TestALongRunIsDrawnInPiecesThatShowAllOfIt(t *testing.T) {
	g := NewWithT(t)
	long := sketch()
	long.piece = 5 * time.Second
	long.shaded = []span{{from: 4 * time.Second, to: 6 * time.Second}}
	pieces := long.pieces()
	g.Expect(pieces).To(HaveLen(3))
	g.Expect(pieces[0].rows[0].spans).To(Equal([]span{{phaseElect, 0, 1500 * time.Millisecond}, {phaseLeader, 1500 * time.Millisecond, 5 * time.Second}}))
	g.Expect(pieces[1].rows[0].spans).To(Equal([]span{{phaseLeader, 0, time.Second}}))
	g.Expect(pieces[2].rows[0].spans).To(BeEmpty())
	g.Expect(pieces[0].marks).To(HaveLen(1))
	g.Expect(pieces[1].marks).To(HaveLen(2))
	g.Expect(pieces[1].marks[1].at).To(Equal(200 * time.Millisecond))
	g.Expect(pieces[1].cuts).To(Equal([]cut{{0, 0, 3 * time.Second}}))
	g.Expect(pieces[1].terms).To(HaveLen(1), "its number is written again")
	g.Expect(pieces[2].terms).To(BeEmpty())
	g.Expect(pieces[1].shaded).To(Equal([]span{{from: 0, to: time.Second}}))
	var out bytes.Buffer
	g.Expect(long.write(&out)).To(Succeed())
	g.Expect(texts(g, out.Bytes())).To(ContainElements("0 s", "5 s", "10 s", "bucket takes no writes"))
	g.Expect(strings.Count(out.String(), ">Drill<")).To(Equal(1), "one heading")
}

func TestDrawingEscapesTextFromElsewhere(t *testing.T) {
	g := NewWithT(t)
	const nasty = "<script>alert('x')</script> & \x1b[31m \"q\""
	d := sketch()
	d.title, d.subtitle, d.verdict, d.rows[0].name, d.marks[0].what, d.marks[0].took = nasty, nasty, nasty, nasty, nasty, nasty
	var out bytes.Buffer
	g.Expect(d.write(&out)).To(Succeed())
	g.Expect(out.String()).NotTo(ContainSubstring("<script"))
	g.Expect(texts(g, out.Bytes())).NotTo(BeEmpty())
}

func TestLabelsCoverNeitherEachOtherNorTheLinesOfOthers(t *testing.T) {
	g := NewWithT(t)
	var marks []timelineMark
	for i, x := range []float64{0, 10, 35, 36, 90, 95, 300, 301, 302, 303, 340} {
		marks = append(marks, timelineMark{what: fmt.Sprint(i), x: x, end: x + 50})
	}
	lanes := stack(marks)
	for i, a := range marks {
		g.Expect(a.lane).To(BeNumerically("<", lanes))
		for j, b := range marks {
			if i == j || b.x < a.x || b.lane < a.lane { // the line of b begins at its own lane and goes down
				continue
			}
			g.Expect(a.end).To(BeNumerically("<=", b.x), "label %d reaches into %d", i, j)
		}
	}
	g.Expect(stack(nil)).To(BeZero())
}

func TestADrawingOfAnyLengthStaysWithinReason(t *testing.T) {
	g := NewWithT(t)
	for _, length := range []time.Duration{0, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		d := sketch()
		d.length = length
		d.marks = nil
		for i := range 200 {
			d.marks = append(d.marks, timelineMark{at: length * time.Duration(i) / 200, what: "stop", took: "1.00 s"})
		}
		var out bytes.Buffer
		g.Expect(d.write(&out)).To(Succeed())
		g.Expect(out.Len()).To(BeNumerically("<", 400_000), length.String())
		g.Expect(out.String()).NotTo(Or(ContainSubstring("NaN"), ContainSubstring("Inf")), length.String())
		texts(g, out.Bytes())
	}
}

func TestAFileIsReplacedWholeOrNotAtAll(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "run.svg")
	g.Expect(checkWritable("--svg", path)).To(Succeed())
	g.Expect(writeFileAtomically(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "first")
		return err
	})).To(Succeed())
	g.Expect(writeFileAtomically(path, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of the sec")
		return errors.New("disk on fire")
	})).To(MatchError("disk on fire"))
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("first"))
	g.Expect(os.ReadDir(folder)).To(HaveLen(1), "nothing is left behind")

	g.Expect(checkWritable("--svg", folder)).To(MatchError(ContainSubstring("no file that could be replaced")))
	g.Expect(checkWritable("--svg", filepath.Join(folder, "missing", "run.svg"))).To(MatchError(ContainSubstring("there is no folder")))
}
