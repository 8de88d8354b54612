package admin_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// limited is a server whose account may store 1 MiB, and whose streams may have 10 consumers each. The user "reader" may not ask for that.
const limited = `accounts: { A: {
	jetstream: {max_mem: 1048576, max_file: 1048576, max_consumers: 10}
	users: [
		{user: all, password: x},
		{user: reader, password: x, permissions: {publish: {deny: "$JS.API.INFO"}}}
	]
} }, no_auth_user: all`

// fill has a stream of another team take what is left of the account, but for so many bytes or a few less.
func fill(f *fleet, js jetstream.JetStream, left int) {
	f.Helper()
	_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Storage: jetstream.MemoryStorage})
	f.Expect(err).NotTo(HaveOccurred())
	const overhead = 40
	for {
		account, err := js.AccountInfo(ctx)
		f.Expect(err).NotTo(HaveOccurred())
		room := int(account.Limits.MaxMemory) - int(account.Memory) - left - overhead
		if room <= 0 {
			return
		}
		_, err = js.Publish(ctx, "orders.x", make([]byte, min(room, 100_000)))
		f.Expect(err).NotTo(HaveOccurred())
	}
}

func TestCheckNamesTheLimitOfTheAccountWhereNoRecordFits(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, c := range map[string]struct {
		left     int // bytes
		severity admin.Severity
		says     string
	}{
		"nothing is left":           {0, admin.SeverityCritical, "of at most 1048576 bytes in memory (max_mem): no record fits, so that nobody can win"},
		"some records fit":          {1000, admin.SeverityWarning, "as one with long names takes"},
		"less than a fifth":         {200_000, admin.SeverityWarning, "of at most 1048576 bytes in memory (max_mem)"},
		"more than a fifth is left": {220_000, admin.SeverityInfo, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.RunGuarded(t, limited, func(f *fleet) {
				bucket := f.Open(f.Server.Connect(f.T))
				f.Expect(check(f, bucket)).NotTo(HaveKey("account-full"))
				fill(f, bucket.JetStream(), c.left)
				found := check(f, bucket)
				if c.says == "" {
					f.Expect(found).NotTo(HaveKey("account-full"))
					return
				}
				f.Expect(found).To(HaveKey("account-full"))
				f.Expect(found["account-full"].Severity).To(Equal(c.severity))
				f.Expect(found["account-full"].Message).To(ContainSubstring(c.says))
				f.Expect(found["account-full"].Fix).To(ContainSubstring("raise max_mem of the account"))
			})
		})
	}
}

func TestAFullAccountIsNamedWhileNobodyCanLead(t *testing.T) {
	fleettest.RunGuarded(t, limited, func(f *fleet) {
		bucket := f.Open(f.Server.Connect(f.T))
		a := f.Connected("a").Begin()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		fill(f, bucket.JetStream(), 0)
		after(ttl)
		f.Expect(a.IsLeader()).To(BeFalse(), "no renewal fits")
		after(time.Second)
		f.Expect(check(f, bucket)).To(And(HaveKey("account-full"), Not(HaveKey("outlived"))), "nor the marker of an expiry")
		f.Expect(checkKey(f, bucket, key)).NotTo(HaveKey("outlived"))
		asked, err := operator(f).Candidates(ctx, key)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(asked).To(HaveLen(1))
		f.Expect(asked[0].LastError).To(ContainSubstring("resource limits exceeded for account"), "for those who may not ask for the account")
		s, err := bucket.JetStream().Stream(ctx, "ORDERS")
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(s.Purge(ctx)).To(Succeed())
		f.Expect(check(f, bucket)).NotTo(HaveKey("account-full"))
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		asked, err = operator(f).Candidates(ctx, key)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(asked[0].LastError).To(BeEmpty())
	})
}

