package reports_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/version"
)

func TestNamespaceIsThePrefixOfAllMetricsAndNoneExistsTwice(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, c := range []struct {
		namespace string
		opts      []election.Option
		added     []string
	}{
		{"shop", nil, nil},
		{"shop", []election.Option{election.WithChoriaMetrics("choria")}, []string{"choria_election_campaigns", "choria_election_interval_seconds", "choria_election_leader"}},
		{"choria", []election.Option{election.WithChoriaMetrics("choria")}, []string{"choria_election_campaigns"}}, // the others have these names already
	} {
		Run(t, func(f *Fleet) {
			plain, named := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
			f.Candidate("a", election.WithRegisterer(plain)).Begin()
			f.Candidate("a", append(c.opts, election.WithRegisterer(named), election.WithMetricsNamespace(c.namespace))...).Begin()
			After(Interval)
			want := append([]string{}, c.added...)
			for name := range scrape(f, plain) {
				want = append(want, c.namespace+"_"+name)
			}
			var have []string
			for name := range scrape(f, named) {
				have = append(have, name)
			}
			f.Expect(have).To(ConsistOf(want))
		})
	}
}

func TestElectionsOfOneKeyInTwoBucketsHaveSeriesOfTheirOwn(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		js := f.JetStream()
		other, err := election.CreateBucket(context.Background(), js, election.BucketConfig{Name: "OTHER", TTL: TTL, Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		f.Candidate("a", election.WithRegisterer(r)).Begin()
		f.CandidateOn("a", nil, other, election.WithRegisterer(r)).Begin()
		After(2 * Interval)
		for name, family := range scrape(f, r) {
			if name == "election_build_info" {
				f.Expect(family.GetMetric()).To(HaveLen(1), "it is of the process")
				continue
			}
			buckets := map[string]int{}
			for _, m := range family.GetMetric() {
				buckets[label(m, "bucket")]++
			}
			f.Expect(buckets).To(And(HaveLen(2), HaveKey("ELECTIONS"), HaveKey("OTHER")), name)
			f.Expect(buckets["ELECTIONS"]).To(Equal(buckets["OTHER"]), name)
		}
		f.Expect(valueOf(f, r, "election_leader")).To(BeEquivalentTo(2), "one leads in each")
	})
}

// label returns the value of a label; "" if there is none.
func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// valueOf returns the sum of a gauge's series; -1 if there is none.
func valueOf(f *Fleet, r prometheus.Gatherer, name string) (sum float64) {
	f.Helper()
	family, found := scrape(f, r)[name]
	if !found {
		return -1
	}
	for _, m := range family.GetMetric() {
		sum += m.GetGauge().GetValue()
	}
	return sum
}

func TestPausedMetricFollowsPauseAndResume(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.Connected("a", election.WithRegisterer(r))
		a.Pause()
		a.Begin()
		After(Interval)
		f.Expect(valueOf(f, r, "election_paused")).To(BeEquivalentTo(1), "before it leads")
		a.Resume()
		f.Expect(valueOf(f, r, "election_paused")).To(BeZero())
		After(2 * Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.Pause()
		f.Expect(valueOf(f, r, "election_paused")).To(BeEquivalentTo(1), "of a leader too")
		a.Resume()
		f.Expect(valueOf(f, r, "election_paused")).To(BeZero())
	})
}

func TestHealthyMetricFollowsTheHealthCheck(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		sick := atomic.Bool{}
		a := f.Candidate("a", election.WithRegisterer(r), election.WithHealthCheck(func(context.Context) error {
			if sick.Load() {
				return errors.New("sick")
			}
			return nil
		})).Begin()
		After(2 * Interval)
		f.Expect(valueOf(f, r, "election_healthy")).To(BeEquivalentTo(1))
		sick.Store(true)
		After(Interval)
		f.Expect(a.Status().Unhealthy).To(Equal("sick"))
		f.Expect(valueOf(f, r, "election_healthy")).To(BeZero())
		sick.Store(false)
		After(2 * Interval)
		f.Expect(valueOf(f, r, "election_healthy")).To(BeEquivalentTo(1))
	})
}

func TestHealthyMetricFollowsTheAnswerToProbes(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		hang, unblock := f.Hanging()
		a, bucket := f.FaultyCandidate("a", election.WithRegisterer(r))
		a.Begin()
		After(2 * Interval)
		healthz := func() int {
			w := httptest.NewRecorder()
			a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			return w.Code
		}
		f.Expect(healthz()).To(Equal(http.StatusOK))
		f.Expect(valueOf(f, r, "election_healthy")).To(BeEquivalentTo(1))
		bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			hang()
			return update()
		})
		After(10 * TTL)
		f.Expect(healthz()).To(Equal(http.StatusServiceUnavailable))
		f.Expect(valueOf(f, r, "election_healthy")).To(BeZero())
		unblock()
		After(3 * TTL)
		f.Expect(healthz()).To(Equal(http.StatusOK))
		f.Expect(valueOf(f, r, "election_healthy")).To(BeEquivalentTo(1))
	})
}

