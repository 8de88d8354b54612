package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// repair follows the fixes of findings.
type repair struct{ *fixture }

// run runs the command line; nobody is there to answer a question.
func (r *repair) run(args ...string) (code int, stdout, stderr string) {
	r.T.Helper()
	if slices.Equal(args[:2], []string{"bucket", "rm"}) {
		args = append(args, "--force")
	}
	return r.fixture.run(args...)
}

// findings returns what is wrong with the bucket.
func (r *repair) findings(flags ...string) (found []admin.Finding) {
	r.T.Helper()
	_, stdout, stderr := r.run(append([]string{"bucket", "info", "--json"}, flags...)...)
	var info look.BucketInfo
	r.Expect(json.Unmarshal([]byte(stdout), &info)).To(Succeed(), stderr)
	return slices.DeleteFunc(info.Findings, func(f admin.Finding) bool { return f.Fix == "" || strings.HasPrefix(f.Code, "expect-") })
}

func codes(found []admin.Finding) (codes []string) {
	for _, f := range found {
		codes = append(codes, f.Code)
	}
	return codes
}

// commands returns the command lines of the tool that a text names.
func commands(text string) (commands [][]string) {
	for _, m := range regexp.MustCompile(`'election-cli ([^']*)'`).FindAllStringSubmatch(text, -1) {
		commands = append(commands, strings.Fields(m[1]))
	}
	return commands
}

// follow runs the commands that a text names; all must succeed.
func (r *repair) follow(text string) {
	r.T.Helper()
	named := commands(text)
	r.Expect(named).NotTo(BeEmpty(), text)
	for _, args := range named {
		code, stdout, stderr := runAnswered(r.run, args...)
		r.Expect(code).To(Equal(cli.ExitOK), "%q: %s%s", args, stdout, stderr)
	}
}

// repairAll follows the fix of the finding with the code, which is over then, and of all further ones.
func (r *repair) repairAll(code string) {
	r.T.Helper()
	for first := true; ; first = false {
		found := r.findings()
		if !first && len(found) == 0 {
			break
		}
		if first {
			i := slices.IndexFunc(found, func(f admin.Finding) bool { return f.Code == code })
			r.Expect(i).NotTo(Equal(-1), "%v", found)
			found = found[i:]
		}
		r.follow(found[0].Fix)
		r.Expect(codes(r.findings())).NotTo(ContainElement(found[0].Code), found[0].Fix)
	}
	exit, stdout, stderr := r.run("bucket", "edit")
	r.Expect(exit).To(Equal(cli.ExitOK))
	r.Expect(stdout).To(BeEmpty())
	r.Expect(stderr).To(Equal("Bucket \"LEADER_ELECTION\" is as it should be: nothing was changed\n"))
}

// aStream makes a bucket by its stream, with a change.
func aStream(change func(*jetstream.StreamConfig)) func(*fixture) {
	return func(f *fixture) {
		t, js := f.T, f.Client.JetStream
		_, err := election.CreateBucket(t.Context(), js, election.BucketConfig{Name: "OTHER", TTL: 5 * time.Second})
		f.Expect(err).NotTo(HaveOccurred())
		s, err := js.Stream(t.Context(), "KV_OTHER")
		f.Expect(err).NotTo(HaveOccurred())
		cfg := s.CachedInfo().Config
		cfg.Name, cfg.Subjects, cfg.RePublish.Source = "KV_LEADER_ELECTION", []string{"$KV.LEADER_ELECTION.>"}, "$KV.LEADER_ELECTION.>"
		change(&cfg)
		_, err = js.CreateStream(t.Context(), cfg)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(js.DeleteKeyValue(t.Context(), "OTHER")).To(Succeed()) // not before: a server that removes its last stream may fail to make another just then
	}
}

// aBucket makes a bucket as other tools do.
func aBucket(cfg jetstream.KeyValueConfig) func(*fixture) {
	return func(f *fixture) {
		cfg.Bucket = cli.DefaultBucket
		_, err := f.Client.JetStream.CreateKeyValue(f.T.Context(), cfg)
		f.Expect(err).NotTo(HaveOccurred())
	}
}

