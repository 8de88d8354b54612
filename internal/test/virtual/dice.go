package virtual

import (
	"math/rand/v2"
	"time"
)

// Dice makes random choices.
type Dice struct{ *rand.Rand }

// NewDice returns dice that fall the same each time.
func NewDice(seed, stream uint64) *Dice { return &Dice{rand.New(rand.NewPCG(seed, stream))} }

// Chance is true with the given probability.
func (r *Dice) Chance(p float64) bool { return r.Float64() < p }

// UpTo returns a duration from 0 to d.
func (r *Dice) UpTo(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d) + 1)) }

// Between returns a duration from low to high.
func (r *Dice) Between(low, high time.Duration) time.Duration { return low + r.UpTo(high-low) }

// Pick returns one of the given values.
func Pick[T any](r *Dice, of ...T) T { return of[r.IntN(len(of))] }

// Mix hashes numbers to one that looks random and is the same each time.
func Mix(numbers ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, n := range numbers {
		h ^= n
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}
