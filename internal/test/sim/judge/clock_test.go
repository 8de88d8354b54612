package judge

import (
	"testing"
	"time"
)

func TestClockReadsAsMuchFromWhenOn(t *testing.T) {
	for _, drift := range []int64{-MaxDrift, -1, 0, 1, MaxDrift} {
		k := Clock{Began: time.Unix(1000, 0), Drift: drift}
		for _, passed := range []time.Duration{0, 1, 399, 400, 401, time.Second + 7, 10 * time.Second, 48 * time.Hour} {
			reading := k.Began.Add(passed)
			at := k.When(reading)
			if k.Reads(at).Before(reading) || !k.Reads(at.Add(-1)).Before(reading) {
				t.Errorf("drift %d: after %v, %v is not the first instant", drift, passed, at)
			}
			if d := k.Between(at, k.After(at, time.Second)) - time.Second; d < 0 || d > 1 {
				t.Errorf("drift %d: a second takes %v too long", drift, d)
			}
			if d := time.Second - k.Left(at, k.After(at, time.Second)); d < 0 || d > 1 {
				t.Errorf("drift %d: of a second, %v less is left at its start", drift, d)
			}
		}
	}
}
