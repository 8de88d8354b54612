package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
)

const (
	bucketName = "BENCH"
	patience   = time.Minute // for what is bound to happen
)

// servers is what candidates connect to: one server or a cluster.
type servers interface {
	Connect(tb testing.TB, opts ...nats.Option) *nats.Conn
}

// fleet is candidates of one bucket, in any number of elections, and what was seen of them.
type fleet struct {
	testing.TB
	servers servers
	ttl     time.Duration
	opts    []election.Option // of every candidate, in place of its others
	wins    chan win          // all of them, in order
	losses  atomic.Int64
	joined  int
	all     []*candidate // the candidates that did not leave, in the order in which they joined
}

// win is the beginning of leadership.
type win struct {
	by *candidate
	at time.Time
}

// candidate campaigns until it is stopped.
type candidate struct {
	*election.Election
	conn   *nats.Conn
	key    string
	result chan error
}

// steady are options for a test that demands that no lease is lost: on a busy host, renewals may be late by much more than a default interval allows.
var steady = []election.Option{election.WithCampaignInterval(time.Second), election.WithStandDown(0), election.WithSplay(time.Second / 2)}

// steadyTTL is a TTL that suits them.
const steadyTTL = 15 * time.Second

// newFleet makes the bucket, in files, and no candidates. The options count for every candidate that joins, in place of its others.
func newFleet(tb testing.TB, s servers, ttl time.Duration, replicas int, opts ...election.Option) *fleet {
	tb.Helper()
	f := &fleet{TB: tb, servers: s, ttl: ttl, opts: opts, wins: make(chan win, 100_000)}
	js := f.jetStream(s.Connect(tb))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for { // the cluster may need a moment
		_, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: bucketName, TTL: ttl, Replicas: replicas})
		if err == nil {
			return f
		}
		if ctx.Err() != nil {
			tb.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (f *fleet) jetStream(nc *nats.Conn) jetstream.JetStream {
	f.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		f.Fatal(err)
	}
	return js
}

// bucket opens the bucket over a connection.
func (f *fleet) bucket(nc *nats.Conn) *election.Bucket {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	bucket, err := election.OpenBucket(ctx, f.jetStream(nc), bucketName)
	if err != nil {
		f.Fatal(err)
	}
	return bucket
}

// connect opens a connection as candidates should have one.
func (f *fleet) connect() *nats.Conn {
	f.Helper()
	return f.servers.Connect(f, nats.ReconnectBufSize(-1))
}

// join adds a candidate that campaigns over the connection until the benchmark ends.
func (f *fleet) join(nc *nats.Conn, key string, opts ...election.Option) *candidate {
	f.Helper()
	c := &candidate{conn: nc, key: key, result: make(chan error, 1)}
	opts = append([]election.Option{
		election.OnWon(func() { f.wins <- win{c, time.Now()} }),
		election.OnLost(func() { f.losses.Add(1) }),
	}, append(opts, f.opts...)...)
	f.joined++
	e, err := election.NewElection(fmt.Sprintf("c%d", f.joined), key, f.bucket(nc), opts...)
	if err != nil {
		f.Fatal(err)
	}
	c.Election = e
	f.all = append(f.all, c)
	go func() { c.result <- c.Start(context.Background()) }()
	f.Cleanup(c.leave)
	return c
}

// leave stops the candidate, and waits until it has released its key.
func (c *candidate) leave() { _ = c.Shutdown(context.Background()) }

// replace has new candidates join in the place of one that stopped or, if its connection is closed, of all that used it.
func (f *fleet) replace(gone *candidate) {
	f.Helper()
	departed, nc := []*candidate{gone}, gone.conn
	if nc.IsClosed() {
		departed = slices.DeleteFunc(slices.Clone(f.all), func(c *candidate) bool { return c.conn != gone.conn })
		nc = f.connect()
	}
	for _, c := range departed {
		c.leave()
		f.join(nc, c.key, election.WithSplay(0))
	}
	f.all = slices.DeleteFunc(f.all, func(c *candidate) bool { return slices.Contains(departed, c) })
}

// win waits for the next win.
func (f *fleet) win() win {
	f.Helper()
	select {
	case w := <-f.wins:
		return w
	case <-time.After(patience):
		f.Fatal("nobody won")
		return win{}
	}
}

// lead adds a candidate to an election without any and waits until it leads.
func (f *fleet) lead(nc *nats.Conn, key string, opts ...election.Option) *candidate {
	f.Helper()
	c := f.join(nc, key, append([]election.Option{election.WithSplay(0)}, opts...)...)
	if w := f.win(); w.by != c || !c.IsLeader() {
		f.Fatal("somebody else leads")
	}
	return c
}

// await waits until something holds.
func (f *fleet) await(what string, holds func() bool) {
	f.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// consumers returns how many there are on the bucket's stream.
func (f *fleet) consumers() int {
	f.Helper()
	status, err := f.bucket(f.servers.Connect(f)).Status(context.Background())
	if err != nil {
		f.Fatal(err)
	}
	return status.(*jetstream.KeyValueBucketStatus).StreamInfo().State.Consumers
}

// tally counts the attempts to win one key: what is published to its subject, by whom, but for renewals and releases.
type tally struct {
	testing.TB
	nc      *nats.Conn // used for nothing else
	subject string
	sub     *nats.Subscription

	mu sync.Mutex
	by map[string]int
}

// tally starts to count.
func (f *fleet) tally(key string) *tally {
	f.Helper()
	t := &tally{TB: f.TB, nc: f.servers.Connect(f), subject: "$KV." + bucketName + "." + key, by: map[string]int{}}
	t.start()
	return t
}

func (t *tally) start() {
	t.Helper()
	var err error
	if t.sub, err = t.nc.Subscribe(t.subject, func(m *nats.Msg) { t.note(m.Data) }); err == nil {
		err = t.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (t *tally) stop() {
	t.Helper()
	err := t.sub.Unsubscribe()
	if err == nil {
		err = t.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (t *tally) note(data []byte) {
	r := record.Parse(data, 0)
	if r.Instance == "" || r.Term != 0 || !r.Released.IsZero() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by[r.Instance]++
}

// take returns the number of attempts since it was called last.
func (t *tally) take() (attempts int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.by {
		attempts += n
	}
	clear(t.by)
	return attempts
}

// candidates returns how many made at least so many attempts each.
func (t *tally) candidates(atLeast int) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, attempts := range t.by {
		if attempts >= atLeast {
			n++
		}
	}
	return n
}
