// Package timeline draws as SVG what the candidates of an election did over time, and which faults hit them.
//
// A drawing brings its own background, so that it is legible on a light page and on a dark page. Colours differ for people with any kind
// of colour vision, and the height of a bar says the same as its colour. Text from outside is escaped.
package timeline

import "time"

// Timeline is the content of a drawing. All times are relative to its start.
type Timeline struct {
	Title, Subtitle string
	Verdict         string // the result in one line
	Passed          bool   // whether the verdict is good; it selects the colour
	Hatched         string // the legend of hatched areas; by default "link is cut"
	Rows            []Row
	Rounds          []time.Duration // the start of each round
	Marks           []Mark
	Cuts            []Cut
	Terms           []Term
	Shaded          []Span // times in which the bucket took no writes
	Length          time.Duration
	Piece           time.Duration // the maximum length of a piece; longer timelines are drawn in several pieces; 0 draws one piece

	offset time.Duration // of a piece: its start within the whole timeline
}

// Row is one candidate, or another process.
type Row struct {
	Name  string
	Spans []Span
}

// Phase is the state of a candidate at one instant.
type Phase int

// The phases of a candidate.
const (
	PhaseOut Phase = iota // does not campaign
	PhaseCandidate
	PhaseElect
	PhaseLeader
)

// Span is a time in which a candidate was in one phase.
type Span struct {
	Phase    Phase
	From, To time.Duration
}

// Term is a term that began under a key.
type Term struct {
	Key    string
	Number uint64
	Row    int // index of the row of the leader
	At     time.Duration
}

// Cut is a time in which a link was cut, or in which another fault lasted.
type Cut struct {
	Row      int // index of the row
	From, To time.Duration
}

// Mark is a fault, with a label of two lines.
type Mark struct {
	At      time.Duration
	Row     int    // index of the row that the fault hit
	Fault   string // the fault
	Outcome string // its outcome, such as the time until a candidate led

	x, end float64 // the horizontal positions of the line and of the end of the label
	lane   int     // the vertical position of the label, counted from the lowest
}
