package docs_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/mutex"
	"github.com/natscampaign/election/observe"
	"github.com/natscampaign/election/semaphore"
)

func opens(user string) func(b *bench) {
	return func(b *bench) { b.bucket(user) }
}

// two starts two candidates, of which a leads and b waits for a vacancy.
func (b *bench) two(user, key string) (first, second *election.Election) {
	b.Helper()
	first = b.leader(user, "a", key)
	second = b.candidate(user, "b", key)
	time.Sleep(b.ttl)
	b.Expect(first.IsLeader()).To(BeTrue())
	return first, second
}

// republishNothing has the bucket be as one that was not made by CreateBucket.
func (b *bench) republishNothing() {
	b.Helper()
	s, err := b.js(root).Stream(b.ctx, "KV_"+bucketName)
	b.Expect(err).NotTo(HaveOccurred())
	cfg := s.CachedInfo().Config
	cfg.RePublish = nil
	_, err = b.js(root).UpdateStream(b.ctx, cfg)
	b.Expect(err).NotTo(HaveOccurred())
}

func (b *bench) watches(e *election.Election) {
	b.Helper()
	b.soon(time.Second, func() bool { return e.Status().Notifications == "watch" })
}

// leavesNoConsumer expects that the bucket has no consumer soon. The server removes one itself, 5 s after its subscriber has gone.
func (b *bench) leavesNoConsumer() {
	b.Helper()
	b.soon(2*time.Second, func() bool { return b.state().Consumers == 0 })
}

// watchesForLong watches patterns until so much was delivered that the server waits for the watcher to confirm it.
func watchesForLong(user, key string, patterns ...string) func(b *bench) {
	return func(b *bench) {
		const writes, size = 40, 200_000
		w, err := b.bucket(user).WatchFiltered(b.ctx, slices.Clone(patterns)) // which it changes
		b.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = w.Stop() }()
		b.Expect(<-w.Updates()).To(BeNil())
		writer := b.bucket(root)
		value := make([]byte, size)
		for i := range writes {
			_, err := writer.Put(b.ctx, key, value)
			b.Expect(err).NotTo(HaveOccurred())
			select {
			case <-w.Updates():
			case <-time.After(time.Minute):
				b.Expect(i).To(Equal(writes), "so many of the writes were delivered")
			}
		}
	}
}

func namesSuccessors(user, key string) func(b *bench) {
	return func(b *bench) {
		written, err := b.connect(root).SubscribeSync("election." + bucketName + ".>")
		b.Expect(err).NotTo(HaveOccurred())
		a, _ := b.two(user, key)
		b.Expect(a.Shutdown(b.ctx)).To(Succeed())
		named := func() bool {
			m, err := written.NextMsg(time.Millisecond)
			return err == nil && strings.Contains(string(m.Data), `"released":`) && strings.Contains(string(m.Data), `"successors":["b"]`)
		}
		b.soon(5*time.Second, named)
	}
}

func answersOperators(user, key string) func(b *bench) {
	return func(b *bench) {
		_, c := b.two(user, key)
		o := b.admin(root)
		b.lists(o, key, 2)
		b.Expect(o.Resign(b.ctx, key)).To(Succeed())
		b.soon(atOnce, c.IsLeader)
	}
}

// lists expects that an operator can list the candidates of a key. It asks again, because one may answer late.
func (b *bench) lists(o *admin.Admin, key string, n int) {
	b.Helper()
	b.soon(time.Second, func() bool {
		candidates, err := o.Candidates(b.ctx, key)
		return err == nil && len(candidates) == n
	})
}

func isFound(user, key string) func(b *bench) {
	return func(b *bench) {
		b.candidate(user, "a", key)
		nc := b.connect(root, nats.CustomInboxPrefix("_INBOX_micro"))
		var m *nats.Msg
		var err error
		b.soon(2*time.Second, func() bool {
			m, err = nc.Request("$SRV.PING", nil, time.Second)
			return err == nil
		})
		var ping micro.Ping
		b.Expect(json.Unmarshal(m.Data, &ping)).To(Succeed())
		for _, verb := range []string{"PING", "INFO", "STATS"} {
			for _, service := range []string{"", ".election", ".election." + ping.ID} {
				_, err := nc.Request("$SRV."+verb+service, nil, time.Second+b.late)
				b.Expect(err).NotTo(HaveOccurred())
			}
		}
	}
}

