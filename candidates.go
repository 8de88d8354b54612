package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Candidate is one that stands in an election, as it answers for itself.
type Candidate struct {
	Key      string        `json:"key"`
	Name     string        `json:"name"`
	Instance string        `json:"instance"` // unique per Election value
	Host     string        `json:"host,omitempty"`
	PID      int           `json:"pid,omitempty"`
	Priority int           `json:"priority,omitempty"`
	State    State         `json:"state"`
	Ready    bool          `json:"ready"`                  // whether it would hear of a vacancy now and answer it
	Version  string        `json:"version"`                // of this package
	ClockLag time.Duration `json:"clock_lag_ns,omitempty"` // by how much its clock is behind the server's, give or take the way to it and back

	Clock time.Time `json:"clock,omitzero"` // what its clock said when it answered
}

// candidate returns what the election tells of itself.
func (e *Election) candidate() Candidate {
	a := e.ear.Load()
	return Candidate{
		Key: e.key, Name: e.name, Instance: e.instance, Host: e.host, PID: e.pid, Priority: e.opts.priority, State: e.State(), Version: version(),
		Ready: a != nil && e.notifiedBy() != sourceNone && e.tenure.Load() == nil && e.campaigning.Load() && e.gate.open(),
		Clock: time.Now().UTC().Round(0),
	}
}

// windUpPatience is how long a leader that was asked to hand over is waited for, beyond the TTL that it may take by default.
const windUpPatience = 5 * time.Second

// Candidates asks who stands in the election of a key, the leader included, and returns those who answer within a moment:
// the leader first, then by name. Only those can answer who were given [WithJetStream], as the observer must have been,
// and who are permitted to subscribe; so there may be more. The error wraps [ErrInvalidOption] if the observer cannot ask, and
// nats.ErrPermissionViolation if it may not: see "Asking candidates" in the package documentation.
func (o *Observer) Candidates(ctx context.Context, key string) ([]Candidate, error) {
	nc, err := o.asks("Candidates", key)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	server, created, err := o.serverTime(ctx)
	if err != nil {
		return nil, fmt.Errorf("candidates of %q: %w", key, err)
	}
	ahead := server.Sub(middle(sent, time.Now()))
	var candidates []Candidate
	sent = time.Now()
	err = askCandidates(ctx, nc, o.bucket.Bucket(), question{Key: key, Bucket: created}, 0, func(c Candidate, came time.Time) bool {
		c.ClockLag = middle(sent, came).Add(ahead).Sub(c.Clock)
		candidates = append(candidates, c)
		return false
	})
	if err != nil && !errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("candidates of %q: %w", key, err)
	}
	slices.SortFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), strings.Compare(a.Name, b.Name), strings.Compare(a.Instance, b.Instance))
	})
	return candidates, nil
}

// rank sorts those who hold the key before the others.
func rank(s State) int {
	return slices.Index([]State{LeaderState, LeaderElectState, CandidateState, UnknownState}, s)
}

// middle returns the instant between two, without a monotonic reading, to be compared with other hosts' clocks.
func middle(a, b time.Time) time.Time { return a.Add(b.Sub(a) / 2).UTC().Round(0) }

// serverTime returns the time by the server's clock, and when the bucket was created.
func (o *Observer) serverTime(ctx context.Context) (now, created time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxTry)
	defer cancel()
	s, err := o.opts.js.Stream(ctx, "KV_"+o.bucket.Bucket())
	if err != nil {
		return now, created, err
	}
	return s.CachedInfo().TimeStamp, s.CachedInfo().Created, nil
}

// Resign asks the leader of a key to give up leadership in order: see [Election.Resign]. It returns when the key is
// released. It returns [ErrNoLeader] if there is none, and [ErrNotLeader] if it lost the key before it could release it.
// A leader can only be asked if it was given [WithJetStream], as the observer must have been; else the error says that it
// does not answer. If the observer may not ask, the error wraps nats.ErrPermissionViolation. An error that wraps ctx's means
// that ctx ended first: a leader that has heard goes on, and hands over.
func (o *Observer) Resign(ctx context.Context, key string) error {
	return o.handOver(ctx, verbResign, key, "")
}

// Transfer asks the leader of a key to hand over to the candidate of the given name, and returns when that one leads: see
// [Election.Transfer] and [Observer.Resign]. It returns an error that wraps [ErrNoCandidate] if that one is not ready.
func (o *Observer) Transfer(ctx context.Context, key, name string) error {
	if err := validateName(name); err != nil {
		return err
	}
	return o.handOver(ctx, verbTransfer, key, name)
}

func (o *Observer) handOver(ctx context.Context, verb, key, to string) error {
	nc, err := o.asks("Resign and Transfer", key)
	if err != nil {
		return err
	}
	l, err := o.Leader(ctx, key)
	switch {
	case err != nil:
		return err
	case l.Instance == "":
		return fmt.Errorf("the leader %q wrote a bare name, and cannot be asked to hand over: evict it, if need be", l.Name)
	}
	ttl, err := o.lifetime(ctx)
	if err != nil {
		return err
	}
	return askLeader(ctx, nc, o.bucket.Bucket(), verb, question{Key: key, Instance: l.Instance, To: to}, ttl+windUpPatience)
}

// asks returns the connection to ask by.
func (o *Observer) asks(method, key string) (*nats.Conn, error) {
	nc := o.opts.conn()
	if nc == nil {
		return nil, invalid("%s: candidates are spoken to over NATS: give the observer WithJetStream", method)
	}
	return nc, validateKey(key)
}
