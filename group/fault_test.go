package group_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestNothingMovesWhileNobodyComesOrGoes(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"expiries announced": republished, "nothing announced": withoutMarkers} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(20)
				members := f.together(keys, "a", "b", "c")
				for range 300 {
					after(time.Second)
					f.Expect(f.planNumber()).To(BeEquivalentTo(1), "the plan does not expire either")
				}
				f.expectEven(keys, members)
				_, moves, _ := f.journal.reset()
				f.Expect(moves).To(BeZero())
			}, change)
		})
	}
}

func TestMemberWhosePresenceIsLateKeepsItsKeys(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		members[1].link.LoseRequests(to("shards.members.b"))
		after(ttl / 2) // what was sent just before is 7.5 s old then, and a try may be under way for 2 s
		members[1].link.Heal()
		after(2 * ttl)
		f.expectEven(keys, members)
		_, moves, _ := f.journal.reset()
		f.Expect(moves).To(BeZero())
		f.Expect(f.planNumber()).To(BeEquivalentTo(1))
	})
}

func TestMemberThatCountsAsGoneAndLeadsHandsOverInOrder(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		members[1].link.LoseRequests(to("shards.members.b"))
		after(ttl + lateness + time.Second)
		f.expectEven(keys, without(members, members[1]))
		_, _, gap := f.journal.reset()
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
		f.Expect(f.journal.twice).To(BeEmpty())
		members[1].link.Heal()
		after(ttl)
		f.expectEven(keys, members)
	})
}

func TestNoKeyIsWithoutALeaderBecauseOfThePlan(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b")
		c := f.member("c", "shards", keys) // which is present, and cannot campaign
		c.link.LoseRequests(func(m faultproxy.Message) bool { return strings.Contains(m.Subject, ".shards.keys.") })
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

func TestMemberNoticesThatItsWatcherDeliversNothing(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b")
		stalled := ""
		members[0].link.LoseReplies(func(m faultproxy.Message) bool {
			part := strings.Split(m.Reply, ".") // $JS.ACK.<stream>.<consumer>
			if len(part) < 4 || part[1] != "ACK" {
				return false
			}
			if stalled == "" {
				stalled = part[3]
			}
			return part[3] == stalled
		})
		members = append(members, f.member("c", "shards", keys).start())
		after(ttl/2 - 500*time.Millisecond)
		f.Expect(stalled).NotTo(BeEmpty())
		f.Expect(members[0].Status().Members).To(HaveLen(3))
		f.expectEven(keys, members)
	})
}

func TestMemberThatIsCutOffLosesItsKeysAndComesBack(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		led := len(members[0].Keys())
		members[0].link.Cut()
		after(ttl)
		f.Expect(members[0].Keys()).To(BeEmpty())
		after(crashed)
		f.expectEven(keys, members[1:])
		_, moves, _ := f.journal.reset()
		f.Expect(moves).To(Equal(led))
		members[0].link.Heal()
		after(ttl)
		f.expectEven(keys, members)
		_, moves, gap := f.journal.reset()
		f.Expect(moves).To(Equal(20 / 3))
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
		f.Expect(f.journal.twice).To(BeEmpty())
	})
}

func TestOutageOfTheServerMovesNothing(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, outage := range []time.Duration{time.Second, 3 * ttl} {
		t.Run(outage.String(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(20)
				members := f.together(keys, "a", "b", "c", "d")
				for _, m := range members {
					m.link.Cut()
				}
				after(outage)
				for _, m := range slices.Backward(members) { // the member that has been present longest comes last
					m.link.Heal()
					after(time.Second)
				}
				after(crashed)
				f.expectEven(keys, members)
				_, moves, _ := f.journal.reset()
				f.Expect(moves).To(BeZero())
			})
		})
	}
}

