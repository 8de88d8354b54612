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
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) {
	natstest.VerifyTestMain(m)
}

const (
	ttl       = fleettest.TTL
	standDown = fleettest.Interval
	lateness  = 400 * time.Millisecond
	// crashed is how long the keys of a crashed member are without a leader at most.
	crashed = ttl + lateness + standDown + 500*time.Millisecond
	instant = fleettest.Instant // until all members have done what can be done now
)

var (
	after          = fleettest.After
	republished    = fleettest.Republished
	withoutMarkers = fleettest.WithoutMarkers
	to             = natstest.ToKey // what is published to a key
)

// fleet is a server on virtual time, with the members of groups that each have a link to it of their own.
type fleet struct {
	*fleettest.Fleet
	bucket  *election.Bucket // on a connection without faults
	journal *journal
}

// onVirtualTime runs a test with a fleet and a bucket as CreateBucket makes it, unless changes are given.
func onVirtualTime(t *testing.T, test func(f *fleet), changes ...func(*jetstream.KeyValueConfig)) {
	t.Helper()
	if len(changes) == 0 {
		changes = append(changes, republished)
	}
	fleettest.Run(t, func(f *fleettest.Fleet) {
		f.Cleanup(func() { time.Sleep(5 * time.Second) }) // until requests to hand over to a member that is gone have ended
		test(&fleet{f, f.Open(f.Server.Connect(f.T)), newJournal()})
	}, changes...)
}

// member is a member of a group.
type member struct {
	*group.Group
	name   string
	group  string
	fleet  *fleet
	link   *faultproxy.Link
	nc     *nats.Conn
	linger time.Duration // how long its work takes to end
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

// member returns a member that is connected and does not take part yet.
func (f *fleet) member(name, group string, keys []string, opts ...group.Option) *member {
	f.Helper()
	l := f.Server.Link(f.T)
	return f.memberOn(l, name, group, keys, opts...)
}

func (f *fleet) memberOn(l *faultproxy.Link, name, groupName string, keys []string, opts ...group.Option) *member {
	f.Helper()
	nc := natstest.Connect(f.T, l, nats.ReconnectBufSize(-1))
	m := f.memberIn(f.Open(nc), name, groupName, keys, opts...)
	m.link, m.nc = l, nc
	return m
}

func (f *fleet) memberIn(bucket jetstream.KeyValue, name, groupName string, keys []string, opts ...group.Option) *member {
	f.Helper()
	g, err := group.New(name, groupName, keys, bucket, opts...)
	f.Expect(err).NotTo(HaveOccurred())
	return &member{Group: g, name: name, group: groupName, fleet: f, result: make(chan error, 1)}
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

// work records in the journal who leads the key, from its begin to its end.
func (m *member) work(ctx context.Context, key string, _ election.Term) error {
	m.fleet.journal.begin(key, m)
	defer m.fleet.journal.end(key, m.name)
	<-ctx.Done()
	time.Sleep(m.linger)
	return nil
}

// leave has the member leave in order, and returns when it has.
func (m *member) leave() {
	m.Stop()
	m.fleet.Expect(m.end()).To(Succeed())
}

// end waits for the end of Run, and returns its error.
func (m *member) end() error {
	m.ended = true
	select {
	case err := <-m.result:
		return err
	case <-time.After(time.Minute):
		return errors.New("the member still takes part")
	}
}

// journal records who worked for each key, and when.
type journal struct {
	mu      sync.Mutex
	leaders map[string]string // by key, the member that works now
	last    map[string]string // by key, the member that worked last
	free    map[string]time.Time
	terms   int // how many terms began of keys that were led before
	moves   int // and how many of these keys another member had led last
	gap     time.Duration
	idle    time.Duration // for how long keys were without a leader after the work of the last one had ended, all together
	twice   []string
	all     []*member // members that ever took part; never changed in place
}

func newJournal() *journal {
	return &journal{leaders: map[string]string{}, last: map[string]string{}, free: map[string]time.Time{}}
}

// begin records that a member begins to work. Two leaders at any instant are noticed when the second begins.
func (j *journal) begin(key string, m *member) {
	j.mu.Lock()
	defer j.mu.Unlock()
	name := m.name
	if other, led := j.leaders[key]; led {
		j.twice = append(j.twice, fmt.Sprintf("%s by the work of %s and %s", key, other, name))
	}
	for _, other := range j.all {
		if other != m && other.group == m.group && other.Leads(key) {
			j.twice = append(j.twice, fmt.Sprintf("%s by the terms of %s and %s", key, other.name, name))
		}
	}
	if last, led := j.last[key]; led {
		j.terms++
		if last != name {
			j.moves++
		}
		j.gap = max(j.gap, time.Since(j.free[key]))
		j.idle += time.Since(j.free[key])
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
func (j *journal) reset() (terms, moves int, gap time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	terms, moves, gap = j.terms, j.moves, j.gap
	j.terms, j.moves, j.gap, j.idle = 0, 0, 0, 0
	return terms, moves, gap
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

// together starts members, and returns them when they lead their shares.
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

// plan returns the record of the group's plan.
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
