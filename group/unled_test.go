package group_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// givenUp is after how long others lead a key that its member cannot lead: its lease ends, the key is unled for a TTL and a half, a request may wait
// for its answer, and the next leader stands down.
const givenUp = ttl + 3*ttl/2 + standDown + 4*time.Second

// ofElection returns a function that reports whether a subject is that of the election of a key that begins so.
func ofElection(begin string) func(subject string) bool {
	return func(subject string) bool { return strings.Contains(subject, ".shards.keys."+begin) }
}

// unled are ways in which a member may not lead what it is assigned, although its presence is written and answered. Each begins the fault for keys
// that begin so.
var unled = map[string]func(l *faultproxy.Link, begin string){
	"writes are not permitted": func(l *faultproxy.Link, begin string) {
		l.LoseRequests(func(m faultproxy.Message) bool {
			return strings.HasPrefix(m.Subject, "$KV.") && ofElection(begin)(m.Subject)
		})
	},
	"writes are not answered": func(l *faultproxy.Link, begin string) {
		l.LoseReplies(func(m faultproxy.Message) bool {
			return strings.HasPrefix(m.Request, "$KV.") && ofElection(begin)(m.Request)
		})
	},
	"nothing is answered": func(l *faultproxy.Link, begin string) {
		l.LoseReplies(func(m faultproxy.Message) bool { return ofElection(begin)(m.Request) })
	},
	"nothing arrives": func(l *faultproxy.Link, begin string) {
		l.LoseRequests(func(m faultproxy.Message) bool { return ofElection(begin)(m.Subject) })
	},
}

// leaderOf returns which of the members leads a key; "" if none does.
func leaderOf(key string, members []*member) string {
	for _, m := range members {
		if m.Leads(key) {
			return m.name
		}
	}
	return ""
}

// expectLed checks that each key is led by one of the members.
func (f *fleet) expectLed(keys []string, members []*member) {
	f.Helper()
	for _, key := range keys {
		f.Expect(leaderOf(key, members)).NotTo(BeEmpty(), key)
	}
}

func TestKeyThatItsMemberCanLeadNoLongerIsLedByAnother(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, begin := range unled {
		for _, some := range []string{"one key", "all keys"} {
			t.Run(some+", "+name, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					keys := keysOf(9)
					members := f.together(keys, "a", "b", "c")
					unable, able := members[1], without(members, members[1])
					lost, within := unable.Keys()[1], givenUp
					if name == "writes are not answered" { // the last of them may have been stored when the key was given up, and its lease ends first
						within += ttl
					}
					if some == "all keys" {
						begin(unable.link, "")
					} else {
						begin(unable.link, lost)
					}
					after(within)
					f.expectLed([]string{lost}, able)
					f.expectLed(keys, members)
					f.journal.reset()
					for range 60 {
						after(ttl / 4)
						f.expectLed(keys, members)
					}
					if some == "all keys" {
						f.expectEven(keys, able)
					}
					_, moves, _ := f.journal.reset()
					f.Expect(moves).To(BeZero())
					unable.link.Heal()
					after(2 * ttl)
					f.expectEven(keys, members)
					_, moves, gap := f.journal.reset()
					f.Expect(moves).To(BeNumerically("<=", 3))
					f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
					f.Expect(f.journal.twice).To(BeEmpty())
				})
			})
		}
	}
}

func TestMemberThatCannotWriteAKeyTakesItFromNobody(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, name := range []string{"writes are not permitted", "nothing arrives"} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(9)
				members := f.together(keys, "a", "b")
				c := f.member("c", "shards", keys)
				unled[name](c.link, "")
				c.start()
				for range 60 {
					after(time.Second)
					f.expectEven(keys, members)
				}
				terms, _, _ := f.journal.reset()
				f.Expect(terms).To(BeZero())
				members[0].link.Cut() // what c has of its keys is led by nobody
				after(crashed + givenUp)
				f.expectEven(keys, members[1:])
			})
		})
	}
}

func TestMembersThatStartTogetherLeadWhatOneCannot(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, within := range map[string]time.Duration{"writes are not permitted": givenUp, "nothing arrives": givenUp + 5*ttl/2} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(9)
				a, b, c := f.member("a", "shards", keys), f.member("b", "shards", keys), f.member("c", "shards", keys)
				unled[name](a.link, "")
				for _, m := range []*member{a, b, c} {
					m.start()
				}
				after(within)
				f.expectEven(keys, []*member{b, c})
				a.link.Heal()
				after(2 * ttl)
				f.expectEven(keys, []*member{a, b, c})
			})
		})
	}
}

