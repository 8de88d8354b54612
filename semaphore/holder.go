package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/candidacy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
)

// answerSpread bounds the random time after which a waiter answers the release of a slot. Most of many waiters have seen another's win by
// then.
const answerSpread = 8 * time.Millisecond

// holder is one call of Acquire or TryAcquire, and then the holder of the slot. No other holder in this process has its name, because
// their metrics could not be distinguished otherwise.
type holder struct {
	*Semaphore
	number      int
	candidacies []*candidacy.Candidacy

	view     *view
	attempts map[int]*attempt // by slot
	outcomes chan *attempt    // receives each attempt that is decided, and once more when one that was withdrawn has ended
	answerAt time.Time        // when this holder answers the latest release
}

// attempt is the campaign for one slot.
type attempt struct {
	slot      int
	instance  string
	released  bool // the slot takes no stand-down
	withdrawn bool // another holder was quicker
	ended     bool
	candidacy *candidacy.Candidacy
}

// newHolder returns a holder with the first name that is free.
func (s *Semaphore) newHolder() *holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &holder{Semaphore: s, view: newView(s.slots), attempts: map[int]*attempt{}, outcomes: make(chan *attempt, s.slots)}
	for s.names[h.number] {
		h.number++
	}
	s.names[h.number] = true
	return h
}

// leave frees the name once all candidacies of the holder are done.
func (h *holder) leave() {
	go func() {
		for _, s := range h.candidacies {
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

// acquire acquires a slot. It follows what happens to the slots, and campaigns for one that is free: first for one that its holder
// released, which takes no stand-down; meanwhile, if there is none such, for another. If wait is false it gives up when all slots are held.
func (h *holder) acquire(ctx context.Context, wait bool) (won *Slot, err error) {
	user := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer func() {
		for _, s := range h.candidacies {
			if won == nil || s != won.candidacy {
				s.Cancel()
			}
		}
	}()
	changes := h.follow(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := h.withdrawHeldBack(); err != nil && !wait {
			return nil, err
		}
		next, err := h.campaign(user)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		if h.isCampaigning() {
			next = timeutil.Earlier(next, now.Add(readInterval)) // its candidate may be held back by then
		}
		if full := h.view.fullAt(now); !wait && h.view.synced && !h.isCampaigning() && !now.Before(h.answerAt) {
			if !now.Before(full) {
				return nil, fmt.Errorf("%w: %d of %q%s", ErrFull, h.slots, h.key, h.view.pausedText())
			}
			next = timeutil.Earlier(next, full)
		}
		timer.Reset(time.Until(next))
		select {
		case <-user.Done():
			return nil, user.Err()
		case <-timer.C:
		case c := <-changes:
			if c.err != nil && (!wait || kv.IsUnfit(c.err) || errors.Is(c.err, nats.ErrConnectionClosed)) {
				return nil, c.err
			}
			h.changed(c)
		case a := <-h.outcomes:
			if slot, err := h.decided(ctx, a); slot != nil || err != nil {
				return slot, err
			}
		}
	}
}

// campaign begins a campaign for a slot, if one is free. It returns when to call it again at the latest.
func (h *holder) campaign(ctx context.Context) (next time.Time, err error) {
	now := time.Now()
	next = h.view.expire(now)
	answering := false
	for _, a := range h.attempts {
		answering = answering || a.released && !a.withdrawn
	}
	released, other := h.view.free()
	switch {
	case !h.view.synced, answering:
	case len(released) > 0:
		if now.Before(h.answerAt) {
			return timeutil.Earlier(next, h.answerAt), nil
		}
		return next, h.start(ctx, released, true)
	case !h.isCampaigning():
		return next, h.start(ctx, other, false)
	}
	return next, nil
}

// isCampaigning reports whether a campaign for a slot is under way.
func (h *holder) isCampaigning() bool {
	for _, a := range h.attempts {
		if !a.withdrawn {
			return true
		}
	}
	return false
}

// start begins a campaign for any one of the slots for which none is under way.
func (h *holder) start(ctx context.Context, slots []int, released bool) error {
	rand.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	for _, slot := range slots {
		if h.attempts[slot] != nil {
			continue
		}
		e, err := h.candidate(slot)
		if err != nil {
			return err
		}
		a := &attempt{slot: slot, instance: e.Status().Instance, released: released, candidacy: candidacy.Start(ctx, e)}
		h.attempts[slot], h.candidacies = a, append(h.candidacies, a.candidacy)
		go func() {
			<-a.candidacy.Decided
			h.outcomes <- a
		}()
		return nil
	}
	return nil
}

// changed takes note of a change, and withdraws the attempt for a slot that another holder has won.
func (h *holder) changed(c change) {
	h.view.apply(c)
	if c.synced && h.hasJustReleased() { // else who acquires again and again would always be the quickest
		h.answerAt = time.Now().Add(timeutil.Random(answerSpread))
	}
	if c.state == nil {
		return
	}
	now := h.view.slots[c.slot]
	a := h.attempts[c.slot]
	switch {
	case now.released && h.view.synced:
		h.answerAt = time.Now().Add(timeutil.Random(answerSpread))
	case a != nil && !a.withdrawn && now.held && now.instance != a.instance:
		a.withdraw()
	}
}

// withdraw ends the campaign.
func (a *attempt) withdraw() {
	a.withdrawn = true
	a.candidacy.Cancel()
}

// withdrawHeldBack withdraws the attempts for slots that an operator has paused since the slots were last watched anew: others may be free. The error is that
// of a health check: this host acquires none.
func (h *holder) withdrawHeldBack() (err error) {
	for _, a := range h.attempts {
		if a.withdrawn {
			continue
		}
		switch paused, held := a.candidacy.HeldBack(); {
		case paused:
			h.view.slots[a.slot].paused = true
			a.withdraw()
		case held != nil:
			err = held
		}
	}
	return err
}

// decided returns the slot if the attempt has won it. An attempt that was withdrawn is over when its election has ended: until then, the
// same name may not campaign for the slot again.
func (h *holder) decided(ctx context.Context, a *attempt) (*Slot, error) {
	switch {
	case a.candidacy.Err == nil && !a.withdrawn:
		return &Slot{a.slot, h.Semaphore, a.candidacy}, nil
	case a.candidacy.Err == nil && !a.ended:
		a.ended = true
		go func() {
			if a.candidacy.WaitDone(ctx) == nil {
				h.outcomes <- a
			}
		}()
		return nil, nil
	}
	delete(h.attempts, a.slot)
	if a.withdrawn || errors.Is(a.candidacy.Err, election.ErrStopped) {
		return nil, nil
	}
	return nil, a.candidacy.Err
}
