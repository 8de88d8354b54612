package election

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// Status is what a candidate knows of itself and its election at one instant. In JSON its durations are seconds: "lease_remaining_s",
// "ttl_s" and "campaign_interval_s".
type Status struct {
	Name     string    `json:"name"`
	Key      string    `json:"key"`
	Bucket   string    `json:"bucket"`
	Instance string    `json:"instance"`         // unique per Election value
	Started  time.Time `json:"started,omitzero"` // when it last started; zero before
	State    State     `json:"state"`
	IsLeader bool      `json:"is_leader"`
	Leader   *Leader   `json:"leader,omitempty"` // the last holder of the key that was read, as it was then: a follower does not read renewals; nil if none was read
	Term     uint64    `json:"term,omitempty"`   // of that holder; 0 if none was read

	LeaseRemaining   time.Duration `json:"-"` // what is left of the lease; 0 unless the key is held
	TTL              time.Duration `json:"-"` // of the bucket; 0 until it was reached
	CampaignInterval time.Duration `json:"-"` // between renewals; 0 until the bucket was reached

	Paused        bool   `json:"paused,omitempty"`        // Pause, or an operator, keeps it from campaigning
	Unhealthy     string `json:"unhealthy,omitempty"`     // why the last health checks failed; empty if they did not, or there are none
	Notifications string `json:"notifications,omitempty"` // the source of notifications: "republish", "watch" or "none", or "session" of a key of a session; empty if it does not run
	Step          string `json:"step,omitempty"`          // what it does, as "renewing: reading why the renewal was refused"; docs/ROLES.md has all steps; empty if it does not run
	Next          bool   `json:"next,omitempty"`          // the leader's last record names it as the one that takes over, see [OnNext]
	Wins          uint64 `json:"wins"`                    // terms led
	Losses        uint64 `json:"losses"`                  // terms led that ended, for whatever reason
	LastError     string `json:"last_error,omitempty"`    // the latest error of a request: each stays until a request of its kind succeeds, to read the key, to write it (tried again within two TTLs), or to load the bucket's info

	LastErrorAt time.Time `json:"last_error_at,omitzero"` // when that request failed
}

// statusFields is a Status without its methods.
type statusFields Status

// statusJSON is how a Status is encoded.
type statusJSON struct {
	statusFields
	LeaseRemaining   timeutil.Seconds `json:"lease_remaining_s"`
	TTL              timeutil.Seconds `json:"ttl_s"`
	CampaignInterval timeutil.Seconds `json:"campaign_interval_s"`
}

// MarshalJSON encodes the status.
func (s Status) MarshalJSON() ([]byte, error) {
	return json.Marshal(statusJSON{statusFields(s), timeutil.Seconds(s.LeaseRemaining), timeutil.Seconds(s.TTL), timeutil.Seconds(s.CampaignInterval)})
}

// UnmarshalJSON decodes a status.
func (s *Status) UnmarshalJSON(b []byte) error {
	var decoded statusJSON
	if err := json.Unmarshal(b, &decoded); err != nil {
		return err
	}
	*s = Status(decoded.statusFields)
	s.LeaseRemaining, s.TTL, s.CampaignInterval = time.Duration(decoded.LeaseRemaining), time.Duration(decoded.TTL), time.Duration(decoded.CampaignInterval)
	return nil
}

// Status returns a snapshot. It sends no request and never waits; what it says of another leader is what was last read.
func (e *Election) Status() Status {
	v := e.view()
	now, status := v.at(time.Now()), v.status
	failedAt, failed := v.requests.latest()
	s := Status{
		Name: e.name, Key: e.key, Bucket: e.bucket.Bucket(), Instance: e.instanceID(), Started: status.Started,
		State: now.state, IsLeader: now.state == LeaderState, LeaseRemaining: now.left, TTL: status.Bucket.TTL, CampaignInterval: status.Bucket.Interval,
		Paused: now.paused, Unhealthy: v.unhealthy, Notifications: now.source, Step: status.Step.WithRole(), Next: now.next, Wins: status.TermsLed, Losses: status.TermsEnded, LastError: describe(failed), LastErrorAt: failedAt.Round(0),
	}
	if v.leader != nil {
		l := *v.leader
		l.Metadata = maps.Clone(l.Metadata)
		s.Leader, s.Term = &l, l.Term
	}
	return s
}
