package election_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

// reporting is a bucket that reports a stream as the test would have it.
type reporting struct {
	jetstream.KeyValue
	change func(*jetstream.StreamInfo)
}

type reported struct {
	jetstream.KeyValueStatus
	info *jetstream.StreamInfo
}

func (r reported) StreamInfo() *jetstream.StreamInfo { return r.info }

func (b reporting) Status(ctx context.Context) (jetstream.KeyValueStatus, error) {
	status, err := b.KeyValue.Status(ctx)
	if err != nil || b.change == nil {
		return struct{ jetstream.KeyValueStatus }{status}, err // does not tell of a stream
	}
	info := *status.(*jetstream.KeyValueBucketStatus).StreamInfo()
	b.change(&info)
	return reported{status, &info}, nil
}

// onFile makes what a real server reports that of a bucket nothing is wrong with.
func onFile(info *jetstream.StreamInfo) { info.Config.Storage = jetstream.FileStorage }

// findings are what Check said, by code.
type findings map[string]election.Finding

func (f *fleet) check(bucket jetstream.KeyValue, opts ...election.Option) findings {
	f.Helper()
	list, err := election.Check(context.Background(), bucket, opts...)
	f.Expect(err).NotTo(HaveOccurred())
	byCode := findings{}
	for i, found := range list {
		f.Expect(found.Message).NotTo(BeEmpty())
		if found.Severity > election.SeverityInfo {
			f.Expect(found.Remedy).NotTo(BeEmpty(), found.Code)
		}
		if i > 0 {
			f.Expect(found.Severity).To(BeNumerically("<=", list[i-1].Severity), "the worst first")
		}
		byCode[found.Code] = found
	}
	f.Expect(byCode).To(HaveLen(len(list)), "each code once")
	return byCode
}

// troubles returns the codes that are worse than info.
func (f findings) troubles() (codes []string) {
	for code, found := range f {
		if found.Severity > election.SeverityInfo {
			codes = append(codes, code)
		}
	}
	slices.Sort(codes)
	return codes
}

// wellConnected returns a JetStream context on a link of its own, and the bucket opened with it, as recommended.
func (f *fleet) wellConnected(opts ...nats.Option) (*link.Link, jetstream.KeyValue, election.Option) {
	f.Helper()
	l := f.server.Link(f.T)
	js, err := jetstream.New(natstest.Connect(f.T, l, append([]nats.Option{nats.ReconnectBufSize(-1)}, opts...)...))
	f.Expect(err).NotTo(HaveOccurred())
	bucket, err := js.KeyValue(context.Background(), natstest.BucketName)
	f.Expect(err).NotTo(HaveOccurred())
	return l, bucket, election.WithJetStream(js)
}

func TestCheckHasNothingToSayOfABucketThatIsFitButWhatToExpect(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		_, bucket, js := f.wellConnected()
		found := f.check(reporting{bucket, onFile}, js)
		f.Expect(found).To(HaveLen(4))
		for _, code := range []string{"expect-release", "expect-crash", "expect-eviction", "expect-outage"} {
			f.Expect(found).To(HaveKey(code))
			f.Expect(found[code].Severity).To(Equal(election.SeverityInfo))
		}
	}, func(cfg *jetstream.KeyValueConfig) { republished(cfg); cfg.LimitMarkerTTL = time.Second })
}

