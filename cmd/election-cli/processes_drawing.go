package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/history"
)

// drawnPiece is how much of a drill is drawn side by side.
const drawnPiece = time.Minute

// drawing returns the drill as a timeline: a row for each candidate, and below them one for each server.
func (d *processDrill) drawing(p *processReport, all []*history.Candidate, outages []history.Span, f *history.Findings) *timeline {
	t := &timeline{
		title:    fmt.Sprintf("Election drill on processes: %d candidates, %d servers, TTL %s", p.Candidates, p.Servers, human(d.ttl)),
		subtitle: fmt.Sprintf("%s, seed %d, nats-server %s, %d answers, %d records", human(d.ended-d.began), p.Seed, p.ServerVersion, p.Samples, p.Records),
		verdict:  fmt.Sprintf("%d ms with two leaders", p.OverlapMS),
		passed:   p.complaint() == "",
		hatched:  "fault lasts",
		piece:    drawnPiece,
		length:   d.ended - d.began,
	}
	for i, h := range all {
		row := timelineRow{name: h.Name}
		for _, a := range h.Alive {
			row.spans = append(row.spans, d.span(phaseCandidate, a.From, a.To))
		}
		for _, x := range h.Holds {
			row.spans = append(row.spans, d.span(phaseElect, x.From, elect(x, h.Beliefs)))
		}
		for _, b := range h.Beliefs {
			s := d.span(phaseLeader, b.From, b.To)
			row.spans = append(row.spans, s)
			t.terms = append(t.terms, ledTerm{number: b.Term, member: i, at: s.from})
		}
		t.rows = append(t.rows, row)
	}
	for _, s := range d.cluster.servers {
		row := timelineRow{name: s.name}
		for _, up := range s.spans(d.ended) {
			row.spans = append(row.spans, d.span(phaseCandidate, up.From, up.To))
		}
		t.rows = append(t.rows, row)
	}
	for _, o := range outages {
		t.shaded = append(t.shaded, d.span(phaseOut, o.From, o.To))
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
func (d *processDrill) span(p phase, from, to time.Duration) span {
	limit := d.ended - d.began
	return span{phase: p, from: min(max(0, from-d.began), limit), to: min(max(0, to-d.began), limit)}
}

// mark adds a fault to the drawing.
func (d *processDrill) mark(t *timeline, i *injury, f *history.Findings) {
	var rows []int
	if i.candidate != nil {
		rows = append(rows, i.candidate.index)
	}
	for _, s := range i.servers {
		rows = append(rows, d.count+s)
	}
	at := d.span(phaseOut, i.span.From, i.span.To)
	m := timelineMark{at: at.from, member: rows[0], what: i.mark}
	n := slices.IndexFunc(f.Gaps, func(g history.Gap) bool { return g.Fault != nil && g.Fault.From == i.span.From })
	if n >= 0 {
		m.took = fmt.Sprintf("%.2f s", f.Gaps[n].Took().Seconds())
	}
	t.marks = append(t.marks, m)
	if i.ends || i.lanes == laneServers {
		return // the rows show by themselves who was down
	}
	for _, r := range rows {
		t.cuts = append(t.cuts, cut{member: r, from: at.from, to: at.to})
	}
}
