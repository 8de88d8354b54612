package group_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

// named returns n names.
func named(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("m%03d", i))
	}
	return names
}

// fleetOf starts n members at the same instant, and returns them when they lead their shares.
func (f *fleet) fleetOf(n int, keys []string) (members []*member) {
	f.Helper()
	for _, name := range named(n) {
		members = append(members, f.member(name, "shards", keys))
	}
	for _, m := range members {
		m.start()
	}
	after(standDown + 2*time.Second)
	f.expectEven(keys, members)
	f.journal.reset()
	return members
}

// announced returns the announcement that is stored.
func (f *fleet) announced() (a struct {
	Number   uint64
	By, Plan string
}) {
	f.Helper()
	f.Expect(json.Unmarshal([]byte(f.get("shards.planner")), &a)).To(Succeed())
	return a
}

// received returns how many messages each member receives in a time.
func received(members []*member, d time.Duration) (counts []uint64) {
	for _, m := range members {
		counts = append(counts, m.nc.Stats().InMsgs)
	}
	after(d)
	for i, m := range members {
		counts[i] = m.nc.Stats().InMsgs - counts[i]
	}
	return counts
}

func TestOnlyPlannersReceiveThePresencesOfOthers(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		const n, ttls = 16, 10
		members := f.fleetOf(n, keysOf(n))
		counts := received(members, ttls*ttl)
		slices.Sort(counts)
		// Its own presence and the answer to it, the announcements, a few heartbeats and, of one key, the renewal, its answer, and the attempt.
		const each = ttls*(2*4+3+4+4) + 10
		f.Expect(counts[n-3]).To(BeNumerically("<", each), "all but two: %v", counts)
		f.Expect(counts[n-2]).To(BeNumerically(">", each+ttls*4*(n-2)), "the two planners: %v", counts)
	})
}

func TestMembersThatStartAtOnceGetOnePlan(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		members := f.fleetOf(40, keysOf(100))
		f.Expect(f.planNumber()).To(BeEquivalentTo(1))
		f.Expect(f.journal.twice).To(BeEmpty())
		for _, m := range members {
			f.Expect(m.Status().Members).To(ConsistOf(named(40)))
		}
	})
}

func TestMembersThatComeAndGoWithinASecondGetFewPlans(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(100)
		members := f.fleetOf(10, keys)
		for i := range 30 {
			members = append(members, f.member(fmt.Sprint("late-", i), "shards", keys).start())
			after(20 * time.Millisecond)
		}
		after(2 * time.Second)
		f.expectEven(keys, members)
		f.Expect(f.planNumber()).To(BeNumerically("<=", 8))
		_, moves, gap := f.journal.reset()
		f.Expect(moves).To(BeNumerically("<=", 90), "75 keys move once; the first newcomers are handed some that move again")
		f.Expect(gap).To(BeNumerically("<", orderly))
		before := f.planNumber()
		for _, m := range members[10:] {
			m.Stop()
			after(20 * time.Millisecond)
		}
		after(2 * time.Second)
		f.expectEven(keys, members[:10])
		f.Expect(f.planNumber() - before).To(BeNumerically("<=", 8))
		f.Expect(f.journal.twice).To(BeEmpty())
	})
}

func TestLongListOfKeysIsStoredOnceAndNotInPresences(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(300)
		members := f.fleetOf(6, keys)
		for range 40 {
			for _, name := range named(6) {
				f.Expect(len(f.get("shards.members." + name))).To(BeNumerically("<", 400))
			}
			after(time.Second)
		}
		lister, err := f.bucket.ListKeysFiltered(context.Background(), "shards.lists.>")
		f.Expect(err).NotTo(HaveOccurred())
		var lists []string
		for key := range lister.Keys() {
			lists = append(lists, key)
		}
		f.Expect(lists).To(HaveLen(1))
		f.Expect(f.get(lists[0])).To(HavePrefix(`{"`), "as no leader of an election is called")
		members[0].link.Cut() // both planners
		members[1].link.Cut()
		after(crashed + time.Second)
		f.expectEven(keys, members[2:])
		f.Expect(f.journal.twice).To(BeEmpty())
	})
}

func TestLongListsMayChangeInARollingUpdate(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		old, young := keysOf(400)[:300], keysOf(400)[100:]
		members := f.fleetOf(5, old)
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
			}
			if i < len(members)-1 {
				f.Expect(led).To(HaveLen(400), "all keys that a member lists")
			}
		}
		f.expectEven(young, members)
	})
}

func TestKeysOfAMemberWhoseListIsNotKnownDoNotMove(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(300)
		members := f.fleetOf(4, keys)
		b := members[3]
		had := b.Keys()
		f.forge("shards.members.stranger", map[string]any{"name": "stranger", "instance": "i", "list": "of nobody"})
		after(ttl + lateness + time.Second)
		f.expectEven(keys, members)
		f.Expect(b.Keys()).To(Equal(had))
		_, moves, _ := f.journal.reset()
		f.Expect(moves).To(BeZero(), "a stranger that lists nothing known is assigned nothing")
		f.put("shards.lists.x", `["k000"]`)
		f.put("shards.lists."+strings.Repeat("x", 24), `[`)
		after(2 * ttl)
		f.expectEven(keys, members)
	})
}

