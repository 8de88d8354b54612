// Package linear records histories of locks and of values in tests, and checks by github.com/anishathalye/porcupine whether they are
// linearizable: whether each operation can have taken effect in one instant between its call and its return.
package linear

import (
	"cmp"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// History is what the clients of one object did. Its methods may be called by several goroutines.
type History struct {
	mu    sync.Mutex
	clock int64 // counts calls and returns: virtual time may stand still between two of them
	ops   []porcupine.Operation
}

// Call returns the time of a call.
func (h *History) Call() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	return h.clock
}

// add adds an operation that returns now.
func (h *History) add(client int, called int64, input any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: input, Call: called, Return: h.clock})
}

// checkLimit is how long a check may take.
const checkLimit = 30 * time.Second

// check returns the result, and the number of operations.
func (h *History) check(m porcupine.Model) (porcupine.CheckResult, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return porcupine.CheckOperationsTimeout(m, h.ops, checkLimit), len(h.ops)
}

// expect fails the test unless the history is linearizable.
func (h *History) expect(t *testing.T, m porcupine.Model) {
	t.Helper()
	if result, n := h.check(m); result != porcupine.Ok {
		t.Errorf("a history of %d operations is not linearizable: %s", n, result)
	}
}

// Locks is a history of locks, each of which has one holder at a time, whose tokens grow. The slots of a semaphore are such locks.
type Locks struct{ History }

// lockInput is an operation on a lock: it is acquired, or its holder ends.
type lockInput struct {
	lock  int
	token string
	ends  bool
}

// lockState is the state of a lock.
type lockState struct {
	held  bool
	token string // of the last holder
}

// Acquired records that a call acquired a lock, which returns now.
func (l *Locks) Acquired(client int, called int64, lock int, token string) {
	l.add(client, called, lockInput{lock, token, false})
}

// Ended records that a holder holds the lock no longer: by a call that returns now, or because it lost the lock after the given time.
func (l *Locks) Ended(client int, called int64, lock int, token string) {
	l.add(client, called, lockInput{lock, token, true})
}

// Expect fails the test unless the history is linearizable.
func (l *Locks) Expect(t *testing.T) { t.Helper(); l.expect(t, lockModel) }

// Linearizable reports whether the history is.
func (l *Locks) Linearizable() bool {
	result, _ := l.check(lockModel)
	return result == porcupine.Ok
}

var lockModel = porcupine.Model{
	Partition: partition(func(input any) int { return input.(lockInput).lock }),
	Init:      func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(lockState), input.(lockInput)
		if in.ends {
			return s.held && s.token == in.token, lockState{false, s.token}
		}
		return !s.held && in.token > s.token, lockState{true, in.token}
	},
}

// Values is a history of keys whose values are numbers: each value is stored over another, and no number is stored twice. 0 is no value.
type Values struct{ History }

// valueInput is an operation on a key: it is read, or a value is stored over another.
type valueInput struct {
	key    string
	value  int
	over   int
	stores bool
}

// Read records that a call read a value, which returns now.
func (v *Values) Read(client int, called int64, key string, value int) {
	v.add(client, called, valueInput{key: key, value: value})
}

// Stored records that a call stored a value over another, which returns now.
func (v *Values) Stored(client int, called int64, key string, over, value int) {
	v.add(client, called, valueInput{key, value, over, true})
}

// Unknown records that a call was to store a value over another, and that its caller does not know whether it did.
func (v *Values) Unknown(client int, called int64, key string, over, value int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ops = append(v.ops, porcupine.Operation{ClientId: client, Input: valueInput{key, value, over, true}, Call: called, Return: math.MaxInt64})
}

// Settle leaves out the unknown operations whose value was never stored: they took no effect. It is called in the end, with all values
// that a key ever had.
func (v *Values) Settle(key string, stored []int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	was := map[int]bool{}
	for _, n := range stored {
		was[n] = true
	}
	kept := v.ops[:0]
	for _, o := range v.ops {
		if in := o.Input.(valueInput); o.Return != math.MaxInt64 || in.key != key || was[in.value] {
			kept = append(kept, o)
		}
	}
	v.ops = kept
}

// Expect fails the test unless the history is linearizable.
func (v *Values) Expect(t *testing.T) { t.Helper(); v.expect(t, valueModel) }

// Linearizable reports whether the history is.
func (v *Values) Linearizable() bool {
	result, _ := v.check(valueModel)
	return result == porcupine.Ok
}

var valueModel = porcupine.Model{
	Partition: partition(func(input any) string { return input.(valueInput).key }),
	Init:      func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) {
		in := input.(valueInput)
		if in.stores {
			return state == in.over, in.value
		}
		return state == in.value, state
	},
}

// partition divides a history into those of single objects.
func partition[K cmp.Ordered](of func(input any) K) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
		place := map[K]int{}
		for _, o := range all {
			k := of(o.Input)
			if _, known := place[k]; !known {
				place[k] = len(parts)
				parts = append(parts, nil)
			}
			parts[place[k]] = append(parts[place[k]], o)
		}
		return parts
	}
}
