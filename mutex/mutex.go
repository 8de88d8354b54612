// Package mutex is a lock among processes, on the machinery of package election: who holds the lock leads in the election
// of its key.
//
//	m, err := mutex.New(name, "migrate", bucket, election.WithJetStream(js))
//	…
//	if err := m.Lock(ctx); err != nil { … }
//	defer m.Unlock()
//	migrate(m.Context())
//
// # What it promises
//
//   - One holder. Nobody else holds the lock while [Mutex.Context] is alive, by the clock, as nobody else leads.
//   - A lock is not for ever. It is lost when the server cannot be reached for the lease, or when an operator has the
//     holder resign; then the context ends, and Unlock says so. The lock is not taken again by itself.
//   - A waiter has the lock milliseconds after it was unlocked, and after a crash of its holder within the TTL and the
//     stand-down.
//
// # What it cannot do
//
// It cannot stop what the holder has under way when the lock is lost, nor beat a pause between a look at the context and
// what is done next. Where that matters, send the token of [Mutex.Term] along and let the receiver refuse lower ones.
//
// It is no queue: who waits longest is not served first, but all that wait have about the same chance, by
// [election.WithFairness]. It is not reentrant: who locks it twice waits for itself.
//
// A lock that nobody has held for a TTL takes a stand-down to get, 0.75 of the TTL by default, for the key then says
// nothing of who held it last; so does one in a bucket that announces no expiries. For short jobs use a bucket of its own
// with a TTL of some seconds, or [election.WithStandDown]. A lock costs some requests each time: it is for work of seconds
// and more, on few keys, and not for guarding data that the receiver could guard by a revision.
package mutex

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/hold"
)

// ErrLocked is returned by TryLock when somebody else holds the lock, here or elsewhere.
var ErrLocked = errors.New("locked by somebody else")

// Mutex is a lock that may be shared by the goroutines of a process, which exclude each other as well. Make it with [New].
type Mutex struct {
	name, key string
	bucket    jetstream.KeyValue
	opts      []election.Option

	turn chan struct{} // holds one entry while someone in this process locks, holds or has not wound up

	mu    sync.Mutex
	held  *hold.Hold    // nil while it is not locked
	wound chan struct{} // closed when the turn was passed on after whoever let go last; nil if nobody has
}

// New returns the lock that key is in bucket, to be held under the given name. It takes the options of
// [election.NewElection], with no splay unless one says so; the error is what that returns. Nothing is sent.
func New(name, key string, bucket jetstream.KeyValue, opts ...election.Option) (*Mutex, error) {
	m := &Mutex{name: name, key: key, bucket: bucket, turn: make(chan struct{}, 1)}
	m.opts = append([]election.Option{election.WithSplay(0), election.WithFairness()}, slices.Clone(opts)...)
	if _, err := m.candidate(); err != nil {
		return nil, err
	}
	return m, nil
}

// candidate returns a new one, for one lock is one stand.
func (m *Mutex) candidate() (*election.Election, error) {
	return election.NewElection(m.name, m.key, m.bucket, m.opts...)
}

// Lock waits for the lock until ctx ends; then it returns ctx's error, and what it may have won meanwhile is released.
// While the server cannot be reached it waits. It returns [election.ErrBucketUnsuitable] or [election.ErrInvalidOption]
// when the bucket, or an option on it, is wrong.
func (m *Mutex) Lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.turn <- struct{}{}:
		return m.take(ctx, hold.Wait)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryLock takes the lock if nobody holds it, and else returns [ErrLocked]. It may take a stand-down: what it does not do is
// wait for somebody. The server must be reachable, and the key be readable.
func (m *Mutex) TryLock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.await(ctx); err != nil {
		return err
	}
	select {
	case m.turn <- struct{}{}:
	default:
		return fmt.Errorf("%w: %q in this process", ErrLocked, m.key)
	}
	err := m.take(ctx, hold.Try)
	if taken, ok := errors.AsType[hold.Taken](err); ok {
		return fmt.Errorf("%w: %q by %q", ErrLocked, taken.Key, taken.By)
	}
	return err
}

// take holds the lock in the way given. The turn is this goroutine's, and is passed on when all is wound up.
func (m *Mutex) take(ctx context.Context, how func(context.Context, *election.Election) (*hold.Hold, error)) error {
	e, err := m.candidate()
	if err != nil {
		<-m.turn
		return err
	}
	h, err := how(ctx, e)
	if h == nil {
		<-m.turn
		return err
	}
	if err != nil {
		m.pass(h)
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = h
	return nil
}

// pass gives the turn to whoever waits in this process, once h is wound up.
func (m *Mutex) pass(h *hold.Hold) {
	wound := make(chan struct{})
	m.mu.Lock()
	m.wound = wound
	m.mu.Unlock()
	go func() {
		<-h.Done()
		<-m.turn
		close(wound)
	}()
}

// await waits until who let go in this process has wound up: nobody holds the lock on that account.
func (m *Mutex) await(ctx context.Context) error {
	m.mu.Lock()
	wound := m.wound
	m.mu.Unlock()
	if wound == nil {
		return nil
	}
	select {
	case <-wound:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock releases the lock, and returns when others may have it. If it was lost before, the error wraps
// [election.ErrNotLeader], and Unlock must be called all the same before this Mutex can be locked again. If the server
// cannot be reached the error says so, and the key expires by itself. It need not be called by who locked.
func (m *Mutex) Unlock() error {
	m.mu.Lock()
	h := m.held
	m.held = nil
	m.mu.Unlock()
	if h == nil {
		return fmt.Errorf("%w: %q is not locked here", election.ErrNotLeader, m.key)
	}
	defer m.pass(h)
	return h.Release()
}

// Context returns one that ends when the lock is lost or unlocked; context.Cause tells why. It has the values of Lock's
// context, whose end it does not share. While the Mutex is not locked it has ended already.
func (m *Mutex) Context() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held != nil {
		return m.held.Context
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("%w: %q is not locked here", election.ErrNotLeader, m.key))
	return ctx
}

// Lost returns a channel that is closed when the lock is lost or unlocked: that of [Mutex.Context].
func (m *Mutex) Lost() <-chan struct{} { return m.Context().Done() }

// Term returns what the holder leads by: its Valid says whether the lock is held now, and its Token is the fencing token.
// While the Mutex is not locked it is the zero Term, which is never valid.
func (m *Mutex) Term() election.Term {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil {
		return election.Term{}
	}
	return m.held.Term
}
