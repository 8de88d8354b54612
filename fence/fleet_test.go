package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/natstest"
)

const (
	fleetTTL = time.Second
	lateness = fleetTTL + time.Second // how long a write may be under way
)

func keysOf(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("key%d", i))
	}
	return keys
}

func epochOf(key string) string  { return "orders." + key + ".epoch" }
func ordersOf(key string) string { return "orders." + key + ".done" }

// fleet is what one process runs: a candidate for each key, which begins to write when it leads, and does not stop when it no longer leads.
type fleet struct {
	js     jetstream.JetStream
	report func(event, key, token string)
	ctx    context.Context
	stop   context.CancelFunc
	all    sync.WaitGroup
}

// The events that a fleet reports of a key and a term.
const (
	eventWrote   = "wrote"   // its first write was stored
	eventRefused = "refused" // a late write was refused, for its epoch
	eventFenced  = "fenced"  // the handle is closed
)

// startFleet starts the candidates of one process, on one connection.
func startFleet(name string, nc *nats.Conn, keys []string, report func(event, key, token string)) (*fleet, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	f := &fleet{js: js, report: report}
	f.ctx, f.stop = context.WithCancel(context.Background())
	opening, cancel := context.WithTimeout(f.ctx, unhurried)
	defer cancel()
	bucket, err := js.KeyValue(opening, natstest.BucketName)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		e, err := election.NewElection(name, key, bucket, election.WithSplay(100*time.Millisecond), election.WithStandDown(200*time.Millisecond),
			election.WithCampaignInterval(fleetTTL/4), election.WithReleaseTimeout(fleetTTL))
		if err != nil {
			return nil, err
		}
		f.all.Go(func() {
			for f.ctx.Err() == nil {
				_ = e.Run(f.ctx, f.work)
			}
		})
	}
	return f, nil
}

// end stops all candidates, and waits for them and for their last writes.
func (f *fleet) end() {
	f.stop()
	f.all.Wait()
}

func (f *fleet) work(ctx context.Context, t election.Term) error {
	s, err := fence.OpenStream(ctx, f.js, streamName, epochOf(t.Key), t)
	if err != nil {
		return err
	}
	for range 2 {
		f.all.Go(func() { f.writeLate(s, t) })
	}
	f.all.Go(func() { f.write(s, t) })
	<-ctx.Done()
	return nil
}

// order returns what a leader of term t writes.
func order(t election.Term) *nats.Msg {
	return &nats.Msg{Subject: ordersOf(t.Key), Header: nats.Header{fence.TokenHeader: {t.Token()}}}
}

// write writes until the handle is closed.
func (f *fleet) write(s *fence.Stream, t election.Term) {
	for reported := false; f.ctx.Err() == nil; f.pause(50 * time.Millisecond) {
		limited, cancel := context.WithTimeout(f.ctx, lateness)
		_, err := s.PublishMsg(limited, order(t))
		cancel()
		switch {
		case errors.Is(err, fence.ErrFenced):
			f.report(eventFenced, t.Key, t.Token())
			return
		case err == nil && !reported:
			f.report(eventWrote, t.Key, t.Token())
			reported = true
		}
	}
}

// writeLate makes writes that leave the handle in time and reach the network late, until one is refused.
func (f *fleet) writeLate(s *fence.Stream, t election.Term) {
	for f.ctx.Err() == nil {
		m := s.Prepared(order(t))
		f.pause(lateness)
		limited, cancel := context.WithTimeout(f.ctx, lateness+time.Second) // longer than most stalls; a message that was cut off has no answer
		_, err := f.js.PublishMsg(limited, m)
		cancel()
		var api *jetstream.APIError
		if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
			f.report(eventRefused, t.Key, t.Token())
			return
		}
	}
}

func (f *fleet) pause(longest time.Duration) {
	select {
	case <-f.ctx.Done():
	case <-time.After(rand.N(longest)):
	}
}

// verdict is what a stream shows of epochs and writes.
type verdict struct {
	epochs, writes int
	stale          []string
}

// judge reads all messages of a stream, in their order.
func judge(ctx context.Context, js jetstream.JetStream) (verdict, error) {
	var v verdict
	stream, err := js.Stream(ctx, streamName)
	if err != nil {
		return v, err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return v, err
	}
	now := map[string]string{} // the token of the present epoch, by key
	for left := stream.CachedInfo().State.Msgs; left > 0; {
		batch, err := consumer.Fetch(int(min(left, 1000)), jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			return v, err
		}
		for m := range batch.Messages() {
			left--
			key := strings.Split(m.Subject(), ".")[1]
			switch m.Subject() {
			case epochOf(key):
				token := tokenOf(m.Data())
				if token <= now[key] {
					v.stale = append(v.stale, fmt.Sprintf("%s: epoch %s after %s", key, token, now[key]))
				}
				now[key] = token
				v.epochs++
			case ordersOf(key):
				if token := m.Headers().Get(fence.TokenHeader); token != now[key] {
					v.stale = append(v.stale, fmt.Sprintf("%s: write of %s in the epoch of %s", key, token, now[key]))
				}
				v.writes++
			}
		}
		if err := batch.Error(); err != nil {
			return v, err
		}
	}
	return v, nil
}
