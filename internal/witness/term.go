package witness

import (
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
)

// Term is what a witness must know to release one term.
type Term struct {
	API      string        `json:"api,omitempty"` // prefix of the subjects of the JetStream API; empty is that of the server's own account
	Bucket   string        `json:"bucket"`
	Key      string        `json:"key"`
	Name     string        `json:"name"` // of the candidate, for the log
	Instance string        `json:"instance"`
	Secret   record.Secret `json:"secret"`
	SettleMs int64         `json:"settle_ms,omitempty"`
	LeaseMs  int64         `json:"lease_ms"`        // how long the lease is: later a release is of no use
	Group    int           `json:"group,omitempty"` // the number of a group of processes that must be dead, too; 0 for none
}

// Commitment returns what identifies the term.
func (t *Term) Commitment() record.Commitment { return t.Secret.Commitment() }

// lease returns how long the lease is.
func (t *Term) lease() time.Duration { return time.Duration(t.LeaseMs) * time.Millisecond }

// valid reports whether the term says what a release needs.
func (t *Term) valid() bool {
	longest := maxLease.Milliseconds()
	return t.Bucket != "" && t.Key != "" && t.Instance != "" && t.Secret != record.Secret{} && t.Group >= 0 &&
		0 <= t.SettleMs && t.SettleMs <= longest && 0 < t.LeaseMs && t.LeaseMs <= longest
}

const maxLease = time.Hour // as the TTL of a bucket is bounded

// bucketID identifies the bucket.
func (t *Term) bucketID() bucketID { return bucketID{t.API, t.Bucket} }

// wrote reports whether a record was written in this term.
func (t *Term) wrote(r *record.Record) bool {
	return r.Instance == t.Instance && r.Commitment.OpenedBy(t.Secret)
}

// releaseOf returns the release of the term over the given record, as its holder would write it, but for what the holder alone knew: whom it
// would name beside the first successor.
func (t *Term) releaseOf(held *record.Record, now time.Time) record.Record {
	r := *held
	r.Attempt, r.Released, r.Secret, r.Reason = record.NewID(), now.Round(0), t.Secret, string(core.Died)
	r.StandDownMs = max(r.StandDownMs, t.SettleMs)
	r.Successor, r.Leads = "", false
	if held.Successor != "" {
		r.SetSuccessors([]record.Successor{{ID: record.QueueID(held.Successor)}})
		r.HeadStartMs = core.HeadStart.Milliseconds()
	}
	return r
}

// message is one line from the program to its witness: a term that has begun, or the commitment of one that is over.
type message struct {
	Began *Term              `json:"began,omitempty"`
	Over  *record.Commitment `json:"over,omitempty"`
}
