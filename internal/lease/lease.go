// Package lease says how much is left of a lease, by three clocks.
//
// [time.Now] reads two clocks. Nobody sets the monotonic clock, but on Linux and macOS it stands still while the machine is
// suspended. The wall clock goes on meanwhile, but anybody may set it. While both say that the same time has passed since
// the lease was written, the stricter of the two decides; that costs no system call. Where they disagree, the machine was
// suspended or the wall clock was stepped, and only a third clock can tell which: [SinceBoot] counts suspension and is never
// set. It then decides together with the monotonic clock. Where a system has no such clock, or does not let the process read
// it, the stricter of the two clocks decides.
//
// Two things go unnoticed. A wall clock that is set back by just as long as the machine was suspended, to within 50 ms,
// hides the suspension. And no clock of a virtual machine counts the time for which its host paused it.
package lease

import "time"

// tolerance is how far the monotonic clock and the wall clock may be apart without cause for a question: on Windows both
// advance in steps of up to 16 ms, and on macOS only the wall clock is slewed. It is no more than the least margin of a lease.
const tolerance = 50 * time.Millisecond

// origin is where [Instant.Mono] begins.
var origin = time.Now()

// Instant is what the two clocks of [time.Now] say at one time.
type Instant struct {
	Mono time.Duration // since an instant in the life of this process
	Wall time.Duration // since 1970
}

// Of returns the two readings that a time has which came from [time.Now].
func Of(t time.Time) Instant { return Instant{t.Sub(origin), time.Duration(t.UnixNano())} }

func (i Instant) add(d time.Duration) Instant { return Instant{i.Mono + d, i.Wall + d} }

// until returns how long it is from now until i, by the stricter clock, and whether the two clocks agree.
func (i Instant) until(now Instant) (left time.Duration, agreed bool) {
	mono, wall := i.Mono-now.Mono, i.Wall-now.Wall
	apart := mono - wall
	return min(mono, wall), -tolerance <= apart && apart <= tolerance
}

// Clock reads a clock that counts suspension, from any origin. It returns false if there is none that can be read.
type Clock func() (time.Duration, bool)

// Reading is what all three clocks say at one time.
type Reading struct {
	Instant
	Boot     time.Duration // by the clock that counts suspension
	Readable bool          // whether that clock could be read
}

// Read reads all three clocks. The one that counts suspension comes first: a suspension between the readings is then counted
// twice rather than not at all.
func Read() Reading {
	boot, ok := SinceBoot()
	return Reading{Of(time.Now()), boot, ok}
}

// Lease is a lease that ends unless it is renewed. It is immutable. The zero Lease is over.
type Lease struct {
	end     Instant       // by the two clocks of time.Now
	boot    time.Duration // the end by the clock that counts suspension
	counted bool          // whether boot is known
	made    Reading
}

// New returns the lease of the given length that a write earned. before was read at any time before the write was sent, and
// now after it was acknowledged: sending reads no clock but those of [time.Now].
func New(sent Instant, length time.Duration, before, now Reading) Lease {
	l := Lease{end: sent.add(length), made: now}
	left, agreed := l.end.until(now.Instant)
	if agreed {
		l.boot, l.counted = now.Boot+left, now.Readable
	} else { // nobody knows when the suspension was, if there was one, and so it counts as if it came after the sending
		l.boot, l.counted = before.Boot+l.end.Mono-before.Mono, before.Readable
	}
	return l
}

// Renew returns the lease of the given length that a later write earned, which was sent after l was made. now was read
// after it was acknowledged.
func (l Lease) Renew(sent Instant, length time.Duration, now Reading) Lease {
	return New(sent, length, l.made, now)
}

// Ended returns a lease that ends now.
func Ended(now Instant) Lease { return Lease{end: now} }

// Agreed says whether at now both clocks of [time.Now] agree on what is left, and the third is not asked.
func (l *Lease) Agreed(now Instant) bool {
	_, agreed := l.end.until(now)
	return agreed
}

// Left returns how much of the lease is left at now; it is 0 or less once the lease is over. The third clock is read only if
// the other two disagree, and after now was.
func (l *Lease) Left(now Instant, third Clock) time.Duration {
	left, agreed := l.end.until(now)
	if agreed {
		return left
	}
	return l.ask(now, third, left)
}

// ask returns what is left when the clocks of [time.Now] disagree, given what is left by the stricter of them.
func (l *Lease) ask(now Instant, third Clock, strict time.Duration) time.Duration {
	if !l.counted {
		return strict
	}
	boot, ok := third()
	if !ok {
		return strict
	}
	return min(l.end.Mono-now.Mono, l.boot-boot)
}
