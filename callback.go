package election

import "context"

// termCallback is what [OnWonContext] and [OnLostContext] take.
type termCallback = func(context.Context, Term) error

// OnWon is called when leadership begins to count. It may take its time: see [Election] on callbacks.
func OnWon(f func()) Option {
	return func(o *options) {
		o.onWon = append(o.onWon, func(context.Context, Term) error { f(); return nil })
		o.require("OnWon", f != nil)
	}
}

// OnLost is called when leadership that was announced by [OnWon] has ended, whatever ended it.
func OnLost(f func()) Option {
	return func(o *options) {
		o.onLost = append(o.onLost, func(context.Context, Term) error { f(); return nil })
		o.require("OnLost", f != nil)
	}
}

// OnWonContext is [OnWon] with a context that ends when leadership does, and the term. An error is logged and changes
// nothing: call [Election.Resign] to give leadership up. OnLost waits until f has returned, so that what goes on for as
// long as leadership lasts had better be the work of [Election.Run].
func OnWonContext(f func(ctx context.Context, t Term) error) Option {
	return func(o *options) { o.onWon = append(o.onWon, f); o.require("OnWonContext", f != nil) }
}

// OnLostContext is [OnLost] with the context and the term that [OnWonContext] had. That context has ended, and
// context.Cause tells why; for requests make one of context.WithoutCancel. Until [Term.Deadline] nobody else leads: that
// is later than now where leadership was given up, and not where it was lost. An error is logged and changes nothing.
func OnLostContext(f func(ctx context.Context, t Term) error) Option {
	return func(o *options) { o.onLost = append(o.onLost, f); o.require("OnLostContext", f != nil) }
}

// OnCampaign is called for each campaign with the state in which it is made: each attempt of a candidate to win the
// key and each renewal of a leader or leader-elect. Calls that a slow callback leaves far behind are dropped.
func OnCampaign(f func(State)) Option {
	return func(o *options) { o.onCampaign = append(o.onCampaign, f); o.require("OnCampaign", f != nil) }
}

// OnLeaderChange is called when the leader changes, this candidate included, and with the zero [Leader] when the key is read and
// nobody holds it. It tells only what was read from the bucket. A leader-elect is nobody yet. Changes that a slow callback leaves
// behind are dropped but for the last. What it tells may be a moment old: use it to find the leader, and never as a reason to
// do what only a leader may.
func OnLeaderChange(f func(Leader)) Option {
	return func(o *options) { o.onLeader = append(o.onLeader, f); o.require("OnLeaderChange", f != nil) }
}
