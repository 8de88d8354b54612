// Package admin is what operators do to elections that run: list candidates, move leadership, pause an election, and check a bucket.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//		"os"
//		"time"
//
//		"github.com/natscampaign/election/admin"
//		"github.com/natscampaign/election/connect"
//	)
//
//	func main() {
//		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
//		defer cancel()
//		c, err := connect.Connect(ctx, connect.Config{URL: os.Getenv("NATS_URL"), MustExist: true})
//		if err != nil {
//			log.Fatal(err)
//		}
//		operator, err := admin.New(c.Bucket)
//		if err != nil {
//			log.Fatal(err)
//		}
//		candidates, err := operator.Candidates(ctx, "scheduler")
//		if err != nil {
//			log.Fatal(err)
//		}
//		for _, candidate := range candidates {
//			fmt.Println(candidate.Name, candidate.State)
//		}
//		if err := operator.Resign(ctx, "scheduler"); err != nil { // the leader's work ends, and another candidate leads
//			log.Fatal(err)
//		}
//	}
//
// election-cli does the same from a shell.
//
// # What it needs
//
// An [Admin] talks to candidates over NATS. It needs a bucket that knows its connection, as [election.OpenBucket] returns it, and so do
// the candidates that are to answer. It needs permission:
//
//   - to publish to $JS.API.STREAM.INFO.KV_<bucket>, and to read the keys;
//   - to publish to election-control.<bucket>.<verb>.<key>, where the verb is candidates, resign, transfer, or refresh for Pause and Resume,
//     and to subscribe to election-answers.<bucket>.*.<key>;
//   - for [Admin.Evict], to write the key instead;
//   - for [Admin.Pause] and [Admin.Resume], also to update the stream behind the bucket.
//
// What is not permitted is an error that wraps nats.ErrPermissionViolation, where the server says so.
package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natural"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/session/claims"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
	"github.com/natscampaign/election/observe"
)

// Admin operates the elections of a bucket. Its methods may be called by several goroutines.
type Admin struct {
	bucket   *kv.Bucket // knows its connection
	observer *observe.Observer
}

// New returns an admin of the bucket, which must know its connection: use one of [election.OpenBucket] or [election.CreateBucket], or
// give [election.WithJetStream]. All other options are for candidates, and have no effect. The error wraps [election.ErrInvalidOption].
func New(bucket jetstream.KeyValue, opts ...election.Option) (*Admin, error) {
	s, err := settings.Of(opts, "admin", "admin", bucket)
	if err != nil {
		return nil, err
	}
	b := s.Bucket(bucket)
	if b.JetStream() == nil {
		return nil, validate.Errorf("the bucket does not know its connection, over which candidates are asked: use a bucket of OpenBucket or CreateBucket, or give WithJetStream")
	}
	observer, err := observe.New(b)
	if err != nil {
		return nil, err
	}
	return &Admin{b, observer}, nil
}

// Candidate is a candidate as it describes itself. In JSON its clock lag and the age of its last error are seconds, "clock_lag_s"
// and "last_error_age_s".
type Candidate struct {
	Key      string         `json:"key"`
	Name     string         `json:"name"`
	Instance string         `json:"instance"` // unique per Election value, but for copies of its process
	Host     string         `json:"host,omitempty"`
	PID      int            `json:"pid,omitempty"`
	Priority int            `json:"priority,omitempty"`
	State    election.State `json:"state"`
	Ready    bool           `json:"ready"`   // it would be notified of a vacancy now, and answer it; its last write did not fail
	Version  string         `json:"version"` // of this module
	ClockLag time.Duration  `json:"-"`       // by how much its clock is behind the server's, give or take the time of a request

	// The latest error of its requests, and how long ago that request failed. An error stays until a request of its kind succeeds, see election.Status.
	LastError    string        `json:"last_error,omitempty"`
	LastErrorAge time.Duration `json:"-"`

	// The connection of its process, as its server calls it: CLIENT@SERVER. Copies of a process, as of a virtual machine that was cloned, have
	// the same instance, host and PID, and connections of their own.
	Connection string `json:"connection,omitempty"`

	// Whether it would take over if the leader went: it is no leader, nothing holds it back, and its requests succeed. It is nil where that says
	// nothing about the election: for locks, slots of semaphores, keys of groups, and "election-cli run --no-wait".
	Standby *bool `json:"standby,omitempty"`
}

// candidateFields is a Candidate without its methods.
type candidateFields Candidate

// candidateJSON is how a Candidate is encoded.
type candidateJSON struct {
	candidateFields
	ClockLag     timeutil.Seconds `json:"clock_lag_s"`
	LastErrorAge timeutil.Seconds `json:"last_error_age_s,omitempty"`
}

// MarshalJSON encodes the candidate.
func (c Candidate) MarshalJSON() ([]byte, error) {
	return json.Marshal(candidateJSON{candidateFields(c), timeutil.Seconds(c.ClockLag), timeutil.Seconds(c.LastErrorAge)})
}

