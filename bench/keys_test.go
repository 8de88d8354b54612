package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/group"
)

const keysTTL = 15 * time.Second

// BenchmarkOneMember has one process lead 2,000 keys for some TTLs, and shows what that costs the process: as the only member of a group, by one session,
// and with as many elections of etcd that share one lease; the latter two also with 20,000. The servers are other processes.
func BenchmarkOneMember(b *testing.B) {
	for _, c := range []struct {
		name string
		lead func(tb testing.TB, n, ttls int)
		keys int
	}{{"group", oneMember, 2000}, {"session", oneSession, 2000}, {"etcd", oneLease, 2000}, {"session", oneSession, 20_000}, {"etcd", oneLease, 20_000}} {
		b.Run(fmt.Sprintf("%s-%d", c.name, c.keys), func(b *testing.B) {
			for b.Loop() {
				c.lead(b, c.keys, *ttls)
			}
		})
	}
}

func oneMember(tb testing.TB, n, ttls int) {
	f := newFleet(tb, startServerProcess(tb), keysTTL, 1)
	nc := f.connect()
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("key-%d", i))
	}
	g, err := group.New("a", "shards", keys, f.bucket(nc))
	if err != nil {
		tb.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer running.Wait()
	defer cancel()
	begun := time.Now()
	running.Go(func() { _ = g.Start(ctx) })
	f.await("the member leads all keys", func() bool { return len(g.Keys()) == n })
	started := time.Since(begun)
	sent, received := nc.Stats().OutMsgs, nc.Stats().InMsgs
	least := n
	reportCost(tb, ttls, started, func() {
		for range 10 {
			time.Sleep(time.Duration(ttls) * keysTTL / 10)
			least = min(least, len(g.Keys()))
		}
	}, func() uint64 { return nc.Stats().OutMsgs - sent }, func() uint64 { return nc.Stats().InMsgs - received })
	if least < n {
		tb.Errorf("only %d of %d keys were led", least, n)
	}
}

func oneLease(tb testing.TB, n, ttls int) {
	var sent, received atomic.Uint64
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{startProcess(tb, "TestEtcdProcess")}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := streamer(ctx, desc, cc, method, opts...)
			return &countedStream{s, &sent, &received}, err
		})},
	})
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(keysTTL/time.Second)))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	begun := time.Now()
	var campaigns sync.WaitGroup
	for worker := range 64 {
		campaigns.Go(func() {
			for i := worker; i < n; i += 64 {
				if err := concurrency.NewElection(session, "/key-"+strconv.Itoa(i)).Campaign(context.Background(), "a"); err != nil {
					tb.Error(err)
				}
			}
		})
	}
	campaigns.Wait()
	started := time.Since(begun)
	before, beforeReceived := sent.Load(), received.Load()
	reportCost(tb, ttls, started, func() { time.Sleep(time.Duration(ttls) * keysTTL) },
		func() uint64 { return sent.Load() - before }, func() uint64 { return received.Load() - beforeReceived })
}

// reportCost shows what a process uses while something lasts some TTLs.
func reportCost(tb testing.TB, ttls int, started time.Duration, lasting func(), sent, received func() uint64) {
	cpu := cpuTime(tb)
	lasting()
	used, lasted := cpuTime(tb)-cpu, (time.Duration(ttls) * keysTTL).Seconds()
	if b, ok := tb.(*testing.B); ok {
		b.ReportMetric(started.Seconds(), "s-to-lead-all")
		b.ReportMetric(float64(sent())/lasted, "sent/s")
		b.ReportMetric(float64(received())/lasted, "received/s")
		b.ReportMetric(used.Seconds()*1000/float64(ttls), "cpu-ms/TTL")
		b.ReportMetric(0, "ns/op")
	}
}

// countedStream counts what passes.
type countedStream struct {
	grpc.ClientStream
	sent, received *atomic.Uint64
}

func (s *countedStream) SendMsg(m any) error {
	s.sent.Add(1)
	return s.ClientStream.SendMsg(m)
}

func (s *countedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		s.received.Add(1)
	}
	return err
}

// TestEtcdProcess is a server of etcd in a process of its own, which leaves the disk to the operating system as a NATS server does.
func TestEtcdProcess(t *testing.T) {
	if os.Getenv(inOwnProcess) == "" {
		t.Skip("runs a server when a benchmark asks for it")
	}
	untilOrphaned(startEtcd(t, 1, true).endpoints[0])
}

// BenchmarkRenewTogether writes 1,000 keys over their revisions: by an update each with 64 under way, with all under way, and in one atomic batch.
// It shows what can be gained by renewing the keys of a process together.
func BenchmarkRenewTogether(b *testing.B) {
	const n = 1000
	f := newFleet(b, startServerProcess(b), time.Minute, 1)
	nc := f.connect()
	js := f.jetStream(nc)
	stream, err := js.Stream(context.Background(), "KV_"+bucketName)
	if err != nil {
		b.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.AllowAtomicPublish = true
	if _, err := js.UpdateStream(context.Background(), config); err != nil {
		b.Fatal(err)
	}
	bucket, value := f.bucket(nc), make([]byte, 400)
	revisions := make([]uint64, n)
	for i := range revisions {
		if revisions[i], err = bucket.Put(context.Background(), strconv.Itoa(i), value); err != nil {
			b.Fatal(err)
		}
	}
	for _, underWay := range []int{64, n} {
		b.Run(fmt.Sprintf("updates-%d", underWay), func(b *testing.B) {
			cpu := cpuTime(b)
			for b.Loop() {
				var all sync.WaitGroup
				for w := range underWay {
					all.Go(func() {
						for i := w; i < n; i += underWay {
							revision, err := bucket.Update(context.Background(), strconv.Itoa(i), value, revisions[i])
							if err != nil {
								b.Error(err)
							}
							revisions[i] = revision
						}
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N)/n, "cpu-µs/key")
		})
	}
	b.Run("batch", func(b *testing.B) {
		cpu := cpuTime(b)
		for round := 0; b.Loop(); round++ {
			var last *nats.Msg
			for i := range n {
				m := nats.NewMsg("$KV." + bucketName + "." + strconv.Itoa(i))
				m.Data = value
				m.Header.Set("Nats-Batch-Id", "batch-"+strconv.Itoa(round)+"-"+strconv.FormatInt(time.Now().UnixNano(), 36))
				m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
				m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(revisions[i], 10))
				if last != nil {
					m.Header.Set("Nats-Batch-Id", last.Header.Get("Nats-Batch-Id"))
				}
				if last = m; i < n-1 {
					if err := nc.PublishMsg(m); err != nil {
						b.Fatal(err)
					}
				}
			}
			last.Header.Set("Nats-Batch-Commit", "1")
			ack, err := js.PublishMsg(context.Background(), last)
			if err != nil {
				b.Fatal(err)
			}
			for i := range revisions {
				revisions[i] = ack.Sequence - uint64(n-1-i)
			}
		}
		b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N)/n, "cpu-µs/key")
	})
}

func TestOneMemberLeadsItsKeys(t *testing.T) {
	t.Parallel()
	f := newFleet(t, startServerProcess(t), 2*time.Second, 1)
	g, err := group.New("a", "shards", []string{"x", "y"}, f.bucket(f.connect()), group.WithElectionOptions(election.WithStandDown(0)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- g.Start(ctx) }()
	f.await("the member leads all keys", func() bool { return len(g.Keys()) == 2 })
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