func TestCheckNamesWhatIsWrongWithTheBucket(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*jetstream.KeyValueConfig)
		code     string
		severity election.Severity
		says     string
	}{
		"no TTL":            {func(cfg *jetstream.KeyValueConfig) { cfg.TTL, cfg.LimitMarkerTTL = 0, 0 }, "no-ttl", election.SeverityCritical, "no TTL"},
		"TTL too short":     {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 900 * time.Millisecond }, "ttl-out-of-range", election.SeverityCritical, "900ms"},
		"TTL too long":      {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 61 * time.Minute }, "ttl-out-of-range", election.SeverityCritical, "1h1m0s"},
		"short TTL":         {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 1999 * time.Millisecond }, "ttl-short", election.SeverityWarning, "1.999s"},
		"long TTL":          {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 61 * time.Second }, "ttl-long", election.SeverityWarning, "1m1s"},
		"history":           {func(cfg *jetstream.KeyValueConfig) { cfg.History = 3 }, "history", election.SeverityCritical, "history of 3"},
		"memory":            {func(*jetstream.KeyValueConfig) {}, "memory", election.SeverityWarning, "in memory"},
		"long markers":      {func(*jetstream.KeyValueConfig) {}, "markers-long", election.SeverityInfo, "for 10s"},
		"no markers":        {func(cfg *jetstream.KeyValueConfig) { cfg.LimitMarkerTTL = 0 }, "no-markers", election.SeverityWarning, "400ms longer"},
		"no republishing":   {func(cfg *jetstream.KeyValueConfig) { cfg.RePublish = nil }, "republish", election.SeverityInfo, "does not republish"},
		"headers only":      {func(cfg *jetstream.KeyValueConfig) { cfg.RePublish.HeadersOnly = true }, "republish", election.SeverityInfo, "only the headers"},
		"some keys only":    {func(cfg *jetstream.KeyValueConfig) { cfg.RePublish.Source = "$KV." + cfg.Bucket + ".a.>" }, "republish", election.SeverityInfo, "only from $KV.ELECTIONS.a.>"},
		"unused":            {func(*jetstream.KeyValueConfig) {}, "republish-unused", election.SeverityInfo, "election.ELECTIONS.>"},
		"no record fits":    {func(cfg *jetstream.KeyValueConfig) { cfg.MaxValueSize = 100 }, "message-size", election.SeverityCritical, "up to 100 bytes"},
		"long names do not": {func(cfg *jetstream.KeyValueConfig) { cfg.MaxValueSize = 800 }, "message-size", election.SeverityWarning, "up to 800 bytes"},
		"no election fits":  {func(cfg *jetstream.KeyValueConfig) { cfg.MaxBytes = 200 }, "bucket-full", election.SeverityCritical, "0 of at most 200 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				found := f.check(f.bucket)
				f.Expect(found).To(HaveKey(c.code))
				f.Expect(found[c.code].Severity).To(Equal(c.severity))
				f.Expect(found[c.code].Message).To(ContainSubstring(c.says))
			}, republished, c.change)
		})
	}
}

func TestCheckDoesNotRelyOnWhatIsRepublishedInPart(t *testing.T) {
	for name, change := range map[string]func(*jetstream.RePublish){
		"headers only": func(r *jetstream.RePublish) { r.HeadersOnly = true },
		"one key only": func(r *jetstream.RePublish) { r.Source = strings.TrimSuffix(r.Source, ">") + "a" },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				_, bucket, js := f.wellConnected()
				found := f.check(bucket, js)
				f.Expect(found["republish"].Severity).To(Equal(election.SeverityWarning))
				f.Expect(found["expect-release"].Message).To(ContainSubstring("(watch)"))
			}, republished, func(cfg *jetstream.KeyValueConfig) {
				if change(cfg.RePublish); !cfg.RePublish.HeadersOnly {
					cfg.RePublish.Destination = "election.a"
				}
			})
		})
	}
}

