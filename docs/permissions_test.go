package docs_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/checkup"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/mutex"
	"github.com/natscampaign/election/observe"
	"github.com/natscampaign/election/semaphore"
)

// checks are what the roles are for: by the block, and by the comment of the lines that each needs.
var checks = map[string]map[string]func(b *bench){
	"CANDIDATE": {
		"open the bucket": opens("web"),
		"campaign":        func(b *bench) { b.leader("web", "a", key) },
		"take over at once": func(b *bench) {
			a, c := b.two("web", key)
			b.Expect(a.Shutdown(b.ctx)).To(Succeed())
			b.soon(atOnce, c.IsLeader)
		},
		"transfer": func(b *bench) {
			a, c := b.two("web", key)
			b.Expect(a.Transfer(b.ctx, "b")).To(Succeed())
			b.Expect(c.IsLeader()).To(BeTrue())
		},
		"preempt": func(b *bench) {
			a := b.leader("web", "a", key)
			c := b.candidate("web", "b", key, election.WithPriority(3), election.WithPreemption())
			b.soon(2*time.Minute, c.IsLeader)
			b.Expect(a.Status().Wins).To(BeEquivalentTo(1))
		},
		"watch": func(b *bench) {
			b.republishNothing()
			b.watches(b.candidate("web", "a", key))
		},
		"end a watcher": func(b *bench) {
			b.republishNothing()
			a := b.candidate("web", "a", key)
			b.watches(a)
			b.Expect(a.Shutdown(b.ctx)).To(Succeed())
			b.leavesNoConsumer()
		},
		"watch for long": watchesForLong("web", key, key),
		"be notified": func(b *bench) {
			a := b.candidate("web", "a", key)
			b.soon(time.Second, func() bool { return a.Status().Notifications == "republish" })
		},
		"name successors":        namesSuccessors("web", key),
		"answer operators":       answersOperators("web", key),
		"be found by nats micro": isFound("web", key),
	},
	"OBSERVER": {
		"open the bucket": opens("dashboard"),
		"see the leader": func(b *bench) {
			b.leader(root, "a", key)
			l, err := b.observer("dashboard").Leader(b.ctx, key)
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(l.Name).To(Equal("a"))
		},
		"observe": func(b *bench) {
			a := b.leader(root, "a", key)
			events, err := b.observer("dashboard").Observe(b.ctx, key)
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect((<-events).Kind).To(Equal(observe.Leading))
			b.Expect(a.Shutdown(b.ctx)).To(Succeed())
			b.Expect((<-events).Kind).To(Equal(observe.Released))
		},
		"end a watcher": func(b *bench) {
			ctx, cancel := context.WithCancel(b.ctx)
			events, err := b.observer("dashboard").Observe(ctx, key)
			b.Expect(err).NotTo(HaveOccurred())
			cancel()
			for range events { // until it is closed
			}
			b.leavesNoConsumer()
		},
		"watch for long": watchesForLong("dashboard", key, key),
		"check": func(b *bench) {
			b.leader(root, "a", key)
			b.checksAsObserver("dashboard", key)
		},
	},
	"OPERATOR": {
		"open the bucket": opens("ops"),
		"list candidates": func(b *bench) {
			b.two("web", key)
			b.Expect(b.admin("ops").Candidates(b.ctx, key)).To(HaveLen(2))
		},
		"resign": func(b *bench) {
			_, c := b.two("web", key)
			b.Expect(b.admin("ops").Resign(b.ctx, key)).To(Succeed())
			b.soon(atOnce, c.IsLeader)
		},
		"transfer": func(b *bench) {
			_, c := b.two("web", key)
			b.Expect(b.admin("ops").Transfer(b.ctx, key, "b")).To(Succeed())
			b.Expect(c.IsLeader()).To(BeTrue())
		},
		"pause": func(b *bench) {
			a, c := b.two("web", key)
			o := b.admin("ops")
			b.Expect(o.Pause(b.ctx, key)).To(Succeed())
			b.Expect(o.Paused(b.ctx)).To(ConsistOf(key))
			b.Expect(a.Shutdown(b.ctx)).To(Succeed())
			time.Sleep(3 * ttl)
			b.Expect(c.IsLeader()).To(BeFalse())
			b.Expect(o.Resume(b.ctx, key)).To(Succeed())
			b.soon(2*ttl, c.IsLeader)
		},
		"evict": func(b *bench) {
			a, _ := b.two("web", key)
			l, err := b.admin("ops").Evict(b.ctx, key)
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(l.Name).To(Equal("a"))
			b.soon(time.Second, func() bool { return !a.IsLeader() })
		},
		"check": func(b *bench) {
			findings, err := admin.CheckAs(b.ctx, b.bucket("ops", nats.ReconnectBufSize(-1)), admin.RoleOperator, key)
			b.Expect(err).NotTo(HaveOccurred())
			b.warnsOnlyOfMemory(findings)
		},
	},
	"MEMBER": {
		"open the bucket": opens("shards"),
		"share keys":      func(b *bench) { b.members("shards", "m1", "m2") },
		"join at once": func(b *bench) {
			old := b.members("shards", "m1", "m2")
			third := b.member("shards", "m3")
			b.soon(3*time.Second, func() bool { return len(third.Keys()) == 2 && len(old[0].Keys()) == 2 && len(old[1].Keys()) == 2 })
		},
		"leave no consumer": func(b *bench) {
			for _, m := range b.members("shards", "m1", "m2") {
				m.Stop()
			}
			b.leavesNoConsumer()
		},
		"watch for long":         watchesForLong("shards", "shards.plan", "shards.members.>", "shards.plan"),
		"name successors":        namesSuccessors("shards", "shards.keys.a"),
		"be found by nats micro": isFound("shards", "shards.keys.a"),
	},
	"HOLDER": {
		"open the bucket": opens("locks"),
		"lock": func(b *bench) {
			b.Expect(b.mutex("locks", "a").Lock(b.ctx)).To(Succeed())
		},
		"lock in turn": func(b *bench) {
			held := b.mutex("locks", "holder")
			b.Expect(held.Lock(b.ctx)).To(Succeed())
			order := make(chan int, 6)
			for i := range 6 {
				m := b.mutex("locks", string(rune('a'+i)))
				go func() {
					if m.Lock(b.ctx) == nil {
						order <- i
						_ = m.Unlock()
					}
				}()
				time.Sleep(time.Second)
			}
			b.Expect(held.Unlock()).To(Succeed())
			for i := range 6 {
				select {
				case next := <-order:
					b.Expect(next).To(Equal(i))
				case <-time.After(atOnce):
					b.Expect(i).To(Equal("locked at once"))
				}
			}
		},
		"take a slot at once": func(b *bench) {
			var slots []*semaphore.Slot
			for _, name := range []string{"a", "b"} {
				s, err := b.semaphore("locks", name).Acquire(b.ctx)
				b.Expect(err).NotTo(HaveOccurred())
				slots = append(slots, s)
			}
			waiting := b.semaphore("locks", "c")
			acquired := make(chan time.Time, 1)
			go func() {
				if _, err := waiting.Acquire(b.ctx); err == nil {
					acquired <- time.Now()
				}
			}()
			time.Sleep(2 * ttl)
			b.Expect(slots[1].Release()).To(Succeed())
			released := time.Now()
			select {
			case at := <-acquired:
				b.Expect(at.Sub(released)).To(BeNumerically("<", 200*time.Millisecond))
			case <-time.After(time.Minute):
				b.Expect("acquired").To(BeEmpty())
			}
		},
		"leave no consumer": func(b *bench) {
			s, err := b.semaphore("locks", "a").Acquire(b.ctx)
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(s.Release()).To(Succeed())
			b.leavesNoConsumer()
		},
		"watch for long": watchesForLong("locks", "locks.gpu.0", "locks.gpu.*"),
		"be notified": func(b *bench) {
			a := b.candidate("locks", "a", "locks.migrate")
			b.soon(time.Second, func() bool { return a.Status().Notifications == "republish" })
		},
		"answer operators":       answersOperators("locks", "locks.migrate"),
		"be found by nats micro": isFound("locks", "locks.migrate"),
	},
	"WRITER": {
		"open the stream": func(b *bench) { b.fencedWrite(jetstream.LimitsPolicy, false) },
		"write":           func(b *bench) { b.fencedWrite(jetstream.LimitsPolicy, true) },
		"write to a work queue": func(b *bench) {
			b.fencedWrite(jetstream.WorkQueuePolicy, true)
		},
	},
	"MONITOR": {
		"open the bucket": opens("nagios"),
		"check": func(b *bench) {
			b.leader("web", "a", key)
			b.checksAsObserver("nagios", key)
		},
		"list with one request": func(b *bench) {
			b.leader("web", "a", key)
			leaders, err := b.observer("nagios").Leaders(b.ctx)
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(leaders).To(HaveLen(1))
		},
		"leave no consumer": func(b *bench) {
			_, err := b.view("nagios").Leaders(b.ctx)
			b.Expect(err).NotTo(HaveOccurred())
			b.leavesNoConsumer()
		},
		"watch for long": watchesForLong("nagios", key, ">"),
		"find two leaders": func(b *bench) {
			b.leader("web", "a", key)
			b.Expect(b.view("nagios").Ask(b.ctx, []string{key})[key].Candidates).To(HaveLen(1))
		},
	},
	"CREATOR": {
		"create the bucket": func(b *bench) {
			b.Expect(b.js(root).DeleteKeyValue(b.ctx, bucketName)).To(Succeed())
			b.create("setup", ttl)
		},
		"change the bucket": func(b *bench) {
			b.create("setup", 2*ttl)
			status, err := b.bucket(root).Status(b.ctx)
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(status.TTL()).To(Equal(2 * ttl))
		},
		"remove the bucket": func(b *bench) {
			b.Expect(b.js("setup").DeleteKeyValue(b.ctx, bucketName)).To(Succeed())
		},
	},
}

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
		b.Expect(o.Candidates(b.ctx, key)).To(HaveLen(2))
		b.Expect(o.Resign(b.ctx, key)).To(Succeed())
		b.soon(atOnce, c.IsLeader)
	}
}

