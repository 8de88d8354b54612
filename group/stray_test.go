package group_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/test/natstest"
)

// put stores a value under a key, as any client may that has permission to write the bucket.
func (f *fleet) put(key, value string) {
	f.Helper()
	_, err := f.bucket.Put(context.Background(), key, []byte(value))
	f.Expect(err).NotTo(HaveOccurred())
}

// get returns the value under a key.
func (f *fleet) get(key string) string {
	f.Helper()
	e, err := f.bucket.Get(context.Background(), key)
	f.Expect(err).NotTo(HaveOccurred())
	return string(e.Value())
}

// presence returns the presence of a member, without what distinguishes one write from another.
func (f *fleet) presence(name string) (p map[string]any) {
	f.Helper()
	f.Expect(json.Unmarshal([]byte(f.get("shards.members."+name)), &p)).To(Succeed())
	delete(p, "attempt")
	return p
}

// strays are ways to overwrite or remove the presence of a member without being a member of its name.
var strays = map[string]func(f *fleet, key string){
	"null":                  func(f *fleet, key string) { f.put(key, "null") },
	"empty object":          func(f *fleet, key string) { f.put(key, "{}") },
	"empty":                 func(f *fleet, key string) { f.put(key, "") },
	"record of another":     func(f *fleet, key string) { f.put(key, `{"name":"c","instance":"i","keys":["k000"]}`) },
	"record of no instance": func(f *fleet, key string) { f.put(key, `{"name":"b","keys":["k000"]}`) },
	"deleted":               func(f *fleet, key string) { f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed()) },
	"purged":                func(f *fleet, key string) { f.Expect(f.bucket.Purge(context.Background(), key)).To(Succeed()) },
}

// expectUndisturbed checks that no key moved or was without a leader since the counting began, by plan number n.
func (f *fleet) expectUndisturbed(keys []string, members []*member, n int) {
	f.Helper()
	f.expectEven(keys, members)
	f.Expect(f.planNumber()).To(BeEquivalentTo(n))
	terms, _, gap := f.journal.reset()
	f.Expect(terms).To(BeZero(), "the longest without a leader: %v", gap)
	f.Expect(f.journal.twice).To(BeEmpty())
}

func TestStrayValueUnderAPresenceExpelsNobody(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, stray := range strays {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, new watchers %v", name, restarts), func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					keys := keysOf(6)
					members := f.together(keys, "a", "b", "c")
					after(time.Second)
					own := f.presence("b")
					if restarts { // only new watchers find the value
						for _, m := range members {
							m.link.Cut()
						}
						stray(f, "shards.members.b")
						for _, m := range members {
							m.link.Heal()
						}
						after(500 * time.Millisecond)
					} else {
						stray(f, "shards.members.b")
						after(instant)
					}
					f.Expect(f.presence("b")).To(Equal(own), "the member overwrites it at once")
					for range 12 {
						for _, m := range members {
							f.Expect(m.Status().Members).To(Equal([]string{"a", "b", "c"}))
						}
						after(time.Second)
					}
					f.expectUndisturbed(keys, members, 1)
					members[1].leave()
					after(instant)
					f.expectEven(keys, without(members, members[1]))
				})
			})
		}
	}
}

func TestStrayValueNeitherShortensNorProlongsAPresence(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, stray := range strays {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				members := f.together(keysOf(6), "a", "b", "c")
				entry, err := f.bucket.Get(context.Background(), "shards.members.b")
				f.Expect(err).NotTo(HaveOccurred())
				members[1].link.Cut()
				for time.Since(entry.Created()) < ttl+lateness-time.Second {
					stray(f, "shards.members.b")
					after(time.Second / 2)
					f.Expect(members[0].Status().Members).To(ContainElement("b"))
				}
				after(2 * time.Second)
				f.Expect(members[0].Status().Members).NotTo(ContainElement("b"))
			})
		})
	}
}

