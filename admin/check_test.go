package admin_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// reporting is a bucket whose description of its stream a test changes; without a change it describes none.
type reporting struct {
	jetstream.KeyValue
	change func(*jetstream.StreamInfo)
}

type reported struct {
	jetstream.KeyValueStatus
	info *jetstream.StreamInfo
}

func (r reported) StreamInfo() *jetstream.StreamInfo { return r.info }

// JetStream returns that of the bucket, if this knows its own.
func (b reporting) JetStream() jetstream.JetStream {
	if known, ok := b.KeyValue.(*election.Bucket); ok {
		return known.JetStream()
	}
	return nil
}

func (b reporting) Status(ctx context.Context) (jetstream.KeyValueStatus, error) {
	status, err := b.KeyValue.Status(ctx)
	if err != nil || b.change == nil {
		return struct{ jetstream.KeyValueStatus }{status}, err // which describes no stream
	}
	info := *status.(*jetstream.KeyValueBucketStatus).StreamInfo()
	b.change(&info)
	return reported{status, &info}, nil
}

// onFile changes what a test server reports to that of a bucket without problems.
func onFile(info *jetstream.StreamInfo) { info.Config.Storage = jetstream.FileStorage }

// findings are what Check returned, by code.
type findings map[string]admin.Finding

func check(f *fleet, bucket jetstream.KeyValue, opts ...election.Option) findings {
	f.Helper()
	return checkKey(f, bucket, "", opts...)
}

// checkKey is check with a key that is probed.
func checkKey(f *fleet, bucket jetstream.KeyValue, key string, opts ...election.Option) findings {
	f.Helper()
	list, err := admin.CheckAs(ctx, bucket, admin.RoleCandidate, key, opts...)
	f.Expect(err).NotTo(HaveOccurred())
	byCode := findings{}
	for i, found := range list {
		f.Expect(found.Message).NotTo(BeEmpty())
		if found.Severity > admin.SeverityInfo {
			f.Expect(found.Fix).NotTo(BeEmpty(), found.Code)
		}
		if i > 0 {
			f.Expect(found.Severity).To(BeNumerically("<=", list[i-1].Severity), "the worst first")
		}
		byCode[found.Code] = found
	}
	f.Expect(byCode).To(HaveLen(len(list)), "each code once")
	return byCode
}

// problems returns the codes that are worse than info.
func (f findings) problems() (codes []string) {
	for code, found := range f {
		if found.Severity > admin.SeverityInfo {
			codes = append(codes, code)
		}
	}
	slices.Sort(codes)
	return codes
}

// connected returns a link, and the bucket as it is opened over that link on a connection with the recommended settings.
func connected(f *fleet, opts ...nats.Option) (*faultproxy.Link, *election.Bucket) {
	f.Helper()
	l := f.Server.Link(f.T)
	return l, f.Open(natstest.Connect(f.T, l, append([]nats.Option{nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(), nats.PingInterval(time.Second)}, opts...)...))
}

func TestCheckOfAFitBucketOnlyForecasts(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		_, bucket := connected(f)
		found := check(f, reporting{bucket, onFile})
		f.Expect(found).To(HaveLen(4))
		for _, code := range []string{"expect-release", "expect-crash", "expect-eviction", "expect-outage"} {
			f.Expect(found).To(HaveKey(code))
			f.Expect(found[code].Severity).To(Equal(admin.SeverityInfo))
		}
	}, func(cfg *jetstream.KeyValueConfig) { republished(cfg); cfg.LimitMarkerTTL = time.Second })
}

