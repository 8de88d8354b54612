// Package semaphore lets a limited number of processes do something at once, on the machinery of package election: each
// slot is an election of its own, under the keys <key>.0, <key>.1 and so on.
//
//	s, err := semaphore.New(name, "imports", 3, bucket, election.WithJetStream(js))
//	…
//	slot, err := s.Acquire(ctx)
//	if err != nil { … }
//	defer slot.Release()
//	importAll(slot.Context())
//
// # What it promises
//
//   - Never more than the number of slots are held at once, by the clock, as nobody leads together with another.
//   - A waiter has a slot milliseconds after one was released, and after a crash of its holder within the TTL and the
//     stand-down. No slot is left unused while somebody waits.
//   - A slot is lost like leadership: then its context ends, and Release says so.
//
// # What it cannot do
//
// It is no queue. Of those that wait one is served, by chance, so that each comes to its turn, see [election.WithFairness];
// but who waits longest is not served first. As with every lease, what a holder has under way when its slot is lost goes
// on; the token of [Slot.Term] is for whoever receives it, and is compared within one slot.
//
// All must agree on the number of slots. Where some say fewer the others use more: change it while nobody holds any, or
// upwards only. A slot that nobody has held for a TTL takes a stand-down to get; see package mutex, which is a semaphore
// of one slot with other words.
package semaphore

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

// MaxSlots is how many slots a semaphore may have: who waits stands in the elections of all.
const MaxSlots = 100

// ErrFull is returned by TryAcquire when somebody holds every slot.
var ErrFull = errors.New("all slots are held")

// Semaphore is a number of slots, of which a process may hold several. Make it with [New]. Its methods may be called from
// any goroutine.
type Semaphore struct {
	name, key string
	slots     int
	bucket    jetstream.KeyValue
	opts      []election.Option

	mu    sync.Mutex
	seats map[int]bool // those that are taken
}

// New returns the semaphore of that many slots that key is in bucket, to be held under the given name; a second
// slot that a process holds, or waits for, at the same time is held under the name with #2 behind it, and so on. A name is
// free again a moment after its slot's Release has returned. It takes the options of [election.NewElection], with no splay
// unless one says so; the error is what that returns, and wraps [election.ErrInvalidOption] for a number of slots that
// cannot be. Nothing is sent.
func New(name, key string, slots int, bucket jetstream.KeyValue, opts ...election.Option) (*Semaphore, error) {
	s := &Semaphore{name: name, key: key, slots: slots, bucket: bucket, seats: map[int]bool{}}
	s.opts = append([]election.Option{election.WithSplay(0), election.WithFairness()}, slices.Clone(opts)...)
	var number error
	if slots < 1 || slots > MaxSlots {
		number = fmt.Errorf("%w: %d slots: use 1 to %d", election.ErrInvalidOption, slots, MaxSlots)
	}
	_, err := (&seat{Semaphore: s}).candidate(max(0, slots-1)) // the longest key
	if err := errors.Join(err, number); err != nil {
		return nil, err
	}
	return s, nil
}

// Slot is one that is held.
type Slot struct {
	Number int // from 0 to one less than there are
	hold   *hold.Hold
}

// Context returns one that ends when the slot is lost or released; context.Cause tells why. It has the values of Acquire's
// context, whose end it does not share.
func (s *Slot) Context() context.Context { return s.hold.Context }

// Term returns what the slot is held by: its Valid says whether it is held now, and its Token is the fencing token, among
// those of the same slot.
func (s *Slot) Term() election.Term { return s.hold.Term }

// Release gives the slot back, and returns when others may have it. If it was lost before, or given back, the error wraps
// [election.ErrNotLeader]; if the server cannot be reached the error says so, and the key expires by itself.
func (s *Slot) Release() error { return s.hold.Release() }

// Acquire waits for a slot until ctx ends; then it returns ctx's error, and what it may have won meanwhile is released.
// While the server cannot be reached it waits. It returns [election.ErrBucketUnsuitable] or [election.ErrInvalidOption]
// when the bucket, or an option on it, is wrong.
func (s *Semaphore) Acquire(ctx context.Context) (*Slot, error) {
	t := s.sit()
	defer t.leave()
	slot, err := t.try(ctx, false)
	if err == nil || ctx.Err() != nil {
		return slot, err
	}
	if errors.Is(err, election.ErrBucketUnsuitable) || errors.Is(err, election.ErrInvalidOption) {
		return nil, err
	}
	return t.wait(ctx) // even where the slots could not be looked at, as without permission to read them
}

// TryAcquire takes a slot that nobody holds, and returns [ErrFull] if there is none. It may take a stand-down: what it does
// not do is wait for somebody. The server must be reachable, and the keys be readable.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Slot, error) {
	t := s.sit()
	defer t.leave()
	return t.try(ctx, true)
}
