package group_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

func TestNothingMovesWhileNobodyComesOrGoes(t *testing.T) {
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"told of expiries": republished, "told nothing": plainly} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(20)
				members := f.together(keys, "a", "b", "c")
				for range 300 {
					after(time.Second)
					f.Expect(f.planNumber()).To(BeEquivalentTo(1), "nor does the plan expire")
				}
				f.expectEven(keys, members)
				moves, _ := f.journal.reset()
				f.Expect(moves).To(BeZero())
			}, change)
		})
	}
}

func TestMemberWhosePresenceIsLateIsNotRobbed(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		members[1].link.LoseRequests(to("shards.members.b"))
		after(ttl / 2) // what was sent just before is 7.5 s old then, and a try may be under way for 2 s
		members[1].link.Heal()
		after(2 * ttl)
		f.expectEven(keys, members)
		moves, _ := f.journal.reset()
		f.Expect(moves).To(BeZero())
		f.Expect(f.planNumber()).To(BeEquivalentTo(1))
	})
}

func TestMemberThatIsThoughtGoneAndLeadsHandsOverInOrder(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		members[1].link.LoseRequests(to("shards.members.b"))
		after(ttl + lateness + time.Second)
		f.expectEven(keys, without(members, members[1]))
		_, gap := f.journal.reset()
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
		f.Expect(f.journal.twice).To(BeEmpty())
		members[1].link.Heal()
		after(ttl)
		f.expectEven(keys, members)
	})
}

func TestNoKeyIsWithoutALeaderForTheSakeOfThePlan(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b")
		c := f.member("c", "shards", keys) // which is there, and cannot stand
		c.link.LoseRequests(func(m link.Message) bool { return strings.Contains(m.Subject, ".shards.keys.") })
		c.start()
		for range 30 {
			after(time.Second)
			f.expectEven(keys, members)
		}
		f.Expect(f.planNumber()).To(BeEquivalentTo(2))
		c.link.Heal()
		after(ttl)
		f.expectEven(keys, append(members, c))
	})
}

func TestMemberWhoseWatcherIsBlindFindsOut(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b")
		blind := ""
		members[0].link.LoseReplies(func(m link.Message) bool {
			part := strings.Split(m.Reply, ".") // $JS.ACK.<stream>.<consumer>
			if len(part) < 4 || part[1] != "ACK" {
				return false
			}
			if blind == "" {
				blind = part[3]
			}
			return part[3] == blind
		})
		members = append(members, f.member("c", "shards", keys).start())
		after(ttl/2 - 500*time.Millisecond)
		f.Expect(blind).NotTo(BeEmpty())
		f.Expect(members[0].Status().Members).To(HaveLen(3))
		f.expectEven(keys, members)
	})
}

func TestMemberThatIsCutOffLosesItsKeysAndComesBack(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		led := len(members[0].Keys())
		members[0].link.Cut()
		after(ttl)
		f.Expect(members[0].Keys()).To(BeEmpty())
		after(crashed)
		f.expectEven(keys, members[1:])
		moves, _ := f.journal.reset()
		f.Expect(moves).To(Equal(led))
		members[0].link.Heal()
		after(ttl)
		f.expectEven(keys, members)
		moves, gap := f.journal.reset()
		f.Expect(moves).To(Equal(20 / 3))
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
		f.Expect(f.journal.twice).To(BeEmpty())
	})
}

func TestOutageOfTheServerMovesNothing(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, 3 * ttl} {
		t.Run(outage.String(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(20)
				members := f.together(keys, "a", "b", "c", "d")
				for _, m := range members {
					m.link.Cut()
				}
				after(outage)
				for _, m := range slices.Backward(members) { // the one that has been there longest comes last
					m.link.Heal()
					after(time.Second)
				}
				after(crashed)
				f.expectEven(keys, members)
				moves, _ := f.journal.reset()
				f.Expect(moves).To(BeZero())
			})
		})
	}
}

func TestGroupSurvivesTheLossOfItsBucket(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		f.Expect(f.jetStream().DeleteKeyValue(context.Background(), natstest.BucketName)).To(Succeed())
		f.bucket = f.server.Bucket(f.T, f.server.Connect(f.T), ttl, f.options...)
		after(3*ttl + standDown)
		f.expectEven(keys, members)
		f.member("d", "shards", keys).start()
		after(ttl)
		f.Expect(members[0].Status().Members).To(HaveLen(4))
	})
}

func TestNextInLinePlansWhenTheFirstDoesNot(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		members[0].link.LoseRequests(to("shards.plan"))
		members = append(members, f.member("d", "shards", keys).start())
		after(ttl)
		f.expectEven(keys, members)
		f.Expect(f.plan()).To(ContainSubstring(`"by":"b"`))
		after(5 * ttl)
		f.Expect(f.planNumber()).To(BeEquivalentTo(2), "it does not expire either")
	})
}

func TestPlannerThatLeavesOrCrashesIsNotMissed(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c", "d")
		members[0].leave()
		after(instant)
		f.expectEven(keys, members[1:])
		members[1].link.Cut()
		after(crashed)
		f.expectEven(keys, members[2:])
	})
}

