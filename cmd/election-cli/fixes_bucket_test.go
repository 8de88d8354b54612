package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/test/clitest"
)

// bucketFixes are the troubles of a bucket whose fixes are more than a command that changes it.
var bucketFixes = map[string]map[string]func(*fixing){
	"copied-bucket": {
		"it mirrors a bucket": func(f *fixing) {
			hub := f.otherBucket("HUB", election.BucketConfig{})
			f.remake(func(c *jetstream.StreamConfig) {
				*c = jetstream.StreamConfig{Name: c.Name, MaxMsgsPerSubject: 1, Mirror: &jetstream.StreamSource{Name: "KV_HUB"}}
			})
			bucket := cli.DefaultBucket
			f.mend(func(fix string) {
				f.Expect(fix).To(Equal("campaign in the bucket that it mirrors, by --bucket HUB"))
				bucket = "HUB"
				f.leads(f.campaignIn(hub, "web-1"))
			}, "jobs", "--bucket", &bucket)
		},
		"it mirrors another stream": func(f *fixing) {
			_, err := f.Client.JetStream.CreateStream(f.T.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
			f.must(err)
			f.remake(func(c *jetstream.StreamConfig) {
				*c = jetstream.StreamConfig{Name: c.Name, MaxMsgsPerSubject: 1, Mirror: &jetstream.StreamSource{Name: "ORDERS"}}
			})
			f.mendInAnotherBucket("campaign in another bucket, which 'election-cli bucket add --bucket LEADER_ELECTION_2' creates")
		},
		"it copies what is written to another": func(f *fixing) {
			hub := f.otherBucket("HUB", election.BucketConfig{})
			f.remake(func(c *jetstream.StreamConfig) {
				c.Sources = []*jetstream.StreamSource{{Name: "KV_HUB", SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: "$KV.HUB.>", Destination: "$KV.LEADER_ELECTION.>"}}}}
			})
			_, err := hub.Put(f.T.Context(), "mail", []byte("stranger"))
			f.must(err)
			f.Eventually(func() bool { return f.HasRecord("mail") }).Should(BeTrue())
			f.must(f.Bucket.Purge(f.T.Context(), "mail"))
			f.mend(func(fix string) {
				f.runs(fix, "remove its sources: run 'election-cli bucket edit --bucket LEADER_ELECTION'")
				f.leads(f.campaign("web-1"))
				_, err := hub.Put(f.T.Context(), "mail", []byte("stranger"))
				f.must(err)
				f.Consistently(func() bool { return f.HasRecord("mail") }, "200ms").Should(BeFalse())
			}, "jobs")
		},
	},
	"markers-plain-names": {"a candidate writes its bare name": func(f *fixing) {
		f.leads(f.campaign("web-1", election.WithPlainValue()))
		f.mendInAnotherBucket("have them campaign in another bucket, which 'election-cli bucket add --bucket LEADER_ELECTION_CHORIA --ttl 4s --choria-compatible' creates", election.WithPlainValue())
		f.Eventually(func() any { return f.lookUp(f.code) }).Should(BeNil(), "nor in the bucket where they were")
	}},
	"not-pinned": {"the server is of an earlier version": func(f *fixing) {
		f.changeStream(func(c *jetstream.StreamConfig) { c.Metadata = nil })
		f.url = f.asAnEarlierVersion()
		f.mend(func(fix string) { f.runs(fix, "run 'election-cli bucket edit --bucket LEADER_ELECTION'") })
	}},
	"consumers": {
		"nobody needs them": func(f *fixing) {
			f.changeStream(func(c *jetstream.StreamConfig) { c.MaxConsumers = 10 })
			f.consume(8)
			f.mend(func(fix string) {
				f.Expect(fix).To(HavePrefix("delete those that nobody needs, which 'nats consumer ls KV_LEADER_ELECTION' lists"))
				for name := range f.stream().ConsumerNames(f.T.Context()).Name() {
					f.must(f.stream().DeleteConsumer(f.T.Context(), name))
				}
			})
		},
		"of programs with a bare bucket": func(f *fixing) {
			f.changeStream(func(c *jetstream.StreamConfig) { c.MaxConsumers = 10 })
			f.consume(7)
			bare, err := f.Client.JetStream.KeyValue(f.T.Context(), cli.DefaultBucket)
			f.must(err)
			e := clitest.Campaign(f.T, struct{ jetstream.KeyValue }{bare}, "web-1", "jobs")
			f.Eventually(func() string { return e.Status().Notifications }).Should(Equal("watch"))
			f.mend(func(fix string) {
				f.Expect(fix).To(ContainSubstring("; in programs with a bare bucket use OpenBucket or WithJetStream, which takes no consumer where the bucket republishes; or "))
				clitest.Shutdown(f.T, e)
				e = f.campaign("web-1")
				f.Eventually(func() string { return e.Status().Notifications }).Should(Equal("republish"))
			})
		},
		"the stream is limited": func(f *fixing) {
			f.changeStream(func(c *jetstream.StreamConfig) { c.MaxConsumers = 10 })
			f.consume(8)
			f.mend(func(fix string) { f.raiseMaxConsumers(fix) })
		},
		"the server has a limit": func(f *fixing) {
			f.consume(800)
			f.mend(func(fix string) { f.raiseMaxConsumers(fix) })
		},
		"the account is limited": func(f *fixing) {
			f.limitConsumers(10)
			f.consume(8)
			f.mend(func(fix string) {
				f.Expect(fix).To(HaveSuffix("; or raise max_consumers of the account"))
				f.limitConsumers(20)
			})
		},
		"the account is limited to little more than the stream": func(f *fixing) {
			f.limitConsumers(12)
			f.changeStream(func(c *jetstream.StreamConfig) { c.MaxConsumers = 10 })
			f.consume(8)
			f.mend(func(fix string) { f.raiseMaxConsumers(fix) })
		},
	},
}

