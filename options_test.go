package election_test

import (
	"context"
	"github.com/prometheus/client_golang/prometheus"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

func TestEveryProblemOfBadInputIsNamedAtOnceAndNothingIsWritten(t *testing.T) {
	g := NewWithT(t)
	_, err := election.NewElection("", "no key", nil,
		election.WithCampaignInterval(-time.Second),
		election.WithSplay(-2*time.Second),
		election.WithStandDown(-3*time.Second),
		election.WithLeaseMargin(-4*time.Second),
		election.WithReleaseTimeout(-5*time.Second),
		election.WithBackoff(nil),
		election.OnWon(nil), election.OnLost(nil), election.OnCampaign(nil),
		election.OnWonContext(nil), election.OnLostContext(nil),
		election.WithLogger(nil), election.WithDebug(nil),
		election.WithMetadata(map[string]string{"": "x"}),
		nil,
	)
	g.Expect(err).To(MatchError(election.ErrInvalidOption))
	for _, problem := range []string{
		"name is empty", `"no key"`, "bucket is nil", "WithCampaignInterval(-1s)", "WithSplay(-2s)", "WithStandDown(-3s)",
		"WithLeaseMargin(-4s)", "WithReleaseTimeout(-5s)", "WithBackoff was given nil", "OnWon was given nil", "OnLost was given nil",
		"OnWonContext was given nil", "OnLostContext was given nil",
		"OnCampaign was given nil", "WithLogger was given nil", "WithDebug was given nil", `metadata ""="x"`, "an option was given nil",
	} {
		g.Expect(err.Error()).To(ContainSubstring(problem))
	}
}

func TestNamespaceOfMetricsIsTheBeginningOfALegalName(t *testing.T) {
	g := NewWithT(t)
	for _, bad := range []string{"", " ", "9a", "cho ria", "cho-ria", "a:b", "ä", "a.b", "a\n"} {
		_, err := election.NewElection("name", key, &faulty{}, election.WithNamespace(bad))
		g.Expect(err).To(MatchError(election.ErrInvalidOption), "%q", bad)
		g.Expect(err.Error()).To(ContainSubstring("WithNamespace(%q)", bad))
	}
	for _, good := range []string{"choria", "choria_asyncjobs", "_a9", "A"} {
		_, err := election.NewElection("name", key, &faulty{}, election.WithNamespace(good))
		g.Expect(err).NotTo(HaveOccurred(), "%q", good)
	}
}

func TestNamesAndKeysAreCheckedByTheRulesOfTheServer(t *testing.T) {
	g := NewWithT(t)
	bucket := &faulty{}
	for _, bad := range []string{"", " ", "a b", "a.*", ">", ".a", "a.", "a..b", "ä", "a\n", "a:b", strings.Repeat("a", 256)} {
		_, err := election.NewElection("name", bad, bucket)
		g.Expect(err).To(MatchError(election.ErrInvalidOption), "key %q", bad)
	}
	for _, good := range []string{"a", "a.b/c_d=e-F0", "CRON"} {
		_, err := election.NewElection("name", good, bucket)
		g.Expect(err).NotTo(HaveOccurred(), "key %q", good)
	}
	for _, bad := range []string{"", " a", "a ", "a\x00", "a\nb", "\xff", strings.Repeat("a", 256)} {
		_, err := election.NewElection(bad, key, bucket)
		g.Expect(err).To(MatchError(election.ErrInvalidOption), "name %q", bad)
	}
	for _, good := range []string{"host.example.net", "Jürgen's host", `{"name":1}`, strings.Repeat("a", 255)} {
		_, err := election.NewElection(good, key, bucket)
		g.Expect(err).NotTo(HaveOccurred(), "name %q", good)
	}
}

func TestOptionThatDoesNotFitTheTTLIsRefusedAtTheStart(t *testing.T) {
	for name, bad := range map[string]election.Option{
		"no room to try again":      election.WithCampaignInterval(lease - 50*time.Millisecond),
		"longer than the lease":     election.WithCampaignInterval(ttl),
		"far too long":              election.WithCampaignInterval(math.MaxInt64),
		"a margin of half the TTL":  election.WithLeaseMargin(ttl / 2),
		"a margin beyond the TTL":   election.WithLeaseMargin(math.MaxInt64),
		"a margin too near the end": election.WithLeaseMargin(ttl/4 - 50*time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				c := f.candidate("a", bad)
				writes := 0
				c.link.OnRequest(func(m link.Message) {
					if toKey(m) {
						writes++
					}
				})
				err := c.Start(context.Background())
				f.Expect(err).To(MatchError(election.ErrInvalidOption))
				f.Expect(err.Error()).To(ContainSubstring("10s"))
				f.Expect(writes).To(BeZero())
			})
		})
	}
}

