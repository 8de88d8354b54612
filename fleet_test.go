package election_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

func TestMain(m *testing.M) {
	natstest.VerifyTestMain(m)
}

// The bucket that tests use unless they say otherwise, and what follows from its TTL by default.
const (
	ttl      = 10 * time.Second
	interval = 7500 * time.Millisecond // of campaigns, and the stand-down
	margin   = 200 * time.Millisecond
	lease    = ttl - margin
	key      = "scheduler"
	settle   = 100 * time.Millisecond // for how long a candidate waits at its start for a source of changes
	instant  = time.Nanosecond        // what it takes until everybody has done all that can be done now
)

// fleet is a server on virtual time, with candidates that each have a link to it of their own.
type fleet struct {
	*testing.T
	*WithT
	server  *natstest.Server
	bucket  jetstream.KeyValue // on a connection that nothing disturbs
	options []func(*jetstream.KeyValueConfig)
}

// onVirtualTime runs f with a fleet and a bucket that announces expiries, unless options change that.
func onVirtualTime(t *testing.T, f func(f *fleet), options ...func(*jetstream.KeyValueConfig)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t)
		if len(options) == 0 {
			options = append(options, natstest.WithMarkers)
		}
		f(&fleet{T: t, WithT: NewWithT(t), server: s, bucket: s.Bucket(t, s.Connect(t), ttl, options...), options: options})
	})
}

// withoutMarkers makes a bucket as one makes it by hand, or shares it with Choria.
func withoutMarkers(*jetstream.KeyValueConfig) {}

// candidate is one that stands in the election, and what was seen of it.
type candidate struct {
	*election.Election
	fleet  *fleet
	link   *link.Link
	result chan error

	mu     sync.Mutex
	events []string
	begun  time.Time
}

// candidate returns one that is connected and does not stand yet. There is no splay unless an option says so.
func (f *fleet) candidate(name string, opts ...election.Option) *candidate {
	f.Helper()
	l := f.server.Link(f.T)
	return f.candidateOn(name, l, f.server.Bucket(f.T, natstest.Connect(f.T, l), ttl, f.options...), opts...)
}

func (f *fleet) candidateOn(name string, l *link.Link, bucket jetstream.KeyValue, opts ...election.Option) *candidate {
	f.Helper()
	c := &candidate{fleet: f, link: l, result: make(chan error, 1), begun: time.Now()}
	opts = append([]election.Option{
		election.WithSplay(0),
		election.OnWon(func() { c.saw("won") }),
		election.OnLost(func() { c.saw("lost") }),
	}, opts...)
	e, err := election.NewElection(name, key, bucket, opts...)
	f.Expect(err).NotTo(HaveOccurred())
	c.Election = e
	return c
}

// start lets the candidate stand until the test ends.
func (c *candidate) start() *candidate {
	c.startWith(context.Background())
	return c
}

func (c *candidate) startWith(ctx context.Context) {
	go func() { c.result <- c.Start(ctx) }()
	c.fleet.Cleanup(c.Stop)
	synctest.Wait()
}

// saw notes an event with the time since the candidate was made.
func (c *candidate) saw(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf("%s %v", what, time.Since(c.begun)))
}

func (c *candidate) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.events...)
}

// leading returns a candidate that leads, which it took one stand-down to do.
func (f *fleet) leading(name string, opts ...election.Option) *candidate {
	f.Helper()
	c := f.candidate(name, opts...).start()
	time.Sleep(interval)
	synctest.Wait()
	f.Expect(c.IsLeader()).To(BeTrue())
	return c
}

// after lets time pass and everybody settle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// hanging returns what does not return until it is let go. It is when the test ends at the latest, before the candidates are
// stopped: else a test that fails would wait for ever for one that hangs.
func (f *fleet) hanging() (hang, letGo func()) {
	free := make(chan struct{})
	ended := f.T.Context().Done()
	return func() {
		select {
		case <-free:
		case <-ended:
		}
	}, func() { close(free) }
}

// record returns what stands under the key, "" if nothing does.
func (f *fleet) record() string {
	e, err := f.bucket.Get(context.Background(), key)
	if err != nil {
		return ""
	}
	return string(e.Value())
}

func (f *fleet) revision() uint64 {
	e, err := f.bucket.Get(context.Background(), key)
	if err != nil {
		return 0
	}
	return e.Revision()
}

// toKey matches writes of the election's key.
func toKey(m link.Message) bool { return m.Subject == "$KV."+natstest.BucketName+"."+key }

// toKeyReply matches the replies to those.
func toKeyReply(m link.Message) bool { return m.Request == "$KV."+natstest.BucketName+"."+key }

// once matches what match does, but only the first time.
func once(match func(link.Message) bool) func(link.Message) bool { return link.Once(match) }

// faultyCandidate returns a candidate whose calls to the bucket the test can take over.
func (f *fleet) faultyCandidate(name string, opts ...election.Option) (*candidate, *faulty) {
	f.Helper()
	b := &faulty{KeyValue: f.bucket}
	return f.candidateOn(name, nil, b, opts...), b
}

// deafCandidate returns a candidate that hears of nothing and finds out by its campaigns.
func (f *fleet) deafCandidate(name string, opts ...election.Option) *candidate {
	f.Helper()
	l := f.server.Link(f.T)
	b := &faulty{KeyValue: f.server.Bucket(f.T, natstest.Connect(f.T, l), ttl, f.options...), deaf: true}
	return f.candidateOn(name, l, b, opts...)
}

// errConflict is what a replicated stream answers to a write that another one, of anybody's, is in the way of.
var errConflict = fmt.Errorf("nats: %w: %w", &jetstream.APIError{Code: 400, ErrorCode: 10164, Description: "wrong last sequence"}, jetstream.ErrKeyRevisionMismatch)

// write puts a value under the key as somebody would who minds nobody.
func (f *fleet) write(value string) {
	f.Helper()
	_, err := f.bucket.Put(context.Background(), key, []byte(value))
	f.Expect(err).NotTo(HaveOccurred())
}

// remake deletes the bucket and makes it again.
func (f *fleet) remake() {
	f.Helper()
	f.remakeWith(ttl)
}

func (f *fleet) remakeWith(ttl time.Duration) {
	f.Helper()
	js, err := jetstream.New(f.server.Connect(f.T))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(js.DeleteKeyValue(context.Background(), natstest.BucketName)).To(Succeed())
	f.bucket = f.server.Bucket(f.T, f.server.Connect(f.T), ttl, f.options...)
}

// logged collects log lines.
type logged struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.lines.String(), what)
}

func roundTrip(from, to any) error {
	b, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}