func TestBothPlannersAreNotMissed(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, end := range map[string]func(m *member){
		"they crash": func(m *member) { m.link.Cut() },
		"they leave": func(m *member) { m.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(40)
				members := f.fleetOf(8, keys)
				end(members[0])
				end(members[1])
				after(crashed)
				f.expectEven(keys, members[2:])
				f.Expect(f.journal.twice).To(BeEmpty())
				late := f.member("late", "shards", keys).start()
				after(time.Second)
				f.expectEven(keys, append(members[2:], late))
			})
		})
	}
}

func TestPlannersWithoutKeysLeaveOnlyOnceOthersPlan(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(12)
		planners := []*member{f.member("y", "shards", []string{"x"}).start(), f.member("z", "shards", []string{"x"}).start()}
		after(time.Second)
		var members []*member
		for _, name := range named(6) {
			members = append(members, f.member(name, "shards", keys).start())
		}
		after(standDown + time.Second)
		f.expectEven(keys, members)
		for _, m := range planners {
			m.Stop()
		}
		for _, m := range planners {
			f.Expect(m.end()).To(Succeed())
		}
		members = append(members, f.member("late", "shards", keys).start())
		after(time.Second)
		f.expectEven(keys, members)
	})
}

func TestManySeniorsThatCrashAtOnceAreNotMissed(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(60)
		members := f.fleetOf(30, keys)
		for _, m := range members[:20] {
			m.link.Cut()
		}
		after(crashed + 10*time.Second)
		f.expectEven(keys, members[20:])
		f.Expect(f.journal.twice).To(BeEmpty())
	})
}

func TestMembersThatPlanNothingLeaveAtOnceWithTheOthers(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		members := f.fleetOf(12, keysOf(20))
		begun := time.Now()
		for _, m := range members {
			m.Stop()
		}
		for _, m := range members {
			f.Expect(m.end()).To(Succeed())
		}
		f.Expect(time.Since(begun)).To(BeNumerically("<", 100*time.Millisecond))
	})
}

func TestStrayAnnouncementMovesNothing(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, stray := range map[string]string{
		"null":                   `null`,
		"empty":                  ``,
		"of a plan there is not": `{"number":70,"revision":7,"plan":"nothing","by":"x","instance":"i"}`,
		"of the highest number":  `{"number":18446744073709551615,"revision":7,"plan":"nothing","by":"x"}`,
		"claim":                  `{"number":0,"by":"x","instance":"i"}`,
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(12)
				members := f.fleetOf(6, keys)
				for range 20 {
					f.put("shards.planner", stray)
					after(700 * time.Millisecond)
				}
				f.expectUndisturbed(keys, members, 1)
				f.put("shards.planner", stray)
				members = append(members, f.member("late", "shards", keys).start())
				after(time.Second)
				f.expectEven(keys, members)
				f.Expect(f.bucket.Purge(context.Background(), "shards.planner")).To(Succeed())
				after(ttl)
				f.Expect(f.announced().Number).To(BeEquivalentTo(f.planNumber()))
				f.expectEven(keys, members)
			})
		})
	}
}

func TestPlanThatAMemberCannotReadIsReadLater(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(12)
		members := f.fleetOf(5, keys)
		members[4].link.LoseRequests(func(m faultproxy.Message) bool {
			return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") && strings.HasSuffix(m.Subject, ".shards.plan")
		})
		members[0].leave()
		after(time.Second)
		f.Expect(members[4].Status().Plan).To(BeEquivalentTo(1))
		members[4].link.Heal()
		after(2 * time.Second)
		f.Expect(members[4].Status().Plan).To(BeEquivalentTo(2))
		f.expectEven(keys, members[1:])
	})
}

func TestGroupRefusesMoreMembersThanItHasRoomFor(t *testing.T) {
	natstest.SkipIfShort(t)
	group.SetMaxMembers(t, 5)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(12)
		members := f.fleetOf(5, keys)
		beyond := f.member("beyond", "shards", keys).start()
		after(time.Second)
		err := beyond.end()
		f.Expect(err).To(MatchError(group.ErrFull))
		f.Expect(err).To(MatchError(ContainSubstring("5 members: use several groups")))
		after(ttl)
		f.expectEven(keys, members)
		_, moves, _ := f.journal.reset()
		f.Expect(moves).To(BeZero())
		members[0].leave()
		again := f.member("beyond", "shards", keys).start()
		after(time.Second)
		f.expectEven(keys, append(members[1:], again))
	})
}

func TestMoreKeysThanAGroupMayHaveAreRefused(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		_, err := group.New("a", "shards", keysOf(group.MaxKeys+1), f.bucket)
		f.Expect(err).To(MatchError(election.ErrInvalidOption))
		f.Expect(err).To(MatchError(ContainSubstring("10001 keys: use at most 10000, or several groups")))
	})
}

// A member that starts hundreds of elections at once would have each of them wait for all others.
func TestMemberWithManyKeysLeadsThemAll(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(1000)
		a := f.member("a", "shards", keys).start()
		after(standDown + time.Second)
		f.expectEven(keys, []*member{a})
	})
}

func TestConnectionsOfAWholeGroupThatEndAtOnceCostNoKey(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(40)
		members := f.fleetOf(20, keys)
		for _, m := range members {
			m.link.Disconnect()
		}
		after(2 * ttl)
		f.expectUndisturbed(keys, members, 1)
	})
}
