package fence

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/natscampaign/election"
)

// ErrFenced is returned when a write or an effect was refused because its term is over: a newer term has begun, or its lease has ended. It
// is an election.ErrNotLeader, so that Run campaigns again when the work returns it.
var ErrFenced error = fencedOff{}

type fencedOff struct{}

func (fencedOff) Error() string { return "fenced off" }
func (fencedOff) Unwrap() error { return election.ErrNotLeader }

// Guard refuses requests of older leaders, by the highest token that it has admitted. Use one for each election, in the process that makes
// the changes which a leader asks for outside of NATS.
//
// The zero Guard is ready for use, by many goroutines at once. It must not be copied.
type Guard struct {
	// Keep, if set before the Guard is used, is called with each newer token before that is admitted, one at a time, so that the token
	// outlives the process. Store the token where it is as safe as what the leader changes, and admit it when the process starts. If Keep
	// fails the token is not admitted, and older tokens still are.
	Keep func(token string) error

	highest   atomic.Pointer[string]
	admission sync.Mutex // held while a newer token is kept

	mu      sync.Mutex
	current string     // the token whose effects may run
	running int        // how many of them do
	idle    *sync.Cond // signals that none does any more; nil until a caller waits for that
}

// Admit returns nil if no newer token has been admitted, and remembers this one. Otherwise the error is [ErrFenced], or
// [ErrInvalidToken] if it is no token, or Keep's error, and nothing has changed.
//
// Effects that were admitted before a newer token may still be under way. Where they must not mix with later ones, use [Guard.Do].
func (g *Guard) Admit(token string) error {
	if err := validateToken(token); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if newer, err := g.compare(token); !newer {
		return err
	}
	g.admission.Lock()
	defer g.admission.Unlock()
	if newer, err := g.compare(token); !newer { // another call admitted a token meanwhile
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

// compare reports whether a token is newer than all that were admitted, and refuses one that is older.
func (g *Guard) compare(token string) (newer bool, err error) {
	highest := g.Highest()
	if token < highest {
		err = fmt.Errorf("fence: %w: token %s is older than %s, which was seen before", ErrFenced, token, highest)
	}
	return token > highest, err
}

// Do calls effect on behalf of a term if its token is admitted, and returns its error. Effects of one term run concurrently. The first effect
// of a newer term shuts out all older ones, and is called when those under way have returned: effects of two terms never mix. An effect may
// call Do with its own token; with a newer one it would wait for itself.
func (g *Guard) Do(token string, effect func() error) error {
	if err := g.begin(token); err != nil {
		return err
	}
	defer g.end()
	return effect()
}

// begin waits until the effects of older terms have returned, and counts the effect, unless a newer token was admitted.
func (g *Guard) begin(token string) error {
	if err := g.Admit(token); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		if _, err := g.compare(token); err != nil { // a newer one was admitted meanwhile
			return err
		}
		if g.current == token || g.running == 0 {
			g.current = token
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

// Highest returns the newest token that was admitted; "" if none was.
func (g *Guard) Highest() string {
	if highest := g.highest.Load(); highest != nil {
		return *highest
	}
	return ""
}
