// Package mutex is a lock among processes, made of package election: the holder of the lock leads the election of its key.
//
//	func migrate(ctx context.Context, name string, bucket *election.Bucket, steps func(ctx context.Context, token string) error) error {
//		m, err := mutex.New(name, "migrate", bucket)
//		if err != nil {
//			return err
//		}
//		if err := m.Lock(ctx); err != nil {
//			return err
//		}
//		err = steps(m.Context(), m.Term().Token()) // they must end soon after the context ends
//		return errors.Join(err, m.Unlock())        // Unlock returns an error if the lock was lost meanwhile
//	}
//
// [election.CreateBucket] and package connect make a bucket. Give each process a name of its own.
//
// # What it guarantees
//
//   - One holder. While [Mutex.Context] is alive nobody else holds the lock, by the clock, as nobody else leads.
//   - A lock does not last for ever. The holder loses it when it cannot reach the server for the length of the lease, or when an
//     operator has it resign; then the context ends, and Unlock returns an error. The lock is not acquired again by itself.
//   - A waiter acquires the lock milliseconds after it was unlocked, and after a crash of its holder within the TTL and the stand-down.
//     Every waiter has its turn.
//
// # What it does not guarantee
//
// A lost lock does not stop what the holder has under way, and a process may be paused between a check of the context and the effect.
// Where that matters, send the token of [Mutex.Term] along and let the receiver refuse lower ones.
//
// The lock is not reentrant: a goroutine that locks it twice waits for itself. The order in which waiters are served is no promise.
//
// Acquiring a lock that nobody has held for a TTL takes a stand-down, 0.75 of the TTL by default, because the key then does not show who
// held it last. For short jobs use a bucket of its own with a TTL of some seconds, or [election.WithStandDown]. Each lock costs some
// requests: it is for work of seconds and more, on few keys, and not for data that the receiver could protect by a revision.
//
// # The order of waiters
//
// Waiters acquire the lock in the order in which they came, as those of etcd's locks do. Each announces itself by an attempt to win the key,
// which the holder receives, and the record by which the holder unlocks lists all that wait. A waiter that gives up leaves the queue. One
// that does not answer within a tenth of a second of its turn is passed over. A waiter that finds that it is not listed, such as one that came
// just when the lock changed hands, announces itself again. So nobody waits for ever, and a waiter that crashed costs the others that
// tenth once. The goroutines that share a Mutex take turns among themselves, and queue again for each turn.
//
// Chance decides after a crash of the holder, and always where the connection of the bucket is not known, or its permissions do not
// allow to receive the attempts of others.
package mutex

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/candidacy"
	"github.com/natscampaign/election/internal/settings"
)

// ErrLocked is returned by TryLock when the lock is held, in this process or elsewhere.
var ErrLocked = errors.New("locked by somebody else")

// Mutex is a lock that the goroutines of a process may share; they exclude each other too. Make it with [New].
type Mutex struct {
	candidate func() (*election.Election, error) // returns a new one, for each lock is one candidacy
	reader    *election.Election                 // never campaigns
	key       string

	// turn holds a value while no goroutine of this process locks or holds the mutex: the last candidacy, nil if there was none. The
	// next goroutine waits until that candidacy is done.
	turn chan *candidacy.Candidacy

	mu   sync.Mutex
	held *candidacy.Candidacy // nil while the mutex is not locked
}

// New returns the lock of the given key in bucket, to be held under the given name. It takes the options of [election.NewElection], and
// like that finds the connection in the bucket or in [election.WithJetStream]; the splay is 0 unless an option sets it. The error is
// that of NewElection. Nothing is sent to the server.
func New(name, key string, bucket jetstream.KeyValue, opts ...election.Option) (*Mutex, error) {
	opts = candidacy.Options(settings.ByArrival, opts)
	m := &Mutex{key: key, turn: make(chan *candidacy.Candidacy, 1)}
	m.candidate = func() (*election.Election, error) { return election.NewElection(name, key, bucket, opts...) }
	var err error
	if m.reader, err = m.candidate(); err != nil {
		return nil, err
	}
	m.turn <- nil
	return m, nil
}