func TestTheFixOfEachFindingAboutABucketEndsIt(t *testing.T) {
	natstest.SkipIfShort(t)
	withoutMarkers := func(c *jetstream.StreamConfig) {
		c.SubjectDeleteMarkerTTL, c.AllowMsgTTL, c.AllowRollup = 0, false, false
	}
	withRollUps := func(c *jetstream.StreamConfig) {
		withoutMarkers(c)
		c.AllowRollup, c.Metadata = true, map[string]string{kv.ChoriaMetadata: "true"}
	}
	for name, c := range map[string]struct {
		make func(*fixture)
		code string
	}{
		"of another tool, without a TTL":    {aBucket(jetstream.KeyValueConfig{}), "no-ttl"},
		"of another tool, with a history":   {aBucket(jetstream.KeyValueConfig{TTL: 5 * time.Second, History: 5}), "history"},
		"of another tool, with a TTL":       {aBucket(jetstream.KeyValueConfig{TTL: 5 * time.Second}), "no-markers"},
		"of another tool, with a TTL too":   {aBucket(jetstream.KeyValueConfig{TTL: 5 * time.Second}), "republish"},
		"of another tool, in memory":        {aBucket(jetstream.KeyValueConfig{TTL: 5 * time.Second, Storage: jetstream.MemoryStorage}), "memory"},
		"in memory, a TTL of two hours":     {aBucket(jetstream.KeyValueConfig{TTL: 2 * time.Hour, Storage: jetstream.MemoryStorage}), "memory"},
		"a TTL of half a second":            {aBucket(jetstream.KeyValueConfig{TTL: time.Second / 2}), "ttl-out-of-range"},
		"a TTL of two hours":                {aStream(func(c *jetstream.StreamConfig) { c.MaxAge = 2 * time.Hour }), "ttl-out-of-range"},
		"a TTL of a second":                 {aStream(func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = time.Second, time.Second }), "ttl-short"},
		"a TTL of ten minutes":              {aStream(func(c *jetstream.StreamConfig) { c.MaxAge = 10 * time.Minute }), "ttl-long"},
		"long markers":                      {aStream(func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Minute }), "markers-long"},
		"releases expire":                   {aStream(func(c *jetstream.StreamConfig) { delete(c.Metadata, kv.RemembersMetadata) }), "releases-expire"},
		"nothing is republished":            {aStream(func(c *jetstream.StreamConfig) { c.RePublish = nil }), "republish"},
		"headers are republished":           {aStream(func(c *jetstream.StreamConfig) { c.RePublish.HeadersOnly = true }), "republish"},
		"some keys are republished":         {aStream(func(c *jetstream.StreamConfig) { c.RePublish.Source = "$KV.LEADER_ELECTION.a.>" }), "republish"},
		"roll-ups":                          {aStream(withRollUps), "rollup"},
		"drops the oldest key":              {aStream(func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardOld, 1<<20 }), "discard-old"},
		"few bytes":                         {aStream(func(c *jetstream.StreamConfig) { c.MaxBytes = 300 }), "bucket-full"},
		"small values":                      {aStream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100 }), "message-size"},
		"values of a kilobyte":              {aStream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 << 10 }), "message-size"},
		"no acknowledgements":               {aStream(func(c *jetstream.StreamConfig) { c.NoAck = true }), "stream-settings"},
		"consumers remove keys":             {aStream(func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }), "stream-settings"},
		"consumers remove keys, as in work": {aStream(func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }), "stream-settings"},
		"few keys": {func(f *fixture) {
			aStream(func(c *jetstream.StreamConfig) { c.MaxMsgs = 1 })(f)
			f.Put("jobs", clitest.LeaderRecord("web-1", nil))
		}, "bucket-full"},
		"sealed": {func(f *fixture) {
			aStream(func(*jetstream.StreamConfig) {})(f)
			lose(f.Fixture, func(c *jetstream.StreamConfig) { c.Sealed = true })
		}, "stream-settings"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &repair{newServer(t)}
			c.make(r.fixture)
			r.repairAll(c.code)
		})
	}
}

