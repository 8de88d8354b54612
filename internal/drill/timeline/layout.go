package timeline

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"time"
)

// Sizes in pixels.
const (
	minWidth       = 1280.0
	maxWidth       = 6000.0
	minSecondWidth = 24.0
	marginLeft     = 124.0
	marginRight    = 64.0
	headHeight     = 116.0
	laneHeight     = 34.0
	rowHeight      = 44.0
	axisHeight     = 46.0
	charWidth      = 6.9 // of a label, rounded up
	labelGap       = 8.0
	maxLanes       = 4    // with more lanes the labels are left out
	minTermWidth   = 62.0 // of a bar with a term number
)

// canvas is the SVG text of one piece of a timeline, and its layout.
type canvas struct {
	bytes.Buffer
	width, height float64
	top           float64 // the upper edge of the first row
	perSecond     float64 // pixels
	lanes         int
	labels        bool // whether the marks have labels
}

// x returns the horizontal position of a time.
func (c *canvas) x(at time.Duration) float64 { return marginLeft + at.Seconds()*c.perSecond }

// middle returns the vertical middle of a row.
func (c *canvas) middle(row int) float64 { return c.top + (float64(row)+0.5)*rowHeight }

// bottom returns the lower edge of the last row.
func (c *canvas) bottom(rows int) float64 { return c.top + float64(rows)*rowHeight }

// put writes one line of SVG.
func (c *canvas) put(format string, a ...any) { fmt.Fprintf(c, format+"\n", a...) }

// text writes escaped text of the given size and colour, with further attributes.
func (c *canvas) text(x, y, size float64, colour, attributes, text string) {
	c.put(`<text x="%.1f" y="%.1f" font-size="%g" fill="%s" %s>%s</text>`, x, y, size, colour, attributes, escape(text))
}

// escape escapes text for XML.
func escape(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer never fails
	return b.String()
}

// layout computes the size of the canvas and the positions of the labels.
func (t *Timeline) layout() *canvas {
	length := max(t.Length.Seconds(), 0.001)
	c := &canvas{width: min(max(minWidth, marginLeft+marginRight+length*minSecondWidth), maxWidth)}
	c.perSecond = (c.width - marginLeft - marginRight) / length
	for i := range t.Marks {
		m := &t.Marks[i]
		m.x = c.x(m.At)
		m.end = m.x + 5 + charWidth*float64(max(len(m.Fault), len(m.Outcome)))
	}
	c.lanes = assignLanes(t.Marks)
	if c.labels = c.lanes <= maxLanes; !c.labels {
		c.lanes = 1
	}
	c.top = float64(c.lanes)*laneHeight + 14
	if t.offset == 0 {
		c.top += headHeight
	}
	c.height = c.bottom(len(t.Rows)) + axisHeight
	return c
}

// assignLanes assigns each label to a lane, such that no label covers another label or its line. It returns the number of lanes. A label is
// to the right of its line, so assignLanes places the rightmost label first.
func assignLanes(marks []Mark) int {
	lanes := 0
	order := make([]int, len(marks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(marks[b].x, marks[a].x) })
	for n, i := range order {
		m := &marks[i]
		fits := func(lane int) bool {
			for _, k := range order[:n] { // these labels are all to the right, and the line of each crosses the lanes below its own
				if marks[k].lane >= lane && m.end+labelGap > marks[k].x {
					return false
				}
			}
			return true
		}
		for m.lane = 0; !fits(m.lane); m.lane++ {
		}
		lanes = max(lanes, m.lane+1)
	}
	return lanes
}

// pieces divides a timeline that is longer than one piece. The times in each piece are relative to the start of the piece. Only the first
// piece has the heading.
func (t *Timeline) pieces() []*Timeline {
	if t.Piece <= 0 || t.Length <= t.Piece {
		return []*Timeline{t}
	}
	var all []*Timeline
	for from := time.Duration(0); from < t.Length; from += t.Piece {
		p := *t
		p.offset, p.Length, p.Rounds = from, t.Piece, nil
		p.Rows, p.Marks, p.Cuts, p.Terms = nil, nil, nil, nil
		p.Shaded = within(t.Shaded, from, t.Piece)
		for _, row := range t.Rows {
			p.Rows = append(p.Rows, Row{row.Name, within(row.Spans, from, t.Piece)})
		}
		for _, m := range t.Marks {
			if m.At >= from && m.At < from+t.Piece {
				m.At -= from
				p.Marks = append(p.Marks, m)
			}
		}
		for _, cut := range t.Cuts {
			for _, s := range within([]Span{{From: cut.From, To: cut.To}}, from, t.Piece) {
				p.Cuts = append(p.Cuts, Cut{cut.Row, s.From, s.To})
			}
		}
		for _, term := range t.Terms {
			for _, s := range t.Rows[term.Row].Spans {
				if s.Phase == PhaseLeader && s.From == term.At && s.From < from+t.Piece && s.To > from {
					term.At = max(0, term.At-from) // a bar that continues from the previous piece has its number again
					p.Terms = append(p.Terms, term)
					break
				}
			}
		}
		all = append(all, &p)
	}
	return all
}

// within returns the parts of the spans that are in a piece of the given length, with times relative to the start of the piece.
func within(spans []Span, from, length time.Duration) []Span {
	var parts []Span
	for _, s := range spans {
		s.From, s.To = max(s.From-from, 0), min(s.To-from, length)
		if s.From < s.To {
			parts = append(parts, s)
		}
	}
	return parts
}
