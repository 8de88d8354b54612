package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/drill/timeline"
)

// pieceLength is the time that one line of the timeline shows.
const pieceLength = time.Minute

// timeline returns the timeline of the drill: a row for each candidate and, below, a row for each server.
func (d *Drill) timeline(r *Report, histories []*history.Candidate, outages []history.Span, found *history.Findings) *timeline.Timeline {
	t := &timeline.Timeline{
		Title:    fmt.Sprintf("Election drill on processes: %d candidates, %d servers, TTL %s", r.Candidates, r.Servers, terminal.FormatDuration(d.TTL)),
		Subtitle: fmt.Sprintf("%s, seed %d, nats-server %s, %d samples, %d records", terminal.FormatDuration(d.ended-d.began), r.Seed, r.ServerVersion, r.Samples, r.Records),
		Verdict:  fmt.Sprintf("%d ms with two leaders", r.Overlap.Milliseconds()),
		Passed:   r.FailureReason() == "",
		Hatched:  "fault lasts",
		Piece:    pieceLength,
		Length:   d.ended - d.began,
	}
	for i, h := range histories {
		row := timeline.Row{Name: h.Name}
		for _, a := range h.Alive {
			row.Spans = append(row.Spans, d.span(timeline.PhaseCandidate, a.From, a.To))
		}
		for _, x := range h.Holds {
			row.Spans = append(row.Spans, d.span(timeline.PhaseElect, x.From, electUntil(x, h.Beliefs)))
		}
		for _, b := range h.Beliefs {
			s := d.span(timeline.PhaseLeader, b.From, b.To)
			row.Spans = append(row.Spans, s)
			t.Terms = append(t.Terms, timeline.Term{Number: b.Term, Row: i, At: s.From})
		}
		t.Rows = append(t.Rows, row)
	}
	for _, s := range d.cluster.Servers {
		row := timeline.Row{Name: s.Name}
		for _, up := range s.Uptimes(d.ended) {
			row.Spans = append(row.Spans, d.span(timeline.PhaseCandidate, up.From, up.To))
		}
		t.Rows = append(t.Rows, row)
	}
	for _, o := range outages {
		t.Shaded = append(t.Shaded, d.span(timeline.PhaseOut, o.From, o.To))
	}
	for _, f := range d.injected {
		d.addMark(t, f, found)
	}
	return t
}

// electUntil returns when the holder of the key began to lead; if it never did, it returns when the hold ended.
func electUntil(x history.Hold, beliefs []history.Belief) time.Duration {
	for _, b := range beliefs {
		if b.Term == x.Term {
			return b.From
		}
	}
	return x.To
}

// span returns a span of the timeline, whose times count from the start of the drill and do not exceed its end.
func (d *Drill) span(p timeline.Phase, from, to time.Duration) timeline.Span {
	limit := d.ended - d.began
	return timeline.Span{Phase: p, From: min(max(0, from-d.began), limit), To: min(max(0, to-d.began), limit)}
}

// addMark adds a fault to the timeline.
func (d *Drill) addMark(t *timeline.Timeline, f *fault, found *history.Findings) {
	var rows []int
	if f.candidate != nil {
		rows = append(rows, f.candidate.Index)
	}
	for _, s := range f.servers {
		rows = append(rows, d.Candidates+s)
	}
	if rows == nil {
		rows = []int{d.Candidates} // the server that leads the stream is not known: show the fault on the first
	}
	at := d.span(timeline.PhaseOut, f.span.From, f.span.To)
	m := timeline.Mark{At: at.From, Row: rows[0], Fault: f.mark}
	n := slices.IndexFunc(found.Gaps, func(g history.Gap) bool { return g.Fault != nil && g.Fault.From == f.span.From })
	if n >= 0 {
		m.Outcome = fmt.Sprintf("%.2f s", found.Gaps[n].Took().Seconds())
	}
	t.Marks = append(t.Marks, m)
	if f.endsTerm || f.hitsServers() {
		return // the rows show which processes were down, and a step-down takes no time
	}
	for _, row := range rows {
		t.Cuts = append(t.Cuts, timeline.Cut{Row: row, From: at.From, To: at.To})
	}
}