func isFound(user, key string) func(b *bench) {
	return func(b *bench) {
		b.candidate(user, "a", key)
		nc := b.connect(root)
		time.Sleep(time.Second)
		for _, subject := range []string{"$SRV.PING", "$SRV.INFO.election"} {
			_, err := nc.Request(subject, nil, time.Second)
			b.Expect(err).NotTo(HaveOccurred())
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
		b.Expect(f.Severity == admin.SeverityInfo || f.Code == "memory" || f.Code == "reconnects-limited").To(BeTrue(), "%+v", f)
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
	r, err := checkup.Options{Keys: []string{key}, As: admin.RoleObserver, Ignore: []string{"memory"}}.Evaluate(b.ctx, b.view(user))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(r.Status).To(Equal(checkup.StatusOK), "%v", r.Findings)
}

func (b *bench) create(user string, ttl time.Duration) {
	b.Helper()
	_, err := election.CreateBucket(b.ctx, b.js(user), election.BucketConfig{Name: bucketName, TTL: ttl, Storage: jetstream.MemoryStorage})
	b.Expect(err).NotTo(HaveOccurred())
}

func TestEachBlockPermitsWhatItsRoleIsFor(t *testing.T) {
	natstest.SkipIfShort(t)
	everyCheck(t, blocks(t))
}

func TestEachLineOfABlockIsNeededForWhatItsCommentSays(t *testing.T) {
	natstest.SkipIfShort(t)
	page := blocks(t)
	for role := range users {
		lines := linesOf(t, page[role])
		for _, l := range lines {
			t.Run(role+"/"+l.name, func(t *testing.T) {
				g := NewWithT(t)
				check := checks[role][l.purpose]
				g.Expect(check).NotTo(BeNil(), "no check is called %q", l.purpose)
				block := with(without(page[role], l), lines, needs(l.purpose)...)
				g.Expect(run(t, configOf(adapt(page, role, block)), check)).NotTo(BeEmpty())
			})
		}
	}
}

// needs returns the purposes of the options that a purpose takes.
func needs(purpose string) []string {
	switch purpose {
	case "end a watcher", "watch for long", "watch":
		return []string{"watch", "end a watcher"}
	}
	return []string{purpose}
}

// adapt returns the page with another block for one role.
func adapt(page map[string]string, role, block string) map[string]string {
	other := maps.Clone(page)
	other[role] = block
	return other
}

// grants says for each request that matters which users may send it; nobody but root may send the others.
var grants = map[string][]string{
	"$KV.ELECTIONS.scheduler":                                {"web", "ops"},
	"$KV.ELECTIONS.other":                                    nil,
	"$KV.ELECTIONS.shards.plan":                              {"shards"},
	"$KV.ELECTIONS.locks.migrate":                            {"locks"},
	"$KV.OTHER.scheduler":                                    nil,
	"$JS.API.STREAM.CREATE.KV_ELECTIONS":                     {"setup"},
	"$JS.API.STREAM.UPDATE.KV_ELECTIONS":                     {"setup", "ops"},
	"$JS.API.STREAM.DELETE.KV_ELECTIONS":                     {"setup"},
	"$JS.API.STREAM.PURGE.KV_ELECTIONS":                      nil,
	"$JS.API.STREAM.MSG.DELETE.KV_ELECTIONS":                 nil,
	"$JS.API.STREAM.SNAPSHOT.KV_ELECTIONS":                   nil,
	"$JS.API.STREAM.LEADER.STEPDOWN.KV_ELECTIONS":            nil,
	"$JS.API.STREAM.CREATE.OTHER":                            nil,
	"$JS.API.CONSUMER.CREATE.KV_ELECTIONS.c.$KV.ELECTIONS.>": {"nagios"},
	"election.ELECTIONS.scheduler":                           nil,
	"election-control.ELECTIONS.candidates.scheduler":        {"web", "ops", "nagios"},
	"election-control.ELECTIONS.resign.scheduler":            {"ops"},
	"election-control.ELECTIONS.transfer.scheduler":          {"ops"},
	"election-control.ELECTIONS.refresh.scheduler":           {"ops"},
	"election-control.ELECTIONS.resign.shards.keys.a":        nil,
	"election-control.ELECTIONS.transfer.shards.keys.a":      {"shards"},
	"election-control.ELECTIONS.resign.locks.migrate":        nil,
	"$SRV.PING":       nil,
	"_INBOX.somebody": nil,
	"orders.done":     {"orders"},
	"orders.other":    nil,
}

func TestBlocksLeaveOutWhatIsNotForTheirRoles(t *testing.T) {
	page := blocks(t)
	g := NewWithT(t)
	g.Expect(run(t, configOf(page), func(b *bench) {
		b.leader("web", "a", key)
		before := b.state()
		for _, user := range users {
			nc := b.connect(user)
			for subject, granted := range grants {
				if slices.Contains(granted, user) {
					continue
				}
				b.Expect(nc.PublishRequest(subject, "_INBOX.somebody", []byte("forged"))).To(Succeed())
				b.Expect(nc.Flush()).To(Succeed())
				b.Expect(nc.LastError()).To(MatchError(ContainSubstring("Publish to %q", subject)), "%s must not publish to %s", user, subject)
			}
		}
		time.Sleep(5 * time.Second)
		b.Expect(b.state()).To(Equal(before))
	})).To(BeEmpty())
}

func TestRequestsBeyondTheBlockOfTheirRoleAreRefused(t *testing.T) {
	natstest.SkipIfShort(t)
	page := blocks(t)
	config := configOf(page)
	for name, check := range map[string]func(b *bench){
		"a candidate cannot have another one resign": func(b *bench) {
			b.two("web", key)
			b.Expect(b.admin("web").Resign(b.ctx, key)).To(MatchError(nats.ErrPermissionViolation))
		},
		"an observer cannot evict": func(b *bench) {
			a, _ := b.two("web", key)
			before := a.Status().Wins
			ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
			defer cancel()
			_, err := b.admin("dashboard").Evict(ctx, key)
			b.Expect(err).To(HaveOccurred())
			b.Expect(a.IsLeader()).To(BeTrue())
			b.Expect(a.Status().Wins).To(Equal(before))
		},
		"an observer cannot campaign": func(b *bench) {
			e := b.candidate("dashboard", "a", key)
			time.Sleep(5 * ttl)
			b.Expect(e.IsLeader()).To(BeFalse())
		},
		"a candidate cannot campaign for another key": func(b *bench) {
			e := b.candidate("web", "a", "other")
			time.Sleep(5 * ttl)
			b.Expect(e.IsLeader()).To(BeFalse())
		},
		"an operator cannot remove the bucket": func(b *bench) {
			ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
			defer cancel()
			b.Expect(b.js("ops").DeleteKeyValue(ctx, bucketName)).NotTo(Succeed())
			b.bucket(root)
		},
		"the monitor cannot have a leader hand over": func(b *bench) {
			a, _ := b.two("web", key)
			b.Expect(b.admin("nagios").Transfer(b.ctx, key, "b")).To(MatchError(nats.ErrPermissionViolation))
			b.Expect(a.IsLeader()).To(BeTrue())
		},
		"who creates the bucket cannot write it": func(b *bench) {
			ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
			defer cancel()
			_, err := b.bucket("setup").Put(ctx, key, nil)
			b.Expect(err).To(HaveOccurred())
			b.Expect(b.state().Msgs).To(BeZero())
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(run(t, config, check)).To(BeEmpty())
		})
	}
}

func TestCandidateAnswersOperatorsByResponsesOrByTheirInbox(t *testing.T) {
	const responses = "allow_responses = { max: 2 }"
	for config, answered := range map[string]bool{
		strings.ReplaceAll(configOf(blocks(t)), responses, "allow_responses = { max: 1 }"):                                                                 false,
		strings.ReplaceAll(configOf(blocks(t)), responses, "allow_responses = true"):                                                                       false,
		strings.ReplaceAll(strings.ReplaceAll(configOf(blocks(t)), responses, ""), `"$KV.ELECTIONS.scheduler" `, `"$KV.ELECTIONS.scheduler", "_INBOX.>" `): true,
	} {
		failure := run(t, config, checks["CANDIDATE"]["answer operators"])
		NewWithT(t).Expect(failure == "").To(Equal(answered), failure)
	}
}

func TestResponsesOfALongHandoverNeedALongerTime(t *testing.T) {
	natstest.SkipIfShort(t)
	for responses, answered := range map[string]bool{`{ max: 2 }`: false, `{ max: 2, expires: "10m" }`: true} {
		config := strings.ReplaceAll(configOf(blocks(t)), "allow_responses = { max: 2 }", "allow_responses = "+responses)
		failure := run(t, config, func(b *bench) {
			b.create("setup", 5*time.Minute)
			a, err := election.NewElection("a", key, b.bucket("web"), election.WithSplay(0))
			b.Expect(err).NotTo(HaveOccurred())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = a.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
					<-ctx.Done()
					time.Sleep(3 * time.Minute) // the work takes so long to end
					return nil
				})
			}()
			b.Cleanup(func() { a.Stop(); <-ended })
			b.soon(5*time.Minute, a.IsLeader)
			b.Expect(b.admin("ops").Resign(b.ctx, key)).To(Succeed())
		})
		NewWithT(t).Expect(failure == "").To(Equal(answered), failure)
	}
}

