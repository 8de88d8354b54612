package docs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
)

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
	"election-control.ELECTIONS.refresh.scheduler":           {"setup", "ops"},
	"election-control.ELECTIONS.resign.shards.keys.a":        nil,
	"election-control.ELECTIONS.transfer.shards.keys.a":      {"shards"},
	"election-control.ELECTIONS.resign.locks.migrate":        nil,
	"$SRV.PING":       nil,
	"_INBOX.somebody": nil,
	"orders.done":     {"orders"},
	"orders.other":    nil,
}

func TestBlocksLeaveOutWhatIsNotForTheirRoles(t *testing.T) {
	natstest.SkipIfShort(t)
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

// received says for each subject which users may subscribe to it: whoever receives a request can answer it.
var received = map[string][]string{
	"$KV.ELECTIONS.scheduler":                         {"web"},
	"$KV.ELECTIONS.other":                             nil,
	"$KV.ELECTIONS.>":                                 nil,
	"$KV.ELECTIONS.shards.keys.a":                     {"shards"},
	"$KV.ELECTIONS.locks.migrate":                     {"locks"},
	"$KV.OTHER.scheduler":                             nil,
	"election-control.ELECTIONS.*.scheduler":          {"web"},
	"election-control.ELECTIONS.resign.other":         nil,
	"election-control.ELECTIONS.*.>":                  nil,
	"election-control.ELECTIONS.transfer.shards.keys": {"shards"},
	"election-control.ELECTIONS.resign.locks.migrate": {"locks"},
	"$SRV.PING.billing":                               nil,
	"$SRV.>":                                          nil,
	"$JS.API.STREAM.INFO.KV_ELECTIONS":                nil,
	"orders.done":                                     nil,
}

func TestBlocksReceiveNoRequestsToOthers(t *testing.T) {
	natstest.SkipIfShort(t)
	NewWithT(t).Expect(run(t, configOf(blocks(t)), func(b *bench) {
		for _, user := range users {
			nc := b.connect(user)
			for subject, granted := range received {
				before := nc.LastError()
				_, err := nc.SubscribeSync(subject)
				b.Expect(err).NotTo(HaveOccurred())
				b.Expect(nc.Flush()).To(Succeed())
				if slices.Contains(granted, user) {
					b.Expect(errors.Is(nc.LastError(), before)).To(BeTrue(), "%s may subscribe to %s", user, subject)
				} else {
					b.Expect(nc.LastError()).To(MatchError(ContainSubstring("Subscription to %q", subject)), "%s must not subscribe to %s", user, subject)
				}
			}
		}
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

func TestServerRefusesABlockThatNoUserHas(t *testing.T) {
	g, page := NewWithT(t), blocks(t)
	for _, role := range []string{"CANDIDATE", "OBSERVER"} {
		file := filepath.Join(t.TempDir(), "nats.conf")
		g.Expect(os.WriteFile(file, []byte(page[role]), 0o600)).To(Succeed())
		_, err := server.ProcessConfigFile(file)
		g.Expect(err).To(MatchError(ContainSubstring("unknown field")))
	}
}
