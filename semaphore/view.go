package semaphore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/candidacy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

const (
	// readInterval is the time between two reads of all slots where they cannot be watched.
	readInterval = 500 * time.Millisecond
	// renewAfter is after how many TTLs the slots are watched anew, in case the watcher delivers nothing any more.
	renewAfter = 4
)

// slotState is what is known of a slot. The zero value is a slot that is free for no known reason: acquiring it takes a stand-down.
type slotState struct {
	held     bool
	leads    bool      // its holder leads, and does not stand down any more
	released bool      // by a holder that led
	instance string    // of the holder
	since    time.Time // when the holder was first seen
	seen     time.Time // when its latest renewal was
	paused   bool      // an operator has paused it
}

// view is what is known of all slots. One goroutine owns it.
type view struct {
	slots  []slotState
	synced bool // all that is stored has come
	ttl    time.Duration
}

func newView(slots int) *view { return &view{slots: make([]slotState, slots)} }

// change is a change of the view. But for the slot, exactly one of its parts is set.
type change struct {
	slot   int
	state  *slotState // of the slot
	begin  *kv.Info   // all that is stored comes next
	synced bool
	err    error // the slots cannot be followed for the moment
}

// apply takes note of a change.
func (v *view) apply(c change) {
	switch {
	case c.begin != nil:
		v.ttl, v.synced = c.begin.TTL, false
		for i, s := range v.slots {
			v.slots[i] = slotState{instance: s.instance, since: s.since} // if it still holds the slot, it has since then
		}
	case c.synced:
		v.synced = true
	case c.state != nil:
		before, now := v.slots[c.slot], *c.state
		now.paused = now.paused || before.paused
		if now.held && before.instance == now.instance && !before.since.IsZero() {
			now.since = before.since
		}
		v.slots[c.slot] = now
	}
}

// expire has the slots be free whose holders have not renewed them for longer than their records last, as where the bucket announces no
// expiries. It returns when the next may be.
func (v *view) expire(now time.Time) (next time.Time) {
	next = now.Add(time.Hour)
	for i := range v.slots {
		s := &v.slots[i]
		if !s.held {
			continue
		}
		if at := s.seen.Add(v.ttl + timing.ExpiryLateness); now.Before(at) {
			next = timeutil.Earlier(next, at)
		} else {
			*s = slotState{paused: s.paused}
		}
	}
	return next
}

// free returns the slots that nobody holds: those that their holders released, and the others.
func (v *view) free() (released, other []int) {
	for i, s := range v.slots {
		switch {
		case s.held, s.paused:
		case s.released:
			released = append(released, i)
		default:
			other = append(other, i)
		}
	}
	return released, other
}

// fullAt returns when all slots must be taken for held, unless something changes. A candidate that has won a slot may be one that gives up.
func (v *view) fullAt(now time.Time) time.Time {
	full := now
	for _, s := range v.slots {
		if s.held && !s.leads {
			full = timeutil.Later(full, s.since.Add(candidacy.ElectTime))
		}
	}
	return full
}

// pausedText says how many slots an operator has paused; "" if none.
func (v *view) pausedText() string {
	n := 0
	for _, s := range v.slots {
		if s.paused {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", of which an operator has paused %d", n)
}

// follow reports what is stored under the keys of all slots, and each change of it, until ctx ends: by one watcher or, where there can be
// none, as without permission, by reading the keys again and again.
func (s *Semaphore) follow(ctx context.Context) <-chan change {
	changes := make(chan change)
	send := func(c change) bool {
		select {
		case changes <- c:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		for ctx.Err() == nil {
			again, err := s.followOnce(ctx, send)
			if err != nil && !send(change{err: err}) {
				return
			}
			if !again {
				timeutil.Sleep(ctx, readInterval)
			}
		}
	}()
	return changes
}

// followOnce begins anew, and returns when it is time to do that again: at once, or else after a while.
func (s *Semaphore) followOnce(ctx context.Context, send func(change) bool) (atOnce bool, err error) {
	info, err := s.read.Load(ctx)
	if err != nil {
		return false, err
	}
	if err := info.Validate(); err != nil {
		return false, err
	}
	if !send(change{begin: &info}) {
		return false, nil
	}
	for slot := range s.slots {
		if _, paused := info.Paused[s.slotKey(slot)]; paused && !send(change{slot: slot, state: &slotState{paused: true}}) {
			return false, nil
		}
	}
	starting, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	w, err := s.read.StartWatcher(ctx, s.key+".*", kv.EndStart(starting, func(ctx context.Context) (jetstream.KeyWatcher, error) {
		return s.bucket.Watch(ctx, s.key+".*")
	}))
	if err != nil {
		return false, s.readAll(ctx, send)
	}
	defer kv.StopWatcher(w)
	again := time.NewTimer(renewAfter * info.TTL)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-again.C:
			return true, nil
		case entry, ok := <-w.Updates():
			switch {
			case !ok:
				return false, nil
			case entry == nil:
				if !send(change{synced: true}) {
					return false, nil
				}
			default:
				slot, found := s.slotOf(entry.Key())
				if found && !send(change{slot: slot, state: stateOf(kv.RemovalBy(entry) == record.Kept, record.Parse(entry.Value(), entry.Revision()))}) {
					return false, nil
				}
			}
		}
	}
}

// readAll reads all slots.
func (s *Semaphore) readAll(ctx context.Context, send func(change) bool) error {
	for slot := range s.slots {
		ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
		state, err := s.read.Read(ctx, s.slotKey(slot))
		cancel()
		if err != nil {
			return err
		}
		if !send(change{slot: slot, state: stateOf(state.Removal == record.Kept, state.Record)}) {
			return nil
		}
	}
	send(change{synced: true})
	return nil
}

// stateOf returns the state of a slot, under whose key a record is stored or not.
func stateOf(stored bool, r record.Record) *slotState {
	standDown, released := r.IsRelease()
	if !stored || released {
		return &slotState{released: stored && standDown == 0}
	}
	now := time.Now()
	return &slotState{held: true, leads: r.Term > 0 || r.Instance == "", instance: r.Instance, since: now, seen: now}
}

// slotKey returns the key of a slot.
func (s *Semaphore) slotKey(slot int) string { return s.key + "." + strconv.Itoa(slot) }

// slotOf returns the slot of a key.
func (s *Semaphore) slotOf(key string) (slot int, found bool) {
	slot, err := strconv.Atoi(strings.TrimPrefix(key, s.key+"."))
	return slot, err == nil && slot >= 0 && slot < s.slots && key == s.slotKey(slot)
}