func TestCheckThatMayNotAskForTheAccountFindsNothingAboutIt(t *testing.T) {
	fleettest.RunGuarded(t, limited, func(f *fleet) {
		fill(f, f.Open(f.Server.Connect(f.T)).JetStream(), 0)
		bucket := f.Open(f.Server.Connect(f.T, nats.UserInfo("reader", "x")))
		began := time.Now()
		f.Expect(check(f, bucket)).NotTo(HaveKey("account-full"))
		f.Expect(time.Since(began)).To(BeNumerically("<", 500*time.Millisecond), "the server says at once that it refuses")
		f.Expect(check(f, bucket.KeyValue)).NotTo(HaveKey("account-full"), "nor without a connection")
	})
}

func TestCheckKnowsHowManyConsumersTheAccountGrantsAStream(t *testing.T) {
	fleettest.RunGuarded(t, limited, func(f *fleet) {
		bucket := reporting{f.Open(f.Server.Connect(f.T)), func(i *jetstream.StreamInfo) { i.State.Consumers = 8 }}
		f.Expect(check(f, bucket)["consumers"].Message).To(ContainSubstring("8 watchers or other consumers of the 10 that the account grants a stream"))
	})
}

func TestCheckWarnsOfARollUpThatTheBucketCouldRefuse(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleet) {
		js := f.Open(f.Server.Connect(f.T)).JetStream()
		f.Expect(check(f, f.Bucket)).To(And(HaveKey("no-markers"), Not(HaveKey("rollup"))), "with the markers that it should have it could refuse none")
		f.Write("choria.example.net")
		found := check(f, f.Bucket)["rollup"]
		f.Expect(found.Severity).To(Equal(admin.SeverityWarning))
		f.Expect(found.Message).To(ContainSubstring("Nats-Rollup: all"))
		f.Expect(found.Fix).To(ContainSubstring("--choria-compatible"))
		changed, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: natstest.BucketName, TTL: ttl, Storage: jetstream.MemoryStorage, ChoriaCompatible: true})
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(check(f, changed)).NotTo(HaveKey("rollup"), "as its fix says")
		f.Expect(f.Bucket.Delete(ctx, key)).To(Succeed())
		changed, err = election.CreateBucket(ctx, js, election.BucketConfig{Name: natstest.BucketName, TTL: ttl, Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		info, err := changed.Status(ctx)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(info.(*jetstream.KeyValueBucketStatus).StreamInfo().Config.AllowRollup).To(BeTrue(), "the server insists where there are markers")
		f.Expect(check(f, changed)).NotTo(HaveKey("rollup"), "nobody could do anything about it")
	}, withoutMarkers)
}

func TestCheckWarnsOfATimeOfCreationThatTheServerMayChange(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleet) {
		for _, c := range []struct {
			version string // empty if the server does not say
			change  func(*jetstream.StreamInfo)
			warns   bool
		}{
			{"2.15.2", nil, false},
			{"2.14.9", nil, false},
			{"3.0.0", nil, false},
			{"2.14.5", nil, true},
			{"2.12.15", nil, true},
			{"2.11.17", nil, true},
			{"", nil, true},
			{"2.14.5", func(i *jetstream.StreamInfo) { i.Cluster = &jetstream.ClusterInfo{Name: "east", Leader: "n1"} }, false},
			{"2.14.5", func(i *jetstream.StreamInfo) { i.Config.Storage = jetstream.MemoryStorage }, false},
			{"2.14.5", func(i *jetstream.StreamInfo) {
				i.Config.Metadata["election.created"] = i.Created.UTC().Format(time.RFC3339Nano)
			}, false},
		} {
			found := check(f, reporting{f.Bucket, func(i *jetstream.StreamInfo) {
				onFile(i)
				i.Config.Metadata = map[string]string{"_nats.ver": c.version}
				if c.change != nil {
					c.change(i)
				}
			}})
			if !c.warns {
				f.Expect(found).NotTo(HaveKey("not-pinned"), "%+v", c)
				continue
			}
			f.Expect(found["not-pinned"].Severity).To(Equal(admin.SeverityWarning), "%+v", c)
			if c.version == "" {
				c.version = "unknown"
			}
			f.Expect(found["not-pinned"].Message).To(ContainSubstring("version " + c.version))
		}
	})
}
