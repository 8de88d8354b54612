package group_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// noticed is after how long at most members that read notice what others write.
const noticed = ttl/8 + 1500*time.Millisecond

// unwatched returns a member to whom the server grants no consumer.
func (f *fleet) unwatched(name string, keys []string) *member {
	f.Helper()
	l := f.Server.Link(f.T)
	nc := natstest.Connect(f.T, l, nats.ReconnectBufSize(-1))
	bucket := f.Open(nc)
	m := f.memberIn(fleettest.Unwatchable{KeyValue: bucket.KeyValue}, name, "shards", keys, group.WithElectionOptions(election.WithJetStream(bucket.JetStream())))
	m.link, m.nc = l, nc
	return m
}

func TestGroupWithoutConsumersLeadsAndSharesItsKeysAllTheSame(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(20)
		var members []*member
		for _, name := range []string{"a", "b", "c"} {
			members = append(members, f.unwatched(name, keys).start())
		}
		after(standDown + noticed)
		f.expectEven(keys, members)
		f.journal.reset()

		members = append(members, f.unwatched("d", keys).start())
		after(2 * noticed)
		f.expectEven(keys, members)
		members[0].leave()
		members = members[1:]
		after(2 * noticed)
		f.expectEven(keys, members)
		terms, moves, gap := f.journal.reset()
		f.Expect(moves).To(Equal(10))
		f.Expect(terms).To(Equal(10))
		f.Expect(gap).To(BeNumerically("<", orderly))

		members[0].link.Cut()
		after(crashed + 2*noticed)
		f.expectEven(keys, members[1:])
		_, moves, _ = f.journal.reset()
		f.Expect(moves).To(Equal(7))
		f.Expect(f.journal.twice).To(BeEmpty())

		members[0].link.Heal()
		after(ttl)
		f.expectEven(keys, members)
		f.journal.reset()
		after(20 * ttl)
		f.expectUndisturbed(keys, members, int(f.planNumber()))
	})
}

// Somebody may use up the consumers that the server grants the stream of the bucket.
func TestMemberThatJoinsWhenAllConsumersAreTakenTakesPart(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		keys := keysOf(6)
		members := f.together(keys, "a", "b")
		ctx := context.Background()
		stream, err := f.bucket.JetStream().Stream(ctx, "KV_"+natstest.BucketName)
		f.Expect(err).NotTo(HaveOccurred())
		var names []string
		for err == nil {
			var c jetstream.Consumer
			c, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{FilterSubject: "$KV." + natstest.BucketName + ".other", AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: time.Hour})
			if err == nil {
				names = append(names, c.CachedInfo().Name)
			}
		}
		f.Expect(err).To(MatchError(ContainSubstring("maximum consumers limit reached")))
		members = append(members, f.member("c", "shards", keys).start())
		after(2 * noticed)
		f.expectEven(keys, members)
		for _, name := range names {
			f.Expect(stream.DeleteConsumer(ctx, name)).To(Succeed())
		}
		before := f.Stream().Consumers
		after(time.Minute)
		f.Expect(f.Stream().Consumers).To(Equal(before+1), "it watches again")
		f.expectEven(keys, members)
		_, _, gap := f.journal.reset()
		f.Expect(gap).To(BeNumerically("<", orderly))
	})
}

// delivered reports whether a message was delivered by a consumer, or is one of its heartbeats.
func delivered(m faultproxy.Message) bool { return strings.HasPrefix(m.Reply, "$JS.ACK.") }

func TestMemberWhoseWatchersDeliverNothingTakesPart(t *testing.T) {
	natstest.SkipIfShort(t)
	for i, role := range []string{"the planner", "the second planner", "a follower"} {
		t.Run(role, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				keys := keysOf(20)
				members := f.together(keys, "a", "b", "c")
				members[i].link.LoseReplies(delivered)
				after(2 * ttl)
				members = append(members, f.member("d", "shards", keys).start())
				after(3 * noticed)
				f.expectEven(keys, members)
				members[(i+1)%3].leave()
				members = without(members, members[(i+1)%3])
				after(3 * noticed)
				f.expectEven(keys, members)
				_, _, gap := f.journal.reset()
				f.Expect(gap).To(BeNumerically("<", orderly))
				f.Expect(f.journal.twice).To(BeEmpty())
			})
		})
	}
}
