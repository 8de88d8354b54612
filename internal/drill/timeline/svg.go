package timeline

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
)

// Colours of Okabe and Ito, which people with any kind of colour vision can distinguish.
const (
	inkDark      = "#1f2933"
	inkSoft      = "#5b6875"
	lineSoft     = "#d7dee5"
	bandFill     = "#f4f7f9"
	shadeFill    = "#f6e3da"
	colourCand   = "#a9bccb"
	colourElect  = "#e69f00"
	colourLeader = "#0072b2"
	colourFault  = "#b33a00"
	colourPassed = "#007a5a"
)

// barHeight repeats what the colour of a bar says, for prints without colour.
var barHeight = map[Phase]float64{PhaseCandidate: 8, PhaseElect: 18, PhaseLeader: 28}

var barColour = map[Phase]string{PhaseCandidate: colourCand, PhaseElect: colourElect, PhaseLeader: colourLeader}

// Write writes the timeline as an SVG document. The pieces of a long timeline are one below the other.
func (t *Timeline) Write(w io.Writer) error {
	var drawn []*canvas
	page := &canvas{}
	for _, piece := range t.pieces() {
		c := piece.render()
		page.width, page.height = max(page.width, c.width), page.height+c.height
		drawn = append(drawn, c)
	}
	page.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" font-family="system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif">`, page.width, page.height, page.width, page.height)
	page.put(`<title>%s</title>`, escape(t.Title+". "+t.Verdict))
	page.put(`<defs><pattern id="cut" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7" fill="#ffffff" fill-opacity="0.35"/><rect width="2.2" height="7" fill="%s"/></pattern></defs>`, colourFault)
	page.put(`<rect x="0.5" y="0.5" width="%.0f" height="%.0f" rx="14" fill="#ffffff" stroke="%s"/>`, page.width-1, page.height-1, lineSoft)
	y := 0.0
	for _, c := range drawn {
		page.put(`<g transform="translate(0 %.0f)">`, y)
		page.Write(c.Bytes())
		page.put(`</g>`)
		y += c.height
	}
	page.put(`</svg>`)
	_, err := w.Write(page.Bytes())
	return err
}

// render draws a timeline of one piece.
func (t *Timeline) render() *canvas {
	c := t.layout()
	if t.offset == 0 {
		t.head(c)
	}
	t.bands(c)
	t.axis(c)
	t.bars(c)
	t.faults(c)
	return c
}

// head draws the title, the verdict and the legend.
func (t *Timeline) head(c *canvas) {
	c.text(24, 38, 22, inkDark, `font-weight="600"`, t.Title)
	c.text(24, 62, 14, inkSoft, "", t.Subtitle)
	colour := colourPassed
	if !t.Passed {
		colour = colourFault
	}
	c.text(c.width-24, 40, 22, colour, `font-weight="600" text-anchor="end"`, t.Verdict)
	x := 24.0
	for _, p := range []struct {
		phase Phase
		name  string
	}{{PhaseCandidate, "candidate"}, {PhaseElect, "leader-elect: holds the key, does not lead yet"}, {PhaseLeader, "leader"}} {
		h := barHeight[p.phase] * 0.7
		c.put(`<rect x="%.1f" y="%.1f" width="26" height="%.1f" rx="2" fill="%s"/>`, x, 88-h/2, h, barColour[p.phase])
		c.text(x+33, 92.5, 13, inkDark, "", p.name)
		x += 33 + 22 + float64(len(p.name))*6.6
	}
	c.put(`<rect x="%.1f" y="78" width="26" height="20" rx="2" fill="url(#cut)" stroke="%s" stroke-width="0.8"/>`, x, colourFault)
	c.text(x+33, 92.5, 13, inkDark, "", cmp.Or(t.Hatched, "link is cut"))
	if len(t.Shaded) > 0 {
		x += 33 + 22 + 6.6*11
		c.put(`<rect x="%.1f" y="78" width="26" height="20" rx="2" fill="%s"/>`, x, shadeFill)
		c.text(x+33, 92.5, 13, inkDark, "", "bucket takes no writes")
	}
	c.text(c.width-24, 62, 13, inkSoft, `text-anchor="end"`, "each mark: the fault, and the time until a candidate led")
}