// stream returns the stream behind the default bucket.
func (f *fixing) stream() jetstream.Stream {
	f.T.Helper()
	s, err := f.Client.JetStream.Stream(f.T.Context(), "KV_LEADER_ELECTION")
	f.must(err)
	return s
}

// changeStream changes the stream behind the default bucket, as other tools do.
func (f *fixing) changeStream(change func(*jetstream.StreamConfig)) {
	f.T.Helper()
	lose(f.Fixture, change)
}

// remake makes the default bucket again, with a change.
func (f *fixing) remake(change func(*jetstream.StreamConfig)) {
	f.T.Helper()
	cfg := f.stream().CachedInfo().Config
	f.RemoveBucket()
	change(&cfg)
	_, err := f.Client.JetStream.CreateStream(f.T.Context(), cfg)
	f.must(err)
}

// otherBucket makes a bucket.
func (f *fixing) otherBucket(name string, cfg election.BucketConfig) *election.Bucket {
	f.T.Helper()
	cfg.Name, cfg.TTL = name, f.ttl
	bucket, err := election.CreateBucket(f.T.Context(), f.Client.JetStream, cfg)
	f.must(err)
	return bucket
}

// mendInAnotherBucket follows a fix that has candidates campaign in a bucket that a command makes.
func (f *fixing) mendInAnotherBucket(fix string, opts ...election.Option) {
	f.T.Helper()
	bucket := cli.DefaultBucket
	f.mend(func(found string) {
		f.runs(found, fix)
		bucket = regexp.MustCompile(`--bucket (\w+)`).FindStringSubmatch(found)[1]
		other, err := f.Client.OpenBucket(f.T.Context(), bucket)
		f.must(err)
		for _, e := range f.candidates {
			clitest.Shutdown(f.T, e)
		}
		f.leads(f.campaignIn(other, "web-1", opts...))
	}, "jobs", "--bucket", &bucket)
}

// consume adds so many consumers to the stream behind the bucket.
func (f *fixing) consume(n int) {
	f.T.Helper()
	for i := range n {
		_, err := f.stream().CreateConsumer(f.T.Context(), jetstream.ConsumerConfig{Name: fmt.Sprint("consumer-", i), InactiveThreshold: time.Hour, MemoryStorage: true})
		f.must(err)
	}
}

// raiseMaxConsumers does what the command does that a fix names.
func (f *fixing) raiseMaxConsumers(fix string) {
	f.T.Helper()
	m := regexp.MustCompile(`; or raise the limit: 'nats stream edit KV_LEADER_ELECTION --max-consumers (\d+)'$`).FindStringSubmatch(fix)
	f.Expect(m).NotTo(BeNil(), fix)
	f.changeStream(func(c *jetstream.StreamConfig) { c.MaxConsumers, _ = strconv.Atoi(m[1]) })
}

// limitConsumers limits the consumers of each stream of the account.
func (f *fixing) limitConsumers(most int) {
	f.T.Helper()
	account, err := f.server.LookupAccount("ELECTIONS")
	f.must(err)
	f.must(account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: most}}))
}

// asAnEarlierVersion returns the address of the server behind a proxy that has it say that its version is 2.14.5. It says no more than that: internal/test/matrix
// has the trouble itself, on servers of that time.
func (f *fixing) asAnEarlierVersion() string {
	f.T.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	f.T.Cleanup(func() { _ = listener.Close() })
	earlier := fmt.Sprintf("2.14.%0*d", len(server.VERSION)-len("2.14."), 5) // as long, so that messages have the length that they state
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", strings.TrimPrefix(f.server.ClientURL(), "nats://"))
			if err != nil {
				_ = client.Close()
				return
			}
			go func() {
				_, _ = io.Copy(upstream, client)
				_ = upstream.Close()
			}()
			go func() {
				defer func() { _ = client.Close() }()
				for lines := bufio.NewReader(upstream); ; {
					line, err := lines.ReadString('\n') // which no JSON contains
					if _, failed := io.WriteString(client, strings.ReplaceAll(line, server.VERSION, earlier)); err != nil || failed != nil {
						return
					}
				}
			}()
		}
	}()
	return "nats://" + listener.Addr().String()
}
