// Package lease computes how much is left of a lease, by three clocks.
//
// [time.Now] reads two clocks. The monotonic clock is never set, but on Linux and macOS it stops while the machine is
// suspended. The wall clock goes on meanwhile, but may be set. While both agree on the time since the lease was written, the
// stricter of the two decides, without a system call. If they disagree, the machine was suspended or the wall clock was
// stepped. Only a third clock, [SinceBoot], shows which: it counts suspension and is never set. Then that clock and the
// monotonic clock decide. On a system without such a clock, or which does not let the process read it, the stricter of the
// two clocks of time.Now decides.
//
// The lease cannot detect two things: a wall clock that is set back by just as long as the machine was suspended, to within
// 50 ms; and a virtual machine that its host paused, because none of its clocks counts that time.
package lease

import "time"

// maxSleep is how long a timer runs at most that is to end a lease.
const maxSleep = time.Second

// Sleep returns how long a timer is to run that ends a lease after the given time, and then looks at the clocks again: to the next whole second at most. Timers
// stand still while the machine is suspended, and nothing tells a process that the suspension is over. All leases of a process are looked at together.
func Sleep(in time.Duration) time.Duration {
	return min(in, time.Until(time.Now().Truncate(maxSleep).Add(maxSleep)))
}

// tolerance is the largest difference of the monotonic clock and the wall clock that counts as agreement: on Windows both
// advance in steps of up to 16 ms, and macOS slews only the wall clock. The tolerance is at most the least margin of a lease.
const tolerance = 50 * time.Millisecond

// origin is where [Instant.Mono] begins.
var origin = time.Now()

// Instant is one reading of the two clocks of [time.Now].
type Instant struct {
	Mono time.Duration // since some instant in this process
	Wall time.Duration // since 1970
}

// Of returns the two readings in a result of [time.Now].
func Of(t time.Time) Instant { return Instant{t.Sub(origin), time.Duration(t.UnixNano())} }

func (i Instant) add(d time.Duration) Instant { return Instant{i.Mono + d, i.Wall + d} }

// until returns the time from now until i by the stricter clock, and whether the two clocks agree.
func (i Instant) until(now Instant) (left time.Duration, agreed bool) {
	mono, wall := i.Mono-now.Mono, i.Wall-now.Wall
	apart := mono - wall
	return min(mono, wall), -tolerance <= apart && apart <= tolerance
}

// Clock reads a clock that counts suspension, from any origin. It returns false if it cannot read one.
type Clock func() (time.Duration, bool)

// Reading is one reading of all three clocks.
type Reading struct {
	Instant
	Boot     time.Duration // by the clock that counts suspension
	Readable bool          // whether Boot is known
}

// Read reads all three clocks. It reads the clock that counts suspension first, so that a suspension between the readings
// counts twice rather than not at all.
func Read() Reading {
	boot, ok := SinceBoot()
	return Reading{Of(time.Now()), boot, ok}
}

// Lease is a lease with a fixed end. It is immutable. The zero Lease has ended.
type Lease struct {
	end     Instant       // by the two clocks of time.Now
	boot    time.Duration // the end by the clock that counts suspension
	counted bool          // whether boot is known
	created Reading
}

// New returns the lease of the given length that an acknowledged write earned. The caller read before at any time before it
// sent the write, and now after the acknowledgement. So sending a write reads only the clocks of [time.Now].
func New(sent Instant, length time.Duration, before, now Reading) Lease {
	l := Lease{end: sent.add(length), created: now}
	left, agreed := l.end.until(now.Instant)
	if agreed {
		l.boot, l.counted = now.Boot+left, now.Readable
	} else { // a suspension at an unknown time counts as if it came after the write was sent
		l.boot, l.counted = before.Boot+l.end.Mono-before.Mono, before.Readable
	}
	return l
}

// Renew returns the lease of the given length that a later write earned, which was sent after l was created. The caller
// read now after the acknowledgement.
func (l Lease) Renew(sent Instant, length time.Duration, now Reading) Lease {
	return New(sent, length, l.created, now)
}

// Ended returns a lease that ends now.
func Ended(now Instant) Lease { return Lease{end: now} }

// Agreed reports whether both clocks of [time.Now] agree at now, so that Left does not read the third.
func (l *Lease) Agreed(now Instant) bool {
	_, agreed := l.end.until(now)
	return agreed
}

// Left returns how much of the lease is left at now: 0 or less once the lease has ended. It reads the third clock, after the
// caller read now, only if the other two disagree.
func (l *Lease) Left(now Instant, third Clock) time.Duration {
	left, agreed := l.end.until(now)
	if agreed {
		return left
	}
	return l.leftByThree(now, third, left)
}

// leftByThree returns what is left when the clocks of [time.Now] disagree. strict is what is left by the stricter of them.
func (l *Lease) leftByThree(now Instant, third Clock, strict time.Duration) time.Duration {
	if !l.counted {
		return strict
	}
	boot, ok := third()
	if !ok {
		return strict
	}
	return min(l.end.Mono-now.Mono, l.boot-boot)
}
