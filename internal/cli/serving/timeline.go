package serving

import (
	"fmt"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
)

// colourCount is the number of colours of the bars. With more candidates several candidates share a colour.
const colourCount = 6

// Sizes of the bars. A candidate has a low bar during its stand-down, and a bar of full height while it leads.
const (
	barHeight       = 40
	standDownHeight = 14
)

// timeline draws the terms of an election over the recent time. One unit of width is one second since an origin.
type timeline struct {
	Left, Width                 int // of the time that is drawn
	Observed                    bool
	ObservedFrom, ObservedWidth int // the page did not observe the election before this
	Bars                        []bar
	Marks                       []mark
	Legend                      legend
	HasStandDown                bool // whether a bar is a stand-down
	HasVacancy                  bool // whether there is a time in which no candidate held the key
}

// bar is a time in which one candidate held the key.
type bar struct {
	ColourClass, Title  string
	X, Y, Width, Height int
	Open                bool // the time lasts
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

// newTimeline draws the last part of the history of an election. Evictions have marks of the given width.
func newTimeline(e *entry, origin, observedSince, now time.Time, duration time.Duration, markWidth int) timeline {
	oldest := now.Add(-duration)
	seconds := func(t time.Time) int { return int(t.Sub(origin).Round(time.Second) / time.Second) }
	l := timeline{Left: seconds(oldest), Width: int(duration / time.Second)}
	right := l.Left + l.Width
	x := func(t time.Time) int { return min(max(seconds(t), l.Left), right) }
	if l.ObservedFrom = right; !observedSince.IsZero() {
		l.Observed, l.ObservedFrom = true, x(observedSince)
	}
	l.ObservedWidth = right - l.ObservedFrom
	heldUntil := l.ObservedFrom // the end of the last term that is drawn
	for _, t := range e.shownTerms(now) {
		if t.endedAt.IsZero() || t.endedAt.After(oldest) {
			l.HasVacancy = l.HasVacancy || x(t.heldFrom) > heldUntil
			_, end := t.until(now)
			heldUntil = max(heldUntil, x(end))
			l.addTerm(t, x, now)
		}
	}
	l.HasVacancy = l.HasVacancy || right > heldUntil
	for _, e := range e.events {
		if e.kind == evicted && e.at.After(oldest) {
			l.Marks = append(l.Marks, mark{"evicted at " + terminal.Timestamp(e.at), min(x(e.at)-markWidth/2, right-markWidth), markWidth})
		}
	}
	return l
}

// addTerm adds the bars of a term: one for its stand-down, and one for its leadership.
func (l *timeline) addTerm(t observedTerm, x func(time.Time) int, now time.Time) {
	class, lasts := l.Legend.add(t.name), t.endedAt.IsZero()
	standDownEnd, end := t.until(now)
	if from, width := x(t.heldFrom), x(standDownEnd)-x(t.heldFrom); width > 0 || lasts && t.ledFrom.IsZero() {
		l.HasStandDown = l.HasStandDown || width > 0
		l.Bars = append(l.Bars, bar{class, t.name + " held the key from " + terminal.Timestamp(t.heldFrom), from, barHeight - standDownHeight, max(width, 1), standDownHeight, lasts && t.ledFrom.IsZero()})
	}
	if from := x(standDownEnd); !t.ledFrom.IsZero() {
		l.Bars = append(l.Bars, bar{class, t.name + " led from " + terminal.Timestamp(t.ledFrom), from, 0, max(x(end)-from, 1), barHeight, lasts})
	}
}

// stripMarkWidth is the width of an eviction in the list, where a line of time is narrow.
const stripMarkWidth = 40

// newStrip draws the last hour of an election for the list. JavaScript moves it with the time, and makes the bars longer that are open: so no
// election is sent again because time passes.
func newStrip(e *entry, epoch, observedSince, now time.Time) timeline {
	return newTimeline(e, epoch, observedSince, now, historyDuration, stripMarkWidth)
}

// maxStripNames limits the candidates that the description of a line of time names.
const maxStripNames = 5

// Label describes a line of time of the list.
func (l timeline) Label() string {
	if len(l.Legend) == 0 {
		return "nobody in the last hour"
	}
	var names []string
	for _, entry := range l.Legend[max(0, len(l.Legend)-maxStripNames):] {
		names = append(names, entry.Name)
	}
	return "in the last hour: " + strings.Join(names, ", ")
}

// chart is the line of time of the page of one election.
type chart struct {
	timeline
	Title string   // the time that the chart covers
	Scale []string // the labels at the start of each quarter
}

// chartDurations are the durations that a chart may cover, the shortest first.
var chartDurations = []time.Duration{4 * time.Minute, 20 * time.Minute, historyDuration}

// newChart draws the shortest duration that covers the whole observed time.
func newChart(e *entry, observedSince, now time.Time) chart {
	duration := historyDuration
	for _, d := range chartDurations {
		if observedSince.IsZero() || now.Sub(observedSince) <= d {
			duration = d
			break
		}
	}
	minutes := int(duration.Minutes())
	c := chart{
		timeline: newTimeline(e, now.Add(-duration), observedSince, now, duration, max(int(duration/time.Second)*stripMarkWidth/int(historyDuration/time.Second)/2, 1)),
		Title:    "The last hour", Scale: []string{fmt.Sprintf("−%d min", minutes)},
	}
	if duration != historyDuration {
		c.Title = fmt.Sprintf("The last %d minutes", minutes)
	}
	for quarter := 3; quarter > 0; quarter-- {
		c.Scale = append(c.Scale, fmt.Sprintf("−%d", quarter*minutes/4))
	}
	return c
}
