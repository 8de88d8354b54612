package election_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestNewElectionNamesEveryProblem(t *testing.T) {
	g := NewWithT(t)
	_, err := election.NewElection("", "no key", nil,
		election.WithCampaignInterval(-time.Second),
		election.WithSplay(-2*time.Second),
		election.WithStandDown(-3*time.Second),
		election.WithLeaseMargin(-4*time.Second),
		election.WithReleaseTimeout(-5*time.Second),
		election.WithBackoff(nil),
		election.OnWon(nil), election.OnLost(nil), election.OnCampaign(nil),

		election.WithLogger(nil), election.WithDebug(nil),
		election.WithMetadata(map[string]string{"": "x"}),
		nil,
	)
	g.Expect(err).To(MatchError(election.ErrInvalidOption))
	for _, problem := range []string{
		"name is empty", `"no key"`, "bucket is nil", "WithCampaignInterval(-1s)", "WithSplay(-2s)", "WithStandDown(-3s)",
		"WithLeaseMargin(-4s)", "WithReleaseTimeout(-5s)", "WithBackoff was given nil", "OnWon was given nil", "OnLost was given nil",

		"OnCampaign was given nil", "WithLogger was given nil", "WithDebug was given nil", `metadata ""="x"`, "an option was given nil",
	} {
		g.Expect(err.Error()).To(ContainSubstring(problem))
	}
}

func TestNamespaceOfMetricsIsValidated(t *testing.T) {
	g := NewWithT(t)
	for _, bad := range []string{" ", "9a", "cho ria", "cho-ria", "a:b", "ä", "a.b", "a\n"} {
		_, err := election.NewElection("name", Key, unopened{}, election.WithRegisterer(prometheus.NewRegistry()), election.WithMetricsNamespace(bad), election.WithChoriaMetrics(bad))
		g.Expect(err).To(MatchError(election.ErrInvalidOption), "%q", bad)
		g.Expect(err.Error()).To(ContainSubstring("WithMetricsNamespace: %q", bad))
		g.Expect(err.Error()).To(ContainSubstring("WithChoriaMetrics: %q", bad))
	}
	for _, good := range []string{"", "shop", "choria_asyncjobs", "_a9", "A"} {
		_, err := election.NewElection("name", Key, unopened{}, election.WithRegisterer(prometheus.NewRegistry()), election.WithMetricsNamespace(good))
		g.Expect(err).NotTo(HaveOccurred(), "%q", good)
	}
}

// unopened is a bucket that knows nothing but its name.
type unopened struct{ jetstream.KeyValue }

func (unopened) Bucket() string { return "ELECTIONS" }

func TestOptionsForMetricsAreValidated(t *testing.T) {
	g, r := NewWithT(t), prometheus.NewRegistry()
	for says, opts := range map[string][]election.Option{
		`WithChoriaMetrics: ""`:         {election.WithRegisterer(r), election.WithChoriaMetrics("")},
		"give both":                     {election.WithChoriaMetrics("choria")},
		`WithMetricsIdentity("")`:       {election.WithMetricsIdentity("")},
		`WithMetricsIdentity("a\x00b")`: {election.WithMetricsIdentity("a\x00b")},
	} {
		_, err := election.NewElection("name", Key, unopened{}, opts...)
		g.Expect(err).To(MatchError(election.ErrInvalidOption), says)
		g.Expect(err).To(MatchError(ContainSubstring(says)))
	}
}

func TestNamesAndKeysAreValidated(t *testing.T) {
	g := NewWithT(t)
	bucket := &Faulty{}
	for _, bad := range []string{"", " ", "a b", "a.*", ">", ".a", "a.", "a..b", "ä", "a\n", "a:b", strings.Repeat("a", 256)} {
		_, err := election.NewElection("name", bad, bucket)
		g.Expect(err).To(MatchError(election.ErrInvalidOption), "key %q", bad)
	}
	for _, good := range []string{"a", "a.b/c_d=e-F0", "CRON"} {
		_, err := election.NewElection("name", good, bucket)
		g.Expect(err).NotTo(HaveOccurred(), "key %q", good)
	}
	for _, bad := range []string{"", " a", "a ", "a\x00", "a\nb", "\xff", strings.Repeat("a", 256)} {
		_, err := election.NewElection(bad, Key, bucket)
		g.Expect(err).To(MatchError(election.ErrInvalidOption), "name %q", bad)
	}
	for _, good := range []string{"host.example.net", "Jürgen's host", `{"name":1}`, strings.Repeat("a", 255)} {
		_, err := election.NewElection(good, Key, bucket)
		g.Expect(err).NotTo(HaveOccurred(), "name %q", good)
	}
}

