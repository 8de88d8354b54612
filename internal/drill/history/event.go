package history

import (
	"encoding/json"
	"github.com/natscampaign/election/internal/host"
	"io"
	"sync"
	"time"
)

// What is the kind of an event.
type What string

// The kinds of event.
const (
	Started   What = "started"   // the process becomes a candidate
	Elected   What = "elected"   // it holds the key; leadership does not count yet: Term, Reason
	Believes  What = "believes"  // the first true answer of IsLeader: Term, Token, Deadline
	Renewed   What = "renewed"   // the answer is still true, and the deadline has moved: Deadline
	Doubts    What = "doubts"    // the first answer that is no longer true: Last
	Paused    What = "paused"    // IsLeader was not called for long, as in a stopped process: Last, Still
	Lost      What = "lost"      // it no longer holds the key: Term, Reason
	Fenced    What = "fenced"    // the stream refused a record because it has records of a later term: Term, Number
	Overtaken What = "overtaken" // the answer is true although the stream has a record of a later term: Term, Token of the later term
	Beat      What = "beat"      // how often IsLeader was called since the process started: Samples, Requests
	Killed    What = "killed"    // the process is about to be killed; the killer writes this event
	Stopped   What = "stopped"   // the process leaves the election in order
	Works     What = "works"     // the work of a key begins: Term
	Rests     What = "rests"     // it is about to return
)

// Event is one line of a history.
type Event struct {
	At       time.Duration `json:"t"`
	What     What          `json:"e"`
	Key      string        `json:"key,omitempty"` // one of a session; empty if the event concerns the process, or the candidate has no session
	Term     uint64        `json:"term,omitempty"`
	Token    string        `json:"token,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"` // when the lease ends unless it is renewed
	Last     time.Duration `json:"last,omitempty"`     // just before the call that returned the last true answer
	Still    bool          `json:"still,omitempty"`    // whether the first answer after a pause is true
	Number   uint64        `json:"number,omitempty"`
	Samples  int           `json:"samples,omitempty"`
	Requests uint64        `json:"requests,omitempty"` // of a session, since the process started
}

// Writer appends events to a history. It is safe for concurrent use.
//
// After an event that could not be written, it writes no more, and every call returns that error: whoever can end the candidate learns
// of the failed write of another.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewWriter returns a writer of events to w, which should be a file opened for appending.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write appends e in one write, so the end of the process cannot undo it. If e has no time, its time is now.
func (w *Writer) Write(e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if e.At == 0 {
		e.At = host.Clock()
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, w.err = w.w.Write(append(line, '\n'))
	return w.err
}