// Lock waits for the lock. It takes milliseconds if the last holder unlocked it within the last TTL. It takes a stand-down, 0.75 of the TTL
// by default, if nothing is stored under the key: an operator may have purged the key, or a clock of the server that was set forward may
// have expired it, and nothing then proves that the last holder has stopped. If ctx ends before, Lock returns its error, and a lock that
// was won meanwhile is released. While the server cannot be reached Lock waits. It returns [election.ErrBucketUnsuitable] or
// [election.ErrInvalidOption] when the bucket, or an option in this bucket, is wrong.
func (m *Mutex) Lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case last := <-m.turn:
		return m.acquire(ctx, last, candidacy.Wait)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryLock acquires the lock if nobody holds it, and returns [ErrLocked] if somebody does, if an operator has paused the election, or if a health check
// fails. Of several that try a free lock at once, one acquires it. TryLock does not wait for another holder, but may take a stand-down, and up to a
// second to learn whether a candidate that has won the key comes to lead. The server must be reachable and the key readable.
func (m *Mutex) TryLock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case last := <-m.turn:
		err := m.acquire(ctx, last, candidacy.Try)
		if held, ok := errors.AsType[candidacy.HeldError](err); ok {
			return fmt.Errorf("%w: %w", ErrLocked, held)
		}
		return err
	default:
		return fmt.Errorf("%w: %q in this process", ErrLocked, m.key)
	}
}

// acquire acquires the lock by start, once the last candidacy is done. If that fails it passes the turn on.
func (m *Mutex) acquire(ctx context.Context, last *candidacy.Candidacy, start func(context.Context, *election.Election) (*candidacy.Candidacy, error)) (err error) {
	s := last
	defer func() {
		if err != nil {
			m.turn <- s
		}
	}()
	if err := last.WaitDone(ctx); err != nil {
		return err
	}
	e, err := m.candidate()
	if err != nil {
		return err
	}
	if s, err = start(ctx, e); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = s
	return nil
}

// Holder asks the bucket who holds the lock now, in this process or elsewhere. A candidate that has won the key and stands down has the
// state LeaderElectState, and does not hold the lock yet. The error is [election.ErrNoLeader] if nobody has the key. The answer may be out
// of date when it comes: it is for people and logs.
func (m *Mutex) Holder(ctx context.Context) (election.Leader, error) { return m.reader.Leader(ctx) }

// Unlock releases the lock, and returns when others may acquire it. If the lock was lost before, the error wraps [election.ErrNotLeader];
// call Unlock all the same before this Mutex is locked again. If the server cannot be reached, Unlock returns an error when the lease has
// ended, after a TTL at most, and the key expires. Any goroutine may call Unlock.
func (m *Mutex) Unlock() error {
	m.mu.Lock()
	s := m.held
	m.held = nil
	m.mu.Unlock()
	if s == nil {
		return m.notLocked()
	}
	defer func() { m.turn <- s }()
	return s.Release()
}

// Context returns a context that ends when the lock is lost or unlocked; context.Cause returns the reason. It has the values of Lock's
// context, and not its end. While the Mutex is not locked the context has ended.
func (m *Mutex) Context() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held != nil {
		return m.held.Context
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(m.notLocked())
	return ctx
}

func (m *Mutex) notLocked() error {
	return fmt.Errorf("%w: %q is not locked here", election.ErrNotLeader, m.key)
}

// Lost returns a channel that is closed when the lock is lost or unlocked: the Done channel of [Mutex.Context].
func (m *Mutex) Lost() <-chan struct{} { return m.Context().Done() }

// Term returns the term of the holder: its Valid reports whether the lock is held now, and its Token is the fencing token. While the
// Mutex is not locked it is the zero Term, which is never valid.
func (m *Mutex) Term() election.Term {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil {
		return election.Term{}
	}
	return m.held.Term
}
