package election

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// outcome is what an answer of the store says about the request it answers.
type outcome int

const (
	unknown  outcome = iota // applied, or not, or later: only the key itself can tell
	applied                 // acknowledged
	refused                 // another revision stands under the key, or for a moment seemed to
	unsent                  // certainly not applied, now or later: worth another try
	absent                  // nothing stands under the key
	unusable                // no retry can help: the store will never take this request
)

// classify is the only place that knows the errors of the store. What it does not know is an unknown outcome: that is
// always safe to assume, and never the end of a term.
func classify(err error) outcome {
	switch {
	case err == nil:
		return applied
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		// On replicated streams this may also be passing: some write to the key is still on its way.
		return refused
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted):
		return absent
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionDraining),
		errors.Is(err, nats.ErrInvalidConnection), errors.Is(err, nats.ErrMaxPayload):
		return unsent
	case errors.Is(err, jetstream.ErrInvalidKey), errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrBucketNotFound):
		return unusable
	}
	return unknown
}

// lastSequence returns the sequence of what is stored under a key, 0 for nothing, if the refusal of a write over another names it: a
// server that keeps the bucket alone says which it is, replicas do not.
func lastSequence(refusal error) (sequence uint64, named bool) {
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

// failures are all that failure returns.
var failures = []string{"timeout", "no-stream", "disconnected", "conflict", "error"}

// failure names what went wrong with a request in one word, for metrics and logs.
func failure(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return "timeout"
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return "no-stream"
	case classify(err) == unsent:
		return "disconnected"
	case classify(err) == refused:
		return "conflict"
	}
	return "error"
}
