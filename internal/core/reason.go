package core

// State is the state of a candidate. Package election names these values for users.
type State uint8

// The states.
const (
	Follower    State = 1 // it holds no key, or its leadership has ended
	Leader      State = 2 // leadership counts
	LeaderElect State = 3 // it holds the key and waits for its leadership to count
)

// Reason says in one word why the state of a candidate changed. Package election names these words for users, and says what each means.
type Reason string

// The reasons to become a leader-elect, and then the leader.
const (
	Vacant    Reason = "vacant"
	Released  Reason = "released"
	Reclaimed Reason = "reclaimed"
	Lapsed    Reason = "lapsed"
	StoodDown Reason = "stood-down"
)

// The reasons for the end of a term, and where it is decided:
//
//	Stopped                             the end of the run: Stop, and holdKey for a term that was won after it
//	Resigned, Unhealthy                 the driver, by End: handover.go, health.go, callbacks.go; and Holds.against, for a win that is not kept
//	WorkEnded                           the driver, by End: callbacks.go
//	Transferred, Relinquished           the driver, by Handover: handover.go, relinquish.go
//	Closed                              the driver, by End: run.go
//	Deadline                            renew, extendNow, and Shell.Expired
//	Overwritten, Deleted                what a read or a refusal proves: proof.go, and renewing.lost
//	Rewound, Cloned                     likewise
//	BucketReplaced                      likewise, and renewing.extendIn
//
// Users see them in state.go. These say more about some: internal/cli/supervise (which of them stop a program at once), internal/cli/look and observe (what ended a
// term, for people).
const (
	Stopped      Reason = "stopped"
	Resigned     Reason = "resigned"
	Transferred  Reason = "transferred"
	Relinquished Reason = "relinquished"
	Unhealthy    Reason = "unhealthy"
	WorkEnded    Reason = "work-ended"

	Overwritten    Reason = "overwritten"
	Deleted        Reason = "deleted"
	BucketReplaced Reason = "bucket-replaced"
	Cloned         Reason = "cloned"
	Rewound        Reason = "rewound"
	Closed         Reason = "closed"
	Deadline       Reason = "deadline"
)

// Died is the reason of a release that a witness writes: the process of the term's holder has died. See package internal/witness.
const Died Reason = "died"

// Voluntary reports whether a term that ended for this reason still holds the key, and releases it.
func (r Reason) Voluntary() bool { return r.yields() || r == Stopped || r == WorkEnded }

// yields reports whether a term ended for this reason in favour of other candidates: then its own candidate holds back.
func (r Reason) yields() bool {
	return r == Resigned || r == Transferred || r == Relinquished || r == Unhealthy
}
