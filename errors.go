package election

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/validate"
)

// The errors that users test for, and what the error of a request means to the candidate.

// Errors to be tested for with errors.Is.
var (
	// ErrInvalidOption is returned by NewElection for a name, key, bucket or option that cannot be used, by Start and Run for an
	// option that does not fit the bucket's TTL, and by methods for an argument that cannot be used. The error names every problem.
	ErrInvalidOption = validate.ErrInvalidOption
	// ErrBucketUnsuitable is returned by Start and Run when the bucket can be reached and is not fit for elections.
	ErrBucketUnsuitable = kv.ErrUnsuitable
	// ErrAlreadyRunning is returned by Start and Run while another call of either is running.
	ErrAlreadyRunning = errors.New("election is already running")
	// ErrStopped is returned by Start and Run after Stop.
	ErrStopped = errors.New("election was stopped")
	// ErrNotLeader is returned by what only a leader can do. Every [TermEndedError] is one.
	ErrNotLeader = control.ErrNotLeader
	// ErrNoLeader is returned when a leader was asked for and there is none.
	ErrNoLeader = errors.New("no leader")
	// ErrNoCandidate is returned by Transfer when the target is not there, or not ready to take over.
	ErrNoCandidate = control.ErrNoCandidate
)

// outcomeOfWrite returns what the error of a write proves about that write.
func outcomeOfWrite(err error) core.Outcome {
	switch kv.Classify(err) {
	case kv.Applied:
		return core.Applied
	case kv.Refused:
		return core.Refused
	case kv.Unknown:
		return core.Unknown
	}
	return core.Failed
}

// failureOf returns what an error means to the candidate.
func failureOf(err error) core.Failure {
	switch {
	case err == nil:
		return core.NoFailure
	case kv.IsGone(err):
		return core.Gone
	case kv.IsUnfit(err):
		return core.Unfit
	case isClosedForGood(err):
		return core.Ended
	case errors.Is(err, context.Canceled):
		return core.Canceled
	}
	switch kv.Failure(err) {
	case kv.FailedTimeout:
		return core.Timeout
	case kv.FailedNoStream:
		return core.NoStream
	case kv.FailedTooLarge:
		return core.TooLarge
	case kv.FailedDisconnected:
		return core.Disconnected
	}
	return core.Otherwise
}

// isClosedForGood reports whether an error says that the connection is closed for good.
func isClosedForGood(err error) bool { return errors.Is(err, nats.ErrConnectionClosed) }

// isUnusable reports whether an error says that the bucket is gone or unfit.
func isUnusable(err error) bool {
	failure := failureOf(err)
	return failure == core.Gone || failure == core.Unfit
}

// describe returns the text of an error of a request; "" for none.
func describe(err error) string {
	if err == nil {
		return ""
	}
	return kv.Describe(err).Error()
}
