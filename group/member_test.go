package group_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/drill/faultproxy"
)

func TestInvalidOptionsAreAllNamedAtOnce(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		_, err := group.New("a b", "", []string{"x", "x", "no key", strings.Repeat("k", 300)}, nil,
			group.WithLogger(nil), nil, group.WithElectionOptions(election.WithSplay(-1)))
		f.Expect(err).To(MatchError(election.ErrInvalidOption))
		for _, problem := range []string{
			`the name is "a b"`, `the name of the group is ""`, `"x" is given twice`, `a key is "no key"`, "use at most 255",
			"the bucket is nil", "WithLogger was given nil", "an option was given nil", "WithSplay(-1ns)",
		} {
			f.Expect(err).To(MatchError(ContainSubstring(problem)))
		}
		_, err = group.New("a", "shards", nil, f.bucket, group.WithElectionOptions(election.WithPlainValue()))
		f.Expect(err).To(MatchError(And(ContainSubstring("there are no keys"), ContainSubstring("WithPlainValue"))))
		_, err = group.New("a", "shards", keysOf(200_000), f.bucket)
		f.Expect(err).To(MatchError(ContainSubstring("several groups")))
		_, err = group.New("a", "shards", keysOf(1), f.bucket.KeyValue)
		f.Expect(err).To(MatchError(ContainSubstring("connection of the bucket is not known")))
	})
}

func TestBucketThatIsUnsuitableIsRefused(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.member("a", "shards", keysOf(1))
		f.Expect(a.Run(context.Background(), a.work)).To(MatchError(election.ErrBucketUnsuitable))
	}, func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 0 })
}

func TestGroupRunsOnceAtATimeAndNotAfterStop(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.member("a", "shards", keysOf(3))
		f.Expect(a.Run(context.Background(), nil)).To(MatchError(election.ErrInvalidOption))
		for range 2 { // it may be called again after its context ended
			ctx, cancel := context.WithCancel(context.Background())
			result := make(chan error, 1)
			go func() { result <- a.Start(ctx) }()
			after(standDown + time.Second)
			f.Expect(a.Keys()).To(HaveLen(3))
			f.Expect(a.Start(ctx)).To(MatchError(election.ErrAlreadyRunning))
			cancel()
			f.Expect(<-result).To(Succeed())
			f.Expect(a.Keys()).To(BeEmpty())
		}
		a.Stop()
		f.Expect(a.Start(context.Background())).To(MatchError(election.ErrStopped))
	})
}

var errBroken = errors.New("disk full")

// runUntilItFails runs the member. The work of one key, whichever takes the order to fail, returns errBroken then.
func (m *member) runUntilItFails() (fail chan<- struct{}, result <-chan error) {
	orders, results := make(chan struct{}), make(chan error, 1)
	go func() {
		results <- m.Run(context.Background(), func(ctx context.Context, _ string, _ election.Term) error {
			select {
			case <-orders:
				return errBroken
			case <-ctx.Done():
				return nil
			}
		})
	}()
	return orders, results
}

func TestWorkThatReturnsWhileItsKeyIsLedEndsTheRunInOrder(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(8)
		a, b := f.member("a", "shards", keys), f.member("b", "shards", keys).start()
		fail, result := a.runUntilItFails()
		after(standDown + time.Second)
		f.expectEven(keys, []*member{a, b})
		fail <- struct{}{}
		f.Expect(<-result).To(MatchError(errBroken))
		after(time.Second)
		f.expectEven(keys, []*member{b})
	})
}

func TestErrorOfWorkThatFailsWhileItsMemberLeavesIsReturned(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(8)
		a, b := f.member("a", "shards", keys), f.member("b", "shards", keys).start()
		fail, result := a.runUntilItFails()
		after(standDown + time.Second)
		f.expectEven(keys, []*member{a, b})
		b.link.Cut() // so that it does not ask for the keys
		a.Stop()
		after(time.Second)
		fail <- struct{}{}
		f.Expect(<-result).To(MatchError(errBroken))
	})
}

// silent is a bucket whose server neither takes nor answers the first presence.
type silent struct {
	jetstream.KeyValue
	once atomic.Bool
}

func (b *silent) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	if strings.Contains(key, ".members.") && b.once.CompareAndSwap(false, true) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return b.KeyValue.Put(ctx, key, value)
}

func TestMemberThatStartsAgainIsNotReplacedByItsPredecessor(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		a, b := f.member("a", "shards", keys).start(), f.member("b", "shards", keys).start()
		after(standDown + time.Second)
		b.link.Cut()
		after(time.Second)
		bucket := f.Open(f.Server.Connect(f.T))
		again := f.memberIn(&silent{KeyValue: bucket.KeyValue}, "b", "shards", keys, group.WithElectionOptions(election.WithJetStream(bucket.JetStream()))).start()
		after(crashed)
		f.expectEven(keys, []*member{a, again})
		b.link.Heal()
		after(time.Second)
		f.Expect(b.end()).To(MatchError(group.ErrReplaced))
	})
}

func TestKeyIsHandedOverOnlyWhenItsWorkHasEnded(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(8)
		a := f.member("a", "shards", keys)
		a.linger = 3 * time.Second
		a.start()
		after(standDown + time.Second)
		b := f.member("b", "shards", keys).start()
		after(3*time.Second - time.Millisecond)
		f.Expect(b.Keys()).To(BeEmpty())
		after(10 * time.Millisecond)
		f.expectEven(keys, []*member{a, b})
		f.Expect(f.journal.twice).To(BeEmpty())
		a.leave()
		after(instant)
		f.expectEven(keys, []*member{b})
		f.Expect(f.journal.twice).To(BeEmpty())
	})
}

