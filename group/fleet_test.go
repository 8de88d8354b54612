package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

func TestMain(m *testing.M) {
	natstest.VerifyTestMain(m)
}

const (
	ttl       = 10 * time.Second
	standDown = 7500 * time.Millisecond
	lateness  = 400 * time.Millisecond
	// crashed is how long it takes at most until the keys of a member that crashed are led again.
	crashed = ttl + lateness + standDown + 500*time.Millisecond
	instant = time.Nanosecond // what it takes until everybody has done all that can be done now
)

// fleet is a server on virtual time, with the members of groups that each have a link to it of their own.
type fleet struct {
	*testing.T
	*WithT
	server  *natstest.Server
	bucket  jetstream.KeyValue
	options []func(*jetstream.KeyValueConfig)
	journal *journal
}

func onVirtualTime(t *testing.T, f func(f *fleet), options ...func(*jetstream.KeyValueConfig)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t)
		if len(options) == 0 {
			options = append(options, republished)
		}
		fl := &fleet{T: t, WithT: NewWithT(t), server: s, bucket: s.Bucket(t, s.Connect(t), ttl, options...), options: options, journal: newJournal()}
		t.Cleanup(func() { time.Sleep(5 * time.Second) }) // for requests to hand over that wait for a member that is gone
		f(fl)
	})
}

// republished makes the bucket as CreateBucket does.
func republished(cfg *jetstream.KeyValueConfig) {
	natstest.WithMarkers(cfg)
	cfg.RePublish = &jetstream.RePublish{Source: "$KV." + cfg.Bucket + ".>", Destination: "election." + cfg.Bucket + ".>"}
}

// plainly makes the bucket as one makes it by hand.
func plainly(*jetstream.KeyValueConfig) {}

// member is one of a group, and what it leads by its own account.
type member struct {
	*group.Group
	name   string
	fleet  *fleet
	link   *link.Link
	windUp time.Duration // how long its work takes to end
	result chan error
	ended  bool
}

// keysOf returns n keys.
func keysOf(n int) []string {
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("k%03d", i))
	}
	return keys
}

// member returns one that is connected and does not take part yet.
func (f *fleet) member(name, group string, keys []string, opts ...group.Option) *member {
	f.Helper()
	l := f.server.Link(f.T)
	return f.memberOn(l, name, group, keys, opts...)
}

func (f *fleet) memberOn(l *link.Link, name, groupName string, keys []string, opts ...group.Option) *member {
	f.Helper()
	nc := natstest.Connect(f.T, l, nats.ReconnectBufSize(-1))
	m := f.memberIn(f.server.Bucket(f.T, nc, ttl, f.options...), nc, name, groupName, keys, opts...)
	m.link = l
	return m
}

func (f *fleet) memberIn(bucket jetstream.KeyValue, nc *nats.Conn, name, groupName string, keys []string, opts ...group.Option) *member {
	f.Helper()
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	g, err := group.New(name, groupName, keys, js, bucket, opts...)
	f.Expect(err).NotTo(HaveOccurred())
	return &member{Group: g, name: name, fleet: f, result: make(chan error, 1)}
}

// start lets the member take part until the test ends.
func (m *member) start() *member {
	j := m.fleet.journal
	j.mu.Lock()
	j.all = append(slices.Clone(j.all), m)
	j.mu.Unlock()
	go func() { m.result <- m.Run(context.Background(), m.work) }()
	m.fleet.Cleanup(func() {
		m.Stop()
		if !m.ended && m.end() != nil {
			m.fleet.Errorf("%s has not ended as it should", m.name)
		}
	})
	synctest.Wait()
	return m
}

// work notes who leads what, from its begin to its end.
func (m *member) work(ctx context.Context, key string, _ election.Term) error {
	m.fleet.journal.begin(key, m.name)
	defer m.fleet.journal.end(key, m.name)
	<-ctx.Done()
	time.Sleep(m.windUp)
	return nil
}