func TestStartRefusesAnOptionThatDoesNotFitTheTTL(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, bad := range map[string]election.Option{
		"no room to try again":      election.WithCampaignInterval(Lease - 50*time.Millisecond),
		"longer than the lease":     election.WithCampaignInterval(TTL),
		"far too long":              election.WithCampaignInterval(math.MaxInt64),
		"a margin of half the TTL":  election.WithLeaseMargin(TTL / 2),
		"a margin beyond the TTL":   election.WithLeaseMargin(math.MaxInt64),
		"a margin too near the end": election.WithLeaseMargin(TTL/4 - 50*time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				c := f.Candidate("a", bad)
				writes := 0
				c.Link.OnRequest(func(m faultproxy.Message) {
					if ToKey(m) {
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

func TestIntervalThatLeavesRoomForARetryIsAccepted(t *testing.T) {
	Run(t, func(f *Fleet) {
		c := f.Candidate("a", election.WithCampaignInterval(Lease-100*time.Millisecond)).Begin()
		After(5 * TTL)
		f.Expect(c.Seen()).To(HaveLen(1))
	})
}

func TestDebugFunctionReceivesTheLog(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		var lines []string
		c := f.Candidate("a", election.WithLogger(log.Logger()), election.WithDebug(func(format string, a ...any) {
			lines = append(lines, strings.ReplaceAll(format, "%s", a[0].(string)))
		})).Begin()
		After(Interval)
		c.End()
		f.Expect(lines).To(ContainElement("State changed election=scheduler name=a state=leader reason=stood-down term=1"))
		f.Expect(log.Count(`msg="State changed" election=scheduler name=a state=leader reason=stood-down term=1`)).To(Equal(1))
	})
}

func TestNilPointerInAnInterfaceCountsAsNil(t *testing.T) {
	g := NewWithT(t)
	var bucket *Faulty
	_, err := election.NewElection("a", Key, bucket)
	g.Expect(err).To(MatchError(ContainSubstring("bucket is nil")))

	Run(t, func(f *Fleet) {
		var r *prometheus.Registry
		a := f.Leading("a", election.WithRegisterer(r))
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestPlainNameThatReadsAsARecordIsRefused(t *testing.T) {
	g := NewWithT(t)
	name := `{"name":"x","instance":"y","attempt":"z","released":"2000-01-01T00:00:00Z"}`
	_, err := election.NewElection(name, Key, &Faulty{}, election.WithPlainValue())
	g.Expect(err).To(MatchError(election.ErrInvalidOption))
}

func TestHandoverOptionsAreValidated(t *testing.T) {
	Run(t, func(f *Fleet) {
		for _, c := range []struct {
			says string
			opts []election.Option
		}{
			{`WithRelinquish("0s")`, []election.Option{election.WithRelinquish("0s")}},
			{`WithRelinquish("at tea time")`, []election.Option{election.WithRelinquish("at tea time")}},
			{`WithRelinquish("CRON_TZ=UTC")`, []election.Option{election.WithRelinquish("CRON_TZ=UTC")}},
			{`WithRelinquish("TZ=Asia/Tokyo ")`, []election.Option{election.WithRelinquish("TZ=Asia/Tokyo ")}},
			{`WithRelinquish("0 0 30 2 *") never comes`, []election.Option{election.WithRelinquish("0 0 30 2 *")}},
			{"give WithJetStream", []election.Option{election.WithRelinquish("1h")}},
			{"give WithJetStream", []election.Option{election.WithPreemption()}},
			{"WithHealthThreshold(0)", []election.Option{election.WithHealthThreshold(0)}},
			{"WithHealthThreshold(1001)", []election.Option{election.WithHealthThreshold(1001)}},
			{"WithHealthCheck was given nil", []election.Option{election.WithHealthCheck(nil)}},
		} {
			_, err := election.NewElection("a", Key, f.Bucket, c.opts...)
			f.Expect(err).To(MatchError(election.ErrInvalidOption), c.says)
			f.Expect(err).To(MatchError(ContainSubstring(c.says)))
		}
	})
}
