package group_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/link"
)

// unanswered has the answer to the next presence of the member get lost, calls f once that is on its way, and returns what
// is closed then.
func (m *member) unanswered(f func()) <-chan struct{} {
	written := make(chan struct{})
	presence := to("shards.members." + m.name)
	m.link.LoseReplies(link.Once(func(r link.Message) bool { return presence(link.Message{Subject: r.Request}) }))
	first := link.Once(presence)
	m.link.OnRequest(func(r link.Message) {
		if first(r) {
			f()
			close(written)
		}
	})
	return written
}

func TestMemberWhosePresenceWasAppliedUnansweredHandsOverAsItLeaves(t *testing.T) {
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
				moves, gap := f.journal.reset()
				f.Expect(moves).To(Equal(led))
				f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
			})
		})
	}
}

// tardy is a bucket that applies the first presence of all late, whether or not somebody waits for it still.
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
	for name, newcomer := range map[string]func(*fleet, []string) *member{
		"applied at once": func(f *fleet, keys []string) *member {
			d := f.member("d", "shards", keys)
			d.unanswered(d.Stop)
			return d
		},
		"applied late": func(f *fleet, keys []string) *member {
			nc := f.server.Connect(f.T)
			b := &tardy{KeyValue: f.server.Bucket(f.T, nc, ttl, f.options...)}
			d := f.memberIn(b, nc, "d", "shards", keys)
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

func TestMemberThatLeavesLetsThePresenceOfAnotherStand(t *testing.T) {
	const theirs = `{"name":"d","instance":"another"}`
	for name, replace := range map[string]func(d *member, put func()){
		"before it said that it is there": func(d *member, put func()) {
			put()
			d.link.LoseRequests(link.Once(to("shards.members.d")))
			d.unanswered(d.Stop)
			d.start()
		},
		"later": func(d *member, put func()) {
			d.start()
			after(time.Second)
			d.link.StallReplies() // it does not hear of the other
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
	onVirtualTime(t, func(f *fleet) {
		members := f.together(keysOf(20), "a", "b", "c")
		a := members[0]
		a.link.LoseRequests(to("shards.members.a"))
		for stands := true; stands; after(time.Millisecond) {
			_, err := f.bucket.Get(context.Background(), "shards.members.a")
			stands = err == nil
		}
		f.Expect(members[1].Status().Members).To(ContainElement("a"), "for a moment more")
		a.link.Heal()
		a.leave()
		after(instant)
		f.expectEven(keysOf(20), members[1:])
		_, gap := f.journal.reset()
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
	})
}
