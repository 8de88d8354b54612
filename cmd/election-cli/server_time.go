package main

import (
	"fmt"
	"time"
)

// clockBound is by how much this host's clock may differ from the server's before that is worth a word.
const clockBound = time.Second

// serverTime tells the time by the clock of the server that stamps the records, for this host's may be wrong.
type serverTime struct {
	at     time.Time     // what the server's clock said ...
	read   time.Time     // ... when this host's said this
	within time.Duration // how far the two may be apart, as the answer took its time
	told   bool          // whether the server said it: those before 2.10 do not
}

// readServerTime returns the clock that stamped an answer to a question of this host. The stamp was made at some moment
// between the two.
func readServerTime(stamp, sent, received time.Time) serverTime {
	half := received.Sub(sent) / 2
	read := sent.Add(half)
	if stamp.IsZero() {
		return serverTime{at: read.Round(0), read: read}
	}
	return serverTime{at: stamp, read: read, within: half, told: true}
}

// now returns the time by the server's clock.
func (c serverTime) now() time.Time { return c.at.Add(time.Since(c.read)) }

// ahead returns by how much this host's clock is ahead of the server's.
func (c serverTime) ahead() time.Duration { return c.read.Round(0).Sub(c.at) }

// differs says whether this host's clock is certainly off by more than the given bound.
func (c serverTime) differs(bound time.Duration) bool {
	return c.told && c.ahead().Abs() > bound+c.within
}

// clockError says in words how this host's clock differs from the server's.
func clockError(c serverTime) string {
	where := "ahead of"
	if c.ahead() < 0 {
		where = "behind"
	}
	return fmt.Sprintf("this host's clock is %s %s the server's", human(c.ahead().Abs()), where)
}
