package serving

import (
	"strings"
	"time"

	"github.com/natscampaign/election/observe"
)

// moment is a time on the page. JavaScript replaces the text by how long ago that was, or for how long something has lasted.
type moment struct {
	Exact    string // for people
	DateTime string // for JavaScript
}

func momentOf(t time.Time) moment {
	t = t.Local()
	return moment{t.Format(pageTime + " MST"), t.Format(time.RFC3339)}
}

// eviction is an eviction within the last hour. The page shows it although somebody leads again.
type eviction struct {
	moment
	By string // empty if that is not known
}

// evicted is the kind of the events that are evictions.
var evicted = observe.Evicted.String()

// latestEviction returns the latest eviction, unless it is the last event, which the page shows anyway; nil if there is none.
func latestEviction(events []event) *eviction {
	latest := -1
	for i, e := range events {
		if e.kind == evicted {
			latest = i
		}
	}
	if latest < 0 || latest == len(events)-1 {
		return nil
	}
	return &eviction{momentOf(events[latest].at), events[latest].by}
}

// strip is the last hour of an election as a line of time in the list. One unit of width is one second since the epoch of the page: so JavaScript
// moves the window and makes the bars longer that have not ended, and no election is sent again because time passes.
type strip struct {
	Left                        int // of the window
	Observed                    bool
	ObservedFrom, ObservedWidth int // the page did not observe the election before this
	Bars                        []bar
	Marks                       []int // evictions
	Label                       string
}

const (
	stripWidth = int(historyDuration / time.Second)
	// markWidth is the width of an eviction on a line of time of one hour.
	markWidth = 40
)

// newStrip draws the terms of a history since the epoch. The caller holds the lock of the history.
func (h *history) newStrip(epoch, now time.Time) strip {
	x := func(t time.Time) int { return int(t.Sub(epoch) / time.Second) }
	s := strip{Left: x(now) - stripWidth, ObservedFrom: x(now)}
	if !h.observedSince.IsZero() {
		s.Observed, s.ObservedFrom = true, max(x(h.observedSince), s.Left)
	}
	s.ObservedWidth = x(now) - s.ObservedFrom
	oldest := now.Add(-historyDuration)
	var candidates legend
	for _, t := range h.shownTerms(now) {
		if !t.endedAt.IsZero() && !t.endedAt.After(oldest) {
			continue
		}
		class, open := candidates.add(t.name), ""
		if t.endedAt.IsZero() {
			open = " open"
		}
		standDownEnd, ended := t.until(now)
		from, leads, end := max(x(t.heldFrom), s.Left), x(standDownEnd), x(ended)
		elect := class
		if t.ledFrom.IsZero() {
			elect += open
		}
		if leads > from || t.ledFrom.IsZero() && open != "" {
			s.Bars = append(s.Bars, bar{ColourClass: elect, X: from, Y: chartHeight - standDownHeight, Width: max(leads-from, 1), Height: standDownHeight})
		}
		if from = max(leads, s.Left); !t.ledFrom.IsZero() {
			s.Bars = append(s.Bars, bar{ColourClass: class + open, X: from, Width: max(end-from, 1), Height: chartHeight})
		}
	}
	for _, e := range h.events {
		if e.kind == evicted {
			s.Marks = append(s.Marks, x(e.at)-markWidth/2)
		}
	}
	s.Label = "nobody in the last hour"
	if len(candidates) > 0 {
		var names []string
		for _, entry := range candidates[max(0, len(candidates)-maxStripNames):] {
			names = append(names, entry.Name)
		}
		s.Label = "in the last hour: " + strings.Join(names, ", ")
	}
	return s
}

// maxStripNames limits the candidates that the description of a line of time names.
const maxStripNames = 5