func TestMemberLeavesInOrderOverAStrayValue(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, stray := range strays {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(6)
				members := f.together(keys, "a", "b", "c")
				b := members[1]
				b.link.StallReplies() // it is not notified of the value
				stray(f, "shards.members.b")
				b.Stop()
				after(time.Millisecond)
				b.link.Heal()
				f.Expect(b.end()).To(Succeed())
				after(instant)
				f.expectEven(keys, without(members, b))
				_, _, gap := f.journal.reset()
				f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
			})
		})
	}
}

func TestMemberOfTheSameNameReplacesTheOtherAlsoOverAStrayValue(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		members := f.together(keys, "a", "b")
		f.put("shards.members.b", "null")
		again := f.member("b", "shards", keys).start()
		after(instant)
		f.Expect(members[1].end()).To(MatchError(group.ErrReplaced))
		after(time.Second)
		f.expectEven(keys, []*member{members[0], again})
	})
}

// strayPlans are values of the plan that no member writes.
var strayPlans = map[string]string{
	"null":                  `null`,
	"empty":                 ``,
	"without a number":      `{"by":"a","keys":{"a":["k001"],"b":["k000"],"c":[]}}`,
	"without its planner":   `{"number":7,"by":"a","keys":{"b":["k000"]}}`,
	"of the highest number": fmt.Sprintf(`{"number":%d,"by":"a","keys":{"a":["k001"],"b":["k000"],"c":[]}}`, uint64(math.MaxUint64)),
}

func TestStrayPlanMovesNothing(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, stray := range strayPlans {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, new watchers %v", name, restarts), func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					keys := keysOf(6)
					members := f.together(keys, "a", "b", "c")
					after(time.Second)
					own := f.plan()
					if restarts {
						for _, m := range members {
							m.link.Cut()
						}
						f.put("shards.plan", stray)
						for _, m := range members {
							m.link.Heal()
						}
						after(500 * time.Millisecond)
					} else {
						f.put("shards.plan", stray)
						after(instant)
					}
					f.Expect(f.plan()).To(Equal(own), "it is overwritten at once")
					after(2 * ttl)
					f.expectUndisturbed(keys, members, 1)
					members = append(members, f.member("d", "shards", keys).start())
					after(200 * time.Millisecond)
					f.expectEven(keys, members)
					f.Expect(f.planNumber()).To(BeEquivalentTo(2), "a true plan wins")
				})
			})
		}
	}
}

func TestGroupBeginsOverAStrayPlan(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, stray := range strayPlans {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				f.put("shards.plan", stray)
				f.together(keysOf(6), "a", "b", "c")
				f.Expect(f.planNumber()).To(BeEquivalentTo(1))
			})
		})
	}
}

func TestStrayPlanDoesNotDelayTheNext(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		members := f.together(keys, "a", "b", "c")
		d := f.member("d", "shards", keys)
		put := func() { f.put("shards.plan", "null") }
		members[0].link.StallReplies() // the planner is not notified of the value
		put()
		d.start()
		after(time.Millisecond)
		members[0].link.Heal()
		after(100 * time.Millisecond)
		f.expectEven(keys, append(members, d))
	})
}

func TestPlanOfTheHighestBelievedNumberIsFollowedByOne(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(2)
		members := f.together(keys, "a", "b")
		f.put("shards.plan", fmt.Sprintf(`{"number":%d,"by":"a","keys":{"a":["k000","k001"],"b":[]}}`, uint64(1)<<53))
		after(2 * ttl)
		f.expectEven(keys, members)
		f.Expect(f.planNumber()).To(BeEquivalentTo(1))
	})
}

func TestDeletedPlanIsWrittenAgainAtOnce(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		members := f.together(keys, "a", "b", "c")
		own := f.plan()
		f.Expect(f.bucket.Delete(context.Background(), "shards.plan")).To(Succeed())
		after(instant)
		f.Expect(f.plan()).To(Equal(own))
		f.Expect(f.bucket.Purge(context.Background(), "shards.plan")).To(Succeed())
		after(instant)
		f.Expect(f.plan()).To(Equal(own))
		after(2 * ttl)
		f.expectUndisturbed(keys, members, 1)
	})
}