func TestBlocksWorkWithInboxPrefixesOfTheirOwn(t *testing.T) {
	natstest.SkipIfShort(t)
	page := blocks(t)
	for role, user := range users {
		page[role] = strings.Replace(page[role], `"_INBOX.>"`, `"_INBOX_`+user+`.>"`, 1)
	}
	everyCheck(t, page, func(user string) nats.Option {
		if user == root {
			return nats.CustomInboxPrefix("_INBOX")
		}
		return nats.CustomInboxPrefix("_INBOX_" + user)
	})
}

func TestBlocksCanBeOfAllKeysThatBeginAlike(t *testing.T) {
	natstest.SkipIfShort(t)
	page := blocks(t)
	for _, role := range []string{"CANDIDATE", "OBSERVER", "OPERATOR"} {
		page[role] = strings.ReplaceAll(page[role], "scheduler", "*")
	}
	everyCheck(t, page)
}

// everyCheck runs all checks on a page that was changed as it says that it may be.
func everyCheck(t *testing.T, page map[string]string, dial ...func(user string) nats.Option) {
	t.Helper()
	for role := range users {
		lines := linesOf(t, page[role])
		for purpose, check := range checks[role] {
			t.Run(role+"/"+purpose, func(t *testing.T) {
				NewWithT(t).Expect(run(t, configOf(adapt(page, role, with(page[role], lines, needs(purpose)...))), check, dial...)).To(BeEmpty())
			})
		}
	}
}

