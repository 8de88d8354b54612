// Package kv is what this module knows of JetStream key-value buckets: the errors of the store and what each proves, what is stored
// under a key, the properties of a bucket, and the one list of what makes a bucket unfit for elections.
package kv

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// MinBytes is the least limit of what a bucket stores: the largest record of a candidate without metadata fits.
	MinBytes = 16 << 10
	// MarkerTTL is how long the marker of an expiry is stored, the least that servers accept: until it is gone, a candidate that may not
	// read cannot create the key.
	MarkerTTL = time.Second
	// retryDelay is how long to wait at least before a bucket that cannot be reached is loaded again; at most it is twice that.
	retryDelay = 250 * time.Millisecond
	// stopTimeout is how long the end of a watcher is waited for: the server is asked to remove its consumer, and may not answer.
	stopTimeout = 250 * time.Millisecond
)

// Outcome is what the answer to a write proves about that write.
type Outcome int

// The outcomes of a write.
const (
	Unknown  Outcome = iota // applied, or not, or later: only the key itself can tell
	Applied                 // acknowledged
	Refused                 // another revision is stored under the key, or for a moment seemed to be
	Unsent                  // certainly not applied, now or later: worth another try
	Absent                  // nothing is stored under the key
	Unusable                // no retry can help: the server will never accept this request
)

// Classify is the only place that knows the errors of the store. An error that it does not know is an unknown outcome: that is always
// safe to assume, and never the end of a term.
func Classify(err error) Outcome {
	switch {
	case err == nil:
		return Applied
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		// On replicated streams this may also be passing: some write to the key is still in flight.
		return Refused
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted):
		return Absent
	// The client returns these before it sends anything. ErrConnectionClosed and ErrDisconnected are not among them: the client returns
	// them too for a request that was under way when the connection ended, and the server may have applied that.
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionDraining),
		errors.Is(err, nats.ErrInvalidConnection), IsTooLarge(err):
		return Unsent
	case errors.Is(err, jetstream.ErrInvalidKey), errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrBucketNotFound):
		return Unusable
	}
	return Unknown
}

// MessageExceedsMaximum is the code of a server that refuses a message because it is larger than the stream allows.
const MessageExceedsMaximum jetstream.ErrorCode = 10054

// IsTooLarge reports whether a write was refused because of its size.
func IsTooLarge(err error) bool {
	api := (*jetstream.APIError)(nil)
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == MessageExceedsMaximum
}

// ErrGone is the error of a write that was not answered, because the bucket is gone. The write may have been applied before.
var ErrGone = errors.New("the bucket is gone: there is no stream behind it")

// IsGone reports whether an error says that there is no such bucket.
func IsGone(err error) bool {
	return errors.Is(err, ErrGone) || errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound)
}

// LastSequence returns the sequence of what is stored under a key, 0 for nothing, if the refusal of a write names it. A server that
// keeps the bucket alone names it; replicas with a write in flight do not.
func LastSequence(refusal error) (sequence uint64, named bool) {
	api := (*jetstream.APIError)(nil)
	if !errors.As(refusal, &api) || api.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
		return 0, false
	}
	_, number, found := strings.Cut(api.Description, "wrong last sequence: ")
	if !found {
		return 0, false
	}
	sequence, err := strconv.ParseUint(number, 10, 64)
	return sequence, err == nil
}

// The words by which metrics and logs name a failed request.
const (
	FailedTimeout      = "timeout"
	FailedNoStream     = "no-stream"
	FailedDisconnected = "disconnected"
	FailedConflict     = "conflict"
	FailedTooLarge     = "too-large"
	FailedOtherwise    = "error"
)

// Failure returns one word for what went wrong with a request.
func Failure(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return FailedTimeout
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders), IsGone(err):
		return FailedNoStream
	case IsTooLarge(err):
		return FailedTooLarge
	case Classify(err) == Unsent, errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected):
		return FailedDisconnected
	case Classify(err) == Refused:
		return FailedConflict
	}
	return FailedOtherwise
}

// Describe returns err for a log: the client's words for a request that was not sent because there is no connection, "outbound buffer
// limit exceeded", mislead.
func Describe(err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return disconnectedError{err}
	}
	return err
}

// disconnectedError is the error of a request that was not sent because there is no connection.
type disconnectedError struct{ error }

// Error says so.
func (disconnectedError) Error() string { return "not connected to a server" }

// Unwrap returns the error of the client.
func (e disconnectedError) Unwrap() error { return e.error }
