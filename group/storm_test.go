package group_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
)

// The leader of a key releases it to the member that asked for it, which may have left by then.
func TestKeyThatIsHandedToAMemberThatLeavesIsLedAtOnce(t *testing.T) {
	natstest.SkipIfShort(t)
	const linger = 3 * time.Second
	for _, others := range []int{0, 1, 3} {
		for _, stays := range []time.Duration{time.Millisecond, 20 * time.Millisecond, time.Second, linger - 20*time.Millisecond, linger - time.Millisecond} {
			t.Run(fmt.Sprintf("after %v, %d other members", stays, others), func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					keys := keysOf(12)
					var members []*member
					for i := range others + 1 {
						m := f.member(string(rune('a'+i)), "shards", keys)
						m.linger = linger
						members = append(members, m.start())
					}
					after(standDown + time.Second)
					f.expectEven(keys, members)
					f.journal.reset()
					joiner := f.member("x", "shards", keys)
					joiner.linger = linger
					joiner.start()
					for f.journal.ending() == 0 {
						after(time.Millisecond)
					}
					after(stays)
					joiner.leave()
					after(3 * linger)
					f.expectEven(keys, members)
					_, _, gap := f.journal.reset()
					f.Expect(gap).To(BeNumerically("<", orderly))
					f.Expect(f.journal.twice).To(BeEmpty())
				})
			})
		}
	}
}

// ending returns for how many keys work is ending.
func (j *journal) ending() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, name := range j.leaders {
		for _, m := range j.all {
			if m.name == name && !m.Leads(key) {
				n++
			}
		}
	}
	return n
}

func TestMemberThatComesBackUnderItsNameTakesOverWhatItAskedFor(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(12)
		a := f.member("a", "shards", keys)
		a.linger = 3 * time.Second
		a.start()
		after(standDown + time.Second)
		f.journal.reset()
		before := f.member("b", "shards", keys).start()
		after(time.Second)
		before.leave()
		b := f.member("b", "shards", keys).start()
		after(10 * time.Second)
		f.expectEven(keys, []*member{a, b})
		_, _, gap := f.journal.reset()
		f.Expect(gap).To(BeNumerically("<", 2*orderly))
		f.Expect(f.journal.twice).To(BeEmpty())
	})
}

func TestNoKeyIsLongWithoutALeaderInAStormOfJoinsAndLeaves(t *testing.T) {
	natstest.SkipIfShort(t)
	for seed := range uint64(8) {
		for name, bucket := range map[string]func(*jetstream.KeyValueConfig){"expiries announced": republished, "nothing announced": withoutMarkers} {
			t.Run(fmt.Sprintf("seed %d, %s", seed, name), func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					c := &churn{fleet: f, chance: rand.New(rand.NewPCG(seed, 70)), keys: keysOf(16)}
					c.members = f.together(c.keys, "a", "b", "c", "d")
					begun, longest := time.Now(), time.Duration(50+seed*100)*time.Millisecond
					for i := range 70 {
						if len(c.members) < 4 || c.chance.IntN(2) == 0 {
							m := f.member(fmt.Sprintf("m%02d", i), "shards", c.keys)
							m.linger = time.Duration(c.chance.Int64N(int64(time.Second)))
							c.members = append(c.members, m.start())
						} else {
							c.pick().Stop()
						}
						after(time.Duration(c.chance.Int64N(int64(longest))))
					}
					after(3 * time.Second)
					f.expectEven(c.keys, c.members)
					share := float64(f.journal.idle) / float64(len(c.keys)) / float64(time.Since(begun))
					_, moves, gap := f.journal.reset()
					t.Logf("%d moves, %v without a leader at most, %.2f %% of the time of all keys", moves, gap, 100*share)
					f.Expect(share).To(BeNumerically("<", 0.01))
					f.Expect(gap).To(BeNumerically("<", 2*time.Second))
					f.Expect(f.journal.twice).To(BeEmpty())
				}, bucket)
			})
		}
	}
}
