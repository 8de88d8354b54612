package election

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/natscampaign/election/internal/timing"
)

// Backoff says how long a candidate waits before it campaigns again.
//
// Duration is given n, the number of campaigns lost in a row, counting from 1. It is asked for candidates only, never for a leader's
// renewals, and what it returns is clamped to between 10 ms and the TTL of the bucket. One Election calls it from one goroutine at a
// time; a Backoff that several share must be safe for concurrent use, as those of this package are. The policies of Choria are Backoffs.
type Backoff interface {
	Duration(n int) time.Duration
}

// backoff is a function that is a Backoff.
type backoff func(n int) time.Duration

// Duration calls the function.
func (b backoff) Duration(n int) time.Duration { return b(n) }

// ConstantBackoff waits the same time after every lost campaign; less than 10 ms count as 10 ms.
func ConstantBackoff(d time.Duration) Backoff {
	return backoff(func(int) time.Duration { return max(d, timing.MinPause) })
}

// ExponentialBackoff doubles the longest possible wait with each campaign lost in a row, from base up to longest, and picks the wait
// itself at random between 10 ms and that: "full jitter" in Marc Brooker's "Exponential Backoff And Jitter" (AWS, 2015), which spreads a
// crowd that began together best. A longest below base counts as base.
func ExponentialBackoff(base, longest time.Duration) Backoff {
	return backoff(func(n int) time.Duration {
		ceiling, limit := max(base, timing.MinPause), max(base, longest, timing.MinPause)
		for ; n > 1 && ceiling < limit; n-- {
			if ceiling > limit/2 {
				ceiling = limit
				break
			}
			ceiling *= 2
		}
		return timing.MinPause + rand.N(ceiling-timing.MinPause+1)
	})
}

// rampStep is what a RampBackoff grows by.
const rampStep = 500 * time.Millisecond

// RampBackoff grows by half a second with each campaign lost in a row until it reaches longest, and varies each wait at random by up to
// a half to either side. It has the shape of Choria's policies: its TwentySec is RampBackoff(20 * time.Second).
func RampBackoff(longest time.Duration) Backoff {
	top := min(max(longest, 2*timing.MinPause), math.MaxInt64/2)
	return backoff(func(n int) time.Duration {
		wait := top
		if steps := time.Duration(max(n, 1)); steps < top/rampStep {
			wait = steps * rampStep
		}
		return wait/2 + rand.N(wait)
	})
}
