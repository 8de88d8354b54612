package history

import (
	"cmp"
	"slices"
	"time"
)

// Run is all that is known of some time in which candidates stood and faults were injected.
type Run struct {
	Timing    Timing
	From, To  time.Duration
	Beliefs   []Belief
	Overtaken []Overtaking
	Records   []Record // in the order of the stream
	Faults    []Fault
	Outages   []Span // in which the bucket could not be written, by whatever it was watched with
	Forged    []Span // in which somebody forged notifications: for some TTLs after, candidates act on a true one up to a TTL late
}

// Timing is the durations of an election.
type Timing struct {
	TTL, Interval, Margin, StandDown time.Duration
}

// Span is some time.
type Span struct{ From, To time.Duration }

// Record is what a leader appended.
type Record struct {
	Sequence  uint64
	Candidate string
	Token     string
	Number    uint64 // within the term; the first is 0
}

// Fault is something that was done to candidates or servers, and lasted until it was healed.
type Fault struct {
	Kind      string
	Candidate string // whom it hit; empty if none
	Ends      bool   // whether it ends the term of whom it hit at once, if that one leads
	Releases  bool   // whether a leader that it hit releases the key
	Renews    bool   // whether renewals of a leader that it hit still arrive, though their answers do not
	Span
}

// What a failover may take beyond the TTL and the stand-down, as the library promises, and beyond that what clients of a
// server that was lost may take to connect to another.
const (
	Lateness  = 400 * time.Millisecond // of servers to expire keys
	Spread    = time.Second            // of answers to a vacancy, at most
	Release   = time.Second            // a handover takes milliseconds; a busy machine may take longer
	Reconnect = time.Second
	Misled    = 3 // for how many TTLs forged notifications have candidates read the key seldom
)

// Bound returns how long nobody may lead after a leader was lost: P8.
func (t Timing) Bound() time.Duration { return t.TTL + Lateness + Spread + t.StandDown }

// OutageBound returns the same after an outage of the bucket, from its end: candidates connect again, and trust what they
// hear no more than if they could not hear, until they have heard a renewal.
func (t Timing) OutageBound() time.Duration { return t.Bound() + t.Interval + Reconnect }

// room returns the time between a renewal that is due and the deadline.
func (t Timing) room() time.Duration { return t.TTL - t.Margin - t.Interval }

// hits says whether the fault hit that candidate.
func (f Fault) hits(candidate string) bool { return f.Candidate == candidate }

// overlap returns for how long two spans overlap; it is not positive if they do not.
func (s Span) overlap(other Span) time.Duration { return min(s.To, other.To) - max(s.From, other.From) }

// longestFree returns the longest part of s that none of the others covers.
func longestFree(s Span, others []Span) time.Duration {
	slices.SortFunc(others, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	longest, from := time.Duration(0), s.From
	for _, o := range others {
		longest = max(longest, min(o.From, s.To)-from)
		from = max(from, o.To)
	}
	return max(longest, s.To-from)
}