func TestTheFixOfEachFindingAboutReplicasEndsIt(t *testing.T) {
	natstest.SkipIfShort(t)
	url := natstest.StartCluster(t, 3).Servers()[0].URL()
	client := clitest.Connect(t, url, "")
	g := NewWithT(t)
	_, err := client.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}, Replicas: 3}) // see aStream
	g.Expect(err).NotTo(HaveOccurred())
	for name, c := range map[string]struct {
		change func(*jetstream.StreamConfig)
		code   string
	}{
		"one":           {func(*jetstream.StreamConfig) {}, "one-replica"},
		"two":           {func(c *jetstream.StreamConfig) { c.Replicas = 2 }, "even-replicas"},
		"in memory":     {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, "memory-replicated"},
		"two in memory": {func(c *jetstream.StreamConfig) { c.Storage, c.Replicas = jetstream.MemoryStorage, 2 }, "memory-replicated"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &repair{&fixture{Fixture: &clitest.Fixture{Gomega: NewWithT(t), T: t, Client: client}, url: url}}
			aStream(c.change)(r.fixture)
			defer func() { _ = client.JetStream.DeleteKeyValue(t.Context(), cli.DefaultBucket) }()
			r.Eventually(func() []string { return codes(r.findings()) }).Should(ContainElement(c.code))
			r.Eventually(func() []string {
				if found := r.findings(); len(found) > 0 {
					if len(commands(found[0].Fix)) > 0 { // not where a new replica only needs time
						r.follow(found[0].Fix)
					}
				}
				return codes(r.findings())
			}).Should(BeEmpty())
			r.Expect(clitest.BucketConfig(t, client, cli.DefaultBucket).Replicas).To(Equal(3))
		})
	}
}

// lose changes the stream behind the default bucket.
func lose(f *clitest.Fixture, change func(*jetstream.StreamConfig)) {
	f.T.Helper()
	s, err := f.Client.JetStream.Stream(f.T.Context(), "KV_LEADER_ELECTION")
	f.Expect(err).NotTo(HaveOccurred())
	cfg := s.CachedInfo().Config
	change(&cfg)
	_, err = f.Client.JetStream.UpdateStream(f.T.Context(), cfg)
	f.Expect(err).NotTo(HaveOccurred())
}

func TestALeaderLeadsOnWhileTheFixOfEachFindingIsFollowed(t *testing.T) {
	natstest.SkipIfShort(t)
	inRealTime(t)
	for name, c := range map[string]struct {
		change func(*jetstream.StreamConfig)
		code   string
		note   bool // the bucket says which TTL it has had
	}{
		"the TTL is gone":            {func(c *jetstream.StreamConfig) { c.MaxAge = 0 }, "no-ttl", true},
		"the TTL is gone, not noted": {func(c *jetstream.StreamConfig) { c.MaxAge = 0 }, "no-ttl", false},
		"the TTL is two hours":       {func(c *jetstream.StreamConfig) { c.MaxAge = 2 * time.Hour }, "ttl-out-of-range", false},
		"the history is long":        {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 9 }, "history", true},
		"nothing is republished":     {func(c *jetstream.StreamConfig) { c.RePublish = nil }, "republish", true},
		"the oldest key is dropped":  {func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 1<<20, jetstream.DiscardOld }, "discard-old", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 12 * time.Second
			f := newFixture(t, ttl)
			e := clitest.Lead(t, f.Bucket, "web-1", "jobs", election.WithCampaignInterval(time.Second))
			term, _ := e.Term()
			lose(f.Fixture, func(cfg *jetstream.StreamConfig) {
				c.change(cfg)
				if !c.note {
					delete(cfg.Metadata, kv.LongestTTLMetadata)
				}
			})
			r := &repair{f}
			r.repairAll(c.code)
			r.Expect(clitest.BucketConfig(t, f.Client, cli.DefaultBucket).TTL).To(Equal(ttl))
			r.Consistently(func() uint64 { now, _ := e.Term(); return now.Number }, ttl+time.Second, 50*time.Millisecond).Should(Equal(term.Number))
			code, stdout, stderr := r.run("check", "jobs", "--ignore", "no-standby")
			r.Expect(code).To(Equal(cli.ExitOK), stdout+stderr)
		})
	}
}

func TestBucketEditShowsWhatItChangesAndADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	aBucket(jetstream.KeyValueConfig{})(f)
	before := clitest.BucketConfig(t, f.Client, cli.DefaultBucket)
	const changes = "TTL: none -> 15s\nTTL of expiry markers: none -> 1s\nchanges: not republished -> republished\nreleases: expire -> remembered\ntime of creation: not pinned -> pinned to "
	code, stdout, stderr := f.run("bucket", "edit", "--dry-run")
	f.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.Expect(stdout).To(HavePrefix(changes))
	f.Expect(stderr).To(Equal("Bucket \"LEADER_ELECTION\" would be changed so: nothing was changed\n"))
	f.Expect(clitest.BucketConfig(t, f.Client, cli.DefaultBucket)).To(Equal(before))

	code, stdout, stderr = f.run("bucket", "edit")
	f.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.Expect(stdout).To(HavePrefix(changes))
	f.Expect(stderr).To(Equal("Bucket \"LEADER_ELECTION\" changed\n"), "there are no warnings")
	f.Expect(clitest.BucketConfig(t, f.Client, cli.DefaultBucket).TTL).To(Equal(15 * time.Second))
}

func TestBucketEditTellsProgramsWhatItChanged(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	aBucket(jetstream.KeyValueConfig{TTL: 15 * time.Second})(f)
	for _, c := range []struct {
		args    []string
		changed bool
		changes int
	}{{[]string{"--dry-run"}, false, 4}, {nil, true, 4}, {nil, false, 0}} {
		var report bucketEditReport
		f.read(cli.ExitOK, &report, append([]string{"bucket", "edit"}, c.args...)...)
		f.Expect(report.Changed).To(Equal(c.changed))
		f.Expect(report.Changes).To(HaveLen(c.changes))
	}
}

func TestABucketWithOtherDataIsNeitherChangedNorRemoved(t *testing.T) {
	t.Parallel()
	r := &repair{newServer(t)}
	aBucket(jetstream.KeyValueConfig{History: 5})(r.fixture)
	bucket, err := r.Client.OpenBucket(t.Context(), cli.DefaultBucket)
	r.Expect(err).NotTo(HaveOccurred())
	for key, value := range map[string]string{"db.host": "db-1", "db.options": `{"pool":5}`} {
		for range 3 {
			_, err = bucket.PutString(t.Context(), key, value)
			r.Expect(err).NotTo(HaveOccurred())
		}
	}
	before := streamInfo(r.fixture)
	for _, args := range [][]string{{"edit"}, {"edit", "--ttl", "1h"}, {"edit", "--choria-compatible"}, {"edit", "--dry-run"}, {"rm"}} {
		code, stdout, stderr := r.run(append([]string{"bucket"}, args...)...)
		r.Expect(code).To(Equal(cli.ExitFailure), "%q", args)
		r.Expect(stdout).To(BeEmpty())
		r.Expect(stderr).To(ContainSubstring(`"db.options"`))
	}
	after := streamInfo(r.fixture)
	r.Expect(after.Config).To(Equal(before.Config))
	r.Expect(after.State.Msgs).To(Equal(before.State.Msgs))
	r.Expect(after.State.LastSeq).To(Equal(before.State.LastSeq))
}

func TestSourcesOfOtherDataAreNotRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	_, err := f.Client.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: "CONFIG", Subjects: []string{"config.>"}})
	f.Expect(err).NotTo(HaveOccurred())
	lose(f.Fixture, func(cfg *jetstream.StreamConfig) {
		cfg.Sources = []*jetstream.StreamSource{{Name: "CONFIG", SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: "config.>", Destination: "$KV.LEADER_ELECTION.>"}}}}
	})
	_, err = f.Client.JetStream.Publish(t.Context(), "config.db.options", []byte(`{"pool":5}`))
	f.Expect(err).NotTo(HaveOccurred())
	f.Eventually(func() bool { return f.HasRecord("db.options") }).Should(BeTrue())
	r := &repair{f}
	code, stdout, stderr := r.run("bucket", "edit")
	r.Expect(code).To(Equal(cli.ExitFailure), stdout)
	r.Expect(stderr).To(ContainSubstring(`"db.options"`))
}

