package election

import (
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
)

// Leader describes the holder of a key, as its record says. A holder whose leadership does not count yet is a leader-elect, and has no
// Term. A candidate that writes only bare names, as Choria's do, has nothing but Key, Name, State, Revision, Renewed and Expires.
type Leader struct {
	Key           string            `json:"key"`
	Name          string            `json:"name"`
	Instance      string            `json:"instance,omitempty"` // unique per Election value
	Host          string            `json:"host,omitempty"`
	PID           int               `json:"pid,omitempty"`
	Priority      int               `json:"priority,omitempty"`
	State         State             `json:"state"`
	Term          uint64            `json:"term,omitempty"`
	BucketCreated time.Time         `json:"bucket_created,omitzero"` // when the bucket was created
	Revision      uint64            `json:"revision"`
	Started       time.Time         `json:"started,omitzero"`     // when the candidate started, by its clock
	Since         time.Time         `json:"since,omitzero"`       // when the term was won, by the leader's clock
	LeadsSince    time.Time         `json:"leads_since,omitzero"` // since when leadership counts, by the same clock; zero for a leader-elect
	Renewed       time.Time         `json:"renewed,omitzero"`     // when the record was written, by the server's clock
	Expires       time.Time         `json:"expires,omitzero"`     // when the key expires unless it is renewed, by the server's clock
	Interval      time.Duration     `json:"-"`                    // from one renewal to the next, as the leader says; 0 if it does not
	Metadata      map[string]string `json:"metadata,omitempty"`
}

// Token returns the fencing token of the leader's term, see [Term.Token]; "" while it has no term.
func (l Leader) Token() string {
	if l.Term == 0 {
		return ""
	}
	return Term{BucketCreated: l.BucketCreated, Number: l.Term}.Token()
}

// LeaderOf returns the holder of a key that an entry of a bucket with the given TTL describes, and false if nobody holds the key. If the entry is a
// release, which may be a deletion, the Leader is the one that released the key; of any other removal nothing is known. It is for programs that watch a
// bucket themselves; package observe does so for most.
func LeaderOf(entry jetstream.KeyValueEntry, ttl time.Duration) (Leader, bool) {
	if kv.RemovalBy(entry) != record.Kept {
		return Leader{}, false
	}
	r := record.Parse(entry.Value(), entry.Revision())
	l := leaderOf(&settings.Holder{Record: r, Key: entry.Key(), Revision: entry.Revision(), Written: entry.Created(), TTL: ttl})
	if _, released := r.IsRelease(); released {
		l.Expires = time.Time{}
		return l, false
	}
	return l, true
}

// leaderOf describes the holder of a key; nobody is the zero Leader.
func leaderOf(h *settings.Holder) Leader {
	if h.Key == "" {
		return Leader{}
	}
	written, state := h.Written.UTC().Round(0), LeaderState
	if h.LeaderElect() {
		state = LeaderElectState
	}
	leads := h.Led
	if h.Term != 0 && leads.IsZero() { // the record says that it leads since it won, or is that of an earlier version
		leads = h.Since
	}
	return Leader{
		Key: h.Key, Name: h.Name, Instance: h.Instance, Host: h.Host, PID: h.PID, Priority: h.Priority, State: state,
		Term: h.Term, BucketCreated: h.BucketCreated, Revision: h.Revision,
		Started: h.Started, Since: h.Since, LeadsSince: leads, Renewed: written, Expires: written.Add(h.TTL), Interval: h.Interval(), Metadata: maps.Clone(h.Metadata),
	}
}
