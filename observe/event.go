package observe

import (
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/validate"
)

// EventKind says what happened in an election.
type EventKind uint

const (
	// Elected says that a candidate won the key. Its leadership does not count yet, unless Leading follows.
	Elected EventKind = iota + 1
	// Leading is the first renewal from which leadership counts.
	Leading
	// Renewed is any other renewal. A session renews its lease, and that is reported for each key that it leads.
	Renewed
	// Released says that the holder released the key.
	Released
	// Expired says that the holder did not renew the key for a TTL, or for as long as its lease, and another candidate took the key over, or closed the session.
	Expired
	// Evicted says that the holder lost the key otherwise, as when somebody deleted or overwrote it: see the Reason of the event.
	Evicted
)

var kindNames = validate.Enum[EventKind]{"", "elected", "leading", "renewed", "released", "expired", "evicted"}

// String returns "elected", "leading", "renewed", "released", "expired" or "evicted".
func (k EventKind) String() string { return kindNames.Text(k) }

// MarshalText returns what String does.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *EventKind) UnmarshalText(text []byte) error { return kindNames.Parse(text, k) }

// Event is one thing that happened in an election.
type Event struct {
	Kind   EventKind       `json:"kind"`
	Key    string          `json:"key"`
	Leader election.Leader `json:"leader"` // holds the key after the event, or held it until it was released, expired or evicted
	At     time.Time       `json:"at"`     // by the server's clock or, for what the server does not report, by this host's

	// Reason says why, in the words of the candidates, as far as what is stored proves it; it is empty otherwise. For Elected it is
	// what the key was won over, by the winner's record. For Released it is why the holder's term ended, by its release. For Evicted it
	// is ReasonDeleted, ReasonOverwritten, ReasonBucketReplaced or ReasonRewound. For Expired it is ReasonLapsed if another candidate
	// took the key over, which timed the lease. A leader that crashed, was cut off or did not release its key leaves the same behind.
	Reason election.Reason `json:"reason,omitempty"`
	// By names, for Evicted, the operator of an eviction, by that operator's own account, or the candidate that overwrote the key. It is
	// empty for a deletion by other means: that says nothing of its author.
	By string `json:"by,omitempty"`
}

// ends reports whether nobody holds the key after the event.
func (e Event) ends() bool { return e.Kind >= Released }
