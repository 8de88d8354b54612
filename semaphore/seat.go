package semaphore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/hold"
)

// patience is how long a look at a slot may take.
const patience = 2 * time.Second

// seat is what one slot is acquired from: for as long as it stands for any, or holds one, its name is nobody else's in
// this process, whose metrics could not be told apart otherwise.
type seat struct {
	*Semaphore
	number int
	stood  []*hold.Hold
}

// sit takes the first seat that is free.
func (s *Semaphore) sit() *seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &seat{Semaphore: s}
	for s.seats[t.number] {
		t.number++
	}
	s.seats[t.number] = true
	return t
}

// leave frees the seat once all that it stood for is wound up.
func (t *seat) leave() {
	go func() {
		for _, h := range t.stood {
			<-h.Done()
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.seats, t.number)
	}()
}

// candidate returns a new one for a slot.
func (t *seat) candidate(slot int) (*election.Election, error) {
	name := t.name
	if t.number > 0 {
		name += "#" + strconv.Itoa(t.number+1)
	}
	return election.NewElection(name, t.slotKey(slot), t.bucket, t.opts...)
}

// slotKey returns the key of a slot.
func (t *seat) slotKey(slot int) string { return t.key + "." + strconv.Itoa(slot) }

// vacancy is what there is to know of a slot before one stands for it.
type vacancy int

const (
	held     vacancy = iota
	unused           // by anybody for a while, or deleted: it takes a stand-down to get
	released         // by its holder, and to be had at once
)

// look reads how a slot stands.
func (t *seat) look(ctx context.Context, slot int) (vacancy, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	entry, err := t.bucket.Get(ctx, t.slotKey(slot))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return unused, nil
	}
	if err != nil {
		return held, err
	}
	var record struct {
		Released    time.Time `json:"released"`
		StandDownMs int64     `json:"stand_down_ms"`
	}
	switch err := json.Unmarshal(entry.Value(), &record); {
	case err != nil || record.Released.IsZero():
		return held, nil
	case record.StandDownMs > 0:
		return unused, nil
	}
	return released, nil
}

// try takes a slot that was released or, if there is none and it may take a stand-down, one that is unused.
func (t *seat) try(ctx context.Context, standDown bool) (*Slot, error) {
	var later []int
	for _, number := range rand.Perm(t.slots) { // lest all who come together want the same
		v, err := t.look(ctx, number)
		if err != nil {
			return nil, err
		}
		switch {
		case v == unused && standDown:
			later = append(later, number)
		case v == released:
			if slot, err := t.take(ctx, number); slot != nil || err != nil {
				return slot, err
			}
		}
	}
	for _, number := range later {
		if slot, err := t.take(ctx, number); slot != nil || err != nil {
			return slot, err
		}
	}
	return nil, fmt.Errorf("%w: %d of %q", ErrFull, t.slots, t.key)
}

// take takes a slot; it returns nil if somebody else was quicker.
func (t *seat) take(ctx context.Context, number int) (*Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := t.candidate(number)
	if err != nil {
		return nil, err
	}
	h, err := hold.Try(ctx, e)
	if h != nil {
		t.stood = append(t.stood, h)
	}
	if err == nil {
		return &Slot{Number: number, hold: h}, nil
	}
	if _, taken := errors.AsType[hold.Taken](err); !taken {
		return nil, err
	}
	if h != nil {
		select {
		case <-h.Done(): // it may be stood for again
		case <-ctx.Done():
		}
	}
	return nil, nil
}

// wait stands for all slots, takes the first that it gets, and withdraws from the others. A second that it wins in the
// same moment is released at once.
func (t *seat) wait(ctx context.Context) (*Slot, error) {
	for _, h := range t.stood {
		select {
		case <-h.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	candidates := make([]*election.Election, t.slots)
	for number := range candidates {
		var err error
		if candidates[number], err = t.candidate(number); err != nil {
			return nil, err
		}
	}
	first := make(chan *Slot, t.slots)
	stands := make([]*hold.Hold, t.slots)
	for number, e := range candidates {
		h := hold.Stand(ctx, e)
		stands[number] = h
		go func() {
			<-h.Settled()
			first <- &Slot{Number: number, hold: h}
		}()
	}
	t.stood = append(t.stood, stands...)
	var got *Slot
	var err error
	select {
	case got = <-first:
		err = got.hold.Err()
	case <-ctx.Done():
		err = ctx.Err()
	}
	for number, h := range stands {
		if err != nil || got.Number != number {
			h.Withdraw()
		}
	}
	if err != nil {
		return nil, err
	}
	return got, nil
}
