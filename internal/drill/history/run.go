package history

import (
	"cmp"
	"slices"
	"time"
)

// Run is the evidence of a time in which candidates ran and faults were injected.
type Run struct {
	Timing    Timing
	From, To  time.Duration
	Beliefs   []Belief
	Works     []Belief // the times in which the work of a key ran
	Overtaken []Overtaking
	Records   []Record // in the order of the stream
	Faults    []Fault
	Outages   []Span // in which a probe could not write to the bucket
	Repairs   []Span // from when servers went down until all were healthy again: a session needs more of them than writes
	Forged    []Span // in which notifications were forged; for some TTLs after, candidates may react to a true one up to a TTL late
}

// Timing has the durations of an election.
type Timing struct {
	TTL, Interval, Margin, StandDown time.Duration
}

// Span is a period of time.
type Span struct{ From, To time.Duration }

// Record is a record that a leader appended to the stream.
type Record struct {
	Sequence  uint64
	Key       string // of a session
	Candidate string
	Token     string
	Number    uint64 // within the term; the first is 0
}

// Fault is a fault that was injected into a candidate or servers, until it was healed.
type Fault struct {
	Kind      string
	Candidate string // that it hit; empty if none
	Ends      bool   // it ends the term at once if it hits a leader
	Releases  bool   // a leader that it hits releases the key
	Renews    bool   // renewals of a leader that it hits still arrive, but their replies do not
	Span
}

// The times that a failover may take beyond the TTL and the stand-down.
const (
	Lateness  = 400 * time.Millisecond // of servers that expire keys, as the library promises
	Spread    = time.Second            // of answers to a vacancy, at most, as the library promises
	Release   = time.Second            // a handover takes milliseconds; a busy machine may take longer
	Reconnect = time.Second            // of clients of a lost server, to another server
	Misled    = 3                      // for how many TTLs after forged notifications candidates read the key less often
)

// Bound returns the longest time without a leader after a leader was lost (P8).
func (t Timing) Bound() time.Duration { return t.TTL + Lateness + Spread + t.StandDown }

// OutageBound returns the longest time without a leader after the end of an outage of the bucket. Candidates connect again,
// and do not rely on notifications until they have been notified of a renewal.
func (t Timing) OutageBound() time.Duration { return t.Bound() + t.Interval + Reconnect }

// room returns the time between a renewal that is due and the deadline.
func (t Timing) room() time.Duration { return t.TTL - t.Margin - t.Interval }

// hits reports whether the fault hit that candidate.
func (f Fault) hits(candidate string) bool { return f.Candidate == candidate }

// overlap returns how long two spans overlap. The result is 0 or less if they do not.
func (s Span) overlap(other Span) time.Duration { return min(s.To, other.To) - max(s.From, other.From) }

// TotalLength returns the total length of spans, and counts parts that overlap once.
func TotalLength(spans []Span) (total time.Duration) {
	counted := time.Duration(0) // the end of what the total includes
	for _, s := range slices.SortedFunc(slices.Values(spans), func(a, b Span) int { return cmp.Compare(a.From, b.From) }) {
		total += max(0, s.To-max(s.From, counted))
		counted = max(counted, s.To)
	}
	return total
}

// longestFree returns the length of the longest part of s that none of the others covers.
func longestFree(s Span, others []Span) time.Duration {
	slices.SortFunc(others, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	longest, from := time.Duration(0), s.From
	for _, o := range others {
		longest = max(longest, min(o.From, s.To)-from)
		from = max(from, o.To)
	}
	return max(longest, s.To-from)
}
