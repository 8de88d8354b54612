package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/internal/timeline"
)

// drawnPiece is how much of a drill is drawn side by side.
const drawnPiece = time.Minute

// drawing returns the drill as a timeline: a row for each candidate, and below them one for each server.
func (d *Drill) drawing(p *Report, all []*history.Candidate, outages []history.Span, f *history.Findings) *timeline.Timeline {
	t := &timeline.Timeline{
		Title:    fmt.Sprintf("Election drill on processes: %d candidates, %d servers, TTL %s", p.Candidates, p.Servers, terminal.Human(d.TTL)),
		Subtitle: fmt.Sprintf("%s, seed %d, nats-server %s, %d answers, %d records", terminal.Human(d.ended-d.began), p.Seed, p.ServerVersion, p.Samples, p.Records),
		Verdict:  fmt.Sprintf("%d ms with two leaders", p.OverlapMS),
		Passed:   p.Complaint() == "",
		Hatched:  "fault lasts",
		Piece:    drawnPiece,
		Length:   d.ended - d.began,
	}
	for i, h := range all {
		row := timeline.Row{Name: h.Name}
		for _, a := range h.Alive {
			row.Spans = append(row.Spans, d.span(timeline.PhaseCandidate, a.From, a.To))
		}
		for _, x := range h.Holds {
			row.Spans = append(row.Spans, d.span(timeline.PhaseElect, x.From, elect(x, h.Beliefs)))
		}
		for _, b := range h.Beliefs {
			s := d.span(timeline.PhaseLeader, b.From, b.To)
			row.Spans = append(row.Spans, s)
			t.Terms = append(t.Terms, timeline.Term{Number: b.Term, Member: i, At: s.From})
		}
		t.Rows = append(t.Rows, row)
	}
	for _, s := range d.cluster.Servers {
		row := timeline.Row{Name: s.Name}
		for _, up := range s.Spans(d.ended) {
			row.Spans = append(row.Spans, d.span(timeline.PhaseCandidate, up.From, up.To))
		}
		t.Rows = append(t.Rows, row)
	}
	for _, o := range outages {
		t.Shaded = append(t.Shaded, d.span(timeline.PhaseOut, o.From, o.To))
	}
	for _, i := range d.injuries {
		d.mark(t, i, f)
	}
	return t
}

// elect returns until when the holder of the key was about to lead.
func elect(x history.Hold, beliefs []history.Belief) time.Duration {
	for _, b := range beliefs {
		if b.Term == x.Term {
			return b.From
		}
	}
	return x.To
}

// span returns a time of the drill as the drawing counts it, from the beginning and to the end.
func (d *Drill) span(p timeline.Phase, from, to time.Duration) timeline.Span {
	limit := d.ended - d.began
	return timeline.Span{Phase: p, From: min(max(0, from-d.began), limit), To: min(max(0, to-d.began), limit)}
}

// mark adds a fault to the drawing.
func (d *Drill) mark(t *timeline.Timeline, i *injury, f *history.Findings) {
	var rows []int
	if i.candidate != nil {
		rows = append(rows, i.candidate.Index)
	}
	for _, s := range i.servers {
		rows = append(rows, d.Candidates+s)
	}
	at := d.span(timeline.PhaseOut, i.span.From, i.span.To)
	m := timeline.Mark{At: at.From, Member: rows[0], What: i.mark}
	n := slices.IndexFunc(f.Gaps, func(g history.Gap) bool { return g.Fault != nil && g.Fault.From == i.span.From })
	if n >= 0 {
		m.Took = fmt.Sprintf("%.2f s", f.Gaps[n].Took().Seconds())
	}
	t.Marks = append(t.Marks, m)
	if i.ends || i.lanes == laneServers {
		return // the rows show by themselves who was down
	}
	for _, r := range rows {
		t.Cuts = append(t.Cuts, timeline.Cut{Member: r, From: at.From, To: at.To})
	}
}