func TestCheckNamesWhatIsWrongWithTheStreamAndItsReplicas(t *testing.T) {
	peers := func(p ...*jetstream.PeerInfo) func(*jetstream.StreamInfo) {
		return func(i *jetstream.StreamInfo) {
			i.Config.Replicas = 3
			i.Cluster = &jetstream.ClusterInfo{Name: "east", Leader: "n1", Replicas: p}
		}
	}
	good := &jetstream.PeerInfo{Name: "n2", Current: true, Active: time.Second, Lag: 3}
	cluster := &jetstream.ClusterInfo{Name: "east", Leader: "n1"}
	for name, c := range map[string]struct {
		change   func(*jetstream.StreamInfo)
		code     string // empty: nothing is wrong
		severity election.Severity
		says     string
	}{
		"replicas are well":  {peers(good, good), "", 0, ""},
		"replica catches up": {peers(good, &jetstream.PeerInfo{Name: "n3", Active: 4 * time.Second, Lag: 255}), "", 0, ""},
		"offline":            {peers(good, &jetstream.PeerInfo{Name: "n3", Offline: true, Active: time.Hour}), "replicas-offline", election.SeverityWarning, "1 of 3 replicas are offline: n3 (seen 1h0m0s ago); a majority"},
		"majority offline":   {peers(&jetstream.PeerInfo{Name: "n2", Offline: true}, &jetstream.PeerInfo{Name: "n3", Current: true, Active: 12 * time.Second}), "replicas-offline", election.SeverityCritical, "n3 (seen 12s ago); no majority"},
		"lagging":            {peers(good, &jetstream.PeerInfo{Name: "n3", Current: true, Lag: 256}), "replicas-lagging", election.SeverityWarning, "n3 (by 256 operations"},
		"no leader":          {func(i *jetstream.StreamInfo) { peers(good, good)(i); i.Cluster.Leader = "" }, "no-stream-leader", election.SeverityCritical, "KV_ELECTIONS has no leader"},
		"replicated memory":  {func(i *jetstream.StreamInfo) { peers(good, good)(i); i.Config.Storage = jetstream.MemoryStorage }, "memory-replicated", election.SeverityCritical, "3 replicas"},
		"one replica":        {func(i *jetstream.StreamInfo) { i.Cluster = cluster }, "one-replica", election.SeverityWarning, "cluster east"},
		"two replicas":       {func(i *jetstream.StreamInfo) { i.Cluster, i.Config.Replicas = cluster, 2 }, "even-replicas", election.SeverityWarning, "2 replicas"},
		"mirror":             {func(i *jetstream.StreamInfo) { i.Config.Mirror = &jetstream.StreamSource{Name: "KV_HUB"} }, "copied-bucket", election.SeverityCritical, "mirrors the stream KV_HUB"},
		"sourced":            {func(i *jetstream.StreamInfo) { i.Config.Sources = []*jetstream.StreamSource{{Name: "KV_HUB"}} }, "copied-bucket", election.SeverityCritical, "written to the stream KV_HUB"},
		"sealed":             {func(i *jetstream.StreamInfo) { i.Config.Sealed = true }, "stream-settings", election.SeverityCritical, "is sealed"},
		"no acknowledgement": {func(i *jetstream.StreamInfo) { i.Config.NoAck = true }, "stream-settings", election.SeverityCritical, "acknowledges nothing"},
		"work queue":         {func(i *jetstream.StreamInfo) { i.Config.Retention = jetstream.WorkQueuePolicy }, "stream-settings", election.SeverityCritical, "WorkQueue"},
		"many consumers":     {func(i *jetstream.StreamInfo) { i.State.Consumers = 800 }, "consumers", election.SeverityWarning, "800 watchers or other consumers of the 1000 that servers"},
		"not so many":        {func(i *jetstream.StreamInfo) { i.State.Consumers = 799 }, "", 0, ""},
		"limited consumers":  {func(i *jetstream.StreamInfo) { i.State.Consumers, i.Config.MaxConsumers = 9, 10 }, "consumers", election.SeverityWarning, "9 watchers or other consumers of the 10 that the stream"},
		"keys nearly full":   {func(i *jetstream.StreamInfo) { i.State.Msgs, i.Config.MaxMsgs = 8, 10 }, "bucket-full", election.SeverityWarning, "8 of at most 10 keys"},
		"keys full":          {func(i *jetstream.StreamInfo) { i.State.Msgs, i.Config.MaxMsgs = 10, 10 }, "bucket-full", election.SeverityCritical, "10 of at most 10 keys"},
		"drops the oldest":   {func(i *jetstream.StreamInfo) { i.Config.Discard, i.Config.MaxMsgs = jetstream.DiscardOld, 10 }, "discard-old", election.SeverityWarning, "10 keys"},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				found := f.check(reporting{f.bucket, func(i *jetstream.StreamInfo) { onFile(i); i.Config.Discard = jetstream.DiscardNew; c.change(i) }})
				if c.code == "" {
					f.Expect(found.troubles()).To(BeEmpty())
					return
				}
				f.Expect(found.troubles()).To(Equal([]string{c.code}))
				f.Expect(found[c.code].Severity).To(Equal(c.severity))
				f.Expect(found[c.code].Message).To(ContainSubstring(c.says))
			}, republished)
		})
	}
}

func TestCheckSaysSoWhereTheBucketDoesNotTellOfItsStream(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		found := f.check(reporting{f.bucket, nil})
		f.Expect(found).To(HaveKey("not-inspected"))
		f.Expect(found.troubles()).To(BeEmpty())
	})
}

