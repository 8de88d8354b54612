package group

import (
	"time"

	"github.com/natscampaign/election/internal/timeutil"
)

// retryDelay is how long a member waits at most before it tries again what failed.
const retryDelay = time.Second

// retries says when to try again what has failed: each time later, up to a limit. The zero value says at once.
type retries struct {
	due      time.Time
	failures int
}

// failed has the next try wait for the shortest time after the first failure, and twice as long after each further one, up to the longest.
func (t *retries) failed(shortest, longest time.Duration) {
	t.due = retryTime(min(shortest<<min(t.failures, 10), longest))
	t.failures++
}

// retryTime returns when to try again a request that failed: within the given time, and after half of it. It is random: where a server is
// overloaded or was restarted, the requests of hundreds of members fail together, and would come again together.
func retryTime(within time.Duration) time.Time {
	return time.Now().Add(within - timeutil.Random(within/2))
}