// leave has the member leave in order, and returns when it has.
func (m *member) leave() {
	m.Stop()
	m.fleet.Expect(m.end()).To(Succeed())
}

// end waits for the end of the member's part, and returns the error.
func (m *member) end() error {
	m.ended = true
	select {
	case err := <-m.result:
		return err
	case <-time.After(time.Minute):
		return errors.New("it takes part still")
	}
}

// journal is what happened to all keys.
type journal struct {
	mu      sync.Mutex
	leaders map[string]string // by key, who works now
	last    map[string]string // by key, who worked last
	free    map[string]time.Time
	moves   int // how many terms began whose key somebody else had led last
	gap     time.Duration
	twice   []string
	all     []*member // that ever took part; never changed in place
}

func newJournal() *journal {
	return &journal{leaders: map[string]string{}, last: map[string]string{}, free: map[string]time.Time{}}
}

func (j *journal) begin(key, name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if other, led := j.leaders[key]; led {
		j.twice = append(j.twice, fmt.Sprintf("%s by %s and %s", key, other, name))
	}
	if last, led := j.last[key]; led {
		if last != name {
			j.moves++
		}
		j.gap = max(j.gap, time.Since(j.free[key]))
	}
	j.leaders[key], j.last[key] = name, name
}

func (j *journal) end(key, name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.leaders[key] == name {
		delete(j.leaders, key)
	}
	j.free[key] = time.Now()
}

// reset begins the counting anew, and returns what was counted.
func (j *journal) reset() (moves int, gap time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	moves, gap = j.moves, j.gap
	j.moves, j.gap = 0, 0
	return moves, gap
}

// after lets time pass and everybody settle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// expectEven checks that each key is led once, and each member leads its share.
func (f *fleet) expectEven(keys []string, members []*member) {
	f.Helper()
	led := map[string]string{}
	for _, m := range members {
		held := m.Keys()
		f.Expect(len(held)).To(BeNumerically(">=", len(keys)/len(members)), "%s leads %v", m.name, held)
		f.Expect(len(held)).To(BeNumerically("<=", (len(keys)+len(members)-1)/len(members)), "%s leads %v", m.name, held)
		for _, key := range held {
			f.Expect(led).NotTo(HaveKey(key))
			led[key] = m.name
		}
	}
	f.Expect(led).To(HaveLen(len(keys)))
}

// without returns the members but one.
func without(members []*member, m *member) []*member {
	return slices.DeleteFunc(slices.Clone(members), func(other *member) bool { return other == m })
}

// together returns a fleet's members that lead their shares.
func (f *fleet) together(keys []string, names ...string) (members []*member) {
	f.Helper()
	for _, name := range names {
		members = append(members, f.member(name, "shards", keys).start())
	}
	after(standDown + time.Second)
	f.expectEven(keys, members)
	f.journal.reset()
	return members
}

// to matches what is published to a key.
func to(key string) func(link.Message) bool {
	return func(m link.Message) bool { return m.Subject == "$KV."+natstest.BucketName+"."+key }
}

// jetStream returns one on a connection that nothing disturbs.
func (f *fleet) jetStream() jetstream.JetStream {
	f.Helper()
	js, err := jetstream.New(f.server.Connect(f.T))
	f.Expect(err).NotTo(HaveOccurred())
	return js
}

// plan returns what stands under the group's plan.
func (f *fleet) plan() string {
	f.Helper()
	e, err := f.bucket.Get(context.Background(), "shards.plan")
	f.Expect(err).NotTo(HaveOccurred())
	return string(e.Value())
}

func (f *fleet) planNumber() (n uint64) {
	f.Helper()
	_, err := fmt.Sscanf(strings.SplitN(f.plan(), ",", 2)[0], `{"number":%d`, &n)
	f.Expect(err).NotTo(HaveOccurred())
	return n
}