func TestCheckRefusesWhatStartWould(t *testing.T) {
	for name, change := range map[string]func(*jetstream.KeyValueConfig){
		"fit": withoutMarkers, "history": func(cfg *jetstream.KeyValueConfig) { cfg.History = 2 },
		"no TTL": func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 0 }, "short": func(cfg *jetstream.KeyValueConfig) { cfg.TTL = time.Second - 1 },
		"shortest": func(cfg *jetstream.KeyValueConfig) { cfg.TTL = time.Second }, "longest": func(cfg *jetstream.KeyValueConfig) { cfg.TTL = time.Hour },
		"long": func(cfg *jetstream.KeyValueConfig) { cfg.TTL = time.Hour + 1 },
	} {
		for _, opt := range []election.Option{
			election.WithCampaignInterval(lease - 100*time.Millisecond), election.WithCampaignInterval(lease - 99*time.Millisecond),
			election.WithLeaseMargin(ttl / 2), election.WithSplay(0),
		} {
			t.Run(name, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					refused := false
					for _, code := range []string{"no-ttl", "ttl-out-of-range", "history", "options-unfit"} {
						_, found := f.check(f.bucket, opt)[code]
						refused = refused || found
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
					defer cancel()
					f.Expect(refused).To(Equal(f.candidate("a", opt).Start(ctx) != nil))
				}, change)
			})
		}
	}
}

func TestCheckNamesTheOptionThatDoesNotFit(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		found := f.check(f.bucket, election.WithCampaignInterval(ttl))
		f.Expect(found["options-unfit"].Severity).To(Equal(election.SeverityCritical))
		f.Expect(found["options-unfit"].Message).To(HavePrefix("with the bucket's TTL of 10s"))
		f.Expect(found).NotTo(HaveKey("expect-crash"))
	})
}

func TestCheckSaysWhetherATermSurvivesTheCrashOfAServer(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		says := func(replicas int, opts ...election.Option) string {
			return f.check(reporting{f.bucket, func(i *jetstream.StreamInfo) { onFile(i); i.Config.Replicas = replicas }}, opts...)["expect-outage"].Message
		}
		f.Expect(says(1)).To(And(ContainSubstring("survives 2.3s without"), ContainSubstring("a restart of its server")))
		f.Expect(says(3)).To(And(ContainSubstring("survives 2.3s without"), ContainSubstring("but not the crash")))
		f.Expect(says(3, election.WithCampaignInterval(301*time.Millisecond))).To(ContainSubstring("but not the crash"))
		f.Expect(says(3, election.WithCampaignInterval(300*time.Millisecond))).To(ContainSubstring("and so the crash"))
		f.Expect(f.check(f.bucket)["expect-outage"].Message).NotTo(ContainSubstring("server"), "memory does not survive")
	})
}

func TestCheckNamesWhatIsWrongWithTheConnection(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		check := func(opts ...nats.Option) findings {
			_, bucket, js := f.wellConnected(opts...)
			return f.check(reporting{bucket, onFile}, js)
		}
		f.Expect(check().troubles()).To(BeEmpty())
		found := check(nats.ReconnectBufSize(1 << 20))
		f.Expect(found.troubles()).To(Equal([]string{"reconnect-buffer"}))
		f.Expect(found["reconnect-buffer"].Message).To(ContainSubstring("1048576 bytes"))
		found = check(nats.MaxReconnects(60))
		f.Expect(found.troubles()).To(Equal([]string{"reconnects-limited"}))
		f.Expect(found["reconnects-limited"].Message).To(ContainSubstring("60 attempts"))
		found = check(nats.NoReconnect())
		f.Expect(found.troubles()).To(Equal([]string{"reconnects-limited"}))
		f.Expect(found["reconnects-limited"].Message).To(ContainSubstring("does not reconnect"))
	}, republished)
}

