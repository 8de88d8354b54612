package fence_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

const (
	ttl          = 10 * time.Second
	key          = "billing"
	streamName   = "ORDERS"
	epochSubject = "orders.epoch"
	bucketName   = "STATE"
)

var ctx = context.Background()

func TestMain(m *testing.M) {
	if runAsLeader() {
		return
	}
	SetDefaultEventuallyTimeout(20 * time.Second) // on a busy host
	natstest.VerifyTestMain(m)
}

// bench is a server on virtual time, with a stream and a bucket to protect.
type bench struct {
	*testing.T
	*WithT
	server *natstest.Server
	js     jetstream.JetStream // on a connection without faults
	stream jetstream.Stream
	bucket jetstream.KeyValue
}

func onVirtualTime(t *testing.T, f func(b *bench), change ...func(*jetstream.StreamConfig)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		b := &bench{T: t, WithT: NewWithT(t), server: natstest.Start(t)}
		b.js = b.jetStream(b.server.Connect(t))
		b.stream = b.streamLike(streamName, change...)
		var err error
		b.bucket, err = b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucketName, Storage: jetstream.MemoryStorage})
		b.Expect(err).NotTo(HaveOccurred())
		f(b)
	})
}

// atomic allows atomic batches.
func atomic(cfg *jetstream.StreamConfig) { cfg.AllowAtomicPublish = true }

func (b *bench) jetStream(nc *nats.Conn) jetstream.JetStream {
	b.Helper()
	js, err := jetstream.New(nc)
	b.Expect(err).NotTo(HaveOccurred())
	return js
}

// streamLike makes a stream of the orders, with changes.
func (b *bench) streamLike(name string, change ...func(*jetstream.StreamConfig)) jetstream.Stream {
	b.Helper()
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{"orders.>"}, Storage: jetstream.MemoryStorage}
	for _, f := range change {
		f(&cfg)
	}
	s, err := b.js.CreateStream(ctx, cfg)
	b.Expect(err).NotTo(HaveOccurred())
	return s
}

// ofBucket is the stream of the bucket.
const ofBucket = "KV_" + bucketName

// changeStream changes the configuration of a stream.
func changeStream(g *WithT, js jetstream.JetStream, name string, change func(*jetstream.StreamConfig)) {
	g.THelper()
	s, err := js.Stream(ctx, name)
	g.Expect(err).NotTo(HaveOccurred())
	cfg := s.CachedInfo().Config
	change(&cfg)
	_, err = js.UpdateStream(ctx, cfg)
	g.Expect(err).NotTo(HaveOccurred())
}

// change changes the configuration of a stream.
func (b *bench) change(stream string, change func(*jetstream.StreamConfig)) {
	b.Helper()
	changeStream(b.WithT, b.js, stream, change)
}

// leader is a candidate that leads, over a link of its own.
type leader struct {
	*election.Election
	link *faultproxy.Link
	js   jetstream.JetStream
	term election.Term
}

// leader returns a candidate that leads from now on, in an election that nobody leads.
func (b *bench) leader(name string, opts ...election.Option) *leader {
	b.Helper()
	l := &leader{link: b.server.Link(b.T)}
	nc := natstest.Connect(b.T, l.link)
	l.js = b.jetStream(nc)
	var err error
	opts = append(opts, election.WithSplay(0), election.WithStandDown(0))
	l.Election, err = election.NewElection(name, key, fleettest.Unwatchable{KeyValue: b.server.Bucket(b.T, nc, ttl, natstest.WithMarkers)}, opts...)
	b.Expect(err).NotTo(HaveOccurred())
	go func() { _ = l.Start(ctx) }()
	b.Cleanup(l.end)
	synctest.Wait()
	time.Sleep(time.Second)
	var leads bool
	l.term, leads = l.Term()
	b.Expect(leads).To(BeTrue())
	return l
}

// rival returns a leader that leads while the one before still considers itself leader: the election's bucket is purged, and the rival does
// not stand down.
func (b *bench) rival(name string) *leader {
	b.Helper()
	s, err := b.js.Stream(ctx, "KV_"+natstest.BucketName)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(s.Purge(ctx)).To(Succeed())
	return b.leader(name)
}

// end stops the leader, and waits until its key is released.
func (l *leader) end() { _ = l.Shutdown(ctx) }

// stallAt has the link stall at the next message to a subject, until it heals.
func (l *leader) stallAt(subject string) {
	l.link.OnRequest(func(m faultproxy.Message) {
		if m.Subject == subject {
			l.link.Stall()
		}
	})
}

// openStalled has l open the stream over a link that stalls at the record of the epoch. The channel receives the error after the link heals.
func (b *bench) openStalled(l *leader) <-chan error {
	l.stallAt(epochSubject)
	result := make(chan error)
	go func() {
		limited, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		_, err := fence.OpenStream(limited, l.js, streamName, epochSubject, l.term)
		result <- err
	}()
	synctest.Wait()
	return result
}

// forbid fails the test when l sends to a subject with one of the prefixes.
func (b *bench) forbid(l *leader, prefixes ...string) {
	l.link.OnRequest(func(m faultproxy.Message) {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(m.Subject, p) }) {
			b.Errorf("message sent to %s", m.Subject)
		}
	})
}

func (b *bench) open(l *leader) *fence.Stream {
	b.Helper()
	s, err := fence.OpenStream(ctx, l.js, streamName, epochSubject, l.term)
	b.Expect(err).NotTo(HaveOccurred())
	return s
}

func (b *bench) openBucket(l *leader, opts ...fence.Option) *fence.Bucket {
	b.Helper()
	s, err := fence.OpenBucket(ctx, l.js, bucketName, l.term, opts...)
	b.Expect(err).NotTo(HaveOccurred())
	return s
}

func (b *bench) publish(s *fence.Stream, data string) uint64 {
	b.Helper()
	ack, err := s.Publish(ctx, "orders.done", []byte(data))
	b.Expect(err).NotTo(HaveOccurred())
	return ack.Sequence
}

// stored returns what the stream holds, in order: the data of orders, and "epoch <leader>" for epochs.
func (b *bench) stored() []string {
	b.Helper()
	info, err := b.stream.Info(ctx)
	b.Expect(err).NotTo(HaveOccurred())
	all := []string{}
	for seq := info.State.FirstSeq; seq > 0 && seq <= info.State.LastSeq; seq++ {
		m, err := b.stream.GetMsg(ctx, seq)
		if err != nil {
			continue
		}
		text := string(m.Data)
		if m.Subject == epochSubject {
			text = "epoch " + leaderOf(m.Data)
		}
		all = append(all, text)
	}
	return all
}
