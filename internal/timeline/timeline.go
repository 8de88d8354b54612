// Package timeline draws what the candidates of an election did, and the faults that they suffered, over time, as SVG.
package timeline

import "time"

// Phase is where a candidate stands at one instant.
type Phase int

const (
	PhaseOut Phase = iota // takes no part
	PhaseCandidate
	PhaseElect
	PhaseLeader
)

// Span is a time in which a candidate stood in one phase.
type Span struct {
	Phase    Phase
	From, To time.Duration
}

// Term is a term as it was seen to begin.
type Term struct {
	Key    string
	Number uint64
	Member int
	At     time.Duration
}

// Cut is the time in which a member's link was cut.
type Cut struct {
	Member   int
	From, To time.Duration
}
