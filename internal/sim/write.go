package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// content is what the simulator reads in a candidate's record.
type content struct {
	Name        string    `json:"name"`
	Instance    string    `json:"instance"`
	Attempt     string    `json:"attempt"`
	Since       time.Time `json:"since"`
	Term        uint64    `json:"term"`
	Bucket      time.Time `json:"bucket"`
	Released    time.Time `json:"released"`
	StandDownMs int64     `json:"stand_down_ms"`
	Successors  []string  `json:"successors"`
}

func parseContent(value []byte) (c content) {
	if json.Unmarshal(value, &c) != nil || c.Attempt == "" {
		return content{Name: string(value)}
	}
	return c
}

// write is one request to change the key, and its outcome.
type write struct {
	by         *ledger // nil: an operator or a stranger, whose writes demand nothing
	create     bool
	remove     bool
	purge      bool
	value      []byte
	content    content
	expect     uint64 // the revision that the write demands; for a create, of the marker that the client saw
	cannotRead bool   // a create whose client cannot read the marker of a removal
	sent       time.Time

	notified         *entry // the last entry of which the writer had been notified
	notifiedAt       time.Time
	notifiedPrevious *entry        // the entry of the notification before
	read             *entry        // the record that the writer had last read
	standDownLeft    time.Duration // of a leader-elect that renews
	sawRemoval       bool          // whether that leader-elect had been notified of a removal

	replaced      *entry    // what was under the key before
	applied       time.Time // zero if it was not applied
	bucketCreated time.Time // of the bucket in which it was applied
	revision      uint64
	knownAt       time.Time // when the writer learned that it was applied; zero if it did not
	acknowledged  time.Time // when its call returned without an error; zero if it did not
}

// releases reports whether the write is a release.
func (q *write) releases() bool { return !q.content.Released.IsZero() }

// givesUp reports whether the write is a release or a removal.
func (q *write) givesUp() bool { return q.remove || q.releases() }

// name returns the name of the writer, for the journal.
func (q *write) name() string {
	if q.by == nil {
		return ""
	}
	return q.by.name
}

func (q *write) verb() string {
	switch {
	case q.remove && q.purge:
		return "purge"
	case q.remove:
		return "delete"
	case q.create:
		return "create"
	case q.releases():
		return "release"
	}
	return "update"
}

// entry is a record or the marker of a removal under the key.
type entry struct {
	op       jetstream.KeyValueOp
	expired  bool // a marker that the server put
	revision uint64
	value    []byte
	stamped  time.Time // by the server's clock
	write    *write    // nil for the server
}

func (e *entry) isMarker() bool { return e != nil && e.op != jetstream.KeyValuePut }

// by returns the candidate that wrote the entry, or nil.
func (e *entry) by() *ledger {
	if e == nil || e.write == nil {
		return nil
	}
	return e.write.by
}

// isRelease reports whether a candidate released the key by this record.
func (e *entry) isRelease() bool { return e.by() != nil && e.write.releases() }

// wrongSequence is the error that nats.go makes of a lost compare-and-swap. The server mostly names the last sequence of the
// key, 0 if there is none.
func wrongSequence(q *write, last uint64, named bool) error {
	if !named {
		return transientRefusal(q)
	}
	return refusal(q, jetstream.JSErrCodeStreamWrongLastSequence, fmt.Sprintf("wrong last sequence: %d", last))
}

// transientRefusal is the error for a write while another write is in flight. It names no sequence.
func transientRefusal(q *write) error {
	return refusal(q, jetstream.JSErrCodeStreamWrongLastSequenceConstant, "wrong last sequence")
}

// namedSequence returns the last sequence that a refusal names.
func namedSequence(err error) (last uint64, named bool) {
	api := (*jetstream.APIError)(nil)
	if !errors.As(err, &api) {
		return 0, false
	}
	text, named := strings.CutPrefix(api.Description, "wrong last sequence: ")
	last, err = strconv.ParseUint(text, 10, 64)
	return last, named && err == nil
}

// refusal wraps the server's answer as nats.go does.
func refusal(q *write, code jetstream.ErrorCode, description string) error {
	err := fmt.Errorf("nats: %w", &jetstream.APIError{Code: 400, ErrorCode: code, Description: description})
	switch {
	case !q.create:
		return fmt.Errorf("%w: %w", err, jetstream.ErrKeyRevisionMismatch)
	case code == jetstream.JSErrCodeStreamWrongLastSequence:
		return fmt.Errorf("%w: key exists", err)
	}
	return fmt.Errorf("%w: %w", err, jetstream.ErrKeyExists)
}
