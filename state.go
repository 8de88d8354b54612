package election

import (
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/validate"
)

// State is the state of a candidate.
type State uint

const (
	// UnknownState is that of an election that is not running.
	UnknownState State = 0
	// CandidateState is that of a candidate that does not lead, or no longer does.
	CandidateState State = 1
	// LeaderState is that of the leader.
	LeaderState State = 2
	// LeaderElectState is that of a candidate that holds the key and waits for its leadership to count.
	LeaderElectState State = 3
)

var stateNames = validate.Enum[State]{"unknown", "candidate", "leader", "leader-elect"}

// String returns "unknown", "candidate", "leader" or "leader-elect".
func (s State) String() string { return stateNames.Text(s) }

// MarshalText returns what String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *State) UnmarshalText(text []byte) error { return stateNames.Parse(text, s) }

// Reason says in one word why the state of a candidate changed. Metrics, logs and [TermEndedError] use the same words.
type Reason string

// The reasons to become a leader-elect, and then the leader.
const (
	ReasonVacant    Reason = "vacant"     // nothing was stored under the key
	ReasonReleased  Reason = "released"   // a release was stored under the key
	ReasonReclaimed Reason = "reclaimed"  // a late write of this candidate's own was stored under the key
	ReasonLapsed    Reason = "lapsed"     // the lease of the holder was over by this candidate's clock
	ReasonStoodDown Reason = "stood-down" // to leader: the stand-down is over
)

// The reasons to become a candidate, with which every term ends but the first: ReasonStarted begins the run.
const (
	ReasonStarted      Reason = "started"      // the election began
	ReasonStopped      Reason = "stopped"      // the context ended, or Stop was called
	ReasonResigned     Reason = "resigned"     // Resign was called, or an operator asked for it
	ReasonTransferred  Reason = "transferred"  // Transfer was called, or an operator asked for it
	ReasonRelinquished Reason = "relinquished" // it was time to, by the schedule
	ReasonUnhealthy    Reason = "unhealthy"    // the health checks failed
	ReasonWorkEnded    Reason = "work-ended"   // Run's work returned

	ReasonOverwritten    Reason = "overwritten"     // somebody else's record is stored under the key
	ReasonDeleted        Reason = "deleted"         // the key was deleted
	ReasonBucketReplaced Reason = "bucket-replaced" // the bucket was deleted and made again
	ReasonCloned         Reason = "cloned"          // another process writes as this very candidate: a copy of it, as of a virtual machine that was cloned
	ReasonRewound        Reason = "rewound"         // the server lost the last writes, or the bucket was restored from a copy
	ReasonClosed         Reason = "closed"          // the connection was closed for good
	ReasonDeadline       Reason = "deadline"        // the lease ran out before a renewal succeeded
)

// ReasonDied is the reason of a release that a witness wrote: the process of the leader had died. No candidate reports it of itself. See
// package witness.
const ReasonDied Reason = "died"

// voluntary reports whether a term that ended for this reason still holds the key, and releases it.
func (r Reason) voluntary() bool { return core.Reason(r).Voluntary() }
