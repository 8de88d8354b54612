package admin_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/timing"
)

func TestCheckForecastsWhetherATermSurvivesTheCrashOfAServer(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		forecast := func(replicas int, opts ...election.Option) string {
			return check(f, reporting{f.Bucket, func(i *jetstream.StreamInfo) { onFile(i); i.Config.Replicas = replicas }}, opts...)["expect-outage"].Message
		}
		f.Expect(forecast(1)).To(And(ContainSubstring("survives 1.6s without"), ContainSubstring("a restart of its server")))
		f.Expect(forecast(3)).To(And(ContainSubstring("survives 1.6s without"), ContainSubstring("but not the crash")))
		f.Expect(forecast(3, election.WithCampaignInterval(401*time.Millisecond))).To(ContainSubstring("but not the crash"))
		f.Expect(forecast(3, election.WithCampaignInterval(400*time.Millisecond))).To(ContainSubstring("and so the crash"))
		f.Expect(check(f, f.Bucket)["expect-outage"].Message).NotTo(ContainSubstring("server"), "memory does not survive")
	}, func(cfg *jetstream.KeyValueConfig) { republished(cfg); cfg.TTL = 11 * time.Second })
}

// The crash of a server that leads the bucket's stream takes writes away for up to 9 s. It begins just before a renewal, the worst moment.
func TestLeaderOutlastsTheCrashOfAServerWithWhatCheckRecommends(t *testing.T) {
	natstest.SkipIfShort(t)
	const outage = 9 * time.Second
	outlasts := func(f *fleet, interval time.Duration, opts ...election.Option) bool {
		a := f.Connected("a", opts...).Begin()
		for !a.IsLeader() {
			after(time.Millisecond)
		}
		after(interval - 2*time.Millisecond) // since the renewal by which it began to lead
		term, _ := a.Term()
		a.Link.Stall()
		after(outage)
		a.Link.Heal()
		after(time.Second)
		return term.Valid()
	}
	replicated := func(f *fleet) jetstream.KeyValue {
		return reporting{f.Open(f.Server.Connect(f.T)), func(i *jetstream.StreamInfo) { onFile(i); i.Config.Replicas = 3 }}
	}
	for name, c := range map[string]struct {
		ttl  time.Duration
		opts []election.Option
		says []string // empty if there is nothing to recommend
	}{
		"TTL 30s": {30 * time.Second, nil, []string{"survives 4.5s", "but not the crash", "use a TTL of 15s and an interval of 3.75s", "survives 9.7s", "13s in the median, in place of 18s"}},
		"TTL 15s": {15 * time.Second, nil, []string{"survives 2.2s", "but not the crash", "use an interval of 3.75s", "survives 9.7s", "13s in the median, in place of 9.2s"}},
		"TTL 15s with a margin": {15 * time.Second, []election.Option{election.WithLeaseMargin(2 * time.Second)},
			[]string{"survives 1.7s", "use an interval of 3.75s (WithCampaignInterval), without WithLeaseMargin", "survives 9.7s"}},
		"what is recommended": {15 * time.Second, []election.Option{election.WithCampaignInterval(3750 * time.Millisecond)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				found := check(f, replicated(f), c.opts...)["expect-outage"]
				interval := timing.DefaultInterval(c.ttl)
				if c.says == nil {
					interval = c.ttl / 4
				}
				f.Expect(outlasts(f, interval, c.opts...)).To(Equal(c.says == nil))
				if c.says == nil {
					f.Expect(found.Message).To(And(HavePrefix("a leader survives 9.7s"), ContainSubstring("and so the crash")))
					f.Expect(found.Fix).To(BeEmpty())
				}
				for _, text := range c.says {
					f.Expect(found.Message + ": " + found.Fix).To(ContainSubstring(text))
				}
			}, func(cfg *jetstream.KeyValueConfig) { republished(cfg); cfg.TTL = c.ttl })
		})
	}
}

