package lease

import (
	"math/rand/v2"
	"testing"
	"time"
)

// machine is a machine with its clocks and the true time.
type machine struct {
	now                Reading
	passed             time.Duration // true time
	suspended, stepped time.Duration // in total
}

// play carries out a move: time passes, the machine is suspended, or the wall clock is stepped.
func (m *machine) play(move byte) {
	d := time.Duration(1+move>>2) * s
	if move&0x80 == 0 {
		d = time.Duration(1+move>>2) * 9 * time.Millisecond
	}
	switch move & 3 {
	case 0:
		m.passed, m.now.Mono, m.now.Wall, m.now.Boot = m.passed+d, m.now.Mono+d, m.now.Wall+d, m.now.Boot+d
	case 1:
		m.passed, m.now.Wall, m.now.Boot = m.passed+d, m.now.Wall+d, m.now.Boot+d
		m.suspended += d
	case 2:
		m.now.Wall, m.stepped = m.now.Wall-d, m.stepped-d
	case 3:
		m.now.Wall, m.stepped = m.now.Wall+d, m.stepped+d
	}
}

// hides reports whether the wall clock was set back between two times by just as long as the machine was suspended.
func hides(from, to machine) bool {
	suspended, stepped := to.suspended-from.suspended, to.stepped-from.stepped
	return suspended > 0 && stepped < 0 && (suspended+stepped).Abs() <= tolerance
}

// FuzzLease plays moves on a machine. A leader checks its lease after each move. It sends a write every so many moves, and
// receives the acknowledgement flight moves later.
func FuzzLease(f *testing.F) {
	f.Add([]byte{0x80, 0x81, 0x82, 0x83, 0xff, 0xfd}, uint8(0), uint8(0))
	f.Add([]byte{0xfc, 0x80, 0xfe, 0x80, 0xfd, 0x80}, uint8(2), uint8(1))
	f.Add([]byte{0x81, 0x82, 0x81, 0x86, 0x80, 0x80, 0x85}, uint8(3), uint8(2))
	f.Fuzz(func(t *testing.T, moves []byte, every, flight uint8) { check(t, moves, every, flight) })
}

func check(t *testing.T, moves []byte, every, flight uint8) {
	const length = 30 * s
	m := machine{now: at(0, 0, 0)}
	sent, acknowledged, pending, due := m, m, m, 0
	l := New(m.now.Instant, length, m.now, m.now)
	underWay := false // whether a write is
	for i, move := range moves {
		switch {
		case !underWay && i >= due && every > 0:
			pending, underWay, due = m, true, i+int(flight)
		case underWay && i >= due:
			if l.Left(m.now.Instant, third(m.now, new(int))) > 0 {
				l, sent, acknowledged = l.Renew(pending.now.Instant, length, m.now), pending, m
			}
			underWay, due = false, i+int(every)
		}
		m.play(move)
		asked := 0
		left := l.Left(m.now.Instant, third(m.now, &asked))
		really := length - (m.passed - sent.passed)
		if left > max(0, really) && !hides(sent, acknowledged) && !hides(sent, m) {
			t.Fatalf("move %d of %v: %v left, in truth %v", i, moves, left, really)
		}
		if m.suspended == 0 && left < really-tolerance {
			t.Fatalf("move %d of %v: a step took %v of the lease away", i, moves, really-left)
		}
		if agreed := l.Agreed(m.now.Instant); agreed != (asked == 0) {
			t.Fatalf("move %d of %v: agreed is %v, and the third clock was asked %d times", i, moves, agreed, asked)
		}
	}
}

// TestNoReadingsProlongALease draws the moves of FuzzLease at random.
func TestNoReadingsProlongALease(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		moves := make([]byte, r.IntN(60))
		for i := range moves {
			moves[i] = byte(r.UintN(256))
		}
		check(t, moves, byte(r.UintN(6)), byte(r.UintN(4)))
	}
}
