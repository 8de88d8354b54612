package drill

import (
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// Result is what the report on a drill says, whether the candidates are in one process or each is its own. The help documents the names of
// its JSON fields, which must not change.
type Result struct {
	TTL           float64          `json:"ttl_s"`
	Candidates    int              `json:"candidates"`
	DurationS     float64          `json:"duration_s"`
	ServerVersion string           `json:"server_version"`
	Faults        []Fault          `json:"faults"`
	Overlap       timeutil.Seconds `json:"overlap_s"`
	Samples       int              `json:"samples"`
	LongestGap    timeutil.Seconds `json:"longest_gap_s"`
	Terms         int              `json:"terms"`
}

// Fault has the faults of one kind and the failovers that they caused.
type Fault struct {
	Kind     string    `json:"kind"`
	Count    int       `json:"count"`
	Failover []float64 `json:"failover_s"` // until a candidate led
	Bound    float64   `json:"bound_s"`

	Description string `json:"-"` // for people
}

// Late is a time without a leader that exceeded its bound.
type Late struct {
	At    float64 `json:"at_s"` // since the drill began
	Kind  string  `json:"kind"`
	Bound float64 `json:"bound_s"`
}

// RoundUp rounds a duration up to the millisecond: an overlap must never become 0.
func RoundUp(d time.Duration) timeutil.Seconds {
	return timeutil.Seconds((d + time.Millisecond - 1).Truncate(time.Millisecond))
}
