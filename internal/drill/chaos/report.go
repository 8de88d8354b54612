package chaos

import (
	"time"

	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/timeutil"
)

// Report is the result of a drill. The names of its JSON fields are documented in the command's help and do not change.
type Report struct {
	drill.Result
	StandDown       float64          `json:"stand_down_s"`
	Keys            int              `json:"keys"`
	Requests        uint64           `json:"most_requests"`
	WorkOverlap     timeutil.Seconds `json:"work_overlap_s"`
	Servers         int              `json:"servers"`
	Replicas        int              `json:"replicas"`
	Seed            uint64           `json:"seed"`
	Every           float64          `json:"every_s"`
	LoseReplies     float64          `json:"lose_replies"`
	Overtaken       int              `json:"overtaken"`
	Records         int              `json:"records"`
	OutOfOrder      int              `json:"records_out_of_order"`
	Fenced          int              `json:"fenced"`
	RepliesLost     int64            `json:"replies_lost"`
	RewindOverlap   timeutil.Seconds `json:"rewind_overlap_s"`
	RewindOvertaken int              `json:"rewind_overtaken"`
	RepeatedTerms   int              `json:"rewind_terms_set_back"`
	TermsOutOfOrder int              `json:"terms_out_of_order"`
	Late            []lateResult     `json:"late"`
	Changes         []changeResult   `json:"changes"`
	Unneeded        int              `json:"unneeded_changes"`
	LongestWithout  float64          `json:"longest_without_leader_s"`
	Outages         []float64        `json:"outages_s"`
	Kept            string           `json:"kept"`

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
	drill.Late
	Took float64 `json:"took_s"`
}