func TestTheFixForABucketWithoutATTLThatStoresTextLosesNoneOfIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	r := &repair{f}
	f.RemoveBucket()
	aBucket(jetstream.KeyValueConfig{})(f)
	f.Put("db.host", "db-1")
	found := r.findings()
	r.Expect(found[0].Code).To(Equal("no-ttl"))
	for _, finding := range found {
		for _, args := range commands(finding.Fix) {
			if args[0] == "bucket" {
				code, _, stderr := r.run(args...)
				r.Expect(code).To(Equal(cli.ExitFailure), "%q", args)
				r.Expect(stderr).To(And(ContainSubstring(`"db.host"`), ContainSubstring("evict each")))
			}
		}
	}
	r.Expect(f.HasRecord("db.host")).To(BeTrue())

	for _, args := range commands(found[0].Fix) { // the text is that of a candidate after all
		if args[0] == "evict" {
			args[1] = "db.host"
			args = append(args, "--force")
		}
		code, _, stderr := r.run(args...)
		r.Expect(code).To(Equal(cli.ExitOK), stderr)
	}
	r.Expect(codes(r.findings())).To(BeEmpty())
}

func streamInfo(f *fixture) *jetstream.StreamInfo {
	stream, err := f.Client.JetStream.Stream(f.T.Context(), "KV_LEADER_ELECTION")
	f.Expect(err).NotTo(HaveOccurred())
	return stream.CachedInfo()
}

func TestABucketWithoutATTLThatHoldsElectionsOrNothingIsRemoved(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(*fixture){
		"nothing, and was made for elections": func(*fixture) {},
		"a record":                            func(f *fixture) { f.Put("jobs", clitest.LeaderRecord("web-1", nil)) },
		"a release": func(f *fixture) {
			f.Put("jobs", clitest.LeaderRecord("web-1", clitest.Record{"released": time.Now()}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, clitest.LongTTL)
			lose(f.Fixture, func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0 })
			put(f)
			r := &repair{f}
			code, _, stderr := r.run("bucket", "rm")
			r.Expect(code).To(Equal(cli.ExitOK), stderr)
			_, err := f.Client.OpenBucket(t.Context(), cli.DefaultBucket)
			r.Expect(err).To(MatchError(jetstream.ErrBucketNotFound))
		})
	}
}

func TestBucketAddNamesTheCommandThatChangesABucketWhichDiffers(t *testing.T) {
	t.Parallel()
	r := &repair{newServer(t)}
	aBucket(jetstream.KeyValueConfig{})(r.fixture)
	code, _, stderr := r.run("bucket", "add", "--ttl", "7s")
	r.Expect(code).To(Equal(cli.ExitFailure))
	r.Expect(stderr).To(ContainSubstring("TTL: none instead of 7s"))
	named := commands(stderr)
	r.Expect(named).To(HaveLen(1), stderr)
	code, _, stderr = r.run(named[0]...)
	r.Expect(code).To(Equal(cli.ExitOK), stderr)
	code, _, stderr = r.run("bucket", "add", "--ttl", "7s")
	r.Expect(code).To(Equal(cli.ExitOK), stderr)
	r.Expect(stderr).To(ContainSubstring("exists with this configuration"))
}

