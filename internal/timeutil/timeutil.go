// Package timeutil has the few functions on times that several packages of this module need.
package timeutil

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Sleep waits, and reports whether ctx is still alive then.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Pause waits, or returns the cause for which ctx ended.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// SecondDigit returns the unit of the second digit of a duration.
func SecondDigit(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d.Abs() >= 100*unit {
		unit *= 10
	}
	return unit
}

// TwoDigits rounds a duration to two digits.
func TwoDigits(d time.Duration) time.Duration { return d.Round(SecondDigit(d)) }

// Random returns a random duration from 0 to just below d; 0 if d is not positive.
func Random(d time.Duration) time.Duration { return rand.N(max(d, 1)) }

// Remaining returns the time until t by the monotonic clock or by the wall clock, whichever is shorter. t must be right by both clocks, as
// a deadline that a term returned just now is.
func Remaining(t time.Time) time.Duration {
	now := time.Now()
	return min(t.Sub(now), t.Round(0).Sub(now.Round(0)))
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Seconds is a duration that is seconds in JSON, to the nanosecond.
type Seconds time.Duration

// Milliseconds returns the duration in whole milliseconds.
func (s Seconds) Milliseconds() int64 { return time.Duration(s).Milliseconds() }

// MarshalJSON encodes the duration.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// UnmarshalJSON decodes a number of seconds. One that no duration can hold is an error.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	var seconds float64
	if err := json.Unmarshal(b, &seconds); err != nil {
		return err
	}
	if nanoseconds := math.Round(seconds * float64(time.Second)); math.Abs(nanoseconds) < math.MaxInt64 {
		*s = Seconds(nanoseconds)
		return nil
	}
	return fmt.Errorf("%s seconds is longer than a duration can be", b)
}
