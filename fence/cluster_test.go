package fence_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// unhurried is a TTL at which no lease runs out on a busy host.
const unhurried = time.Minute

// rival returns the term of a leader that leads while the one before still considers itself leader. The leader before that stops, or it might
// win instead. The new one campaigns until it wins, for a replica may still serve the key that was purged.
func (g *ground) rival(name string) election.Term {
	g.Helper()
	bucket, err := g.js.KeyValue(ctx, natstest.BucketName)
	g.Expect(err).NotTo(HaveOccurred())
	e, err := election.NewElection(name, key, fleettest.Unwatchable{KeyValue: bucket}, election.WithSplay(0), election.WithStandDown(0),
		election.WithBackoff(election.ConstantBackoff(100*time.Millisecond)))
	g.Expect(err).NotTo(HaveOccurred())
	if len(g.rivals) > 1 {
		_ = g.rivals[len(g.rivals)-2].Shutdown(ctx)
	}
	g.rivals = append(g.rivals, e)
	s, err := g.js.Stream(ctx, "KV_"+natstest.BucketName)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Purge(ctx)).To(Succeed())
	go func() { _ = e.Start(ctx) }()
	g.Cleanup(func() { _ = e.Shutdown(ctx) })
	g.Eventually(e.IsLeader).WithPolling(5 * time.Millisecond).Should(BeTrue())
	t, _ := e.Term()
	return t
}

func (g *ground) stepDown() {
	g.Helper()
	_, err := g.js.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+streamName, nil, unhurried)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestAllConcurrentWritesToAReplicatedStreamSucceed(t *testing.T) {
	inRealTime(t)
	g := newGround(t, unhurried, atomic)
	term := g.rival("a")
	bucket, err := g.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucketName, Replicas: 3})
	g.Expect(err).NotTo(HaveOccurred())
	const writers, each = 8, 10
	var all sync.WaitGroup
	for range 2 {
		s, err := fence.OpenStream(ctx, g.js, streamName, epochOf(key), term)
		g.Expect(err).NotTo(HaveOccurred())
		kv, err := fence.OpenBucket(ctx, g.js, bucketName, term)
		g.Expect(err).NotTo(HaveOccurred())
		for range writers {
			all.Go(func() {
				for range each {
					_, err := s.PublishMsg(ctx, order(term))
					g.Expect(err).NotTo(HaveOccurred())
					_, err = s.PublishBatch(ctx, order(term), order(term))
					g.Expect(err).NotTo(HaveOccurred())
					_, err = kv.Put(ctx, "x", nil)
					g.Expect(err).NotTo(HaveOccurred())
				}
			})
		}
	}
	all.Wait()
	v, err := judge(ctx, g.js)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(v).To(Equal(verdict{epochs: 1, writes: 2 * writers * each * 3}))
	status, err := bucket.Status(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Values()).To(BeEquivalentTo(2), "the key, and the epoch")
}

func TestNewerLeaderBeginsItsEpochRightAfterAStepDownAndShutsOutTheOlder(t *testing.T) {
	inRealTime(t)
	g := newGround(t, unhurried)
	term := g.rival("leader0")
	opening, cancel := context.WithTimeout(ctx, unhurried)
	defer cancel()
	s, err := fence.OpenStream(opening, g.js, streamName, epochOf(key), term)
	g.Expect(err).NotTo(HaveOccurred())
	const rounds = 6
	for i := range rounds {
		newer := g.rival(fmt.Sprintf("leader%d", i+1))
		next := func() *fence.Stream {
			ctx, cancel := context.WithTimeout(ctx, unhurried) // a busy host may need longer than a request's 5 s until a stream leads again
			defer cancel()
			var late sync.WaitGroup
			defer late.Wait()
			writing, stop := context.WithCancel(ctx)
			defer stop()
			for range 4 {
				late.Go(func() {
					for writing.Err() == nil {
						_, _ = g.js.PublishMsg(writing, s.Prepared(order(term)))
					}
				})
			}
			g.stepDown()
			next, err := fence.OpenStream(ctx, g.js, streamName, epochOf(key), newer)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = next.PublishMsg(ctx, order(newer))
			g.Expect(err).NotTo(HaveOccurred())
			_, err = s.PublishMsg(ctx, order(term))
			g.Expect(err).To(MatchError(fence.ErrFenced))
			_, err = fence.OpenStream(ctx, g.js, streamName, epochOf(key), term)
			g.Expect(err).To(MatchError(fence.ErrFenced))
			return next
		}()
		s, term = next, newer
	}
	v, err := judge(ctx, g.js)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(v.stale).To(BeEmpty())
	g.Expect(v.epochs).To(Equal(1 + rounds))
}

func TestRevisionsAreCheckedOnAReplicatedBucketAsOnASingleOne(t *testing.T) {
	inRealTime(t)
	g := newGround(t, unhurried)
	term := g.rival("a")
	for _, allow := range []bool{false, true} {
		name := fmt.Sprintf("STATE_%t", allow)
		plain, err := g.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, Replicas: 3})
		g.Expect(err).NotTo(HaveOccurred())
		if allow {
			changeStream(g.WithT, g.js, "KV_"+name, atomic)
		}
		kv, err := fence.OpenBucket(ctx, g.js, name, term)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(kv.Atomic()).To(Equal(allow))
		var lost sync.WaitGroup
		var won sync.Map
		for i := range 8 { // of the updates of one revision one succeeds
			revision, err := kv.Put(ctx, fmt.Sprintf("x%d", i), []byte("0"))
			g.Expect(err).NotTo(HaveOccurred())
			for j := range 4 {
				lost.Go(func() {
					_, err := kv.Update(ctx, fmt.Sprintf("x%d", i), fmt.Append(nil, j), revision)
					if err == nil {
						if _, twice := won.LoadOrStore(i, j); twice {
							g.Errorf("two updates of one revision succeeded")
						}
					} else if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
						g.Errorf("Update: %v", err)
					}
				})
			}
		}
		lost.Wait()
		for i := range 8 {
			winner, ok := won.Load(i)
			g.Expect(ok).To(BeTrue(), "somebody's update succeeds")
			e, err := kv.Get(ctx, fmt.Sprintf("x%d", i))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(e.Value())).To(Equal(fmt.Sprint(winner)))
		}
		_, err = kv.Create(ctx, "x0", nil)
		g.Expect(err).To(MatchError(jetstream.ErrKeyExists))
		g.Expect(kv.Delete(ctx, "x0")).To(Succeed())
		_, err = kv.Create(ctx, "x0", nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(func() ([]string, error) { return plain.Keys(ctx) }).Should(HaveLen(9), "the replica that is asked may lag behind")
	}
}
