package election

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
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
	Notifications string `json:"notifications,omitempty"` // the source of notifications: "republish", "watch" or "none"; empty if it does not run
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

// describe returns the text of an error of a request; "" for none.
func describe(err error) string {
	if err == nil {
		return ""
	}
	return kv.Describe(err).Error()
}

// status returns what the candidate tells of itself.
func (e *Election) status() core.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.candidate.Status()
}

// moment is how an election stands at one instant. A Status, and all gauges of a scrape, are of one moment, so that nothing in them
// contradicts the rest.
type moment struct {
	state     State
	term      Term          // zero unless the key is held
	leads     time.Time     // since when leadership counts; zero unless it does
	left      time.Duration // of the lease; 0 unless the key is held
	leaseTime time.Duration // how long a lease is; 0 until the bucket was reached
	wait      time.Duration // from the last campaign or renewal to the next
	expires   time.Time     // when the lease ends; zero unless the key is held
	source    string        // of notifications; empty before and after a run
	paused    bool          // Pause, or an operator, keeps it from campaigning
	healthy   bool          // its health check passes, and its loop makes progress
	standby   bool          // it would take over if the leader went
	next      bool          // it is the one that takes over, as the leader says
}

// view is all that others see of an election, at one instant.
type view struct {
	status    core.Status
	term      *activeTerm // nil while the key is not held
	lease     *core.Lease // of the term, as what follows
	led       time.Time   // since when leadership counts, or did; zero before
	ended     bool        // leadership has
	why       Reason      // it ended
	leader    *Leader
	running   bool
	progress  progress
	unhealthy string
	failure   string
	requests  requests
}

// view returns what others see of the election now.
func (e *Election) view() view {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := view{
		status: e.candidate.Status(), term: e.term.Load(), leader: e.leader, running: e.running, progress: e.progress, unhealthy: e.unhealthy, failure: e.failure, requests: e.requests,
	}
	if v.term != nil {
		v.lease, v.led = v.term.lease.Load(), v.term.term.LedSince
		v.ended, v.why = v.term.term.Lease.State == core.Follower, Reason(v.term.term.Reason)
	}
	return v
}

// moment returns how the election stands at now.
func (e *Election) moment(now time.Time) moment {
	v := e.view()
	return v.at(now)
}

// at returns how the election stands at now.
func (v *view) at(now time.Time) moment {
	stuck := v.stuck(now) != ""
	m := moment{
		state: UnknownState, wait: v.status.UntilNext, source: v.status.Source, leaseTime: v.status.Bucket.LeaseTime(),
		paused:  v.status.Holds&(core.Paused|core.PausedByOperator) != 0,
		healthy: v.status.Holds&core.NotHealthy == 0 && !stuck,
		standby: v.running && v.status.Standby && !v.requests.lastFailed && !stuck,
		next:    v.running && v.status.Next && !stuck,
	}
	if v.running {
		m.state = CandidateState
	}
	if v.term != nil {
		m.leaseTime = v.lease.Timing.LeaseTime()
		if left := v.lease.Left(now, lease.SinceBoot); left > 0 {
			m.state, m.term, m.left, m.expires = State(v.lease.State), v.term.public, left, v.lease.Ends(now, lease.SinceBoot)
		}
		if m.state == LeaderState {
			m.leads = v.led
		}
	}
	return m
}

// SetMetadata changes what [WithMetadata] set, for a leader too: its record has the new metadata within a tenth of a second or, after
// trouble, with the next renewal that succeeds. It returns an [ErrInvalidOption] if m is larger than 8 KiB. If the bucket or the server does
// not take a record with m, the record keeps the metadata that was written last, a warning is logged, and Status.LastError says so.
func (e *Election) SetMetadata(m map[string]string) error {
	if err := validate.Metadata(m); err != nil {
		return err
	}
	m = maps.Clone(m)
	e.tell(core.SetMetadata{Metadata: m})
	return nil
}

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
		Started: h.Started, Since: h.Since, LeadsSince: leads, Renewed: written, Expires: written.Add(h.TTL), Interval: h.Interval(), Metadata: h.Metadata,
	}
}

// Leader asks the bucket who holds the key now. It returns [ErrNoLeader] if nobody does. In a replicated bucket the answer may be a
// little out of date; never base what only a leader may do on it.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	var ttl time.Duration
	if known := e.status().Bucket.TTL; known > 0 {
		ttl = known
	} else if info, err := e.bucket.Load(ctx); err == nil {
		ttl = info.TTL
	} else {
		return Leader{}, fmt.Errorf("leader of %q: %w", e.key, err)
	}
	entry, err := e.bucket.Get(ctx, e.key)
	if kv.Classify(err) == kv.Absent {
		return Leader{}, ErrNoLeader
	}
	if err != nil {
		return Leader{}, fmt.Errorf("leader of %q: %w", e.key, err)
	}
	if l, held := LeaderOf(entry, ttl); held {
		return l, nil
	}
	return Leader{}, ErrNoLeader
}
