package timeline

import "time"

// pieces cuts a timeline that is too long for its piece into several, each with the times of its own; the first has the
// heading.
func (t *Timeline) pieces() []*Timeline {
	if t.Piece <= 0 || t.Length <= t.Piece {
		return []*Timeline{t}
	}
	var all []*Timeline
	for from := time.Duration(0); from < t.Length; from += t.Piece {
		p := *t
		p.from, p.Length, p.Rounds = from, t.Piece, nil
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
		for _, k := range t.Cuts {
			for _, s := range within([]Span{{From: k.From, To: k.To}}, from, t.Piece) {
				p.Cuts = append(p.Cuts, Cut{k.Member, s.From, s.To})
			}
		}
		for _, x := range t.Terms {
			for _, s := range t.Rows[x.Member].Spans {
				if s.Phase == PhaseLeader && s.From == x.At && s.From < from+t.Piece && s.To > from {
					x.At = max(0, x.At-from) // a bar that goes on from the piece before has its number again
					p.Terms = append(p.Terms, x)
					break
				}
			}
		}
		all = append(all, &p)
	}
	return all
}

// within returns the parts of spans that lie in a piece of the given length, counted from its beginning.
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