func TestCheckNamesWhatIsWrongWithTheBucket(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, c := range map[string]struct {
		change   func(*jetstream.KeyValueConfig)
		code     string
		severity admin.Severity
		says     string
	}{
		"no TTL":            {func(cfg *jetstream.KeyValueConfig) { cfg.TTL, cfg.LimitMarkerTTL = 0, 0 }, "no-ttl", admin.SeverityCritical, "no TTL"},
		"TTL too short":     {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 900 * time.Millisecond }, "ttl-out-of-range", admin.SeverityCritical, "900ms"},
		"TTL too long":      {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 61 * time.Minute }, "ttl-out-of-range", admin.SeverityCritical, "1h1m0s"},
		"short TTL":         {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 1999 * time.Millisecond }, "ttl-short", admin.SeverityWarning, "1.999s"},
		"long TTL":          {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 61 * time.Second }, "ttl-long", admin.SeverityWarning, "1m1s"},
		"history":           {func(cfg *jetstream.KeyValueConfig) { cfg.History = 3 }, "history", admin.SeverityCritical, "history of 3"},
		"memory":            {func(*jetstream.KeyValueConfig) {}, "memory", admin.SeverityWarning, "in memory"},
		"long markers":      {func(*jetstream.KeyValueConfig) {}, "markers-long", admin.SeverityInfo, "for 10s"},
		"no markers":        {func(cfg *jetstream.KeyValueConfig) { cfg.LimitMarkerTTL = 0 }, "no-markers", admin.SeverityWarning, "400ms longer"},
		"releases expire":   {func(cfg *jetstream.KeyValueConfig) { cfg.Metadata = nil }, "releases-expire", admin.SeverityInfo, "stopped in order"},
		"no republishing":   {func(cfg *jetstream.KeyValueConfig) { cfg.RePublish = nil }, "republish", admin.SeverityInfo, "does not republish"},
		"headers only":      {func(cfg *jetstream.KeyValueConfig) { cfg.RePublish.HeadersOnly = true }, "republish", admin.SeverityInfo, "only the headers"},
		"some keys only":    {func(cfg *jetstream.KeyValueConfig) { cfg.RePublish.Source = "$KV." + cfg.Bucket + ".a.>" }, "republish", admin.SeverityInfo, "only from $KV.ELECTIONS.a.>"},
		"unused":            {func(*jetstream.KeyValueConfig) {}, "republish-unused", admin.SeverityInfo, "election.ELECTIONS.>"},
		"no record fits":    {func(cfg *jetstream.KeyValueConfig) { cfg.MaxValueSize = 100 }, "message-size", admin.SeverityCritical, "up to 100 bytes"},
		"long names do not": {func(cfg *jetstream.KeyValueConfig) { cfg.MaxValueSize = 800 }, "message-size", admin.SeverityWarning, "up to 800 bytes"},
		"no election fits":  {func(cfg *jetstream.KeyValueConfig) { cfg.MaxBytes = 200 }, "bucket-full", admin.SeverityCritical, "0 of at most 200 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				found := check(f, f.Bucket)
				f.Expect(found).To(HaveKey(c.code))
				f.Expect(found[c.code].Severity).To(Equal(c.severity))
				f.Expect(found[c.code].Message).To(ContainSubstring(c.says))
			}, republished, c.change)
		})
	}
}

