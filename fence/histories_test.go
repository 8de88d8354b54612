package fence_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/linear"
	"github.com/natscampaign/election/internal/test/natstest"
)

var (
	histories = flag.Int("histories", 4, "how many histories of updates over a link that fails to try on each kind of bucket")
	firstSeed = flag.Uint64("seed", 0, "the seed of the first history; each has the next; 0 for a fresh one")
)

// TestNoUpdateIsLostOverLinksThatFail has six writers update two keys, over the revisions that they read, through three handles of one term.
// Two handles share a link, and both links stall, are slow and lose replies. In the end the stored values must form a chain: each is stored
// over the revision that it names, and none that was acknowledged is missing. The history of all reads and updates is linearizable.
func TestNoUpdateIsLostOverLinksThatFail(t *testing.T) {
	natstest.SkipIfShort(t)
	seed := *firstSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 48)
	}
	t.Logf("-seed %d", seed)
	for n := range *histories {
		seed := seed + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onBuckets(t, func(b *bench) { b.history(rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

const (
	historyTime = 30 * time.Second
	writers     = 6
)

// update is a value that names the revision over which it is to be stored.
type update struct {
	Number int
	Over   uint64
}

// history plays one history, and judges it.
func (b *bench) history(r *rand.Rand) {
	b.change(ofBucket, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgsPerSubject = -1 }) // it keeps all values
	l, failing := b.leader("a"), []*faultproxy.Link{b.server.Link(b.T), b.server.Link(b.T)}
	one, two := b.jetStream(natstest.Connect(b.T, failing[0])), b.jetStream(natstest.Connect(b.T, failing[1]))
	var handles []*fence.Bucket
	for _, js := range []jetstream.JetStream{one, one, two} {
		kv, err := fence.OpenBucket(ctx, js, bucketName, l.term)
		b.Expect(err).NotTo(HaveOccurred())
		handles = append(handles, kv)
	}
	var all sync.WaitGroup
	stored, values := make([][]update, writers), &linear.Values{}
	for n := range stored {
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		all.Go(func() { stored[n] = b.updates(handles[n%len(handles)], n, r, values) })
	}
	for end := time.Now().Add(historyTime); time.Now().Before(end); {
		link := failing[r.IntN(len(failing))]
		fail(link, r)
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		if r.IntN(2) == 0 {
			link.Heal()
			time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
		}
	}
	for _, link := range failing {
		link.Heal()
	}
	all.Wait()
	time.Sleep(10 * time.Second) // for late messages
	chains := map[string][]update{"k0": b.chain("k0"), "k1": b.chain("k1")}
	b.Expect(slices.Concat(chains["k0"], chains["k1"])).To(ContainElements(slices.Concat(stored...)), "every acknowledged update is stored")
	for key, chain := range chains {
		var numbers []int
		for _, u := range chain {
			numbers = append(numbers, u.Number)
		}
		called := values.Call()
		values.Settle(key, numbers)
		values.Read(writers, called, key, numbers[len(numbers)-1])
	}
	values.Expect(b.T)
	for _, kv := range handles {
		_, err := kv.Put(ctx, "k0", []byte("{}"))
		b.Expect(err).NotTo(HaveOccurred(), "the handle works again")
	}
}

// fail has a link fail in one more way.
func fail(l *faultproxy.Link, r *rand.Rand) {
	switch r.IntN(4) {
	case 0:
		l.Stall()
	case 1:
		l.StallReplies()
	case 2:
		l.DelayReplies(time.Duration(r.IntN(2000)) * time.Millisecond)
	case 3:
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		l.LoseReplies(func(faultproxy.Message) bool { return r.IntN(2) == 0 })
	}
}

// updates updates keys over the revisions that it reads, with longer and shorter timeouts, and returns the acknowledged updates.
func (b *bench) updates(kv *fence.Bucket, writer int, r *rand.Rand, values *linear.Values) (stored []update) {
	number := writer
	for end := time.Now().Add(historyTime); time.Now().Before(end); time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond) {
		key := fmt.Sprint("k", r.IntN(2))
		number += writers
		u, over := update{Number: number}, update{}
		called := values.Call()
		if entry, err := b.bucket.Get(ctx, key); err == nil {
			u.Over = entry.Revision()
			b.Expect(json.Unmarshal(entry.Value(), &over)).To(Succeed())
			values.Read(writer, called, key, over.Number)
		}
		data, _ := json.Marshal(u)
		limited, cancel := context.WithTimeout(ctx, time.Duration(50+r.IntN(4000))*time.Millisecond)
		called = values.Call()
		if _, err := kv.Update(limited, key, data, u.Over); err == nil {
			stored = append(stored, u)
			values.Stored(writer, called, key, over.Number, u.Number)
		} else {
			values.Unknown(writer, called, key, over.Number, u.Number)
		}
		cancel()
	}
	return stored
}

// chain returns the updates stored under a key, and expects each to be over the revision that it names.
func (b *bench) chain(key string) (chain []update) {
	b.Helper()
	entries, err := b.bucket.History(ctx, key)
	b.Expect(err).NotTo(HaveOccurred())
	last := uint64(0)
	for _, entry := range entries {
		var u update
		b.Expect(json.Unmarshal(entry.Value(), &u)).To(Succeed())
		b.Expect(u.Over).To(Equal(last), "%s was stored as revision %d of %s", entry.Value(), entry.Revision(), key)
		last = entry.Revision()
		chain = append(chain, u)
	}
	return chain
}
