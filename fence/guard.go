package fence

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/natscampaign/election"
)

// ErrFenced is returned when something was refused because the term on whose behalf it was asked for is over: a newer one has
// begun, or its lease has ended. It is an election.ErrNotLeader, so that Run campaigns again when the work returns it.
var ErrFenced error = fencedOff{}

type fencedOff struct{}

func (fencedOff) Error() string { return "fenced off" }
func (fencedOff) Unwrap() error { return election.ErrNotLeader }

// Guard refuses what older leaders ask for, by the highest token that it has seen. Put one before whatever a leader changes
// outside of NATS, one for each election, in the process that makes the change.
//
// The zero Guard is ready for use, by many goroutines at once. It must not be copied.
type Guard struct {
	// Keep, if set before the Guard is used, is called with each newer token before that is admitted, one at a time, so that
	// it outlives the process: store it where it is as safe as what the leader changes, and begin by admitting it. If Keep
	// fails nothing is admitted, and older tokens still are.
	Keep func(token string) error

	highest   atomic.Pointer[string]
	admission sync.Mutex // held while a newer token is kept

	mu      sync.Mutex
	turn    string     // the token whose effects may run
	running int        // how many of them do
	idle    *sync.Cond // told when none does any more; nil until somebody waits for that
}

// Admit returns nil if no newer token has been admitted, and remembers this one. Otherwise the error is [ErrFenced], or
// [ErrInvalidToken] if it is no token, or what Keep returned, and nothing has changed.
//
// What was admitted before a newer token came may still be going on. Where that must not mix with what comes after it, use
// [Guard.Do].
func (g *Guard) Admit(token string) error {
	if err := checkToken(token); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if newer, err := g.compare(token); !newer {
		return err
	}
	g.admission.Lock()
	defer g.admission.Unlock()
	if newer, err := g.compare(token); !newer { // while it waited
		return err
	}
	if g.Keep != nil {
		if err := g.Keep(token); err != nil {
			return fmt.Errorf("fence: token %s cannot be kept: %w", token, err)
		}
	}
	g.highest.Store(&token)
	return nil
}

// compare says whether a token is newer than all that were admitted, and refuses one that is older.
func (g *Guard) compare(token string) (newer bool, err error) {
	highest := g.Highest()
	if token < highest {
		err = fmt.Errorf("fence: %w: token %s is older than %s, which was seen before", ErrFenced, token, highest)
	}
	return token > highest, err
}

// Do calls effect on behalf of a term if its token is admitted, and returns its error. Effects of one term run side by side.
// The first of a newer one shuts out all that are older, and is called when those under way have returned: the effects of two
// terms never mix. So an effect may call Do with its own token, but would wait for itself with a newer one.
func (g *Guard) Do(token string, effect func() error) error {
	if err := g.begin(token); err != nil {
		return err
	}
	defer g.end()
	return effect()
}

// begin waits for the effects of older terms, and counts one that has the token, unless a newer one was admitted.
func (g *Guard) begin(token string) error {
	if err := g.Admit(token); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		if _, err := g.compare(token); err != nil { // while it waited
			return err
		}
		if g.turn == token || g.running == 0 {
			g.turn = token
			g.running++
			return nil
		}
		if g.idle == nil {
			g.idle = sync.NewCond(&g.mu)
		}
		g.idle.Wait()
	}
}

func (g *Guard) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 && g.idle != nil {
		g.idle.Broadcast()
	}
}

// Highest returns the newest token that was admitted, "" if none was.
func (g *Guard) Highest() string {
	if highest := g.highest.Load(); highest != nil {
		return *highest
	}
	return ""
}
