package control

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/kv"
)

// Served is a candidate for which a process answers.
type Served interface {
	Describe() Candidate
	BucketCreated() time.Time
	HoldsKey() bool
	Resign(ctx context.Context) error
	Transfer(ctx context.Context, target string) error
	Refresh(ctx context.Context) bool  // reads the bucket's info again, and reports whether it could
	ExpectRelease(after time.Duration) // reads the key then
	HandoverTimeout() time.Duration
}

// Member is one candidate that takes part in the protocol.
type Member struct {
	service *service
	key     string
	served  Served
}

// Join has this process answer for a candidate. The bucket must know its connection. The subscriptions are made before Join returns:
// a leader that is notified of a later campaign can ask this candidate. The caller must call Leave.
func Join(bucket *kv.Bucket, key string, served Served, log *slog.Logger) *Member {
	var refused error
	defer func() {
		if refused != nil { // logged when nothing is locked: the log handler is the user's
			log.Debug("Control requests cannot be received", "bucket", bucket.Bucket(), "error", refused)
		}
	}()
	shared, release := services.Hold(bucket.ID())
	defer release()
	if *shared == nil {
		*shared, refused = open(bucket, log)
	}
	s := *shared
	m := &Member{s, key, served}
	s.mu.Lock()
	s.members[key] = append(slices.Clone(s.members[key]), m)
	s.mu.Unlock()
	refused = errors.Join(refused, s.keys.Add(key))
	return m
}

// Leave ends the candidate's part; the last of a bucket closes the service.
func (m *Member) Leave() {
	s := m.service
	shared, release := services.Hold(s.bucket.ID())
	s.keys.Remove(m.key)
	s.mu.Lock()
	rest := slices.DeleteFunc(slices.Clone(s.members[m.key]), func(other *Member) bool { return other == m })
	if s.members[m.key] = rest; len(rest) == 0 {
		delete(s.members, m.key)
	}
	last := len(s.members) == 0
	s.mu.Unlock()
	if last {
		*shared = nil
	}
	release()
	if last {
		s.cancel()
		<-s.done
	}
}

// client returns one for the bucket as this candidate knows it.
func (m *Member) client() Client { return Client{m.service.bucket, m.served.BucketCreated()} }

// Meet passes each candidate of the key to found until found returns true, or no further answers come: first those of this process,
// whose own requests a connection may not echo, and then all. A candidate may come twice. If a target is named, it is told to read the key
// after the given time, when the key will have been released to it.
func (m *Member) Meet(ctx context.Context, target string, after time.Duration, found func(Candidate) (enough bool)) error {
	for _, other := range m.service.of(m.key) {
		if found(other.served.Describe()) {
			return nil
		}
	}
	r := request{To: target, ReleaseMs: after.Milliseconds()}
	return m.client().candidates(ctx, m.key, r, firstAnswerTimeout, func(c Candidate, _ time.Time) bool { return found(c) })
}

// State asks one candidate of the key for its state; "" if it does not answer.
func (m *Member) State(ctx context.Context, instance string) (state string) {
	see := func(c Candidate, _ time.Time) (enough bool) {
		if c.Instance == instance {
			state = c.State
		}
		return c.Instance == instance
	}
	for _, other := range m.service.of(m.key) {
		if see(other.served.Describe(), time.Time{}) {
			return state
		}
	}
	_ = m.client().candidates(ctx, m.key, request{Instance: instance}, 0, see) // no answer is no state
	return state
}

// RequestTransfer asks the leader of the given instance to transfer leadership to the target of that name or instance.
func (m *Member) RequestTransfer(ctx context.Context, instance, target string, timeout time.Duration) error {
	for _, other := range m.service.of(m.key) {
		if other.served.Describe().Instance == instance {
			return other.served.Transfer(ctx, target)
		}
	}
	return m.client().Transfer(ctx, m.key, instance, target, timeout)
}