func TestLeaseExpiryMetricIsTheDeadlineOfTheLease(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.Candidate("a", election.WithRegisterer(r)).Begin()
		const name = "election_lease_expiry_timestamp_seconds"
		seconds := func(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
		won := time.Now()
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		f.Expect(valueOf(f, r, name)).To(Equal(seconds(won.Add(Lease))), "a leader-elect holds the key too")
		After(Interval)
		f.Expect(valueOf(f, r, name)).To(Equal(seconds(won.Add(Interval+Lease))), "each renewal moves it")
		After(time.Second)
		f.Expect(valueOf(f, r, name)).To(Equal(seconds(won.Add(Interval+Lease))), "time alone does not")
		term, _ := a.Term()
		f.Expect(valueOf(f, r, name)).To(Equal(seconds(term.Deadline())))
		a.Link.Cut()
		After(Lease - time.Second - Instant)
		f.Expect(valueOf(f, r, name)).NotTo(BeZero())
		After(Instant)
		f.Expect(valueOf(f, r, name)).To(BeZero(), "the lease is over")
	})
}

func TestBuildInfoIsOneSeriesForAllCandidatesAndGoesWithTheLast(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.Candidate("a", election.WithRegisterer(r)).Begin()
		b := f.Candidate("b", election.WithRegisterer(r)).Begin()
		After(Interval)
		info := scrape(f, r)["election_build_info"].GetMetric()
		f.Expect(info).To(HaveLen(1))
		f.Expect(info[0].GetGauge().GetValue()).To(BeEquivalentTo(1))
		f.Expect(label(info[0], "version")).To(Equal(version.String()))
		f.Expect(label(info[0], "goversion")).To(Equal(runtime.Version()))
		a.End()
		f.Expect(scrape(f, r)).To(HaveKey("election_build_info"))
		b.End()
		f.Expect(scrape(f, r)).To(BeEmpty())
	})
}

func TestMetricsIdentityStandsInForTheName(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.Candidate("web-1-4711", election.WithRegisterer(r), election.WithMetricsIdentity("web-1"), election.WithChoriaMetrics("choria")).Begin()
		After(Interval)
		f.Expect(a.Status().Name).To(Equal("web-1-4711"))
		for name, family := range scrape(f, r) {
			for _, m := range family.GetMetric() {
				if name != "election_build_info" {
					f.Expect(label(m, "identity")).To(Equal("web-1"), name)
				}
			}
		}
	})
}

func TestRenewalsAreANativeHistogramBesideFewBuckets(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		f.Candidate("a", election.WithRegisterer(r)).Begin()
		After(3 * Interval)
		h := scrape(f, r)["election_renewal_duration_seconds"].GetMetric()[0].GetHistogram()
		f.Expect(h.GetSampleCount()).NotTo(BeZero())
		f.Expect(h.GetSchema()).To(BeEquivalentTo(3), "neighbouring buckets differ by a tenth")
		f.Expect(h.GetZeroCount() + uint64(len(h.GetPositiveSpan()))).NotTo(BeZero())
		f.Expect(len(h.GetBucket())+1).To(BeNumerically("<=", 6), "with the one for +Inf")
	})
}

// maxSeries is how many series a candidate may have, in a life with every common event. docs/REFERENCE.md states the figures of this test.
const maxSeries = 33

func TestCandidateHasFewSeries(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		series := func() (n int) {
			for name, family := range scrape(f, r) {
				for _, m := range family.GetMetric() {
					switch h := m.GetHistogram(); {
					case name == "election_build_info": // one for all candidates
					case h != nil:
						n += len(h.GetBucket()) + len([]string{"+Inf", "_sum", "_count"})
					default:
						n++
					}
				}
			}
			return n
		}
		a := f.Candidate("a", election.WithRegisterer(r)).Begin()
		f.Expect(series()).To(Equal(30), "leader-elect")
		After(Interval)
		a.Link.Cut()
		After(TTL)
		a.Link.Heal()
		After(3 * TTL)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(3 * TTL)
		b := f.Candidate("b").Begin()
		After(TTL)
		_ = a.Resign(context.Background())
		After(TTL)
		b.End()
		After(3 * TTL)
		f.Write("stranger")
		After(3 * TTL)
		f.Expect(series()).To(And(BeNumerically(">", 30), BeNumerically("<=", maxSeries)))
		f.Logf("%d series", series())
	})
}
