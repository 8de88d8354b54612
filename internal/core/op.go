package core

import (
	"time"

	"github.com/natscampaign/election/internal/record"
)

// Kind is what a candidate has its driver do.
type Kind uint8

// The kinds of operations.
const (
	None       Kind = iota
	Wait            // until the time comes, or something happens that [Candidate.Notice] is told of
	Read            // read the key
	Load            // load the info of the bucket
	Write           // write the key
	Delete          // delete the key
	AskBackoff      // ask the user's Backoff for the time to the next campaign
	Finish          // return: nothing is left to do
)

// Op is the one thing that a candidate does now.
type Op struct {
	Kind Kind
	Due  time.Time // when it means to be done; zero if it waits for somebody else

	Until time.Time // Wait: ends then; zero for no limit
	Quiet bool      // Wait: ends also once callbacks and work have returned

	Limit time.Time // the request ends then, without an answer
	Scope Scope     // the request ends before, too, if this does

	Marker bool // Read: where no record is stored, have a watcher read the marker, or the release that a deletion carries

	Value      []byte // Write
	Replaces   uint64 // Write, Delete: the revision that is to be replaced; 0: the key is to be free
	Create     bool   // Write: over the marker of a removal too
	Deletes    bool   // Write: the value is what a deletion carries, see releasing.writeOp
	Lasts      bool   // Write: that deletion never expires
	Renewal    bool   // Write: it renews a term, see [Result.Reconnected]
	Reconnects uint64 // Write: not to be sent if the connection was made again more often; AnyReconnects if that does not matter
	Failed     int    // AskBackoff: campaigns in a row that did not win

	Cloned bool // Finish: go on as another instance
}

// AnyReconnects is the number of reconnections of a write that is to be sent in any case.
const AnyReconnects = 1<<64 - 1

// Scope is what ends a request before its limit.
type Scope uint8

// The scopes.
const (
	Always     Scope = iota // nothing does: a write may have been applied that only its sender can undo
	WhileRuns               // the end of the run
	WhileLeads              // the end of leadership
)

// Outcome is what the answer to a write proves about that write.
type Outcome uint8

// The outcomes of a write.
const (
	Unknown Outcome = iota // applied, or not, or later: only the key itself can tell
	Applied                // acknowledged
	Refused                // another revision is stored under the key, or for a moment seemed to be
	Failed                 // not applied
)

// Result is what came of an operation. What does not belong to its kind is zero.
type Result struct {
	Err      error
	Failure  Failure // what Err means; none if it is nil
	Quiet    bool    // Wait: callbacks and work have returned
	State    record.State
	Refusal  bool          // Read: the server does not permit it
	Bucket   Bucket        // Load
	Delay    time.Duration // AskBackoff
	Outcome  Outcome       // Write
	Revision uint64        // Write: of what was written
	Last     uint64        // Write: the sequence of what is stored, if the refusal names it
	Named    bool          // whether it does

	Reconnects  uint64 // how often the connection has been made again
	Reconnected bool   // Write: it was not sent, because the connection was made again since
	Crowd       bool   // Write: many elections of this process share the bucket
}

// Failure is what an error means, as far as a candidate's decisions depend on it.
type Failure uint8

// The failures.
const (
	NoFailure    Failure = iota
	Timeout              // no answer came in time
	NoStream             // nobody answers such requests
	Gone                 // there is no such bucket
	Unfit                // the bucket, or an option in it, is wrong
	TooLarge             // the server or the bucket does not take so large a record
	Disconnected         // the request was not sent, or the connection was lost meanwhile
	Ended                // the connection is closed for good
	Unreadable           // reading is known not to be permitted, and was not tried
	Canceled             // the scope of the request ended, or nobody needs its answer any more
	Otherwise            // the server has another reason
)

// String returns the word by which the log names the failure.
func (f Failure) String() string {
	switch f {
	case NoFailure:
		return ""
	case Timeout:
		return "timeout"
	case NoStream, Gone:
		return "no-stream"
	case TooLarge:
		return "too-large"
	case Disconnected, Ended:
		return "disconnected"
	}
	return "error"
}

// mayBeGone reports whether the bucket may be gone. A request that nobody answers does not show it.
func (f Failure) mayBeGone() bool { return f == NoStream || f == Gone }