func TestBlocksWorkAsTheyAreForClientsThatNameTheDomainOfTheirServer(t *testing.T) {
	natstest.SkipIfShort(t)
	page := blocks(t)
	for role := range users {
		lines := linesOf(t, page[role])
		for purpose, check := range checks[role] {
			t.Run(role+"/"+purpose, func(t *testing.T) {
				NewWithT(t).Expect(runIn(t, "hub", configOf(adapt(page, role, with(page[role], lines, needs(purpose)...))), check)).To(BeEmpty())
			})
		}
	}
}

func TestServerRefusesABlockThatNoUserHas(t *testing.T) {
	g, page := NewWithT(t), blocks(t)
	for _, role := range []string{"CANDIDATE", "OBSERVER"} {
		file := filepath.Join(t.TempDir(), "nats.conf")
		g.Expect(os.WriteFile(file, []byte(page[role]), 0o600)).To(Succeed())
		_, err := server.ProcessConfigFile(file)
		g.Expect(err).To(MatchError(ContainSubstring("unknown field")))
	}
}

func TestFencedWriterOfABucketNeedsItsStreamAndItsKeys(t *testing.T) {
	page := blocks(t)
	page["WRITER"] = strings.NewReplacer("ORDERS", "KV_STATE", "orders.epoch", "$KV.STATE.>", "orders.done", "$KV.STATE.>").Replace(page["WRITER"])
	NewWithT(t).Expect(run(t, configOf(page), func(b *bench) {
		_, err := b.js(root).CreateKeyValue(b.ctx, jetstream.KeyValueConfig{Bucket: "STATE", Storage: jetstream.MemoryStorage})
		b.Expect(err).NotTo(HaveOccurred())
		term, _ := b.leader("web", "a", key).Term()
		s, err := fence.OpenBucket(b.ctx, b.js("orders"), "STATE", term)
		b.Expect(err).NotTo(HaveOccurred())
		_, err = s.Put(b.ctx, "position", []byte("1"))
		b.Expect(err).NotTo(HaveOccurred())
	})).To(BeEmpty())
}

