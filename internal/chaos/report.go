package chaos

import (
	"time"
)

// Report is the result of a drill. The names of its JSON fields are documented in the command's help and do not change.
type Report struct {
	TTL             float64        `json:"ttl_s"`
	StandDown       float64        `json:"stand_down_s"`
	Candidates      int            `json:"candidates"`
	Servers         int            `json:"servers"`
	Replicas        int            `json:"replicas"`
	Seed            uint64         `json:"seed"`
	Every           float64        `json:"every_s"`
	LoseReplies     float64        `json:"lose_replies"`
	DurationS       float64        `json:"duration_s"`
	ServerVersion   string         `json:"server_version"`
	Faults          []faultResult  `json:"faults"`
	OverlapMS       int64          `json:"overlap_ms"`
	Overtaken       int            `json:"overtaken"`
	Samples         int            `json:"samples"`
	LongestPauseMS  int64          `json:"longest_pause_ms"`
	Records         int            `json:"records"`
	OutOfOrder      int            `json:"records_out_of_order"`
	Fenced          int            `json:"fenced"`
	RepliesLost     int64          `json:"replies_lost"`
	RewindOverlapMS int64          `json:"rewind_overlap_ms"`
	RewindOvertaken int            `json:"rewind_overtaken"`
	RepeatedTerms   int            `json:"rewind_terms_set_back"`
	Terms           int            `json:"terms"`
	TermsOutOfOrder int            `json:"terms_out_of_order"`
	Changes         []changeResult `json:"changes"`
	Unneeded        int            `json:"unneeded_changes"`
	LongestWithout  float64        `json:"longest_without_leader_s"`
	Late            []lateResult   `json:"late"`
	Outages         []float64      `json:"outages_s"`
	Kept            string         `json:"kept"`

	violations     []violation
	wall           time.Time // when the drill began, by the clock of the logs
	recordsMissing bool      // they could not be read
}

// violation is one reason why the drill failed.
type violation struct {
	at     time.Duration // 0 if unknown
	text   string
	nearby []string // the events at that time
}

// faultResult has the faults of one kind and the failovers that they caused.
type faultResult struct {
	Kind     string    `json:"kind"`
	Count    int       `json:"count"`
	Failover []float64 `json:"failover_s"`
	Bound    float64   `json:"bound_s"`

	description string
}

// changeResult is a change of leader.
type changeResult struct {
	At       float64 `json:"at_s"`
	From     string  `json:"from"`
	To       string  `json:"to"`
	Term     uint64  `json:"term"`
	Reason   string  `json:"reason"`
	Cause    string  `json:"cause"`
	Unneeded bool    `json:"unneeded"`
}

// lateResult is a time without a leader that exceeded its limit.
type lateResult struct {
	At    float64 `json:"at_s"`
	Kind  string  `json:"kind"`
	Took  float64 `json:"took_s"`
	Bound float64 `json:"bound_s"`
}