func TestCheckDoesNotRelyOnWhatIsRepublishedInPart(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, change := range map[string]func(*jetstream.RePublish){
		"headers only": func(r *jetstream.RePublish) { r.HeadersOnly = true },
		"one key only": func(r *jetstream.RePublish) { r.Source = strings.TrimSuffix(r.Source, ">") + "a" },
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				_, bucket := connected(f)
				found := check(f, bucket)
				f.Expect(found["republish"].Severity).To(Equal(admin.SeverityWarning))
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
	natstest.SkipIfShort(t)
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
		severity admin.Severity
		says     string
	}{
		"replicas are well":  {peers(good, good), "", 0, ""},
		"replica catches up": {peers(good, &jetstream.PeerInfo{Name: "n3", Active: 4 * time.Second, Lag: 255}), "", 0, ""},
		"offline":            {peers(good, &jetstream.PeerInfo{Name: "n3", Offline: true, Active: time.Hour}), "replicas-offline", admin.SeverityWarning, "1 of 3 replicas are offline: n3 (seen 1h0m0s ago); a majority"},
		"majority offline":   {peers(&jetstream.PeerInfo{Name: "n2", Offline: true}, &jetstream.PeerInfo{Name: "n3", Current: true, Active: 12 * time.Second}), "replicas-offline", admin.SeverityCritical, "n3 (seen 12s ago); no majority"},
		"lagging":            {peers(good, &jetstream.PeerInfo{Name: "n3", Current: true, Lag: 256}), "replicas-lagging", admin.SeverityWarning, "n3 (by 256 operations"},
		"no leader":          {func(i *jetstream.StreamInfo) { peers(good, good)(i); i.Cluster.Leader = "" }, "no-stream-leader", admin.SeverityCritical, "KV_ELECTIONS has no leader"},
		"no leader, which has seen replicas": {func(i *jetstream.StreamInfo) {
			peers(good, &jetstream.PeerInfo{Name: "n3", Active: time.Hour, Lag: 256})(i)
			i.Cluster.Leader = ""
		}, "no-stream-leader", admin.SeverityCritical, "KV_ELECTIONS has no leader"},
		"replicated memory": {func(i *jetstream.StreamInfo) { peers(good, good)(i); i.Config.Storage = jetstream.MemoryStorage }, "memory-replicated", admin.SeverityCritical, "3 replicas"},
		"memory in cluster": {func(i *jetstream.StreamInfo) {
			i.Cluster, i.Config.Storage, i.Config.Replicas = cluster, jetstream.MemoryStorage, 0
		}, "memory-replicated", admin.SeverityCritical, "in the cluster east"},
		"one replica":        {func(i *jetstream.StreamInfo) { i.Cluster = cluster }, "one-replica", admin.SeverityWarning, "cluster east"},
		"two replicas":       {func(i *jetstream.StreamInfo) { i.Cluster, i.Config.Replicas = cluster, 2 }, "even-replicas", admin.SeverityWarning, "2 replicas"},
		"mirror":             {func(i *jetstream.StreamInfo) { i.Config.Mirror = &jetstream.StreamSource{Name: "KV_HUB"} }, "copied-bucket", admin.SeverityCritical, "mirrors the stream KV_HUB"},
		"sourced":            {func(i *jetstream.StreamInfo) { i.Config.Sources = []*jetstream.StreamSource{{Name: "KV_HUB"}} }, "copied-bucket", admin.SeverityCritical, "copies what is written to the stream KV_HUB"},
		"sealed":             {func(i *jetstream.StreamInfo) { i.Config.Sealed = true }, "stream-settings", admin.SeverityCritical, "is sealed"},
		"no acknowledgement": {func(i *jetstream.StreamInfo) { i.Config.NoAck = true }, "stream-settings", admin.SeverityCritical, "acknowledges no writes"},
		"work queue":         {func(i *jetstream.StreamInfo) { i.Config.Retention = jetstream.WorkQueuePolicy }, "stream-settings", admin.SeverityCritical, "WorkQueue"},
		"many consumers":     {func(i *jetstream.StreamInfo) { i.State.Consumers = 800 }, "consumers", admin.SeverityWarning, "800 watchers or other consumers of the 1000 that servers"},
		"many consumers of a server that limits none": {func(i *jetstream.StreamInfo) {
			i.State.Consumers = 2000
			i.Config.Metadata = map[string]string{kv.ServerVersion: "2.14.9"}
		}, "", 0, ""},
		"not so many":       {func(i *jetstream.StreamInfo) { i.State.Consumers = 799 }, "", 0, ""},
		"limited consumers": {func(i *jetstream.StreamInfo) { i.State.Consumers, i.Config.MaxConsumers = 9, 10 }, "consumers", admin.SeverityWarning, "9 watchers or other consumers of the 10 that the stream"},
		"keys nearly full":  {func(i *jetstream.StreamInfo) { i.State.Msgs, i.Config.MaxMsgs = 8, 10 }, "bucket-full", admin.SeverityWarning, "8 of at most 10 keys"},
		"keys full":         {func(i *jetstream.StreamInfo) { i.State.Msgs, i.Config.MaxMsgs = 10, 10 }, "bucket-full", admin.SeverityCritical, "10 of at most 10 keys"},
		"drops the oldest":  {func(i *jetstream.StreamInfo) { i.Config.Discard, i.Config.MaxMsgs = jetstream.DiscardOld, 10 }, "discard-old", admin.SeverityWarning, "10 keys"},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				found := check(f, reporting{f.Bucket, func(i *jetstream.StreamInfo) { onFile(i); i.Config.Discard = jetstream.DiscardNew; c.change(i) }})
				if c.code == "" {
					f.Expect(found.problems()).To(BeEmpty())
					return
				}
				f.Expect(found.problems()).To(Equal([]string{c.code}))
				f.Expect(found[c.code].Severity).To(Equal(c.severity))
				f.Expect(found[c.code].Message).To(ContainSubstring(c.says))
			}, republished)
		})
	}
}

