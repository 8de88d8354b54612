package witness

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/validate"
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

const (
	maxLease         = time.Hour // as the TTL of a bucket is bounded
	maxPrefixBytes   = 255
	maxInstanceBytes = 2 * validate.MaxNameBytes // a name, and what makes it unique
	// termBytes is about what a term takes in a witness beside its text.
	termBytes = 512
)

// Commitment returns what identifies the term.
func (t *Term) Commitment() record.Commitment { return t.Secret.Commitment() }

// lease returns how long the lease is.
func (t *Term) lease() time.Duration { return time.Duration(t.LeaseMs) * time.Millisecond }

// bytes returns about how much memory the term takes in a witness.
func (t *Term) bytes() int {
	return termBytes + len(t.API) + len(t.Bucket) + len(t.Key) + len(t.Name) + len(t.Instance)
}

// validate returns an error if the term does not say what a release needs, or says more.
func (t *Term) validate() error {
	longest := maxLease.Milliseconds()
	switch {
	case t.Bucket == "" || t.Key == "" || t.Instance == "" || t.Secret == record.Secret{}:
		return errors.New("the term is not whole: update the program, so that it has the version of its witness")
	case t.Group < 0 || t.SettleMs < 0 || t.SettleMs > longest || t.LeaseMs <= 0 || t.LeaseMs > longest:
		return fmt.Errorf("the term has a settle time of %d ms and a lease of %d ms: give both at most %d ms", t.SettleMs, t.LeaseMs, longest)
	case len(t.API) > maxPrefixBytes || len(t.Bucket) > validate.MaxKeyBytes || len(t.Key) > validate.MaxKeyBytes ||
		len(t.Name) > validate.MaxNameBytes || len(t.Instance) > maxInstanceBytes:
		return fmt.Errorf("the names in the term are too long: use at most %d bytes for each", validate.MaxNameBytes)
	}
	return nil
}

// bucketID identifies the bucket.
func (t *Term) bucketID() bucketID { return bucketID{prefixOf(t.API), t.Bucket} }

// prefixOf returns a prefix of the JetStream API in one way of writing it. The empty one is the default.
func prefixOf(api string) string {
	return strings.TrimSuffix(cmp.Or(api, jetstream.DefaultAPIPrefix), ".")
}

// wrote reports whether a record was written in this term.
func (t *Term) wrote(r *record.Record) bool {
	return r.Instance == t.Instance && r.ClosedBy == "" && r.Commitment.OpenedBy(t.Secret)
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