func TestCheckWarnsOfMarkersWhereBareNamesStand(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a")
		f.Expect(f.check(f.bucket)).NotTo(HaveKey("markers-plain-names"), "records stand")
		f.Expect(f.check(f.bucket, election.WithPlainValue())["markers-plain-names"].Message).To(ContainSubstring("WithPlainValue"))
		_, err := f.bucket.PutString(context.Background(), "theirs", "choria.example.net")
		f.Expect(err).NotTo(HaveOccurred())
		found := f.check(f.bucket)["markers-plain-names"]
		f.Expect(found.Severity).To(Equal(election.SeverityWarning))
		f.Expect(found.Message).To(And(ContainSubstring("1 keys (theirs)"), ContainSubstring("for 10s each")))
	})
	onVirtualTime(t, func(f *fleet) {
		f.Expect(f.check(f.bucket)["no-markers"].Severity).To(Equal(election.SeverityWarning))
		f.write("choria.example.net")
		f.Expect(f.check(f.bucket)["no-markers"].Severity).To(Equal(election.SeverityInfo))
		f.Expect(f.check(f.bucket)).NotTo(HaveKey("markers-plain-names"))
	}, withoutMarkers)
}

func TestCheckFailsOnlyWhereItCannotLook(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		ctx := context.Background()
		_, err := election.Check(ctx, nil, election.WithSplay(-1), nil)
		f.Expect(err).To(MatchError(election.ErrInvalidOption))
		f.Expect(err).To(MatchError(And(ContainSubstring("bucket is nil"), ContainSubstring("WithSplay(-1ns)"), ContainSubstring("an option was given nil"))))

		l, bucket, js := f.wellConnected()
		ended, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		l.LoseRequests(func(m link.Message) bool { return strings.HasPrefix(m.Subject, "$KV.") })
		_, err = election.Check(ended, bucket, js)
		f.Expect(err).To(MatchError(context.DeadlineExceeded), "what it did not find out is no finding")

		l.LoseRequests(nil)
		begun := time.Now()
		_, err = election.Check(ctx, bucket, js)
		f.Expect(err).To(MatchError(ContainSubstring("$JS.API.STREAM.INFO.KV_ELECTIONS")))
		f.Expect(err).NotTo(MatchError(election.ErrBucketUnsuitable))
		f.Expect(time.Since(begun)).To(BeNumerically("<=", 2*time.Second))

		admin, err := jetstream.New(f.server.Connect(f.T))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(admin.DeleteKeyValue(ctx, natstest.BucketName)).To(Succeed())
		_, err = election.Check(ctx, f.bucket)
		f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
	}, republished)
}

// atWorst reads what a finding says it takes at worst, for those that hear and those that do not.
func atWorst(g *WithT, found election.Finding) (worst []time.Duration) {
	for _, m := range regexp.MustCompile(`and (\S+) at worst`).FindAllStringSubmatch(found.Message, -1) {
		d, err := time.ParseDuration(m[1])
		g.Expect(err).NotTo(HaveOccurred())
		worst = append(worst, d)
	}
	return worst
}

// The end comes just after a renewal, and after a campaign of the follower, or the expiry does: the worst moment for both.
func TestFailoverTakesNoLongerAndHardlyLessThanCheckExpects(t *testing.T) {
	const justAfter = time.Millisecond
	for event, c := range map[string]struct {
		end   func(f *fleet, a *candidate)
		phase time.Duration // of the follower's campaigns
	}{
		"expect-crash": {func(_ *fleet, a *candidate) { a.link.Cut() }, ttl - interval - justAfter},
		"expect-eviction": {func(f *fleet, a *candidate) {
			a.link.Cut()
			f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
		}, justAfter},
		"expect-release": {func(_ *fleet, a *candidate) { go a.Stop() }, justAfter},
	} {
		for i, follower := range []string{"hears", "polls"} {
			t.Run(event+" "+follower, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					expected := atWorst(f.WithT, f.check(f.bucket)[event])[i]
					a := f.candidate("a").start()
					after(c.phase)
					start := f.candidate
					if follower == "polls" {
						start = f.deafCandidate
					}
					b := start("b").start()
					after(3*interval + 2*justAfter - c.phase)
					c.end(f, a)
					begun := time.Now()
					for !b.IsLeader() && time.Since(begun) < 5*ttl {
						after(time.Millisecond)
					}
					// What is less is the server's lateness, and the answer that is left to chance.
					f.Expect(time.Since(begun)).To(BeNumerically("~", expected-225*time.Millisecond, 230*time.Millisecond))
				})
			})
		}
	}
}