func TestKeysOfALongListAreGivenUpToo(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(150) // which no presence says by themselves
		members := f.together(keys, "a", "b", "c")
		lost := members[2].Keys()[:2]
		members[2].link.LoseRequests(func(m faultproxy.Message) bool {
			return strings.HasPrefix(m.Subject, "$KV.") && (ofElection(lost[0])(m.Subject) || ofElection(lost[1])(m.Subject))
		})
		after(givenUp)
		f.expectEven(keys, members)
		f.expectLed(lost, members[:2])
		members[2].link.Heal()
		after(2 * ttl)
		f.expectEven(keys, members)
	})
}

func TestKeyThatNobodyCanLeadStaysWithAMemberThatTries(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, some := range []string{"one key", "all keys"} {
		t.Run(some, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(9)
				members := f.together(keys, "a", "b", "c")
				begin := ""
				if some == "one key" {
					begin = keys[4]
				}
				for _, m := range members {
					unled["writes are not permitted"](m.link, begin)
				}
				before := f.planNumber()
				after(30 * time.Minute)
				f.Expect(f.planNumber()-before).To(BeNumerically("<", 60), "each member gives a key up 6 times in that time, and lists it again")
				f.Expect(f.plan()).To(ContainSubstring(keys[4]))
				for _, m := range slices.Backward(members) {
					m.link.Heal()
				}
				after(2 * ttl)
				f.expectLed(keys, members)
				after(2 * ttl)
				f.expectEven(keys, members)
			})
		})
	}
}

func TestKeyOfAMemberThatIsUnhealthyIsLedByAnother(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		var ill atomic.Bool
		check := election.WithHealthCheck(func(context.Context) error {
			if ill.Load() {
				return errors.New("the disk is full")
			}
			return nil
		})
		members := []*member{f.member("a", "shards", keys, group.WithElectionOptions(check)).start(), f.member("b", "shards", keys).start()}
		after(standDown + time.Second)
		f.expectEven(keys, members)
		ill.Store(true)
		after(2*ttl + givenUp)
		f.expectEven(keys, members[1:])
		ill.Store(false)
		after(10 * ttl)
		f.expectEven(keys, members)
	})
}

func TestKeyIsLedByAnotherWhileWorkDoesNotEnd(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		members := []*member{f.member("a", "shards", keys), f.member("b", "shards", keys)}
		members[0].linger = 20 * ttl
		for _, m := range members {
			m.start()
		}
		after(standDown + time.Second)
		stuck := members[0].Keys()[0]
		_, err := f.bucket.PutString(context.Background(), "shards.keys."+stuck, "stranger") // ends the term
		f.Expect(err).NotTo(HaveOccurred())
		after(ttl + givenUp)
		f.Expect(members[1].Leads(stuck)).To(BeTrue())
		f.expectLed(keys, members)
		leaveSlowly(members...)
	})
}

func TestKeyIsNotGivenUpDuringItsStandDown(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys, standDown := keysOf(6), group.WithElectionOptions(election.WithStandDown(5*ttl))
		members := []*member{f.member("a", "shards", keys, standDown).start(), f.member("b", "shards", keys, standDown).start()}
		after(ttl)
		number := f.planNumber()
		after(5 * ttl)
		f.expectEven(keys, members)
		f.Expect(f.planNumber()).To(Equal(number))
	})
}

