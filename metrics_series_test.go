package election_test

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
		onVirtualTime(t, func(f *fleet) {
			plain, named := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
			f.candidate("a", election.WithRegisterer(plain)).start()
			f.candidate("a", append(c.opts, election.WithRegisterer(named), election.WithMetricsNamespace(c.namespace))...).start()
			after(interval)
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
	onVirtualTime(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		js, err := jetstream.New(f.Server.Connect(f.T))
		f.Expect(err).NotTo(HaveOccurred())
		other, err := election.CreateBucket(context.Background(), js, election.BucketConfig{Name: "OTHER", TTL: ttl, Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		f.candidate("a", election.WithRegisterer(r)).start()
		f.candidateOn("a", nil, other, election.WithRegisterer(r)).start()
		after(2 * interval)
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
func valueOf(f *fleet, r prometheus.Gatherer, name string) (sum float64) {
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
	onVirtualTime(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.connected("a", election.WithRegisterer(r))
		a.Pause()
		a.start()
		after(interval)
		f.Expect(valueOf(f, r, "election_paused")).To(BeEquivalentTo(1), "before it leads")
		a.Resume()
		f.Expect(valueOf(f, r, "election_paused")).To(BeZero())
		after(2 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.Pause()
		f.Expect(valueOf(f, r, "election_paused")).To(BeEquivalentTo(1), "of a leader too")
		a.Resume()
		f.Expect(valueOf(f, r, "election_paused")).To(BeZero())
	})
}

func TestHealthyMetricFollowsTheHealthCheck(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		sick := atomic.Bool{}
		a := f.candidate("a", election.WithRegisterer(r), election.WithHealthCheck(func(context.Context) error {
			if sick.Load() {
				return errors.New("sick")
			}
			return nil
		})).start()
		after(2 * interval)
		f.Expect(valueOf(f, r, "election_healthy")).To(BeEquivalentTo(1))
		sick.Store(true)
		after(interval)
		f.Expect(a.Status().Unhealthy).To(Equal("sick"))
		f.Expect(valueOf(f, r, "election_healthy")).To(BeZero())
		sick.Store(false)
		after(2 * interval)
		f.Expect(valueOf(f, r, "election_healthy")).To(BeEquivalentTo(1))
	})
}

func TestHealthyMetricFollowsTheAnswerToProbes(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		hang, unblock := f.Hanging()
		a, bucket := f.faultyCandidate("a", election.WithRegisterer(r))
		a.start()
		after(2 * interval)
		healthz := func() int {
			w := httptest.NewRecorder()
			a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			return w.Code
		}
		f.Expect(healthz()).To(Equal(http.StatusOK))
		f.Expect(valueOf(f, r, "election_healthy")).To(BeEquivalentTo(1))
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			hang()
			return update()
		})
		after(10 * ttl)
		f.Expect(healthz()).To(Equal(http.StatusServiceUnavailable))
		f.Expect(valueOf(f, r, "election_healthy")).To(BeZero())
		unblock()
		after(3 * ttl)
		f.Expect(healthz()).To(Equal(http.StatusOK))
		f.Expect(valueOf(f, r, "election_healthy")).To(BeEquivalentTo(1))
	})
}

func TestLeaseExpiryMetricIsTheDeadlineOfTheLease(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.candidate("a", election.WithRegisterer(r)).start()
		const name = "election_lease_expiry_timestamp_seconds"
		seconds := func(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
		won := time.Now()
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		f.Expect(valueOf(f, r, name)).To(Equal(seconds(won.Add(lease))), "a leader-elect holds the key too")
		after(interval)
		f.Expect(valueOf(f, r, name)).To(Equal(seconds(won.Add(interval+lease))), "each renewal moves it")
		after(time.Second)
		f.Expect(valueOf(f, r, name)).To(Equal(seconds(won.Add(interval+lease))), "time alone does not")
		term, _ := a.Term()
		f.Expect(valueOf(f, r, name)).To(Equal(seconds(term.Deadline())))
		a.link.Cut()
		after(lease - time.Second - instant)
		f.Expect(valueOf(f, r, name)).NotTo(BeZero())
		after(instant)
		f.Expect(valueOf(f, r, name)).To(BeZero(), "the lease is over")
	})
}

func TestBuildInfoIsOneSeriesForAllCandidatesAndGoesWithTheLast(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.candidate("a", election.WithRegisterer(r)).start()
		b := f.candidate("b", election.WithRegisterer(r)).start()
		after(interval)
		info := scrape(f, r)["election_build_info"].GetMetric()
		f.Expect(info).To(HaveLen(1))
		f.Expect(info[0].GetGauge().GetValue()).To(BeEquivalentTo(1))
		f.Expect(label(info[0], "version")).To(Equal(version.String()))
		f.Expect(label(info[0], "goversion")).To(Equal(runtime.Version()))
		a.shutdown()
		f.Expect(scrape(f, r)).To(HaveKey("election_build_info"))
		b.shutdown()
		f.Expect(scrape(f, r)).To(BeEmpty())
	})
}

func TestMetricsIdentityStandsInForTheName(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.candidate("web-1-4711", election.WithRegisterer(r), election.WithMetricsIdentity("web-1"), election.WithChoriaMetrics("choria")).start()
		after(interval)
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
	onVirtualTime(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		f.candidate("a", election.WithRegisterer(r)).start()
		after(3 * interval)
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
	onVirtualTime(t, func(f *fleet) {
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
		a := f.candidate("a", election.WithRegisterer(r)).start()
		f.Expect(series()).To(Equal(30), "leader-elect")
		after(interval)
		a.link.Cut()
		after(ttl)
		a.link.Heal()
		after(3 * ttl)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(3 * ttl)
		b := f.candidate("b").start()
		after(ttl)
		_ = a.Resign(context.Background())
		after(ttl)
		b.shutdown()
		after(3 * ttl)
		f.Write("stranger")
		after(3 * ttl)
		f.Expect(series()).To(And(BeNumerically(">", 30), BeNumerically("<=", maxSeries)))
		f.Logf("%d series", series())
	})
}