func TestMemberThatStartsAgainUnderItsNameKeepsItsKeys(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		a, b := f.member("a", "shards", keys).start(), f.member("b", "shards", keys).start()
		after(standDown + time.Second)
		had := b.Keys()
		b.link.Cut()
		after(time.Second)
		again := f.member("b", "shards", keys).start()
		after(crashed)
		f.expectEven(keys, []*member{a, again})
		f.Expect(again.Keys()).To(Equal(had))
		_, moves, _ := f.journal.reset()
		f.Expect(moves).To(BeZero())
		b.link.Heal()
		after(time.Second)
		f.Expect(b.end()).To(MatchError(group.ErrReplaced))
		f.expectEven(keys, []*member{a, again})
	})
}

func TestMemberOfTheSameNameReplacesTheOther(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		a, b := f.member("a", "shards", keys).start(), f.member("b", "shards", keys).start()
		after(standDown + time.Second)
		again := f.member("b", "shards", keys).start()
		after(10 * time.Millisecond) // its keys are handed over, and a plan may come a few milliseconds after the last
		f.Expect(b.result).To(HaveLen(1))
		err := b.end()
		f.Expect(err).To(MatchError(group.ErrReplaced))
		f.Expect(err).To(MatchError(ContainSubstring("as process")))
		after(time.Second)
		f.expectEven(keys, []*member{a, again})
		f.Expect(f.journal.twice).To(BeEmpty())
	})
}

// copyWrites writes the presence of a member as a copy of its process does, which a machine that was cloned runs.
func (f *fleet) copyWrites(name string) {
	f.Helper()
	presence := f.presence(name)
	presence["attempt"] = "of the copy"
	value, err := json.Marshal(presence)
	f.Expect(err).NotTo(HaveOccurred())
	f.put("shards.members."+name, string(value))
}

// Two copies would have their keys handed over to each other for ever.
func TestMemberWithACopyLeavesAndSaysSo(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, notified := range map[string]bool{"that is notified of it": true, "whose next presence is refused": false} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(6)
				members := f.together(keys, "a", "b")
				b := members[1]
				if !notified {
					b.link.StallReplies()
				}
				f.copyWrites("b")
				after(instant)
				b.link.Heal()
				after(ttl / 4)
				f.Expect(b.result).To(HaveLen(1))
				err := b.end()
				f.Expect(err).To(MatchError(group.ErrReplaced))
				f.Expect(err).To(MatchError(ContainSubstring("a copy of this process")))
				f.Expect(f.get("shards.members.b")).To(ContainSubstring("of the copy"), "the copy is present")
				f.Expect(f.journal.twice).To(BeEmpty())
			})
		})
	}
}

func TestOwnPresenceThatIsAppliedLateOrUnansweredIsNoCopy(t *testing.T) {
	natstest.SkipIfShort(t)
	presence := to("shards.members.b")
	for name, disturb := range map[string]func(l *faultproxy.Link){
		"answers lost": func(l *faultproxy.Link) {
			l.LoseReplies(func(r faultproxy.Message) bool { return presence(faultproxy.Message{Subject: r.Request}) })
		},
		"requests lost":   func(l *faultproxy.Link) { l.LoseRequests(presence) },
		"answers late":    func(l *faultproxy.Link) { l.StallReplies() },
		"everything late": func(l *faultproxy.Link) { l.Stall() },
		"disconnected":    func(l *faultproxy.Link) { l.Disconnect() },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(6)
				members := f.together(keys, "a", "b")
				for _, d := range []time.Duration{time.Second, ttl / 2, 2 * ttl} {
					disturb(members[1].link)
					after(d)
					members[1].link.Heal()
					after(3 * ttl)
					f.Expect(members[1].result).To(BeEmpty())
					f.expectEven(keys, members)
				}
			})
		})
	}
}

func TestEachPresenceHasAnIDThatNobodyCanGuess(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.together(keysOf(2), "a")
		seen := map[string]bool{}
		for range 5 {
			var p struct{ Instance, Attempt string }
			f.Expect(json.Unmarshal([]byte(f.get("shards.members.a")), &p)).To(Succeed())
			f.Expect(p.Instance).To(HaveLen(22))
			f.Expect(p.Attempt).To(HaveLen(22))
			seen[p.Attempt] = true
			after(ttl / 4)
		}
		f.Expect(seen).To(HaveLen(5))
	})
}

func TestStatusHasMembersPlanAndKeys(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.member("a", "shards", keysOf(4)).start()
		f.Expect(a.Status().Plan).To(BeZero())
		after(standDown + time.Second)
		f.member("b", "shards", keysOf(4)).start()
		after(time.Second)
		s := a.Status()
		f.Expect(s.Members).To(Equal([]string{"a", "b"}))
		f.Expect(s.Plan).To(BeEquivalentTo(2))
		f.Expect(s.Planned).To(HaveKeyWithValue("a", s.Leads))
		f.Expect(s.Planned["b"]).To(HaveLen(2))
		text, err := json.Marshal(s)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(string(text)).To(HavePrefix(`{"name":"a","group":"shards","bucket":"ELECTIONS","leads":["k000","k001"],"members":["a","b"],"plan":2,`))
		f.Expect(a.Leads("nothing")).To(BeFalse())
	})
}
