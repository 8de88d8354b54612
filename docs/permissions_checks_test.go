package docs_test

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/kv"
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
			b.lists(b.admin("ops"), key, 2)
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
		"watch members": func(b *bench) {
			b.members("shards", "m1", "m2")
			b.Expect(b.state().Consumers).To(Equal(2))
		},
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
			const waiters = 8 // so that they are not in turn by chance
			order := make(chan int, waiters)
			for i := range waiters {
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
			for i := range waiters {
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
		"find a full account": func(b *bench) {
			_, err := kv.With(b.bucket("nagios"), nil).Account(b.ctx)
			b.Expect(err).NotTo(HaveOccurred())
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
		"shorten the TTL": func(b *bench) {
			b.Expect(b.leader("web", "a", key).Shutdown(b.ctx)).To(Succeed())
			b.create("setup", ttl/2)
		},
		"tell candidates of a new TTL": func(b *bench) {
			a := b.leader("web", "a", key)
			b.create("setup", 2*ttl)
			b.Expect(a.Status().TTL).To(Equal(2 * ttl))
		},
		"wait until they know it": func(b *bench) {
			b.leader("web", "a", key)
			began := time.Now()
			b.create("setup", 2*ttl)
			b.Expect(time.Since(began)).To(BeNumerically(">", 100*time.Millisecond), "further candidates may answer")
		},
		"remove the bucket": func(b *bench) {
			b.Expect(b.js("setup").DeleteKeyValue(b.ctx, bucketName)).To(Succeed())
		},
	},
}
