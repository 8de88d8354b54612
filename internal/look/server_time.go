package look

import (
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/terminal"
)

// ClockBound is by how much this host's clock may differ from the server's before that is worth a word.
const ClockBound = time.Second

// ServerTime tells the time by the clock of the server that stamps the records, for this host's may be wrong.
type ServerTime struct {
	at       time.Time     // what the server's clock said ...
	read     time.Time     // ... when this host's said this
	within   time.Duration // how far the two may be apart, as the answer took its time
	Reported bool          // whether the server said it: those before 2.10 do not
}

// ReadServerTime returns the clock that stamped an answer to a question of this host. The stamp was made at some moment
// between the two.
func ReadServerTime(stamp, sent, received time.Time) ServerTime {
	half := received.Sub(sent) / 2
	read := sent.Add(half)
	if stamp.IsZero() {
		return ServerTime{at: read.Round(0), read: read}
	}
	return ServerTime{at: stamp, read: read, within: half, Reported: true}
}

// Now returns the time by the server's clock.
func (c ServerTime) Now() time.Time { return c.at.Add(time.Since(c.read)) }

// Ahead returns by how much this host's clock is ahead of the server's.
func (c ServerTime) Ahead() time.Duration { return c.read.Round(0).Sub(c.at) }

// Differs says whether this host's clock is certainly off by more than the given bound.
func (c ServerTime) Differs(bound time.Duration) bool {
	return c.Reported && c.Ahead().Abs() > bound+c.within
}

// ClockError says in words how this host's clock differs from the server's.
func ClockError(c ServerTime) string {
	where := "ahead of"
	if c.Ahead() < 0 {
		where = "behind"
	}
	return fmt.Sprintf("this host's clock is %s %s the server's", terminal.Human(c.Ahead().Abs()), where)
}
