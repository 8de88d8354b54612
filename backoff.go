package election

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff says how long a candidate waits before it campaigns again.
//
// Duration is given n, the number of campaigns lost in a row, counting from 1. It is asked for candidates only, never
// for a leader's renewals, and what it returns is clamped to between 10 ms and the TTL of the bucket: a candidate can
// neither spin nor sleep through vacancies for ever. It is called from one goroutine at a time for one Election; a
// Backoff that is shared by several must be safe for concurrent use, as those of this package are.
type Backoff interface {
	Duration(n int) time.Duration
}

// minPause is the shortest time between two campaigns of one candidate.
const minPause = 10 * time.Millisecond

// ConstantBackoff waits the same time after every lost campaign; less than 10 ms count as 10 ms.
type ConstantBackoff time.Duration

// Duration returns the constant, whatever n is.
func (b ConstantBackoff) Duration(int) time.Duration { return max(time.Duration(b), minPause) }

// ExponentialBackoff doubles the longest possible wait with each campaign lost in a row, from Base up to Max, and picks
// the wait itself at random between 10 ms and that: "full jitter" in the terms of Marc Brooker's "Exponential Backoff
// And Jitter" (AWS, 2015), which spreads a crowd that began together best. A Max below Base counts as Base.
type ExponentialBackoff struct {
	Base, Max time.Duration
}

// Duration returns a random wait of at most Base·2ⁿ⁻¹ and at most Max.
func (b ExponentialBackoff) Duration(n int) time.Duration {
	ceiling, limit := max(b.Base, minPause), max(b.Base, b.Max, minPause)
	for ; n > 1 && ceiling < limit; n-- {
		if ceiling > limit/2 {
			ceiling = limit
			break
		}
		ceiling *= 2
	}
	return minPause + rand.N(ceiling-minPause+1)
}

// RampBackoff grows by half a second with each campaign lost in a row until it reaches its own value, and varies each
// wait at random by up to a half to either side. It has the shape of the backoff policies of Choria.
type RampBackoff time.Duration

// The policies that users of Choria know, by the longest interval that each works up to.
const (
	FiveSecBackoff   = RampBackoff(5 * time.Second)
	TwentySecBackoff = RampBackoff(20 * time.Second)
	OneMinBackoff    = RampBackoff(time.Minute)
)

// rampStep is what a [RampBackoff] grows by.
const rampStep = 500 * time.Millisecond

// Duration returns between a half and one and a half times the lesser of n half seconds and the ramp's own value.
func (b RampBackoff) Duration(n int) time.Duration {
	top := min(max(time.Duration(b), 2*minPause), math.MaxInt64/2)
	wait := top
	if steps := time.Duration(max(n, 1)); steps < top/rampStep {
		wait = steps * rampStep
	}
	return wait/2 + rand.N(wait)
}
