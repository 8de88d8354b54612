package main

import "time"

// pieces cuts a timeline that is too long for its piece into several, each with the times of its own; the first has the
// heading.
func (t *timeline) pieces() []*timeline {
	if t.piece <= 0 || t.length <= t.piece {
		return []*timeline{t}
	}
	var all []*timeline
	for from := time.Duration(0); from < t.length; from += t.piece {
		p := *t
		p.from, p.length, p.rounds = from, t.piece, nil
		p.rows, p.marks, p.cuts, p.terms = nil, nil, nil, nil
		p.shaded = within(t.shaded, from, t.piece)
		for _, row := range t.rows {
			p.rows = append(p.rows, timelineRow{row.name, within(row.spans, from, t.piece)})
		}
		for _, m := range t.marks {
			if m.at >= from && m.at < from+t.piece {
				m.at -= from
				p.marks = append(p.marks, m)
			}
		}
		for _, k := range t.cuts {
			for _, s := range within([]span{{from: k.from, to: k.to}}, from, t.piece) {
				p.cuts = append(p.cuts, cut{k.member, s.from, s.to})
			}
		}
		for _, x := range t.terms {
			for _, s := range t.rows[x.member].spans {
				if s.phase == phaseLeader && s.from == x.at && s.from < from+t.piece && s.to > from {
					x.at = max(0, x.at-from) // a bar that goes on from the piece before has its number again
					p.terms = append(p.terms, x)
					break
				}
			}
		}
		all = append(all, &p)
	}
	return all
}

// within returns the parts of spans that lie in a piece of the given length, counted from its beginning.
func within(spans []span, from, length time.Duration) []span {
	var parts []span
	for _, s := range spans {
		s.from, s.to = max(s.from-from, 0), min(s.to-from, length)
		if s.from < s.to {
			parts = append(parts, s)
		}
	}
	return parts
}
