package lease

import "time"

// Moment is a time by the clocks of this process, from which it times the lease of another process. The zero Moment is none.
type Moment struct {
	At       time.Time
	Slewed   time.Duration // see [Slewed]
	Unslewed bool          // whether Slewed is known: then a clock that is never slewed can be read
}

// MomentOf returns the moment of a result of [time.Now].
func MomentOf(now time.Time, slewed Clock) Moment {
	d, ok := slewed()
	return Moment{now, d, ok}
}

// Known reports whether this is a moment at all.
func (m Moment) Known() bool { return !m.At.IsZero() }

// Since returns how much time has passed since an earlier moment, by the clock that shows the least: the wall clock may have been stepped, and the
// monotonic clock stands still while a machine is suspended. unslewed says that neither clock was slewed meanwhile, or that it is known by how much.
func (m Moment) Since(from Moment) (passed time.Duration, unslewed bool) {
	passed, unslewed = m.At.Sub(from.At), m.Unslewed && from.Unslewed
	if unslewed {
		passed -= m.Slewed - from.Slewed
	}
	return min(passed, m.At.Round(0).Sub(from.At.Round(0))), unslewed
}