// UnmarshalJSON decodes a candidate.
func (c *Candidate) UnmarshalJSON(b []byte) error {
	var decoded candidateJSON
	if err := json.Unmarshal(b, &decoded); err != nil {
		return err
	}
	*c = Candidate(decoded.candidateFields)
	c.ClockLag, c.LastErrorAge = time.Duration(decoded.ClockLag), time.Duration(decoded.LastErrorAge)
	return nil
}

// Candidates asks for the candidates of a key, the leader included, and returns all that answer within a moment: the leader first, then by
// name, in which host-2 is before host-10. There may be more: only candidates answer that know their connection and are permitted to subscribe.
func (a *Admin) Candidates(ctx context.Context, key string) ([]Candidate, error) {
	if err := validate.Key(key); err != nil {
		return nil, err
	}
	info, err := a.bucket.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("candidates of %q: %w", key, err)
	}
	var candidates []Candidate
	sent := time.Now()
	err = control.Client{Bucket: a.bucket, Created: info.Created}.Candidates(ctx, key, func(c control.Candidate, came time.Time) bool {
		found := Candidate{
			Key: c.Key, Name: c.Name, Instance: c.Instance, Host: c.Host, PID: c.PID, Priority: c.Priority, Ready: c.Ready, Standby: c.Standby, Version: c.Version, LastError: c.LastError, Connection: c.Connection,
		}
		if !c.LastErrorAt.IsZero() && !c.Clock.IsZero() {
			found.LastErrorAge = max(0, c.Clock.Sub(c.LastErrorAt))
		}
		_ = found.State.UnmarshalText([]byte(c.State)) // else it is unknown
		if info.Stream != nil {
			since := middle(sent, came).Sub(middle(info.Read, info.Read.Add(info.Took)))
			found.ClockLag = info.Stream.TimeStamp.Add(since).Sub(c.Clock)
		}
		candidates = append(candidates, found)
		return false
	})
	if err != nil && !errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("candidates of %q: %w", key, err)
	}
	slices.SortFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), natural.Compare(a.Name, b.Name), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Connection, b.Connection))
	})
	return candidates, nil
}

// rank sorts the holder of the key before the others.
func rank(s election.State) int {
	return slices.Index([]election.State{election.LeaderState, election.LeaderElectState, election.CandidateState, election.UnknownState}, s)
}

// middle returns the time between two.
func middle(a, b time.Time) time.Time { return a.Add(b.Sub(a) / 2) }

// Resign asks the leader of a key to resign: see [election.Election.Resign]. It returns when the key is released, for which it waits 5 s
// longer than the leader's release timeout. The error is [election.ErrNoLeader] if there is no leader, and wraps [election.ErrNotLeader] if
// the leader lost the key before it could release it. Of a leader that does not answer the error says when its lease ends; one that hung resigns
// when it goes on, if it still leads then. An error that wraps ctx's means that ctx ended before; a leader that has received the request goes on, and
// resigns.
func (a *Admin) Resign(ctx context.Context, key string) error {
	return a.handOver(ctx, key, func(leader string, timeout time.Duration) error {
		return control.Client{Bucket: a.bucket}.Resign(ctx, key, leader, timeout)
	})
}

// Transfer asks the leader of a key to hand over to the candidate of the given name or instance, and returns when that candidate leads: see
// [election.Election.Transfer] and [Admin.Resign]. The error wraps [election.ErrNoCandidate] if that candidate is not ready. If it wraps ctx's, the
// leader hands over if it finds that candidate ready. Where several candidates have the name, give the instance: see [Candidate].
func (a *Admin) Transfer(ctx context.Context, key, name string) error {
	if err := validate.Name(name); err != nil {
		return err
	}
	return a.handOver(ctx, key, func(leader string, timeout time.Duration) error {
		return control.Client{Bucket: a.bucket}.Transfer(ctx, key, leader, name, timeout)
	})
}

// handOver passes the instance of the leader to ask, and how long the leader may take.
func (a *Admin) handOver(ctx context.Context, key string, ask func(leader string, timeout time.Duration) error) error {
	l, err := a.observer.Leader(ctx, key)
	switch {
	case err != nil:
		return err
	case l.Instance == "":
		return fmt.Errorf("the leader %q writes a bare name, and cannot be asked to hand over: stop its program, or evict it", l.Name)
	}
	err = ask(l.Instance, l.Expires.Sub(l.Renewed)+control.HandoverTimeout)
	if errors.Is(err, control.ErrNoAnswer) {
		return a.explainSilence(ctx, l, err)
	}
	return err
}

