package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bareClient is a client of the bucket that knows no election.
type bareClient struct {
	jetstream.KeyValue
	stream   jetstream.Stream
	notified chan struct{}
}

// bareHandovers measures from the update that stands for a release to the acknowledgement of the update that stands for the win. The second
// client is notified of the first update, reads what it wrote and updates that. All others are notified of both.
func bareHandovers(b *testing.B, s servers, replicas, n int) {
	const key = "bare"
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Duration(b.N)*time.Second)
	defer cancel()
	f := newFleet(b, s, patience, replicas)
	release, win := make([]byte, 500), make([]byte, 400) // bytes, about as many as in the records
	clients := make([]*bareClient, n)
	for i := range clients {
		clients[i] = f.bareClient(ctx)
	}
	revision, err := clients[0].Create(ctx, key, win)
	if err != nil {
		b.Fatal(err)
	}
	answer := func(c *bareClient) (uint64, error) {
		select {
		case <-c.notified:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		m, err := c.stream.GetLastMsgForSubject(ctx, "$KV."+bucketName+"."+key)
		if err != nil {
			return 0, err
		}
		return c.Update(ctx, key, win, m.Sequence)
	}
	var times sample
	for b.Loop() {
		b.StopTimer()
		time.Sleep(calm * 4 / 3)
		for _, c := range clients {
			select {
			case <-c.notified:
			default:
			}
		}
		b.StartTimer()
		began := time.Now()
		var released sync.WaitGroup
		released.Go(func() {
			if _, err := clients[0].Update(ctx, key, release, revision); err != nil {
				b.Error(err)
				cancel()
			}
		})
		if revision, err = answer(clients[1]); err != nil { // a replica may not have the release yet
			revision, err = clients[1].read(ctx, key)
		} else {
			times.add(time.Since(began), time.Millisecond)
		}
		if err != nil {
			b.Fatal(err)
		}
		released.Wait()
		clients = append(clients[1:], clients[0])
	}
	times.report(b, "ms")
	besideEtcd(b, times)
}

// bareClient returns a client on a connection of its own, which is notified of what is written.
func (f *fleet) bareClient(ctx context.Context) *bareClient {
	f.Helper()
	nc := f.connect()
	stream, err := f.jetStream(nc).Stream(ctx, "KV_"+bucketName)
	if err != nil {
		f.Fatal(err)
	}
	c := &bareClient{f.bucket(nc), stream, make(chan struct{}, 1)}
	_, err = nc.Subscribe(stream.CachedInfo().Config.RePublish.Destination, func(*nats.Msg) {
		select {
		case c.notified <- struct{}{}:
		default:
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// read returns the revision of the key once the replica that serves the read has caught up.
func (c *bareClient) read(ctx context.Context, key string) (uint64, error) {
	time.Sleep(calm)
	entry, err := c.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	return entry.Revision(), nil
}