func TestARefusedChangeOfTheTTLNamesWhatWorks(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10*time.Second)
	r := &repair{f}
	lose(f.Fixture, func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 0; delete(cfg.Metadata, kv.LongestTTLMetadata) })
	f.Put("jobs", clitest.LeaderRecord("web-1", clitest.Record{"lease_ms": 9000, "interval_ms": 2500}))
	f.Put("mail", clitest.LeaderRecord("web-2", nil)) // of a version that stated no lease
	before := clitest.BucketConfig(t, f.Client, cli.DefaultBucket)
	code, _, stderr := r.run("bucket", "edit", "--ttl", "5s")
	r.Expect(code).To(Equal(cli.ExitFailure))
	r.Expect(stderr).To(And(ContainSubstring(`"web-1" holds the key "jobs" with a lease of 9s`), ContainSubstring("a TTL of 10s or more")))
	r.Expect(clitest.BucketConfig(t, f.Client, cli.DefaultBucket)).To(Equal(before))

	code, _, stderr = r.run("bucket", "edit") // with 10s, which the record of jobs tells
	r.Expect(code).To(Equal(cli.ExitFailure))
	r.Expect(stderr).To(And(ContainSubstring(`"web-2" holds the key "mail" and does not say how long its lease is`)))
	for _, args := range commands(stderr) {
		code, _, stderr := r.run(append(args, "--force")...)
		r.Expect(code).To(Equal(cli.ExitOK), stderr)
	}
	code, stdout, stderr := r.run("bucket", "edit")
	r.Expect(code).To(Equal(cli.ExitOK), stderr)
	r.Expect(stdout).To(ContainSubstring("TTL: none -> 10s"))
}

func TestTheFixForABucketOfChoriaAddsNoMarkersAndItsLeaderLeadsOn(t *testing.T) {
	natstest.SkipIfShort(t)
	inRealTime(t)
	const ttl = 12 * time.Second
	for name, c := range map[string]struct {
		make   func(*fixture)
		change func(*jetstream.StreamConfig)
		code   string
	}{
		"made for it, without its TTL": {func(f *fixture) {
			_, err := election.CreateBucket(t.Context(), f.Client.JetStream, election.BucketConfig{Name: cli.DefaultBucket, TTL: ttl, ChoriaCompatible: true})
			f.Expect(err).NotTo(HaveOccurred())
		}, func(c *jetstream.StreamConfig) { c.MaxAge = 0 }, "no-ttl"},
		"made by it": {aBucket(jetstream.KeyValueConfig{TTL: ttl}), func(*jetstream.StreamConfig) {}, "republish"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &repair{newServer(t)}
			c.make(r.fixture)
			bucket, err := r.Client.OpenBucket(t.Context(), cli.DefaultBucket)
			r.Expect(err).NotTo(HaveOccurred())
			e := clitest.Lead(t, bucket, "web-1", "jobs", election.WithPlainValue(), election.WithCampaignInterval(time.Second))
			term, _ := e.Term()
			lose(r.Fixture, c.change)
			r.repairAll(c.code)
			now := clitest.BucketConfig(t, r.Client, cli.DefaultBucket)
			r.Expect(now.LimitMarkerTTL).To(BeZero())
			r.Expect(now.TTL).To(Equal(ttl))
			r.Consistently(func() uint64 { now, _ := e.Term(); return now.Number }, ttl+time.Second, 50*time.Millisecond).Should(Equal(term.Number))
		})
	}
}

func TestTheFixForALongTTLIsRefusedUntilNobodyLeadsAndWorksThen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2*time.Minute)
	f.StartLeader()
	r := &repair{f}
	found := r.findings()
	r.Expect(codes(found)).To(Equal([]string{"ttl-long"}))
	r.Expect(found[0].Fix).To(HavePrefix(kv.Idle + ", then run"))
	code, _, stderr := r.run(commands(found[0].Fix)[0]...)
	r.Expect(code).To(Equal(cli.ExitFailure))
	r.Expect(stderr).To(And(ContainSubstring(`"web-1" holds the key "jobs"`), ContainSubstring(kv.Idle)))
	for _, args := range [][]string{{"pause", "jobs"}, {"resign", "jobs", "--force"}} {
		code, _, stderr := r.run(args...)
		r.Expect(code).To(Equal(cli.ExitOK), stderr)
	}
	r.follow(found[0].Fix)
	r.Expect(r.findings()).To(BeEmpty())
	code, _, stderr = r.run("resume", "jobs")
	r.Expect(code).To(Equal(cli.ExitOK), stderr)
	code, _, stderr = r.run("wait", "jobs", "--max-wait", clitest.LongTTL.String())
	r.Expect(code).To(Equal(cli.ExitOK), stderr)
}