func (b *bench) observer(user string) *observe.Observer {
	b.Helper()
	o, err := observe.New(b.bucket(user))
	b.Expect(err).NotTo(HaveOccurred())
	return o
}

func (b *bench) admin(user string) *admin.Admin {
	b.Helper()
	a, err := admin.New(b.bucket(user))
	b.Expect(err).NotTo(HaveOccurred())
	return a
}

// warnsOnlyOfMemory expects that a check finds nothing wrong but that the bucket of the test is kept in memory.
func (b *bench) warnsOnlyOfMemory(findings []admin.Finding) {
	b.Helper()
	for _, f := range findings {
		b.Expect(f.Severity == admin.SeverityInfo || f.Code == "memory" || f.Code == "reconnects-limited" || f.Code == "ping-interval").To(BeTrue(), "%+v", f)
	}
}

// member starts a member of a group of six keys, until the check ends.
func (b *bench) member(user, name string) *group.Group {
	b.Helper()
	g, err := group.New(name, "shards", []string{"a", "b", "c", "d", "e", "f"}, b.bucket(user))
	b.Expect(err).NotTo(HaveOccurred())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Start(context.Background())
	}()
	b.Cleanup(func() { g.Stop(); <-ended })
	return g
}

// members starts two members, and waits until they share the keys.
func (b *bench) members(user string, names ...string) (members []*group.Group) {
	b.Helper()
	for _, name := range names {
		members = append(members, b.member(user, name))
	}
	b.soon(3*ttl, func() bool { return len(members[0].Keys()) == 3 && len(members[1].Keys()) == 3 })
	return members
}

func (b *bench) mutex(user, name string) *mutex.Mutex {
	b.Helper()
	m, err := mutex.New(name, "locks.migrate", b.bucket(user))
	b.Expect(err).NotTo(HaveOccurred())
	b.Cleanup(func() { _ = m.Unlock() })
	return m
}

func (b *bench) semaphore(user, name string) *semaphore.Semaphore {
	b.Helper()
	s, err := semaphore.New(name, "locks.gpu", 2, b.bucket(user))
	b.Expect(err).NotTo(HaveOccurred())
	return s
}

// fencedWrite has a leader open a stream, and write.
func (b *bench) fencedWrite(retention jetstream.RetentionPolicy, write bool) {
	b.Helper()
	_, err := b.js(root).CreateStream(b.ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Retention: retention, Storage: jetstream.MemoryStorage})
	b.Expect(err).NotTo(HaveOccurred())
	term, leads := b.leader("web", "a", key).Term()
	b.Expect(leads).To(BeTrue())
	s, err := fence.OpenStream(b.ctx, b.js("orders"), "ORDERS", "orders.epoch", term)
	b.Expect(err).NotTo(HaveOccurred())
	if write {
		_, err = s.Publish(b.ctx, "orders.done", []byte("1"))
		b.Expect(err).NotTo(HaveOccurred())
	}
}

func (b *bench) view(user string) *look.View {
	b.Helper()
	nc := b.connect(user, nats.ReconnectBufSize(-1))
	js, err := b.open(nc)
	b.Expect(err).NotTo(HaveOccurred())
	bucket, err := election.OpenBucket(b.ctx, js, bucketName)
	b.Expect(err).NotTo(HaveOccurred())
	v, err := look.New(b.ctx, &cli.Client{Conn: nc, JetStream: js, Timeout: 5 * time.Second}, bucket)
	b.Expect(err).NotTo(HaveOccurred())
	return v
}

// checksAsObserver expects that a check finds nothing wrong but that the bucket of the test is kept in memory.
func (b *bench) checksAsObserver(user, key string) {
	b.Helper()
	r, err := checkup.Options{Keys: []string{key}, As: admin.RoleObserver, Ignore: []string{"memory", "no-standby"}}.Evaluate(b.ctx, b.view(user))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(r.Status).To(Equal(checkup.StatusOK), "%v", r.Findings)
}

func (b *bench) create(user string, ttl time.Duration) {
	b.Helper()
	_, err := election.CreateBucket(b.ctx, b.js(user), election.BucketConfig{Name: bucketName, TTL: ttl, Storage: jetstream.MemoryStorage})
	b.Expect(err).NotTo(HaveOccurred())
}
