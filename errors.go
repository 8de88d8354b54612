package election

import (
	"errors"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/validate"
)

// Errors to be tested for with errors.Is.
var (
	// ErrInvalidOption is returned by NewElection for a name, key, bucket or option that cannot be used, and by Start and Run for an
	// option that does not fit the bucket's TTL. The error names every problem.
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
