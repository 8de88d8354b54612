package election

import (
	"fmt"
	"maps"
	"time"
)

// State is where a candidate stands.
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

var stateNames = [...]string{"unknown", "candidate", "leader", "leader-elect"}

// String returns "unknown", "candidate", "leader" or "leader-elect".
func (s State) String() string {
	if s < State(len(stateNames)) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint(s))
}

// MarshalText returns what String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("%q is no state: use one of %q", text, stateNames)
}

// Status is what a candidate knows of itself and its election at one instant. It encodes as JSON, durations as
// nanoseconds, as their names say.
type Status struct {
	Name     string    `json:"name"`
	Key      string    `json:"key"`
	Bucket   string    `json:"bucket"`
	Instance string    `json:"instance"`         // unique per Election value
	Started  time.Time `json:"started,omitzero"` // when it began to stand; zero before
	State    State     `json:"state"`
	IsLeader bool      `json:"is_leader"`
	Leader   *Leader   `json:"leader,omitempty"` // the last holder of the key that was read, as it was then: a follower does not read renewals; nil if none was
	Term     uint64    `json:"term,omitempty"`   // that one's term; 0 if none was read

	LeaseRemaining   time.Duration `json:"lease_remaining_ns"`   // what is left of the lease; 0 unless the key is held
	TTL              time.Duration `json:"ttl_ns"`               // of the bucket; 0 until it was reached
	CampaignInterval time.Duration `json:"campaign_interval_ns"` // between renewals; 0 until the bucket was reached

	Paused    bool   `json:"paused,omitempty"`     // whether Pause, or that of an operator, keeps it from campaigning
	Unhealthy string `json:"unhealthy,omitempty"`  // why the last health checks failed; empty if they did not, or there are none
	WakeUp    string `json:"wake_up,omitempty"`    // how it is notified of changes: "republish", "watch" or "none"; empty if it does not run
	Wins      uint64 `json:"wins"`                 // terms led
	Losses    uint64 `json:"losses"`               // terms led that ended, whatever ended them
	LastError string `json:"last_error,omitempty"` // the last request that failed; empty once one succeeded
}

// Status returns a snapshot. It asks nobody and never waits; what it says of another leader is what was last read.
func (e *Election) Status() Status {
	s := Status{
		Name: e.name, Key: e.key, Bucket: e.bucket.Bucket(), Instance: e.instance,
		State: e.State(), IsLeader: e.IsLeader(),
		Wins: e.wins.Load(), Losses: e.losses.Load(),
	}
	if seen := e.seen.Load(); seen != nil {
		l := *seen
		l.Metadata = maps.Clone(l.Metadata)
		s.Leader, s.Term = &l, l.Term
	}
	if began := e.started.Load(); began != nil {
		s.Started = *began
	}
	if t := e.tenure.Load(); t != nil {
		s.LeaseRemaining = t.remaining()
	}
	if f := e.facts.Load(); f != nil {
		s.TTL, s.CampaignInterval = f.ttl, f.interval
	}
	if e.ear.Load() != nil {
		s.WakeUp = e.notifiedBy()
	}
	s.Paused = e.gate.shut(shutByOwner) || e.gate.shut(shutByOperator)
	if text := e.illness.Load(); text != nil {
		s.Unhealthy = *text
	}
	if text := e.lastError.Load(); text != nil {
		s.LastError = *text
	}
	return s
}

// SetMetadata changes what [WithMetadata] set, for a leader too: its record has it within a tenth of a second or, after
// trouble, with the next renewal that succeeds. It returns an [ErrInvalidOption] if m is larger than 8 KiB.
func (e *Election) SetMetadata(m map[string]string) error {
	o := options{metadata: maps.Clone(m)}
	if err := o.validateMetadata(); err != nil {
		return err
	}
	e.metadata.Store(&o.metadata)
	signal(e.nudged)
	return nil
}

// notifiedBy returns how the candidate is notified of vacancies: by none while its source is lost, and where it cannot
// read the key, which it would have to.
func (e *Election) notifiedBy() string {
	a := e.ear.Load()
	if a == nil || e.unreadable.Load() || a.hub.lost.Load() {
		return sourceNone
	}
	return a.hub.inUse()
}
