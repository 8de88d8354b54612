// Package replay asks of what the library did whether it is a run of the model in spec/election.pml. It takes a [Trace] of a simulated
// schedule, and follows it with the transition relation of package model.
//
// The key is known at any time, as the trace has every change of it. Each candidate is followed by itself: to it all others are the
// strangers of the model. What the trace does not tell, such as whether a candidate means to act on what it read, makes the model's next
// state one of several. The replay keeps all of them. A request or a report that fits none of them is a step that the model does not
// have.
//
//	trace.go      what a simulator records
//	follow.go     one candidate: the states that it may be in, and the passing of time
//	campaign.go   its reads and writes while it campaigns
//	hold.go       its renewals and releases while it holds the key
//	bucket.go     what the server and operators do
//	replay.go     the trace, event by event
//
// A step of the model takes no time, a request of the library does. A write is a step when the server carries it out; what its sender
// was when it sent it still counts then. A refusal and the read after it are one step, made when the read returns. Troubles of links and
// processes are the replay's to choose, for a trace shows their effect. When a candidate campaigns or renews is not compared: only by
// when a lease ends and a stand-down is over.
package replay

import (
	"slices"
	"time"
)

// Plan is what the replay must know of a candidate.
type Plan struct {
	Name                             string
	TTL, Interval, Margin, StandDown time.Duration
	Unmodelled                       bool // the model has no such candidate: to others it is a stranger
}

// Entry is what is stored under the key.
type Entry struct {
	At         time.Duration // when it was written
	Rev        uint64
	By         int // -1: no candidate
	Record     bool
	Release    bool
	Expired    bool          // the marker of an expiry; a deletion's if it is no record either
	Left       time.Duration // of the writer's stand-down
	Successors []string
	Bucket     time.Time // that the writer knew
	Write      *Write
}

// Outcome is what the caller knows after a call.
type Outcome int

// The outcomes.
const (
	Unknown Outcome = iota
	Applied
	Refused
	Unsent
)

// Write is a request to change the key.
type Write struct {
	By             int
	Create         bool
	Expect         uint64
	Wins, Releases bool // else it renews
	Deletes        bool
	Left           time.Duration
	Bucket         time.Time

	Sent     time.Duration
	Served   bool
	Late     bool // served after its sender gave it up
	Accepted bool
	Rev      uint64
	Before   *Entry // under the key when it was served
	Returned bool
	At       time.Duration // when it returned
	Outcome  Outcome
	Named    bool // the refusal names the last sequence, which is Last
	Last     uint64
}

// Kind is what happened.
type Kind int

// The kinds of event.
const (
	Starts    Kind = iota // a run begins
	Ends                  // a run is over
	Crashes               // a process ends without a release
	Vanishes              // the model has no candidate like this from now on
	Quits                 // it is to stop, for good
	Resigns               // it is to resign
	Sends                 // a write
	Serves                // the server carries a write out, or refuses it
	Receives              // the outcome of a write
	Asks                  // reads the key
	Reads                 // the answer: Entry, nil if there is no key; Fails
	AsksInfo              // requests the bucket's info
	HasInfo               // the answer; Fails
	HasMarker             // has asked a watcher for the marker of a removal, or for the source of notifications
	Told                  // is notified of a deletion
	Shows                 // reports State
	Changes               // the server or an operator changes the key to Entry
	Rewinds               // the bucket goes back to Entry
	Remakes               // the bucket is made again
	Clears                // the bucket loses its content and its sequence
)

// State is what a candidate reports.
type State int

// The states.
const (
	NotRunning State = iota
	Campaigns
	IsElect
	Leads
)

// Event is one thing that happened.
type Event struct {
	At     time.Duration
	Kind   Kind
	Who    int
	Write  *Write
	Entry  *Entry
	Seq    uint64
	Fails  bool
	Bucket time.Time // when it was made, by its info
	Busy   bool      // callbacks or work of the candidate still run
	State  State
}

// Trace is everything that happened.
type Trace struct {
	Plans   []Plan
	Buckets []time.Time // when they were made
	Events  []Event
}

// age returns how many times the bucket was made again since, of the given number of buckets.
func (t *Trace) age(bucket time.Time, buckets int) int8 {
	i := slices.IndexFunc(t.Buckets, bucket.Equal)
	if i < 0 {
		return 0
	}
	return int8(max(0, buckets-1-i))
}
