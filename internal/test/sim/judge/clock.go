package judge

import "time"

// Clock is the clock of one candidate: all times of the judge and of the schedule are true, and candidates measure time by clocks that run
// faster or slower, since they are slewed. The zero Clock is right.
type Clock struct {
	Began    time.Time // when it was right
	Drift    int64     // by how many millionths it runs faster; slower if negative
	Unslewed int64     // by how many millionths the candidate's other clock does, which is never slewed
}

const (
	// MaxDrift is by how many millionths a clock may be slewed: by what chrony does by default.
	MaxDrift = 83_333
	// MaxUnslewed is the largest drift, in millionths, of a clock that is never slewed.
	MaxUnslewed = 900
)

const million = 1_000_000

// Reads returns what the clock reads at a time.
func (k Clock) Reads(at time.Time) time.Time {
	if k.Drift == 0 {
		return at
	}
	passed, drift := at.Sub(k.Began), time.Duration(k.Drift)
	return at.Add(passed/million*drift + passed%million*drift/million)
}

// Slewed returns by how much the clock has run ahead, at a time, of the one that is never slewed.
func (k Clock) Slewed(at time.Time) time.Duration {
	return k.Reads(at).Sub(Clock{Began: k.Began, Drift: k.Unslewed}.Reads(at))
}

// When returns the first time at which the clock reads as much as given; the zero time for the zero time.
func (k Clock) When(reading time.Time) time.Time {
	if k.Drift == 0 || reading.IsZero() {
		return reading
	}
	at := k.Began.Add(time.Duration(float64(reading.Sub(k.Began)) * million / float64(million+k.Drift)))
	for k.Reads(at).Before(reading) {
		at = at.Add(1)
	}
	for !k.Reads(at.Add(-1)).Before(reading) {
		at = at.Add(-1)
	}
	return at
}

// After returns the first time at which a duration has passed since the given time, by the clock.
func (k Clock) After(since time.Time, d time.Duration) time.Time {
	return k.When(k.Reads(since).Add(d))
}

// Between returns how much time passes between two times, by the clock.
func (k Clock) Between(from, to time.Time) time.Duration { return k.Reads(to).Sub(k.Reads(from)) }

// Left returns how much is left, by the clock, of a duration that ends at a time that After returned. It is at most a nanosecond less than Between, which
// counts what a fast clock skips: its reading at that time may be a nanosecond beyond the end.
func (k Clock) Left(at, end time.Time) time.Duration {
	return k.Reads(end.Add(-1)).Add(1).Sub(k.Reads(at))
}

// Takes returns how long a duration by the clock takes in truth.
func (k Clock) Takes(d time.Duration) time.Duration {
	return time.Duration(float64(d) * million / float64(million+k.Drift))
}
