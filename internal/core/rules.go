package core

import (
	"time"

	"github.com/natscampaign/election/internal/lease"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// Rules are what never changes while a candidate campaigns: who it is, and what its options say.
type Rules struct {
	BucketName, Name, Instance, Host string
	PID                              int
	Priority                         int
	Order                            Order
	Plain                            bool // its records are its bare name
	Preempts                         bool // it asks a leader of lower priority to hand over
	HasBackoff                       bool // the time from one campaign to the next is asked for, see [Ask]
	Connected                        bool // the connection of the bucket is known, so that the markers of removals are read

	*World
}

// World is what a candidate needs of the world beside answers and notifications. A simulator has one of its own.
type World struct {
	Random    func(time.Duration) time.Duration // from 0 to just below the given time
	NewID     func() string                     // see record.NewID
	NewSecret func() record.Secret              // see record.NewSecret
	Clocks    func() lease.Reading              // see lease.Read
	Boot      lease.Clock                       // see lease.SinceBoot
	Started   lease.Reading                     // older than every write of this process
	Seed      uint64                            // has the hashes of this process differ from those that somebody else could reckon with
}

// Order says whom a release names, beside the target of a transfer.
type Order uint8

// The orders.
const (
	ByRank    Order = iota // candidates of the highest priority, and among these first the one that was seen last
	ByArrival              // all that wait, in the order in which they came
	ByChance               // nobody
)

// State is the state of a candidate. The values are those of package election.
type State uint8

// The states.
const (
	Follower    State = 1 // it holds no key, or its leadership has ended
	Leader      State = 2 // leadership counts
	LeaderElect State = 3 // it holds the key and waits for its leadership to count
)

// Reason says in one word why the state of a candidate changed. The words are those of package election.
type Reason string

// The reasons to become a leader-elect, and then the leader.
const (
	Vacant    Reason = "vacant"
	Released  Reason = "released"
	Reclaimed Reason = "reclaimed"
	StoodDown Reason = "stood-down"
)

// The reasons for the end of a term, and where it is decided:
//
//	Stopped                             the end of the run: Stop, and beginTerm for a term that was won after it
//	Resigned, Unhealthy, WorkEnded      the shell: End
//	Transferred, Relinquished           the shell: Handover
//	Closed                              the shell: End
//	Deadline                            renew, confirmed, and the timer of the shell: End
//	Overwritten, Deleted                conclude and resolveUnclear, by way of lose
//	BucketReplaced                      confirmIn, and lose, which asks the server for it
//	Rewound                             resolve, by the sequence that a refusal names, and conclude
//	Cloned                              conclude
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

// Voluntary reports whether a term that ended for this reason still holds the key, and releases it.
func (r Reason) Voluntary() bool { return r.yields() || r == Stopped || r == WorkEnded }

// yields reports whether a term ended for this reason in favour of other candidates: then its own candidate holds back.
func (r Reason) yields() bool {
	return r == Resigned || r == Transferred || r == Relinquished || r == Unhealthy
}

// Bucket is what a candidate knows of its bucket, and the durations that follow from it.
type Bucket struct {
	timing.Timing
	Created   time.Time     // the identity of the bucket; zero if the bucket does not say
	Read      time.Time     // when the request was sent
	Took      time.Duration // how long the server took to answer
	MarkerTTL time.Duration // how long the marker of an expiry is stored; 0 if expiries are not announced
	Pinned    bool          // Created comes from the metadata, which no server changes by itself
	Paused    bool          // an operator has paused the election
}

// earlier returns the earlier of two times, of which the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
