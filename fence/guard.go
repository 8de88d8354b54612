package fence

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrFenced is returned when something was refused because the term on whose behalf it was asked for is over: a newer one has
// begun, or its lease has ended.
var ErrFenced = errors.New("fenced off")

// Guard refuses what older leaders ask for: it keeps the highest token that it has seen, in memory. Put one before whatever
// a leader changes outside of NATS, one for each election, in the process that makes the change; where that restarts, keep
// [Guard.Highest] with the data and begin by admitting it.
//
// What Admit let pass before a newer token came may still be going on. A receiver that must not mix the two makes the change
// and calls Admit under one lock, or in one transaction.
//
// The zero Guard is ready for use, by many goroutines at once. It must not be copied.
type Guard struct {
	highest atomic.Pointer[string]
}

// Admit returns nil if no newer token has been admitted, and remembers this one. Otherwise the error is [ErrFenced], or
// [ErrInvalidToken] if it is no token, and nothing has changed.
func (g *Guard) Admit(token string) error {
	if err := checkToken(token); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	for {
		seen := g.highest.Load()
		switch {
		case seen != nil && token == *seen:
			return nil
		case seen != nil && token < *seen:
			return fmt.Errorf("fence: %w: token %s is older than %s, which was seen before", ErrFenced, token, *seen)
		}
		if g.highest.CompareAndSwap(seen, &token) {
			return nil
		}
	}
}

// Highest returns the newest token that was admitted, "" if none was.
func (g *Guard) Highest() string {
	if seen := g.highest.Load(); seen != nil {
		return *seen
	}
	return ""
}
