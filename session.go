package election

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/settings"
)

// An election of package session: the claim of its key decides, the session makes the requests and has the notifications, and the loop only waits.

// goOn has the session, if there is one, do what was decided. The caller holds the mutex.
func (e *Election) goOn() {
	if e.opts.Claim != nil {
		e.opts.Claim.GoOn()
	}
}

// detach frees the key in the session, if there is one, once the election has ended for good.
func (e *Election) detach() {
	e.mu.Lock()
	ended := e.stopped && e.current == nil
	e.mu.Unlock()
	if ended && e.opts.Claim != nil {
		e.opts.Claim.Detach()
	}
}

// campaignBySession campaigns and leads until the run is to end.
func (r *run) campaignBySession() error {
	defer r.takePart()()
	defer r.endBackground()
	if nc := r.bucket.Conn(); nc != nil && nc.IsClosed() { // the session has told those that ran when it was closed
		r.fail(nats.ErrConnectionClosed)
	}
	r.loop(time.Now())
	return r.result()
}

// leaderOfClaim reads who leads a key of the session.
func (e *Election) leaderOfClaim(ctx context.Context, claim settings.Claim) (Leader, error) {
	holder, err := claim.Leader(ctx)
	switch {
	case err != nil:
		return Leader{}, fmt.Errorf("leader of %q: %w", e.key, err)
	case holder.Key == "":
		return Leader{}, ErrNoLeader
	}
	return leaderOf(holder), nil
}

// attached is what a claim sees of its election.
type attached struct{ *Election }

// DecideAgain has the claim decide again, in the loop.
func (a attached) DecideAgain(now time.Time) {
	if r := a.current; r != nil {
		r.changed.Broadcast()
		r.shell.DecideAgain(now)
	}
}

// Closed ends the run: the connection is closed for good.
func (a attached) Closed() {
	a.mu.Lock()
	r := a.current
	a.mu.Unlock()
	if r != nil {
		r.fail(nats.ErrConnectionClosed)
	}
}
