package group_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/observe"
)

func TestGroupsInOneBucketDoNotDisturbEachOther(t *testing.T) {
	natstest.SkipIfShort(t)
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
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(3)
		members := f.together(keys, "a", "b", "c", "d", "e")
		leading := slices.IndexFunc(members, func(m *member) bool { return len(m.Keys()) > 0 })
		members[leading].leave()
		after(instant)
		f.expectEven(keys, without(members, members[leading]))
		_, moves, gap := f.journal.reset()
		f.Expect(moves).To(Equal(1))
		f.Expect(gap).To(BeNumerically("<", 10*time.Millisecond))
	})
}

func TestKeysMayChangeInARollingUpdate(t *testing.T) {
	natstest.SkipIfShort(t)
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
				f.Expect(led).To(HaveLen(20), "all keys that a member lists")
			}
		}
		f.expectEven(young, members)
	})
}

func TestGroupWorksWhereTheBucketAnnouncesNothing(t *testing.T) {
	natstest.SkipIfShort(t)
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
		_, moves, gap := f.journal.reset()
		f.Expect(moves).To(Equal(6))
		f.Expect(gap).To(BeNumerically("<", 100*time.Millisecond))
		members[0].leave()
		after(time.Second)
		f.expectEven(keys, members[1:])
	}, withoutMarkers)
}

func TestToolsTakeNoRecordOfAGroupForAnElection(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		f.together(keysOf(4), "a", "b")
		o, err := observe.New(f.bucket)
		f.Expect(err).NotTo(HaveOccurred())
		leaders, err := o.Leaders(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		var keys []string
		for _, l := range leaders {
			if !look.IsOtherData(l) {
				keys = append(keys, l.Key)
			}
		}
		f.Expect(keys).To(Equal([]string{"shards.keys.k000", "shards.keys.k001", "shards.keys.k002", "shards.keys.k003"}))

		bucket := kv.With(f.bucket, nil)
		info, err := bucket.Load(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		stored, err := bucket.Contents(context.Background(), info)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(append(stored.Foreign, stored.Plain...)).To(BeEmpty(), "a change of the bucket loses nothing else")
		f.Expect(stored.Holders).To(HaveLen(4))
	})
}

func TestContextsOfFormerWatchersEnd(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		l := f.Server.Link(f.T)
		nc := natstest.Connect(f.T, l, nats.ReconnectBufSize(-1))
		bucket := f.Open(nc)
		b := &fleettest.Watched{KeyValue: bucket.KeyValue}
		f.memberIn(b, "a", "shards", keysOf(1), group.WithElectionOptions(election.WithJetStream(bucket.JetStream()))).start()
		after(ttl)
		for i := range 20 {
			b.Refusing.Store(i%2 == 1)
			l.Disconnect()
			after(ttl)
		}
		b.Refusing.Store(false)
		after(ttl)
		b.ExpectOneContext(f.WithT)
	})
}

func TestForeignRecordDoesNotEndTheMembers(t *testing.T) {
	natstest.SkipIfShort(t)
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
				members[0].link.Disconnect() // it receives a plan before the presences
				after(2 * ttl)
				f.expectEven(keys, members)
			})
		})
	}
}

func TestMemberWhoseConnectionIsClosedEnds(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for name, keys := range map[string]int{"it leads": 3, "it leads nothing": 0} {
			nc := natstest.Connect(f.T, f.Server.Link(f.T))
			m := f.memberIn(f.Open(nc), "m", fmt.Sprint("closing", keys), keysOf(max(keys, 1)))
			if keys == 0 {
				f.member("a", fmt.Sprint("closing", keys), keysOf(1)).start()
			}
			result := make(chan error, 1)
			go func() { result <- m.Run(context.Background(), m.work) }()
			after(2 * ttl)
			f.Expect(m.Keys()).To(HaveLen(keys), name)
			nc.Close()
			after(time.Second)
			f.Expect(result).To(Receive(MatchError(nats.ErrConnectionClosed)), name)
			f.Expect(m.Start(context.Background())).To(MatchError(nats.ErrConnectionClosed), name)
		}
	})
}

func TestMemberEndsHoweverItsConnectionIsClosed(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for name, closed := range map[string]func(m *member, nc *nats.Conn, run func()){
			"before it starts": func(_ *member, nc *nats.Conn, run func()) {
				nc.Close()
				run()
			},
			"while it waits for the server": func(m *member, nc *nats.Conn, run func()) {
				m.link.Cut()
				run()
				after(ttl)
				f.Expect(m.result).To(BeEmpty(), "it waits")
				nc.Close()
			},
			"as it drains": func(_ *member, nc *nats.Conn, run func()) {
				run()
				after(standDown + time.Second)
				f.Expect(nc.Drain()).To(Succeed())
			},
			"when the client gives up": func(m *member, nc *nats.Conn, run func()) {
				run()
				after(standDown + time.Second)
				m.link.Cut()
				m.link.Disconnect()
				after(time.Second)
				f.Expect(nc.IsClosed()).To(BeTrue())
			},
		} {
			l := f.Server.Link(f.T)
			opts := []nats.Option{nats.ReconnectBufSize(-1)}
			if name == "when the client gives up" {
				opts = append(opts, nats.MaxReconnects(3))
			}
			nc := natstest.Connect(f.T, l, opts...)
			m := f.memberIn(f.Open(nc), "m", "closing", keysOf(2))
			m.link = l
			closed(m, nc, func() {
				go func() { m.result <- m.Start(context.Background()) }()
			})
			after(2 * ttl)
			f.Expect(m.result).To(Receive(MatchError(nats.ErrConnectionClosed)), name)
		}
	})
}
