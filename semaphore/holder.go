package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/session"
)

// holder is one call of Acquire or TryAcquire, and then the holder of the slot. No other holder in this process has its name, because
// their metrics could not be distinguished otherwise.
type holder struct {
	*Semaphore
	number   int
	sessions []*session.Session
}

// newHolder returns a holder with the first name that is free.
func (s *Semaphore) newHolder() *holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &holder{Semaphore: s}
	for s.names[h.number] {
		h.number++
	}
	s.names[h.number] = true
	return h
}

// leave frees the name once all sessions of the holder are done.
func (h *holder) leave() {
	go func() {
		for _, s := range h.sessions {
			_ = s.WaitDone(context.Background())
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.names, h.number)
	}()
}

// candidate returns a new candidate for a slot.
func (h *holder) candidate(slot int) (*election.Election, error) {
	name := h.name
	if h.number > 0 {
		name += "#" + strconv.Itoa(h.number+1)
	}
	return election.NewElection(name, h.slotKey(slot), h.bucket, h.opts...)
}

// slotKey returns the key of a slot.
func (s *Semaphore) slotKey(slot int) string { return s.key + "." + strconv.Itoa(slot) }

// state reads what is stored under the key of a slot.
func (h *holder) state(ctx context.Context, slot int) (kv.State, error) {
	ctx, cancel := context.WithTimeout(ctx, kv.RequestTimeout)
	defer cancel()
	return h.read.Read(ctx, h.slotKey(slot))
}

// try acquires a slot that its holder released or, if there is none and a stand-down may be taken, one that is free for another reason.
func (h *holder) try(ctx context.Context, mayStandDown bool) (*Slot, error) {
	var free []int
	for _, number := range rand.Perm(h.slots) { // so that holders that come together try different slots
		state, err := h.state(ctx, number)
		if err != nil {
			return nil, err
		}
		switch standDown, released := state.Record.IsRelease(); {
		case released && standDown == 0:
			if slot, err := h.acquire(ctx, number); slot != nil || err != nil {
				return slot, err
			}
		case mayStandDown && state.Vacant():
			free = append(free, number)
		}
	}
	for _, number := range free {
		if slot, err := h.acquire(ctx, number); slot != nil || err != nil {
			return slot, err
		}
	}
	return nil, fmt.Errorf("%w: %d of %q", ErrFull, h.slots, h.key)
}

// acquire acquires a slot. It returns nil if another holder was quicker.
func (h *holder) acquire(ctx context.Context, number int) (*Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := h.candidate(number)
	if err != nil {
		return nil, err
	}
	s, err := session.Try(ctx, e)
	if s != nil {
		h.sessions = append(h.sessions, s)
	}
	if err == nil {
		return &Slot{Number: number, session: s}, nil
	}
	if _, held := errors.AsType[session.HeldError](err); !held {
		return nil, err
	}
	_ = s.WaitDone(ctx) // then the same name may campaign for the slot again
	return nil, nil
}

// wait campaigns for all slots, keeps the first that it wins, and cancels the other sessions. A second slot that it wins in the same
// moment is released at once.
func (h *holder) wait(ctx context.Context) (won *Slot, err error) {
	for _, s := range h.sessions {
		if err := s.WaitDone(ctx); err != nil {
			return nil, err
		}
	}
	defer func() {
		for _, s := range h.sessions {
			if won == nil || s != won.session {
				s.Cancel()
			}
		}
	}()
	decided := make(chan *Slot, h.slots)
	for number := range h.slots {
		e, err := h.candidate(number)
		if err != nil {
			return nil, err
		}
		s := session.Start(ctx, e)
		h.sessions = append(h.sessions, s)
		go func() {
			<-s.Decided
			decided <- &Slot{Number: number, session: s}
		}()
	}
	select {
	case slot := <-decided:
		if slot.session.Err != nil {
			return nil, slot.session.Err
		}
		return slot, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
