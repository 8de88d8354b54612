// Package semaphore lets a limited number of processes do something at once.
//
//	func importAll(ctx context.Context, name string, bucket *election.Bucket, work func(ctx context.Context, token string) error) error {
//		s, err := semaphore.New(name, "imports", 3, bucket) // three slots
//		if err != nil {
//			return err
//		}
//		slot, err := s.Acquire(ctx)
//		if err != nil {
//			return err
//		}
//		err = work(slot.Context(), slot.Term().Token()) // it must end soon after the context ends
//		return errors.Join(err, slot.Release())         // Release returns an error if the slot was lost meanwhile
//	}
//
// It is made of package election: each slot is an election of its own, under the keys <key>.0, <key>.1 and so on. [election.CreateBucket] and
// package connect make a bucket. Give each process a name of its own.
//
// # What it guarantees
//
//   - At most as many slots are held at once as there are, by the clock, as no two candidates lead at once.
//   - A waiter acquires a slot milliseconds after one was released, and after a crash of its holder within the TTL and the stand-down.
//     No slot stays unused while somebody waits. However many slots there are, waiting costs one watcher, and a campaign for one slot at a
//     time: for a slot that was released and, if there is none, for one that takes a stand-down.
//   - A process that needs several slots of crashed holders stands down once if it calls Acquire for them at the same time, and once for
//     each slot if it calls Acquire for one after another. With a TTL of 2 s, that is one stand-down of 1.5 s for four slots, or 6 s in all,
//     once the keys have expired.
//   - A slot is lost as leadership is: its context ends, and Release returns an error.
//
// # What it does not guarantee
//
// The semaphore is no queue: waiters are served by chance and not in order of arrival, each with about the same chance, because each slot
// is a lock of its own. A lost slot does not stop what its holder has under way. The token of [Slot.Term] is for the receiver, which
// compares tokens of the same slot only.
//
// Where the keys cannot be watched, as without permission, each slot is read twice a second.
//
// All processes must use the same number of slots: where some use a lower one, the others hold more. Change the number while nobody holds
// a slot, or upwards only. Acquiring a slot that nobody has held for a TTL takes a stand-down; see package mutex, which is a semaphore of
// one slot.
package semaphore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/candidacy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/validate"
)

// MaxSlots is how many slots a semaphore may have: each is an election of its own.
const MaxSlots = 100

// ErrFull is returned by TryAcquire when every slot is held, or paused by an operator. A slot for which a candidate stands down counts as
// held when it has done so for a second.
var ErrFull = errors.New("all slots are held")

// Semaphore is a number of slots, of which a process may hold several. Make it with [New]. Any goroutine may call its methods.
type Semaphore struct {
	name, key string
	slots     int
	bucket    jetstream.KeyValue
	read      *kv.Bucket // the same bucket, with its connection where that is known
	opts      []election.Option

	mu       sync.Mutex
	names    map[int]bool // the numbers of the names in use
	released time.Time    // when a slot was last released here
}

// New returns the semaphore of the given key in bucket, to be held under the given name. A second slot that the process holds, or waits
// for, at the same time is held under the name with #2 appended, and so on; a name is free again a moment after Release of its slot has
// returned. New takes the options of [election.NewElection], and like that finds the connection in the bucket or in
// [election.WithJetStream]; the splay is 0 unless an option sets it. The error is that of NewElection, and wraps
// [election.ErrInvalidOption] for a number of slots that is not between 1 and [MaxSlots]. Nothing is sent to the server.
func New(name, key string, slots int, bucket jetstream.KeyValue, opts ...election.Option) (*Semaphore, error) {
	s := &Semaphore{name: name, key: key, slots: slots, bucket: bucket, opts: candidacy.Options(settings.ByChance, opts), names: map[int]bool{}}
	set, err := settings.Of(s.opts, name, s.slotKey(max(0, slots-1)), bucket) // the longest key
	if set.PlainValue {
		err = errors.Join(err, validate.Errorf("WithPlainValue: a bare name under the key cannot say which holder it is of: leave the option out"))
	}
	if slots < 1 || slots > MaxSlots {
		err = errors.Join(err, validate.Errorf("%d slots: use 1 to %d", slots, MaxSlots))
	}
	if err != nil {
		return nil, err
	}
	s.read = set.Bucket(bucket)
	return s, nil
}

// Slot is a slot that is held.
type Slot struct {
	Number    int // from 0 to one less than there are
	semaphore *Semaphore
	candidacy *candidacy.Candidacy
}

// Context returns a context that ends when the slot is lost or released; context.Cause returns the reason. It has the values of Acquire's
// context, and not its end.
func (s *Slot) Context() context.Context { return s.candidacy.Context }

// Term returns the term of the holder: its Valid reports whether the slot is held now, and its Token is the fencing token among those of
// the same slot.
func (s *Slot) Term() election.Term { return s.candidacy.Term }

// Release releases the slot, and returns when others may acquire it. If the slot was lost or released before, the error wraps
// [election.ErrNotLeader]. If the server cannot be reached, Release returns an error when the lease has ended, after a TTL at most, and
// the key expires.
func (s *Slot) Release() error {
	defer s.semaphore.noteRelease()
	return s.candidacy.Release()
}

func (s *Semaphore) noteRelease() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = time.Now()
}

// hasJustReleased reports whether a slot was released here so short a time ago that those who wait for it may not have answered yet.
func (s *Semaphore) hasJustReleased() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.released) < answerSpread
}

// Acquire waits for a slot. It takes milliseconds to acquire one that its last holder released within the last TTL, and a stand-down, 0.75
// of the TTL by default, for one under whose key nothing is stored; see the Lock of package mutex. If ctx ends before, Acquire returns its
// error, and a slot that was won meanwhile is released. While the server cannot be reached Acquire waits. It returns
// [election.ErrBucketUnsuitable] or [election.ErrInvalidOption] when the bucket, or an option in this bucket, is wrong.
func (s *Semaphore) Acquire(ctx context.Context) (*Slot, error) {
	h := s.newHolder()
	defer h.leave()
	return h.acquire(ctx, true)
}

// TryAcquire acquires a slot that nobody holds, and returns [ErrFull] if there is none. A health check that fails is another error. TryAcquire does
// not wait for another holder, but may take a stand-down, and up to a second to learn whether a candidate that has won a slot comes to lead. The
// server must be reachable and the keys readable.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Slot, error) {
	h := s.newHolder()
	defer h.leave()
	return h.acquire(ctx, false)
}