// A leader of Choria learns of a loss by its next renewal only, so that candidates beside it must stand down for as long as it waits.
func TestCheckRecommendsNoShortIntervalWhereCandidatesOfChoriaMayCampaign(t *testing.T) {
	for name, c := range map[string]struct {
		ttl  time.Duration
		opts []election.Option
		says string
	}{
		"by default":         {15 * time.Second, nil, "use a TTL of 1m5s and an interval of 48.75s (WithCampaignInterval): then a leader survives 9.7s"},
		"with an interval":   {15 * time.Second, []election.Option{election.WithCampaignInterval(13 * time.Second)}, "use a TTL of 1m5s and an interval of 48.75s"},
		"with a longer TTL":  {2 * time.Minute, []election.Option{election.WithCampaignInterval(100 * time.Second)}, "use an interval of 1m30s (WithCampaignInterval)"},
		"with a long margin": {65 * time.Second, []election.Option{election.WithLeaseMargin(10 * time.Second)}, "use an interval of 48.75s (WithCampaignInterval), without WithLeaseMargin"},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				bucket := reporting{f.Open(f.Server.Connect(f.T)), func(i *jetstream.StreamInfo) { onFile(i); i.Config.Replicas = 3 }}
				found := check(f, bucket, c.opts...)["expect-outage"]
				f.Expect(found.Message).To(ContainSubstring("but not the crash"))
				f.Expect(found.Fix).To(HavePrefix(c.says))
			}, func(cfg *jetstream.KeyValueConfig) { cfg.TTL = c.ttl })
		})
	}
}

// atWorst returns the worst times of a forecast: of candidates that are notified, and of one that is not.
func atWorst(g *WithT, found admin.Finding) (worst []time.Duration) {
	for _, m := range regexp.MustCompile(`and (\S+) at worst`).FindAllStringSubmatch(found.Message, -1) {
		d, err := time.ParseDuration(m[1])
		g.Expect(err).NotTo(HaveOccurred())
		worst = append(worst, d)
	}
	return worst
}

// The term ends just after a renewal, and just after a campaign of the follower, or the expiry comes just then: the worst moment.
func TestFailoverTakesNoLongerAndHardlyLessThanCheckForecasts(t *testing.T) {
	natstest.SkipIfShort(t)
	const justAfter = time.Millisecond
	for event, c := range map[string]struct {
		end   func(f *fleet, a *candidate)
		phase time.Duration // of the follower's campaigns
	}{
		"expect-crash": {func(_ *fleet, a *candidate) { a.Link.Cut() }, ttl - interval - justAfter},
		"expect-eviction": {func(f *fleet, a *candidate) {
			a.Link.Cut()
			f.Expect(f.Bucket.Delete(ctx, key)).To(Succeed())
		}, justAfter},
		"expect-release": {func(_ *fleet, a *candidate) { a.Stop() }, justAfter},
	} {
		for _, follower := range []string{"connected", "notified", "polling"} {
			t.Run(event+", followers "+follower, func(t *testing.T) {
				fleettest.Run(t, func(f *fleet) {
					open := func() (*faultproxy.Link, jetstream.KeyValue) {
						l := f.Server.Link(f.T)
						bucket := f.Open(natstest.Connect(f.T, l))
						if follower == "connected" {
							return l, bucket
						}
						return l, bucket.KeyValue // which does not know its connection
					}
					l, bucket := open()
					expected := atWorst(f.WithT, check(f, bucket)[event])
					a := f.CandidateOn("a", l, bucket).Begin()
					after(c.phase)
					l, bucket = open()
					worst := expected[0]
					if follower == "polling" {
						bucket, worst = fleettest.Unwatchable{KeyValue: bucket}, expected[1]
					}
					b := f.CandidateOn("b", l, bucket).Begin()
					after(3*interval + 2*justAfter - c.phase)
					c.end(f, a)
					begun := time.Now()
					for !b.IsLeader() && time.Since(begun) < 5*ttl {
						after(time.Millisecond)
					}
					chance := ttl/16 + timing.ExpiryLateness // of the answer to the vacancy, and of the server
					if event == "expect-release" {
						chance = 50 * time.Millisecond
					}
					f.Expect(time.Since(begun)).To(And(BeNumerically("<=", worst+5*time.Millisecond), BeNumerically(">=", worst-chance-5*time.Millisecond)))
				}, republished)
			})
		}
	}
}
