package sim

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/sim/judge"
)

// wrongSequence is the error that nats.go makes of a lost compare-and-swap. The server mostly names the last sequence of the
// key, 0 if there is none.
func wrongSequence(q *judge.Write, last uint64, named bool) error {
	if !named {
		return transientRefusal(q)
	}
	return refusal(q, jetstream.JSErrCodeStreamWrongLastSequence, fmt.Sprintf("wrong last sequence: %d", last))
}

// transientRefusal is the error for a write while another write is in flight. It names no sequence.
func transientRefusal(q *judge.Write) error {
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
func refusal(q *judge.Write, code jetstream.ErrorCode, description string) error {
	err := fmt.Errorf("nats: %w", &jetstream.APIError{Code: 400, ErrorCode: code, Description: description})
	switch {
	case !q.Create:
		return fmt.Errorf("%w: %w", err, jetstream.ErrKeyRevisionMismatch)
	case code == jetstream.JSErrCodeStreamWrongLastSequence:
		return fmt.Errorf("%w: key exists", err)
	}
	return fmt.Errorf("%w: %w", err, jetstream.ErrKeyExists)
}