// bands draws the background: the rounds, and the shaded times.
func (t *Timeline) bands(c *canvas) {
	for _, s := range t.Shaded {
		c.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, c.x(s.From), c.top, c.x(s.To)-c.x(s.From), c.bottom(len(t.Rows))-c.top, shadeFill)
	}
	for i, from := range t.Rounds {
		to := t.Length
		if i+1 < len(t.Rounds) {
			to = t.Rounds[i+1]
		}
		if i%2 == 0 {
			c.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, c.x(from), c.top, c.x(to)-c.x(from), c.bottom(len(t.Rows))-c.top, bandFill)
		}
		if name := fmt.Sprintf("round %d", i+1); c.x(to)-c.x(from) > charWidth*float64(len(name)) {
			c.text((c.x(from)+c.x(to))/2, c.bottom(len(t.Rows))+37, 12, inkSoft, `text-anchor="middle"`, name)
		}
	}
}

// axis draws the time axis below the rows.
func (t *Timeline) axis(c *canvas) {
	y := c.bottom(len(t.Rows))
	c.put(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`, marginLeft, y, c.width-marginRight, y, inkSoft)
	step := tickStep(90 / c.perSecond)
	for s := 0.0; s <= t.Length.Seconds(); s += step {
		x := marginLeft + s*c.perSecond
		c.put(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`, x, y, x, y+5, inkSoft)
		c.text(x, y+19, 12, inkSoft, `text-anchor="middle"`, fmt.Sprintf("%g s", math.Round((t.offset.Seconds()+s)*1000)/1000))
	}
}

// tickStep returns the smallest round number of seconds that is at least s.
func tickStep(s float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(s)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*base >= s {
			return factor * base
		}
	}
	return 10 * base
}

// bars draws the phases of each candidate, and the cut links.
func (t *Timeline) bars(c *canvas) {
	for i, row := range t.Rows {
		mid := c.middle(i)
		c.text(marginLeft-14, mid+4.5, 14, inkDark, `text-anchor="end"`, row.Name)
		c.put(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`, marginLeft, mid, c.width-marginRight, mid, lineSoft)
		for _, s := range row.Spans {
			h, ok := barHeight[s.Phase]
			if !ok || s.To <= s.From {
				continue
			}
			c.put(`<rect x="%.2f" y="%.1f" width="%.2f" height="%.1f" fill="%s"/>`, c.x(s.From), mid-h/2, c.x(s.To)-c.x(s.From), h, barColour[s.Phase])
		}
	}
	for _, cut := range t.Cuts {
		c.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="url(#cut)" stroke="%s" stroke-width="0.8"/>`,
			c.x(cut.From), c.middle(cut.Row)-16, c.x(cut.To)-c.x(cut.From), 32.0, colourFault)
	}
	t.numbers(c)
}

// numbers writes the number of the term into each bar of a leader that is wide enough.
func (t *Timeline) numbers(c *canvas) {
	for _, term := range t.Terms {
		for _, s := range t.Rows[term.Row].Spans {
			width := c.x(s.To) - c.x(s.From)
			if s.Phase != PhaseLeader || s.From != term.At || width < minTermWidth || t.hidden(term, s) {
				continue
			}
			c.text((c.x(s.From)+c.x(s.To))/2, c.middle(term.Row)+4.5, 12, "#ffffff", `text-anchor="middle" font-weight="600"`, fmt.Sprintf("term %d", term.Number))
		}
	}
}

// hidden says whether a cut covers so much of the span that text would be hard to read.
func (t *Timeline) hidden(term Term, s Span) bool {
	return slices.ContainsFunc(t.Cuts, func(cut Cut) bool {
		return cut.Row == term.Row && cut.From < s.To && s.From < cut.To && (s.To-cut.From)*4 > s.To-s.From
	})
}

// faults draws a line with a label for each fault, and a dot on the row that the fault hit.
func (t *Timeline) faults(c *canvas) {
	for _, m := range t.Marks {
		y := c.top - 10 - float64(m.lane)*laneHeight
		if !c.labels {
			y = c.top - 10 // one short lane for all lines
		}
		c.put(`<g><title>%s</title>`, escape(fmt.Sprintf("%s at %.2f s: %s", m.Fault, (t.offset+m.At).Seconds(), m.Outcome)))
		c.put(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="1.2" stroke-dasharray="3 2"/>`, m.x, y-laneHeight+8, m.x, c.bottom(len(t.Rows)), colourFault)
		c.put(`<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s" stroke="#ffffff" stroke-width="1.5"/>`, m.x, c.middle(m.Row), colourFault)
		if c.labels {
			c.text(m.x+5, y-15, 12.5, inkDark, `font-weight="600"`, m.Fault)
			c.text(m.x+5, y, 12.5, inkDark, "", m.Outcome)
		}
		c.put(`</g>`)
	}
}
