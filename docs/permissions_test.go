package docs_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/fence"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/observe"
)

func TestEachBlockPermitsWhatItsRoleIsFor(t *testing.T) {
	natstest.SkipIfShort(t)
	everyCheck(t, blocks(t), "")
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
	case "end a watcher", "leave no consumer", "list with one request", "watch for long", "watch":
		return []string{"end a watcher", "leave no consumer", "list with one request", "watch for long", "watch"}
	}
	return []string{purpose}
}

// adapt returns the page with another block for one role.
func adapt(page map[string]string, role, block string) map[string]string {
	other := maps.Clone(page)
	other[role] = block
	return other
}

func TestBlocksWorkWithTheInboxPrefixThatClientsHaveByDefault(t *testing.T) {
	natstest.SkipIfShort(t)
	page := blocks(t)
	for role, user := range users {
		page[role] = strings.Replace(page[role], `"_INBOX_`+user+`.>"`, `"_INBOX.>"`, 1)
	}
	everyCheck(t, page, "", func(string) nats.Option { return nats.CustomInboxPrefix("_INBOX") })
}

func TestBlocksCanBeOfAllKeysThatBeginAlike(t *testing.T) {
	natstest.SkipIfShort(t)
	page := blocks(t)
	for _, role := range []string{"CANDIDATE", "OBSERVER", "OPERATOR"} {
		page[role] = strings.ReplaceAll(page[role], "scheduler", "*")
	}
	everyCheck(t, page, "")
}

// everyCheck runs all checks on a page that was changed as it says that it may be, with JetStream in a domain.
func everyCheck(t *testing.T, page map[string]string, domain string, dial ...func(user string) nats.Option) {
	t.Helper()
	for role := range users {
		lines := linesOf(t, page[role])
		for purpose, check := range checks[role] {
			t.Run(role+"/"+purpose, func(t *testing.T) {
				NewWithT(t).Expect(runIn(t, domain, configOf(adapt(page, role, with(page[role], lines, needs(purpose)...))), check, dial...)).To(BeEmpty())
			})
		}
	}
}

func TestBlocksWorkAsTheyAreForClientsThatNameTheDomainOfTheirServer(t *testing.T) {
	natstest.SkipIfShort(t)
	everyCheck(t, blocks(t), "hub")
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
	natstest.SkipIfShort(t)
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
	natstest.SkipIfShort(t)
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
	natstest.SkipIfShort(t)
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