func TestOutageAsLongAsAPresenceMovesNothing(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, fail := range map[string]func(*faultproxy.Link){"cut": (*faultproxy.Link).Cut, "stalled": (*faultproxy.Link).Stall} {
		for outage := ttl - 3*time.Second; outage < ttl+6*time.Second; outage += 700 * time.Millisecond {
			t.Run(fmt.Sprintf("%s for %v", name, outage), func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					keys := keysOf(6)
					var members []*member
					for _, name := range []string{"a", "b", "c"} {
						members = append(members, f.member(name, "shards", keys).start())
						after(700 * time.Millisecond) // their presences end one by one
					}
					after(standDown + time.Second)
					f.expectEven(keys, members)
					f.journal.reset()
					for _, m := range members {
						fail(m.link)
					}
					after(outage)
					for _, m := range slices.Backward(members) {
						m.link.Heal()
						after(200 * time.Millisecond)
					}
					after(ttl + crashed)
					f.expectEven(keys, members)
					_, moves, _ := f.journal.reset()
					f.Expect(moves).To(BeZero())
				})
			})
		}
	}
}

func TestMemberThatComesBackIsHandedKeysWhenItCanTakeThemOver(t *testing.T) {
	natstest.SkipIfShort(t)
	for i := range 16 {
		cut := crashed + time.Duration(i)*170*time.Millisecond
		t.Run(cut.String(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(12)
				members := f.together(keys, "a", "b", "c")
				members[0].link.Cut()
				after(cut)
				f.expectEven(keys, members[1:])
				f.journal.reset()
				members[0].link.Heal()
				after(ttl)
				f.expectEven(keys, members)
				_, moves, gap := f.journal.reset()
				f.Expect(moves).To(Equal(4))
				f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
			})
		})
	}
}

func TestGroupSurvivesTheLossOfItsBucket(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		f.Expect(f.bucket.JetStream().DeleteKeyValue(context.Background(), natstest.BucketName)).To(Succeed())
		f.Bare(f.Server.Connect(f.T)) // which makes it
		after(3*ttl + standDown)
		f.expectEven(keys, members)
		f.member("d", "shards", keys).start()
		after(ttl)
		f.Expect(members[0].Status().Members).To(HaveLen(4))
	})
}

func TestMemberWhoseClaimToPlanIsNotAnsweredPlansOnceItIsDelivered(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(4)
		a := f.member("a", "shards", keys)
		claim := to("shards.planner")
		a.link.LoseReplies(faultproxy.Once(func(m faultproxy.Message) bool { return claim(faultproxy.Message{Subject: m.Request}) }))
		a.start()
		after(3 * time.Second) // a request may wait for 2 s, and the first plan for 0.5 s
		f.Expect(f.planNumber()).To(BeEquivalentTo(1))
		after(standDown)
		f.expectEven(keys, []*member{a})
	})
}

func TestSecondMemberPlansWhenTheFirstDoesNot(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		members := f.together(keys, "a", "b", "c")
		members[0].link.LoseRequests(to("shards.plan"))
		members = append(members, f.member("d", "shards", keys).start())
		after(ttl)
		f.expectEven(keys, members)
		f.Expect(f.plan()).To(ContainSubstring(`"by":"b"`))
		after(5 * ttl)
		f.Expect(f.planNumber()).To(BeEquivalentTo(2), "the plan does not expire either")
	})
}

func TestNewcomerHasAPlanSoonAfterPlannersHaveCrashed(t *testing.T) {
	natstest.SkipIfShort(t)
	const turn = time.Second // from one planner to the next
	for crashing, within := range map[int]time.Duration{
		1: turn,
		2: ttl/3 + lateness + 2*turn, // others claim once the announcement is overdue
	} {
		t.Run(fmt.Sprint(crashing), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(20)
				members := f.together(keys, "a", "b", "c", "d")
				for _, m := range members[:crashing] {
					m.link.Cut()
				}
				after(time.Second / 2)
				f.member("e", "shards", keys).start()
				after(within + 100*time.Millisecond)
				f.Expect(f.planNumber()).To(BeEquivalentTo(2))
				f.Expect(f.plan()).To(ContainSubstring(`"e":["k`))
			})
		})
	}
}

func TestPlannerThatLeavesOrCrashesIsNotMissed(t *testing.T) {
	natstest.SkipIfShort(t)
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
