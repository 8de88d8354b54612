package core

import "time"

// A role is what a candidate does at present: one small machine, which is in one step at a time. A role owns what is known only as long as it lasts;
// what outlives it is in the candidate. Each role has a file of its own, with one switch over its steps for what to do and one for what
// came of it. River's elector is the model of the roles, and
// RawNode of etcd's raft that of a machine which is told what to do next and what came of it.
type role interface {
	// at returns the present step.
	at() Step
	// next begins the present step, and returns the one thing to do in it. If that is a wait, next is called again whenever the candidate has learned
	// something, because the wait may have to be shorter then; so a step that waits only takes note of what has changed.
	next(c *Candidate, now time.Time) Op
	// done takes what came of it, and returns the role that goes on: this one, in its next step, or another.
	done(c *Candidate, now time.Time, r Result) role
}

// Step is one step of a role. Each is one wait, or one request.
type Step uint8

// The steps of all roles. The names begin with that of the role.
const (
	NotRunning Step = iota

	WaitingBackoff
	WaitingCampaign
	WaitingHeld
	WaitingBucket
	WaitingWithdrawal

	BiddingRead
	BiddingBucket
	BiddingReplies
	BiddingWrite
	BiddingReadBack
	BiddingWinBucket
	BiddingFailedBucket

	HoldingWait

	RenewingHint
	RenewingReconnected
	RenewingWrite
	RenewingRefused
	RenewingBucket

	ReleasingWork
	ReleasingWrite
	ReleasingRefused
	ReleasingPause
	ReleasingPlain
	ReleasingDelete
	ReleasingReturn
	ReleasingBucket

	Finished

	numSteps
)

// steps says of each step which role it belongs to, what the candidate does in it, in words, and which other steps may follow. It is the whole of what a
// candidate does, on one page. A test draws docs/ROLES.md from it. The simulator fails if a candidate goes another way, or if no schedule goes one of these.
var steps = [numSteps]struct {
	role, doing string
	follow      []Step
}{
	NotRunning: {"", "", []Step{WaitingCampaign}},

	// Between campaigns.
	WaitingBackoff:    {"waiting", "asking its Backoff", []Step{WaitingCampaign}},
	WaitingCampaign:   {"waiting", "waiting for its next campaign", []Step{BiddingRead, WaitingHeld, WaitingWithdrawal, Finished}},
	WaitingHeld:       {"waiting", "waiting until nothing holds it back", []Step{BiddingRead, WaitingCampaign, WaitingBucket, WaitingWithdrawal, Finished}},
	WaitingBucket:     {"waiting", "loading the bucket's info", []Step{WaitingCampaign}},
	WaitingWithdrawal: {"waiting", "withdrawing", []Step{Finished}},

	// A campaign, or a read because of a hint.
	BiddingRead:         {"bidding", "reading the key", []Step{BiddingBucket, BiddingReplies, BiddingWrite, WaitingBackoff, WaitingCampaign, Finished}},
	BiddingBucket:       {"bidding", "loading the bucket's info, which may have changed", []Step{BiddingReplies, BiddingWrite, BiddingFailedBucket, WaitingBackoff, WaitingCampaign, Finished}},
	BiddingReplies:      {"bidding", "asking whether replies arrive", []Step{BiddingWrite, BiddingFailedBucket, WaitingBackoff}},
	BiddingWrite:        {"bidding", "campaigning", []Step{BiddingBucket, BiddingReadBack, BiddingWinBucket, BiddingFailedBucket, HoldingWait, WaitingBackoff, WaitingCampaign}},
	BiddingReadBack:     {"bidding", "reading whether its write was applied", []Step{BiddingBucket, BiddingWrite, BiddingFailedBucket, WaitingBackoff, WaitingCampaign, Finished}},
	BiddingWinBucket:    {"bidding", "checking the bucket of the key that it won", []Step{HoldingWait}},
	BiddingFailedBucket: {"bidding", "loading the bucket's info, because the write failed", []Step{WaitingBackoff, WaitingCampaign}},

	// The leader, or leader-elect.
	HoldingWait: {"holding", "waiting for its next renewal", []Step{RenewingHint, RenewingWrite, ReleasingWork, ReleasingReturn}},

	// One try to renew, or a read because of a hint.
	RenewingHint:        {"renewing", "reading the key, because of a notification", []Step{RenewingBucket, HoldingWait}},
	RenewingReconnected: {"renewing", "reading the key, because the connection was made again", []Step{RenewingWrite, RenewingBucket, HoldingWait, ReleasingWork}},
	RenewingWrite:       {"renewing", "renewing", []Step{RenewingReconnected, RenewingRefused, RenewingBucket, HoldingWait, ReleasingWork}},
	RenewingRefused:     {"renewing", "reading why the renewal was refused", []Step{RenewingBucket, HoldingWait, ReleasingWork}},
	RenewingBucket:      {"renewing", "asking whether it is still the same bucket", []Step{HoldingWait, ReleasingWork}},

	// The end of a term.
	ReleasingWork:    {"releasing", "waiting for callbacks and work to return", []Step{RenewingWrite, ReleasingWrite, ReleasingReturn}},
	ReleasingWrite:   {"releasing", "releasing the key", []Step{ReleasingRefused, ReleasingPause, ReleasingPlain, ReleasingReturn}},
	ReleasingRefused: {"releasing", "reading why the release was refused", []Step{ReleasingPause, ReleasingPlain, ReleasingReturn}},
	ReleasingPause:   {"releasing", "waiting to release the key again", []Step{ReleasingWrite, ReleasingReturn}},
	ReleasingPlain:   {"releasing", "leaving the release to candidates that read", []Step{ReleasingDelete}},
	ReleasingDelete:  {"releasing", "deleting the release", []Step{ReleasingReturn}},
	ReleasingReturn:  {"releasing", "waiting for callbacks and work to return, the term being over", []Step{ReleasingBucket, WaitingBackoff, WaitingCampaign, Finished}},
	ReleasingBucket:  {"releasing", "loading the bucket's info, because the key was lost", []Step{WaitingBackoff}},

	Finished: {"finished", "stopping", nil},
}

// Role returns the name of the role that the step belongs to; "" if no run has begun.
func (s Step) Role() string { return steps[s].role }

// String says what a candidate does in the step.
func (s Step) String() string { return steps[s].doing }

// WithRole returns the name of the role and what the candidate does; "" if no run has begun.
func (s Step) WithRole() string {
	if s == NotRunning {
		return ""
	}
	return s.Role() + ": " + s.String()
}

// Follow returns the steps that may follow.
func (s Step) Follow() []Step { return steps[s].follow }

// Steps returns all steps.
func Steps() (all []Step) {
	for s := range numSteps {
		all = append(all, s)
	}
	return all
}

// finished is the role of a candidate whose run is to return.
type finished struct{ cloned bool }

func (finished) at() Step                                  { return Finished }
func (f finished) next(*Candidate, time.Time) Op           { return Op{Kind: Finish, Cloned: f.cloned} }
func (f finished) done(*Candidate, time.Time, Result) role { return f }
