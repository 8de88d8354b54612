package serving

import (
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
)

// colourCount is the number of colours of the chart. With more candidates several candidates share a colour.
const colourCount = 6

// Sizes of the bars. A candidate has a low bar during its stand-down, and a bar of full height while it leads.
const (
	chartHeight     = 40
	standDownHeight = 14
)

// chart shows the terms of the recent history over time. One unit of width is one second.
type chart struct {
	Title         string   // the time that the chart covers
	Scale         []string // the labels at the start of each quarter
	Width         int
	ObservedFrom  int // the page did not observe the election before this
	ObservedWidth int
	Bars          []bar
	Legend        legend
	Marks         []mark
	HasStandDown  bool // whether the chart shows a stand-down
	HasVacancy    bool // whether the chart shows a time in which no candidate held the key
}

// bar is a time in which one candidate held the key.
type bar struct {
	ColourClass, Title  string
	X, Y, Width, Height int
}

// mark is an eviction.
type mark struct {
	Title    string
	X, Width int
}

// legend are the candidates that have a bar, with the CSS classes of their colours.
type legend []legendEntry

type legendEntry struct{ ColourClass, Name string }

// find returns the class of a candidate's colour, or "" if the candidate has no bar.
func (l legend) find(name string) string {
	for _, entry := range l {
		if entry.Name == name {
			return entry.ColourClass
		}
	}
	return ""
}

// add returns the class of a candidate's colour, and chooses one for a candidate that has no bar yet.
func (l *legend) add(name string) string {
	class := l.find(name)
	if class == "" {
		class = fmt.Sprintf("c%d", len(*l)%colourCount)
		*l = append(*l, legendEntry{class, name})
	}
	return class
}

// chartDurations are the durations that a chart may cover, the shortest first.
var chartDurations = []time.Duration{4 * time.Minute, 20 * time.Minute, historyDuration}

// newChart draws the terms of a history.
func newChart(h snapshot) chart {
	var c chart
	oldest := h.now.Add(-c.setScale(h))
	x := func(t time.Time) int { return min(max(int(t.Sub(oldest).Round(time.Second).Seconds()), 0), c.Width) }
	if c.ObservedFrom = c.Width; !h.observedSince.IsZero() {
		c.ObservedFrom = x(h.observedSince)
	}
	c.ObservedWidth = c.Width - c.ObservedFrom
	heldUntil := c.ObservedFrom // the end of the last term that is drawn
	for _, t := range h.terms {
		if !t.endedAt.IsZero() && !t.endedAt.After(oldest) {
			continue
		}
		class := c.Legend.add(t.name)
		standDownEnd, end := t.until(h.now)
		c.HasVacancy = c.HasVacancy || x(t.heldFrom) > heldUntil
		heldUntil = max(heldUntil, x(end))
		if from, to := x(t.heldFrom), x(standDownEnd); to > from {
			c.HasStandDown = true
			c.Bars = append(c.Bars, bar{class, t.name + " held the key from " + terminal.Timestamp(t.heldFrom), from, chartHeight - standDownHeight, to - from, standDownHeight})
		}
		if from, to := x(standDownEnd), x(end); !t.ledFrom.IsZero() {
			c.Bars = append(c.Bars, bar{class, t.name + " led from " + terminal.Timestamp(t.ledFrom), from, 0, max(to-from, 1), chartHeight})
		}
	}
	c.HasVacancy = c.HasVacancy || c.Width > heldUntil
	for _, e := range h.events {
		if e.kind == evicted && e.at.After(oldest) {
			width := max(c.Width*markWidth/stripWidth/2, 1)
			c.Marks = append(c.Marks, mark{"evicted at " + terminal.Timestamp(e.at), min(x(e.at), c.Width-width), width})
		}
	}
	return c
}

// setScale selects the shortest duration that covers the whole observed time, and returns it.
func (c *chart) setScale(h snapshot) time.Duration {
	duration := historyDuration
	for _, d := range chartDurations {
		if h.observedSince.IsZero() || h.now.Sub(h.observedSince) <= d {
			duration = d
			break
		}
	}
	minutes := int(duration.Minutes())
	c.Width, c.Title, c.Scale = int(duration.Seconds()), "The last hour", []string{fmt.Sprintf("−%d min", minutes)}
	if duration != historyDuration {
		c.Title = fmt.Sprintf("The last %d minutes", minutes)
	}
	for quarter := 3; quarter > 0; quarter-- {
		c.Scale = append(c.Scale, fmt.Sprintf("−%d", quarter*minutes/4))
	}
	return duration
}