func TestObserverOfSeveralPatternsCreatesAConsumerWithoutAFilterInItsSubject(t *testing.T) {
	page, observes := blocks(t), func(b *bench) {
		b.leader("web", "a", key)
		events, err := b.observer("dashboard").Observe(b.ctx, key, "other")
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect((<-events).Kind).To(Equal(observe.Leading))
	}
	g := NewWithT(t)
	g.Expect(run(t, configOf(page), observes)).NotTo(BeEmpty())
	page["OBSERVER"] = strings.Replace(page["OBSERVER"], "CREATE.KV_ELECTIONS.*.$KV.ELECTIONS.scheduler", "CREATE.KV_ELECTIONS.*", 1)
	g.Expect(run(t, configOf(page), observes)).To(BeEmpty())
}

func TestLocksNeedNoConsumer(t *testing.T) {
	page := blocks(t)
	for _, l := range linesOf(t, page["HOLDER"]) {
		if strings.Contains(l.name, "CONSUMER") {
			page["HOLDER"] = without(page["HOLDER"], l)
		}
	}
	for _, purpose := range []string{"lock", "lock in turn"} {
		NewWithT(t).Expect(run(t, configOf(page), checks["HOLDER"][purpose])).To(BeEmpty(), purpose)
	}
}

func TestConsumerOfAnObserverWritesNoBucketAndSendsNoRequest(t *testing.T) {
	for _, to := range []string{"$KV.OTHER.scheduler", "election-control.ELECTIONS.resign.scheduler", "$JS.API.STREAM.DELETE.KV_ELECTIONS"} {
		t.Run(to, func(t *testing.T) {
			NewWithT(t).Expect(run(t, configOf(blocks(t)), func(b *bench) {
				_, err := b.js(root).CreateKeyValue(b.ctx, jetstream.KeyValueConfig{Bucket: "OTHER", Storage: jetstream.MemoryStorage})
				b.Expect(err).NotTo(HaveOccurred())
				a, _ := b.two("web", key)
				delivered, err := b.connect(root).SubscribeSync(to) // the server delivers only to a subject that somebody subscribes to
				b.Expect(err).NotTo(HaveOccurred())
				time.Sleep(time.Second)
				body := fmt.Sprintf(`{"stream_name":"KV_ELECTIONS","config":{"name":"c","deliver_subject":%q,"deliver_policy":"last","ack_policy":"none","filter_subject":"$KV.ELECTIONS.scheduler"}}`, to)
				_, err = b.connect("dashboard").Request("$JS.API.CONSUMER.CREATE.KV_ELECTIONS.c.$KV.ELECTIONS.scheduler", []byte(body), time.Second)
				b.Expect(err).NotTo(HaveOccurred())
				_, err = delivered.NextMsg(time.Second)
				b.Expect(err).NotTo(HaveOccurred())
				time.Sleep(2 * ttl)
				b.Expect(a.IsLeader()).To(BeTrue())
				b.Expect(a.Status().Wins).To(BeEquivalentTo(1))
				other, err := b.js(root).Stream(b.ctx, "KV_OTHER")
				b.Expect(err).NotTo(HaveOccurred())
				b.Expect(other.CachedInfo().State.Msgs).To(BeZero())
			})).To(BeEmpty())
		})
	}
}
