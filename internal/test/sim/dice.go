package sim

import (
	"math/rand/v2"
	"time"
)

// dice makes random choices.
type dice struct{ *rand.Rand }

// newDice returns dice that fall the same each time.
func newDice(seed, stream uint64) *dice { return &dice{rand.New(rand.NewPCG(seed, stream))} }

func (r *dice) chance(p float64) bool { return r.Float64() < p }

func (r *dice) upTo(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d) + 1)) }

func (r *dice) between(low, high time.Duration) time.Duration { return low + r.upTo(high-low) }

func pick[T any](r *dice, of ...T) T { return of[r.IntN(len(of))] }

// mix hashes numbers to one that looks random and is the same each time.
func mix(numbers ...uint64) uint64 {
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
