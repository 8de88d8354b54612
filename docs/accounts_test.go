package docs_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

// accounts returns the configuration of a server with the accounts of the page. The user root is in the account of the bucket.
func accounts(t *testing.T) string {
	t.Helper()
	return strings.Replace(blocks(t)["accounts"], "users = [", fmt.Sprintf("users = [ { user: %s, password: %q },", root, password), 1)
}

// runAcross runs a check with those accounts. Users of other accounts than that of the bucket reach it by the prefix of their imports.
func runAcross(t *testing.T, config string, check func(b *bench)) string {
	t.Helper()
	return runWith(t, "", config, func(nc *nats.Conn, opts ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
		if nc.Opts.User == root || nc.Opts.User == users["CREATOR"] {
			return jetstream.New(nc, opts...)
		}
		return jetstream.NewWithAPIPrefix(nc, "elections", opts...)
	}, check)
}

func TestElectionsWorkAcrossAccounts(t *testing.T) {
	natstest.SkipIfShort(t)
	config := accounts(t)
	for name, check := range map[string]func(b *bench){
		"candidate": func(b *bench) {
			a, c := b.two("web", key)
			b.Expect(a.Status().Notifications).To(Equal("republish"))
			b.Expect(a.Transfer(b.ctx, "b")).To(Succeed())
			b.Expect(c.IsLeader()).To(BeTrue())
			b.Expect(c.Shutdown(b.ctx)).To(Succeed())
			b.soon(atOnce, a.IsLeader)
		},
		"candidate that names successors": namesSuccessors("web", key),
		"operator": func(b *bench) {
			a, c := b.two("web", key)
			o := b.admin("ops")
			b.Expect(o.Candidates(b.ctx, key)).To(HaveLen(2))
			b.Expect(o.Transfer(b.ctx, key, "b")).To(Succeed())
			b.Expect(c.IsLeader()).To(BeTrue())
			time.Sleep(ttl)
			b.Expect(o.Resign(b.ctx, key)).To(Succeed())
			b.soon(atOnce, a.IsLeader)
		},
		"observer": checks["OBSERVER"]["see the leader"],
		"observer that lists": func(b *bench) {
			b.leader("web", "a", key)
			elections, err := b.view("dashboard").Leaders(b.ctx)
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(elections).To(HaveLen(1))
		},
		"observer that watches": func(b *bench) {
			_, err := b.observer("dashboard").Observe(b.ctx, key)
			b.Expect(err).To(HaveOccurred(), "that takes a consumer")
		},
		"lock":         checks["HOLDER"]["lock"],
		"lock in turn": checks["HOLDER"]["lock in turn"],
		"slot": func(b *bench) {
			s, err := b.semaphore("locks", "a").Acquire(b.ctx)
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(s.Release()).To(Succeed())
		},
		"creator": checks["CREATOR"]["change the bucket"],
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(runAcross(t, config, check)).To(BeEmpty())
		})
	}
}

func TestCandidateWithABlockAnswersAnotherAccountOnlyByItsReplySubjects(t *testing.T) {
	natstest.SkipIfShort(t)
	const user = `user: web, password: "change it"`
	for more, answers := range map[string]bool{``: false, `, "_R_.>"`: true} {
		permissions := `, permissions: { publish: ["elections.>", "election-control.>", "election-answers.>"` + more + `], subscribe: ["_INBOX_web.>", "election.>", "election-control.>"] }`
		failure := runAcross(t, strings.Replace(accounts(t), user, user+permissions, 1), func(b *bench) {
			b.two("web", key)
			b.Expect(b.admin("ops").Candidates(b.ctx, key)).To(HaveLen(2))
		})
		NewWithT(t).Expect(failure == "").To(Equal(answers), failure)
	}
}

// The effects that a role may bring about beyond its block.
const (
	overwrites = "overwrite another key"
	stores     = "write another stream"
	destroys   = "purge the bucket, delete a stream"
	handsOver  = "have a leader hand over"
)

var effects = []string{overwrites, stores, destroys, handsOver}