// explainSilence says what to do about a leader that does not answer. One that is cut off or hangs may believe that it leads until its lease ends. Its
// successor then leads at once, and sooner than after an eviction.
func (a *Admin) explainSilence(ctx context.Context, asked election.Leader, err error) error {
	now, failed := a.observer.Leader(ctx, asked.Key)
	switch {
	case failed != nil:
		now = asked
	case now.Instance != asked.Instance:
		return fmt.Errorf("%q was asked, and %q leads now: %w", asked.Name, now.Name, err)
	}
	return fmt.Errorf("%w: %q is cut off, hangs, or cannot be asked. Wait until its lease ends, at %s by the server's clock: unless it renews, another candidate leads then, sooner than after an eviction. If it renews, it does not know its connection, or may not receive requests: stop its program, or evict it",
		err, now.Name, now.Expires.UTC().Format(time.RFC3339))
}

// maxEvictions is how often a deletion is tried that a renewal of the leader overtakes.
const maxEvictions = 5

// Evict deletes the key of its leader, and returns the leader that it evicted. It deletes exactly the record that it read, or a renewal
// of the same term. Whatever else is stored under the key counts as a leader too, such as a message that never expires. The error is
// [election.ErrNoLeader] if nobody holds the key.
//
// In a bucket for sessions, in which nothing can be deleted, it writes over the claim of the key instead: the session keeps its other keys.
//
// The leader loses its term when it is notified, or at its next renewal. Its successor leads one TTL later or more, because a leader
// that is cut off just then considers itself leader until its lease ends. Prefer [Admin.Resign], which hands over in order and at once,
// and the end of the lease of a leader that is cut off or hangs.
func (a *Admin) Evict(ctx context.Context, key string) (election.Leader, error) {
	leader, err := a.observer.Leader(ctx, key)
	for tries := 1; err == nil; tries++ {
		if err = a.remove(ctx, leader); kv.Classify(err) != kv.Refused || tries == maxEvictions {
			break
		}
		var now election.Leader
		now, err = a.observer.Leader(ctx, key)
		if err == nil && (now.Name != leader.Name || now.Instance != leader.Instance || !now.Since.Equal(leader.Since)) {
			err = fmt.Errorf("not evicted: the leader of %q changed meanwhile from %q to %q", key, leader.Name, now.Name)
		}
		leader = now
	}
	if err != nil {
		return election.Leader{}, err
	}
	return leader, nil
}

// remove deletes the key of a leader while its record is the one that was read.
func (a *Admin) remove(ctx context.Context, l election.Leader) error {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	info, err := a.bucket.LoadUntilRefused(ctx)
	if err == nil {
		err = claims.Evict(ctx, a.bucket, info, l.Key, l.Revision, record.Eviction{By: control.Operator(), Name: l.Name, Term: l.Term})
	}
	switch outcome := kv.Classify(err); {
	case outcome == kv.Applied:
		return nil
	case outcome == kv.Refused:
		return fmt.Errorf("not evicted: %q renewed %q meanwhile: %w", l.Name, l.Key, err)
	case outcome == kv.Unsent, outcome == kv.Unusable, errors.Is(err, nats.ErrPermissionViolation):
		return fmt.Errorf("%q was not evicted from %q: %w", l.Name, l.Key, err)
	}
	return fmt.Errorf("it is not known whether %q was evicted from %q: %w", l.Name, l.Key, err)
}

// Forget removes what is remembered of an election that has ended, so that it is not listed any more: exactly the release that [observe.Observer.Ended]
// returned. Nothing is removed if somebody has won or released the key since; the error says so. A candidate that starts within the next second takes the
// key for one that somebody deleted, and stands down for a whole lease. One that starts later knows nothing of the election, and stands down as usual.
func (a *Admin) Forget(ctx context.Context, ended observe.Event) error {
	key := ended.Key
	if err := validate.Key(key); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	info, err := a.bucket.Load(ctx)
	if err != nil {
		return fmt.Errorf("%q is not forgotten: %w", key, err)
	}
	if info.SessionTTL > 0 {
		return fmt.Errorf("%w: %q is not forgotten: %q is made for sessions, in which nothing is removed", election.ErrBucketUnsuitable, key, info.Bucket)
	}
	entry, err := a.bucket.Last(ctx, key)
	if kv.Classify(err) == kv.Absent {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%q is not forgotten: %w", key, err)
	}
	switch last, held := election.LeaderOf(entry, info.TTL); {
	case held:
		return fmt.Errorf("%q is not forgotten: %q holds the key", key, last.Name)
	case last.Name == "": // a deletion or a marker, which expires
		return nil
	case ended.Kind != observe.Released || entry.Revision() != ended.Leader.Revision:
		return fmt.Errorf("%q is not forgotten: %q has led since", key, last.Name)
	}
	if err := a.bucket.Forget(ctx, key, entry.Revision(), info.Remembers); err != nil {
		return fmt.Errorf("%q is not forgotten: %w", key, err)
	}
	return nil
}