// A server that does not permit a write drops it, and tells the connection.
func TestKeyThatItsMemberHasNoPermissionForIsLedByAnother(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, subject := range map[string]string{"one key": ".k004", "all keys": ".>"} {
		t.Run(name, func(t *testing.T) {
			fleettest.RunGuarded(t, `
				no_auth_user: all
				authorization { users: [
					{ user: all, password: all }
					{ user: some, password: some, permissions: { publish: { deny: "$KV.`+natstest.BucketName+`.shards.keys`+subject+`" } } }
				] }`, func(g *fleettest.Fleet) {
				f := &fleet{g, g.Open(g.Server.Connect(g.T)), newJournal()}
				keys := keysOf(9)
				some := f.memberIn(f.Open(f.Server.Connect(f.T, nats.UserInfo("some", "some"))), "a", "shards", keys).start()
				members := []*member{some, f.member("b", "shards", keys).start(), f.member("c", "shards", keys).start()}
				after(givenUp)
				f.expectLed(keys, members)
				if name == "all keys" {
					f.expectEven(keys, members[1:])
				} else {
					f.expectEven(keys, members)
				}
				f.journal.reset()
				for range 200 {
					after(ttl / 2)
					f.expectLed(keys, members)
				}
				_, moves, _ := f.journal.reset()
				f.Expect(moves).To(BeZero())
			})
		})
	}
}

func TestKeyThatIsHandedOverSlowlyIsNotGivenUp(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		var members []*member
		for _, name := range []string{"a", "b"} {
			m := f.member(name, "shards", keys, group.WithElectionOptions(election.WithReleaseTimeout(time.Hour)))
			m.linger = 10 * ttl
			members = append(members, m.start())
		}
		after(standDown + time.Second)
		members = append(members, f.member("c", "shards", keys).start())
		after(time.Second)
		number := f.planNumber()
		after(10 * ttl)
		f.expectEven(keys, members)
		f.Expect(f.planNumber()).To(Equal(number))
		_, _, gap := f.journal.reset()
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
		leaveSlowly(members...)
	})
}

// leaveSlowly has members leave whose work takes long to end.
func leaveSlowly(members ...*member) {
	for _, m := range members {
		m.Stop()
		m.ended = true
	}
	for _, m := range members {
		m.fleet.Expect(<-m.result).To(Succeed())
	}
}

func TestNothingIsGivenUpWhileNobodyIsAnswered(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, fault := range map[string]func(m *member){
		"cut":     (func(m *member) { m.link.Cut() }),
		"stalled": (func(m *member) { m.link.Stall() }),
		"writes are lost": (func(m *member) {
			m.link.LoseRequests(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$KV.") })
		}),
		"nothing is replied": (func(m *member) { m.link.LoseReplies(func(m faultproxy.Message) bool { return m.Request != "" }) }),
	} {
		for bucket, change := range map[string]func(*jetstream.KeyValueConfig){"expiries announced": republished, "nothing announced": withoutMarkers} {
			t.Run(name+", "+bucket, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					keys := keysOf(9)
					members := f.together(keys, "a", "b", "c")
					number := f.planNumber()
					for _, m := range members {
						fault(m)
					}
					after(30 * ttl)
					for _, m := range members {
						m.link.Heal()
					}
					after(2*ttl + crashed)
					f.expectEven(keys, members)
					_, moves, _ := f.journal.reset()
					f.Expect(moves).To(BeZero())
					f.Expect(f.planNumber()).To(Equal(number))
				}, change)
			})
		}
	}
}

func TestKeyIsNotPassedRoundWhileItsElectionIsPaused(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		members := f.together(keys, "a", "b")
		number, key := f.planNumber(), members[0].Keys()[0]
		a, err := admin.New(f.bucket)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(a.Pause(context.Background(), "shards.keys."+key)).To(Succeed())
		f.Expect(a.Resign(context.Background(), "shards.keys."+key)).To(Succeed())
		for range 40 {
			after(ttl / 4)
			f.Expect(leaderOf(key, members)).To(BeEmpty())
		}
		f.Expect(f.planNumber()).To(Equal(number))
		f.Expect(a.Resume(context.Background(), "shards.keys."+key)).To(Succeed())
		after(2 * ttl)
		f.expectEven(keys, members)
		f.Expect(f.planNumber()).To(Equal(number))
	})
}

func TestKeyThatAStrangerHoldsIsNotPassedRound(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		members := f.together(keys, "a", "b")
		number, key := f.planNumber(), members[0].Keys()[0]
		for range 40 {
			_, err := f.bucket.PutString(context.Background(), "shards.keys."+key, "stranger")
			f.Expect(err).NotTo(HaveOccurred())
			after(ttl / 4)
		}
		f.Expect(f.planNumber()).To(Equal(number))
		after(2*ttl + standDown)
		f.expectEven(keys, members)
		f.Expect(f.planNumber()).To(Equal(number))
	})
}