// misuse tries to bring about each effect in all ways, and reports those that a user achieved who may publish to these subjects.
func misuse(b *bench, user string, permitted []string) (found []string) {
	const victim = "other"
	a := b.leader(root, "a", victim)
	js := b.js(root)
	for _, name := range []string{"ORDERS", "GONE"} {
		_, err := js.CreateStream(b.ctx, jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name) + ".>"}, Storage: jetstream.MemoryStorage})
		b.Expect(err).NotTo(HaveOccurred())
	}
	for _, subject := range []string{"orders.epoch", "gone.x"} {
		_, err := js.Publish(b.ctx, subject, []byte("{}"))
		b.Expect(err).NotTo(HaveOccurred())
	}
	before, _ := a.Term()
	wins := a.Status().Wins
	attacker := b.attemptOf(user, permitted)
	reader := *attacker
	reader.permitted = slices.DeleteFunc(slices.Clone(permitted), func(subject string) bool { return !strings.Contains(subject, "DIRECT.GET.") })
	try := func(target, body string) {
		time.Sleep(2 * ttl) // until the keys are gone that were written before: the answer to a read is empty then
		for _, to := range []string{target, "elections." + target, strings.Replace(target, "$JS.API.", "elections.", 1)} {
			interest, err := b.connect(root).SubscribeSync(to) // a consumer delivers to what somebody subscribes to
			b.Expect(err).NotTo(HaveOccurred())
			m := &nats.Msg{Subject: to, Reply: attacker.nc.NewInbox(), Data: []byte(body)}
			reader.reply(m)
			for _, w := range ways {
				w.try(attacker, m)
			}
			b.Expect(attacker.nc.Flush()).To(Succeed())
			time.Sleep(500 * time.Millisecond)
			b.Expect(interest.Unsubscribe()).To(Succeed())
		}
	}
	try("election-control.ELECTIONS.resign."+victim, fmt.Sprintf(`{"instance":%q}`, a.Status().Instance))
	if term, leads := a.Term(); !leads || term.Number != before.Number || a.Status().Wins != wins {
		found = append(found, handsOver)
		b.soon(5*ttl, a.IsLeader)
		before, _ = a.Term()
	}
	try("gone.y", "")
	other, err := js.Stream(b.ctx, "GONE")
	b.Expect(err).NotTo(HaveOccurred())
	if other.CachedInfo().State.Msgs > 1 {
		found = append(found, stores)
	}
	try("$KV.ELECTIONS."+victim, "")
	if l, err := b.observer(root).Leader(b.ctx, victim); err != nil || l.Term != before.Number {
		found = append(found, overwrites)
	}
	try("$JS.API.STREAM.DELETE.GONE", "")
	_, err = js.Stream(b.ctx, "GONE")
	gone := err != nil
	try("$JS.API.STREAM.PURGE.KV_ELECTIONS", "")
	if gone || b.state().Msgs == 0 {
		found = append(found, destroys)
	}
	return found
}

// rowsOf returns the other cells of each row of a table whose first cell lists a name.
func rowsOf(page, name string) (rows []string) {
	for text := range strings.Lines(page) {
		if m := row.FindStringSubmatch(text); m != nil && slices.Contains(strings.Split(m[1], ", "), "`"+name+"`") {
			rows = append(rows, m[2])
		}
	}
	return rows
}

var row = regexp.MustCompile("^\\| (`.*?`) \\|(.*)\n$")

func TestPageSaysWhatEachRoleCanHaveTheServerPublish(t *testing.T) {
	natstest.SkipIfShort(t)
	page, err := os.ReadFile("PERMISSIONS.md")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for role, user := range users {
		for layout, try := range map[string]func(check func(b *bench)) string{
			"one account": func(check func(b *bench)) string { return run(t, configOf(blocks(t)), check) },
			"accounts":    func(check func(b *bench)) string { return runAcross(t, accounts(t), check) },
		} {
			described, permitted := role, permittedBy(t, blocks(t)[role])
			if layout == "accounts" {
				if !strings.Contains(accounts(t), "user: "+user+",") {
					continue
				}
				api := "elections."
				if described = "account " + strings.ToUpper(user); role == "CREATOR" {
					api, described = "$JS.API.", "account ELECTIONS"
				}
				permitted = []string{
					api + "STREAM.INFO.KV_ELECTIONS", api + "DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.scheduler", api + "DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.locks.>",
					strings.TrimPrefix(api, "$JS.API.") + "$KV.ELECTIONS.scheduler", strings.TrimPrefix(api, "$JS.API.") + "$KV.ELECTIONS.locks.>", api + "CONSUMER.CREATE.KV_ELECTIONS.*", "election-control.ELECTIONS.candidates.scheduler",
				}
			}
			t.Run(described, func(t *testing.T) {
				g := NewWithT(t)
				var found []string
				g.Expect(try(func(b *bench) { found = misuse(b, user, permitted) })).To(BeEmpty())
				cells := ""
				for _, effect := range effects {
					cells += map[bool]string{true: " yes |", false: " no |"}[slices.Contains(found, effect)]
				}
				g.Expect(rowsOf(string(page), strings.TrimPrefix("ELECTION_"+described, "ELECTION_account "))).To(ContainElement(cells))
			})
		}
	}
}

func TestWhoMayChangeTheBucketCanHaveItTakeInAnotherStream(t *testing.T) {
	natstest.SkipIfShort(t)
	NewWithT(t).Expect(run(t, configOf(blocks(t)), func(b *bench) {
		js := b.js(root)
		_, err := js.CreateStream(b.ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Storage: jetstream.MemoryStorage})
		b.Expect(err).NotTo(HaveOccurred())
		_, err = js.Publish(b.ctx, "orders.done", []byte("secret"))
		b.Expect(err).NotTo(HaveOccurred())
		s, err := js.Stream(b.ctx, "KV_"+bucketName)
		b.Expect(err).NotTo(HaveOccurred())
		cfg := s.CachedInfo().Config
		cfg.Sources = []*jetstream.StreamSource{{Name: "ORDERS", SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: "orders.done", Destination: "$KV.ELECTIONS.scheduler"}}}}
		_, err = b.js("ops").UpdateStream(b.ctx, cfg)
		b.Expect(err).NotTo(HaveOccurred())
		b.soon(5*time.Second, func() bool {
			l, err := b.observer("dashboard").Leader(b.ctx, key)
			return err == nil && l.Name == "secret"
		})
		e, err := election.NewElection("a", key, b.bucket("web"))
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(e.Start(b.ctx)).To(MatchError(election.ErrBucketUnsuitable), "candidates do not take such a bucket")
	})).To(BeEmpty())
}