func TestCheckWarnsOfMarkersWhereBareNamesAreStored(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleet) {
		f.Candidate("a").Begin()
		after(interval)
		f.Expect(check(f, f.Bucket)).NotTo(HaveKey("markers-plain-names"), "records are stored")
		f.Expect(check(f, f.Bucket, election.WithPlainValue())["markers-plain-names"].Message).To(ContainSubstring("WithPlainValue"))
		_, err := f.Bucket.PutString(ctx, "theirs", "choria.example.net")
		f.Expect(err).NotTo(HaveOccurred())
		found := check(f, f.Bucket)["markers-plain-names"]
		f.Expect(found.Severity).To(Equal(admin.SeverityWarning))
		f.Expect(found.Message).To(And(ContainSubstring("1 key (\"theirs\")"), ContainSubstring("for 10s each")))
	})
	fleettest.Run(t, func(f *fleet) {
		f.Expect(check(f, f.Bucket)["no-markers"].Severity).To(Equal(admin.SeverityWarning))
		f.Write("choria.example.net")
		f.Expect(check(f, f.Bucket)["no-markers"].Severity).To(Equal(admin.SeverityInfo))
		f.Expect(check(f, f.Bucket)).NotTo(HaveKey("markers-plain-names"))
	}, withoutMarkers)
}

func TestCheckNamesKeysThatOutlivedTheTTL(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		bucket := f.Open(f.Server.Connect(f.T))
		for _, value := range []string{"x", `{"name":"evil","instance":"evil","attempt":"evil.1","host":"h"}`, `{"number":1,"by":"a"}`, "Status: 100"} {
			header := nats.Header{}
			if name, status, empty := strings.Cut(value, ": "); empty { // which a watcher does not show
				header, value = nats.Header{name: {status}}, ""
			}
			publish(f, header, value)
			after(ttl)
			f.Expect(checkKey(f, bucket, key)).NotTo(HaveKey("outlived"), "it may be an expiry that is late")
			after(time.Minute - ttl)
			found := checkKey(f, bucket, key)
			f.Expect(found["outlived"].Severity).To(Equal(admin.SeverityWarning))
			f.Expect(found["outlived"].Message).To(And(ContainSubstring("TTL of 10s"), MatchRegexp(`written 1m\ds ago by`), ContainSubstring(strconv.Quote(key))))
			f.Expect(found["outlived"].Fix).To(ContainSubstring("election-cli evict"))
			f.Expect(found).NotTo(HaveKey("markers-plain-names"), "nobody of Choria wrote it")
		}
	}, republished)
	fleettest.Run(t, func(f *fleet) {
		bucket := f.Open(f.Server.Connect(f.T))
		a := f.Connected("a").Begin()
		after(3 * ttl)
		f.Expect(checkKey(f, bucket, key)).NotTo(HaveKey("outlived"))
		f.Expect(a.Shutdown(ctx)).To(Succeed())
		after(3 * ttl)
		f.Expect(checkKey(f, bucket, key)).NotTo(HaveKey("outlived"), "a release may last")
	}, republished)
}

func TestCheckTakesWhatAGroupStoresForNoBareName(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		for key, value := range map[string]string{
			"shards.plan": `{"number": 1, "by": "a", "keys": {"a": ["0"]}}`, "shards.members.a": `{"name": "a", "keys": ["0"]}`,
		} {
			_, err := f.Bucket.PutString(ctx, key, value)
			f.Expect(err).NotTo(HaveOccurred())
		}
		f.Expect(check(f, f.Bucket)).NotTo(HaveKey("markers-plain-names"))
	})
}

func TestCheckFailsOnlyIfItCannotInspectTheBucket(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		ctx := ctx
		_, err := admin.Check(ctx, nil, election.WithSplay(-1), nil)
		f.Expect(err).To(MatchError(election.ErrInvalidOption))
		f.Expect(err).To(MatchError(And(ContainSubstring("bucket is nil"), ContainSubstring("WithSplay(-1ns)"), ContainSubstring("an option was given nil"))))

		l, bucket := connected(f)
		ended, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		l.LoseRequests(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$KV.") })
		_, err = admin.Check(ended, bucket)
		f.Expect(err).To(MatchError(context.DeadlineExceeded), "what is not found out is no finding")

		l.LoseRequests(nil)
		begun := time.Now()
		_, err = admin.Check(ctx, bucket)
		f.Expect(err).To(MatchError(ContainSubstring("$JS.API.STREAM.INFO.KV_ELECTIONS")))
		f.Expect(err).NotTo(MatchError(election.ErrBucketUnsuitable))
		f.Expect(time.Since(begun)).To(BeNumerically("<=", 2*time.Second))

		js := f.JetStream()
		f.Expect(js.DeleteKeyValue(ctx, natstest.BucketName)).To(Succeed())
		_, err = admin.Check(ctx, f.Bucket)
		f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
	}, republished)
}