func TestIntervalThatLeavesRoomForOneMoreTryIsTaken(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.candidate("a", election.WithCampaignInterval(lease-100*time.Millisecond)).start()
		after(5 * ttl)
		f.Expect(c.seen()).To(HaveLen(1))
	})
}

func TestUnsuitableBucketIsRefusedAtTheStartWithEveryReason(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*jetstream.KeyValueConfig)
		says   []string
	}{
		"no TTL and a history": {func(cfg *jetstream.KeyValueConfig) { cfg.TTL, cfg.History = 0, 5 }, []string{"has no TTL", "history of 5"}},
		"TTL too short":        {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 500 * time.Millisecond }, []string{"TTL of 500ms"}},
		"TTL too long":         {func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 2 * time.Hour }, []string{"TTL of 2h0m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				err := f.candidate("a").Start(context.Background())
				f.Expect(err).To(MatchError(election.ErrBucketUnsuitable))
				for _, reason := range c.says {
					f.Expect(err.Error()).To(ContainSubstring(reason))
				}
				f.Expect(f.record()).To(BeEmpty())
			}, c.change)
		})
	}
}

func TestBucketThatIsGoneAtTheStartIsUnsuitable(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.candidate("a")
		js, err := jetstream.New(f.server.Connect(f.T))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(js.DeleteKeyValue(context.Background(), natstest.BucketName)).To(Succeed())
		f.Expect(c.Start(context.Background())).To(MatchError(election.ErrBucketUnsuitable))
	})
}

func TestBucketThatLostItsTTLIsLeftWithoutAKeyThatNeverExpires(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		f.options = []func(*jetstream.KeyValueConfig){func(cfg *jetstream.KeyValueConfig) { cfg.TTL = 0 }}
		f.remake()
		after(5 * ttl)
		f.Expect(<-a.result).To(MatchError(election.ErrBucketUnsuitable))
		f.Expect(f.record()).To(BeEmpty())
	})
}

func TestLimitsOfTheTTLWork(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, time.Hour} {
		t.Run(limit.String(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				c := f.candidate("a").start()
				after(limit * 3 / 4)
				f.Expect(c.IsLeader()).To(BeTrue())
				after(20 * limit)
				f.Expect(c.seen()).To(HaveLen(1))
			}, func(cfg *jetstream.KeyValueConfig) { cfg.TTL = limit })
		})
	}
}

func TestDebugFunctionReceivesTheLog(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		var lines []string
		c := f.candidate("a", election.WithLogger(log.logger()), election.WithDebug(func(format string, a ...any) {
			lines = append(lines, strings.ReplaceAll(format, "%s", a[0].(string)))
		})).start()
		after(interval)
		c.Stop()
		f.Expect(lines).To(ContainElement("State changed election=scheduler name=a state=leader reason=stood-down term=1"))
		f.Expect(log.count(`msg="State changed" election=scheduler name=a state=leader reason=stood-down term=1`)).To(Equal(1))
	})
}

func TestNilInAnInterfaceIsNil(t *testing.T) {
	g := NewWithT(t)
	var bucket *faulty
	_, err := election.NewElection("a", key, bucket)
	g.Expect(err).To(MatchError(ContainSubstring("bucket is nil")))

	onVirtualTime(t, func(f *fleet) {
		var r *prometheus.Registry
		a := f.leading("a", election.WithRegisterer(r))
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestPlainNameThatReadsAsARecordIsRefused(t *testing.T) {
	g := NewWithT(t)
	name := `{"name":"x","instance":"y","attempt":"z","released":"2000-01-01T00:00:00Z"}`
	_, err := election.NewElection(name, key, &faulty{}, election.WithPlainValue())
	g.Expect(err).To(MatchError(election.ErrInvalidOption))
}
