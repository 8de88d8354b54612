package group_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
)

// unanswered loses the answer to the next presence of the member, calls f when that presence is on its way, and then closes the channel
// that it returns.
func (m *member) unanswered(f func()) <-chan struct{} {
	written := make(chan struct{})
	presence := to("shards.members." + m.name)
	m.link.LoseReplies(faultproxy.Once(func(r faultproxy.Message) bool { return presence(faultproxy.Message{Subject: r.Request}) }))
	first := faultproxy.Once(presence)
	m.link.OnRequest(func(r faultproxy.Message) {
		if first(r) {
			f()
			close(written)
		}
	})
	return written
}

func TestMemberWhosePresenceWasAppliedUnansweredHandsOverAsItLeaves(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, patience := range map[string]time.Duration{"on its way": 0, "given up": 2200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(20)
				members := f.together(keys, "a", "b", "c")
				a := members[0]
				led := len(a.Keys())
				<-a.unanswered(func() {
					if patience == 0 {
						a.Stop()
					}
				})
				after(patience)
				begun := time.Now()
				a.leave()
				f.Expect(time.Since(begun)).To(BeNumerically("<", 100*time.Millisecond))
				after(instant)
				f.expectEven(keys, members[1:])
				_, moves, gap := f.journal.reset()
				f.Expect(moves).To(Equal(led))
				f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
			})
		})
	}
}

// tardy is a bucket that applies the first presence late, also when its caller no longer waits.
type tardy struct {
	jetstream.KeyValue
	written func()
}

const tardiness = 50 * time.Millisecond

func (b *tardy) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	if !strings.Contains(key, ".members.") {
		return b.KeyValue.Put(ctx, key, value)
	}
	time.AfterFunc(tardiness, func() { _, _ = b.KeyValue.Put(context.WithoutCancel(ctx), key, value) })
	b.written()
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestMemberThatLeavesAsItJoinsIsNotCounted(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, newcomer := range map[string]func(*fleet, []string) *member{
		"applied at once": func(f *fleet, keys []string) *member {
			d := f.member("d", "shards", keys)
			d.unanswered(d.Stop)
			return d
		},
		"applied late": func(f *fleet, keys []string) *member {
			bucket := f.Open(f.Server.Connect(f.T))
			b := &tardy{KeyValue: bucket.KeyValue}
			d := f.memberIn(b, "d", "shards", keys, group.WithElectionOptions(election.WithJetStream(bucket.JetStream())))
			b.written = d.Stop
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(20)
				members := f.together(keys, "a", "b", "c")
				d := newcomer(f, keys).start()
				after(2 * tardiness)
				f.Expect(d.result).To(HaveLen(1), "it has left")
				f.Expect(d.end()).To(Succeed())
				f.Expect(members[0].Status().Members).To(Equal([]string{"a", "b", "c"}))
				f.expectEven(keys, members)
			})
		})
	}
}

func TestMemberThatLeavesKeepsThePresenceOfAnother(t *testing.T) {
	natstest.SkipIfShort(t)
	const theirs = `{"name":"d","instance":"another"}`
	for name, replace := range map[string]func(d *member, put func()){
		"before it wrote its own": func(d *member, put func()) {
			put()
			d.link.LoseRequests(faultproxy.Once(to("shards.members.d")))
			d.unanswered(d.Stop)
			d.start()
		},
		"later": func(d *member, put func()) {
			d.start()
			after(time.Second)
			d.link.StallReplies() // it is not notified of the other
			put()
			d.Stop()
			after(time.Millisecond)
			d.link.Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				d := f.member("d", "shards", keysOf(2))
				replace(d, func() {
					_, err := f.bucket.Put(context.Background(), "shards.members.d", []byte(theirs))
					f.Expect(err).NotTo(HaveOccurred())
				})
				f.Expect(d.end()).To(Succeed())
				e, err := f.bucket.Get(context.Background(), "shards.members.d")
				f.Expect(err).NotTo(HaveOccurred())
				f.Expect(string(e.Value())).To(Equal(theirs))
			})
		})
	}
}

func TestMemberWhosePresenceExpiredHandsOverAsItLeaves(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		members := f.together(keysOf(20), "a", "b", "c")
		a := members[0]
		a.link.LoseRequests(to("shards.members.a"))
		for stored := true; stored; after(time.Millisecond) {
			_, err := f.bucket.Get(context.Background(), "shards.members.a")
			stored = err == nil
		}
		f.Expect(members[1].Status().Members).To(ContainElement("a"), "for a moment longer")
		a.link.Heal()
		a.leave()
		after(instant)
		f.expectEven(keysOf(20), members[1:])
		_, _, gap := f.journal.reset()
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
	})
}

func TestMembersThatAllLeaveReleaseTheirKeysAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		members := f.together(keysOf(20), "a", "b", "c")
		begun := time.Now()
		for _, m := range members {
			m.Stop()
		}
		for _, m := range members {
			f.Expect(m.end()).To(Succeed())
		}
		f.Expect(time.Since(begun)).To(BeNumerically("<", 100*time.Millisecond))
		for _, key := range keysOf(20) {
			s, err := kv.With(f.bucket, nil).Read(context.Background(), "shards.keys."+key)
			f.Expect(err).NotTo(HaveOccurred())
			_, released := s.Record.IsRelease()
			f.Expect(released).To(BeTrue())
		}
	})
}

func TestMemberThatLeavesReleasesAtOnceWhatNobodyElseLists(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		both, b := keysOf(4), f.member("b", "shards", keysOf(4)).start()
		a := f.member("a", "shards", append(both, "mine")).start()
		after(standDown + time.Second)
		f.Expect(a.Keys()).To(ContainElement("mine"))
		f.journal.reset()
		begun := time.Now()
		a.leave()
		f.Expect(time.Since(begun)).To(BeNumerically("<", 100*time.Millisecond))
		f.expectEven(both, []*member{b})
		_, _, gap := f.journal.reset()
		f.Expect(gap).To(BeNumerically("<", orderly))
	})
}