func TestGroupsInOneBucketDoNotDisturbEachOther(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(9)
		members := f.together(keys, "a", "b", "c")
		other := f.member("a", "shards.more", keys).start() // of the same name and keys
		third := f.member("x", "plan", keys).start()
		after(standDown + time.Second)
		f.expectEven(keys, members)
		f.Expect(other.Keys()).To(Equal(keys))
		f.Expect(third.Keys()).To(Equal(keys))
		other.leave()
		after(crashed)
		f.expectEven(keys, members)
	})
}

func TestMoreMembersThanKeys(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(3)
		members := f.together(keys, "a", "b", "c", "d", "e")
		leading := slices.IndexFunc(members, func(m *member) bool { return len(m.Keys()) > 0 })
		members[leading].leave()
		after(instant)
		f.expectEven(keys, without(members, members[leading]))
		moves, gap := f.journal.reset()
		f.Expect(moves).To(Equal(1))
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
	})
}

func TestKeysMayChangeInARollingUpdate(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		old, young := keysOf(20)[:16], keysOf(20)[4:]
		members := f.together(old, "a", "b", "c", "d")
		for i, m := range members {
			m.leave()
			members[i] = f.member(m.name, "shards", young).start()
			after(standDown + time.Second)
			led := map[string]bool{}
			for _, m := range members {
				for _, key := range m.Keys() {
					f.Expect(led).NotTo(HaveKey(key))
					led[key] = true
				}
				f.Expect(len(m.Keys())).To(BeNumerically("<=", 8))
			}
			if i < len(members)-1 {
				f.Expect(led).To(HaveLen(20), "all that somebody lists")
			}
		}
		f.expectEven(young, members)
	})
}

func TestGroupWorksWhereTheBucketTellsNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		members[1].link.Cut()
		after(crashed + standDown)
		members = without(members, members[1])
		f.expectEven(keys, members)
		f.journal.reset()
		members = append(members, f.member("d", "shards", keys).start())
		after(2 * time.Second)
		f.expectEven(keys, members)
		moves, gap := f.journal.reset()
		f.Expect(moves).To(Equal(6))
		f.Expect(gap).To(BeNumerically("<", 100*time.Millisecond))
		members[0].leave()
		after(time.Second)
		f.expectEven(keys, members[1:])
	}, plainly)
}

// watching is a bucket that remembers the contexts of its watchers, and can have them refused.
type watching struct {
	jetstream.KeyValue
	refused  atomic.Bool
	mu       sync.Mutex
	contexts []context.Context
}

func (b *watching) WatchFiltered(ctx context.Context, keys []string, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	b.mu.Lock()
	b.contexts = append(b.contexts, ctx)
	b.mu.Unlock()
	if b.refused.Load() {
		return nil, jetstream.ErrNoStreamResponse
	}
	return b.KeyValue.WatchFiltered(ctx, keys, opts...)
}

func TestMemberKeepsNothingOfTheWatchersThatItHad(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		l := f.server.Link(f.T)
		nc := natstest.Connect(f.T, l, nats.ReconnectBufSize(-1))
		b := &watching{KeyValue: f.server.Bucket(f.T, nc, ttl, f.options...)}
		f.memberIn(b, nc, "a", "shards", keysOf(1)).start()
		after(ttl)
		for i := range 20 {
			b.refused.Store(i%2 == 1)
			l.Disconnect()
			after(ttl)
		}
		b.refused.Store(false)
		after(ttl)
		b.mu.Lock()
		defer b.mu.Unlock()
		f.Expect(len(b.contexts)).To(BeNumerically(">", 100))
		last := len(b.contexts) - 1
		f.Expect(b.contexts[last].Err()).NotTo(HaveOccurred())
		for _, ctx := range b.contexts[:last] {
			f.Expect(ctx.Err()).To(HaveOccurred())
		}
	})
}

func TestRecordOfSomebodyElseDoesNotEndTheMembers(t *testing.T) {
	for key, record := range map[string]string{
		"shards.members.x": `{"name":"x","instance":"i","keys":["z","y","y"]}`,
		"shards.plan":      `{"number":7,"by":"x","keys":{"x":["z","y","y"]}}`,
	} {
		t.Run(key, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(6)
				members := f.together(keys, "a", "b", "c")
				_, err := f.bucket.Put(context.Background(), key, []byte(record))
				f.Expect(err).NotTo(HaveOccurred())
				members[0].link.Disconnect() // it is told of a plan before it hears who is there
				after(2 * ttl)
				f.expectEven(keys, members)
			})
		})
	}
}

func TestMemberWhoseConnectionIsClosedEnds(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for name, keys := range map[string]int{"it leads": 3, "it leads nothing": 0} {
			nc := natstest.Connect(f.T, f.server.Link(f.T))
			m := f.memberIn(f.server.Bucket(f.T, nc, ttl, f.options...), nc, "m", "closing", keysOf(max(keys, 1)))
			if keys == 0 {
				f.member("a", "closing", keysOf(1)).start()
			}
			result := make(chan error, 1)
			go func() { result <- m.Run(context.Background(), m.work) }()
			after(2 * ttl)
			f.Expect(m.Keys()).To(HaveLen(keys), name)
			nc.Close()
			after(time.Second)
			f.Expect(result).To(Receive(MatchError(nats.ErrConnectionClosed)), name)
			f.Expect(m.Start(context.Background())).To(MatchError(nats.ErrConnectionClosed), name)
			after(3 * ttl) // until the next finds the group empty
		}
	})
}
