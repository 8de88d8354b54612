package look

import (
	"fmt"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
)

// ClockTolerance is the difference between the clock of this host and that of the server above which commands report it.
const ClockTolerance = time.Second

// ServerClock estimates the time of the server that stamps the records, because the clock of this host may be wrong.
type ServerClock struct {
	at          time.Time     // the time of the server's clock ...
	localAt     time.Time     // ... at this time of the local clock
	uncertainty time.Duration // of the difference between the two: half the round trip
	Reported    bool          // whether the server reported its time, which servers do since 2.10
}

// ServerClockOf returns the clock of the server that said what is known of a bucket.
func ServerClockOf(info kv.Info) ServerClock {
	return NewServerClock(info.Stream.TimeStamp, info.Read, info.Read.Add(info.Took))
}

// NewServerClock returns the clock of a server that stamped a response, given when this host sent the request and received
// the response. Without a stamp, the clock agrees with that of this host.
func NewServerClock(stamp, sent, received time.Time) ServerClock {
	half := received.Sub(sent) / 2
	middle := sent.Add(half)
	if stamp.IsZero() {
		return ServerClock{at: middle.Round(0), localAt: middle}
	}
	return ServerClock{at: stamp, localAt: middle, uncertainty: half, Reported: true}
}

// Now returns the time of the server's clock.
func (c ServerClock) Now() time.Time { return c.at.Add(time.Since(c.localAt)) }

// AtLeast returns the earliest time that the server's clock may have had at a time of the local clock: what is measured by it is never
// said to be older than it is.
func (c ServerClock) AtLeast(local time.Time) time.Time {
	return c.at.Add(local.Sub(c.localAt) - c.uncertainty)
}

// Ahead returns how far the clock of this host is ahead of the server's clock.
func (c ServerClock) Ahead() time.Duration { return c.localAt.Round(0).Sub(c.at) }

// Differs reports whether the two clocks certainly differ by more than the tolerance.
func (c ServerClock) Differs(tolerance time.Duration) bool {
	return c.Reported && c.Ahead().Abs() > tolerance+c.uncertainty
}

// ClockDifference describes how the clock of this host differs from the server's clock.
func ClockDifference(c ServerClock) string {
	direction := "ahead of"
	if c.Ahead() < 0 {
		direction = "behind"
	}
	return fmt.Sprintf("this host's clock is %s %s the server's", terminal.FormatDuration(c.Ahead().Abs()), direction)
}
