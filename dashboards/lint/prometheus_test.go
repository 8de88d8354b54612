package lint

import (
	"cmp"
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/natstest"
)

const (
	ttl      = 6 * time.Second
	patience = 30 * time.Second
	scrape   = 250 * time.Millisecond
)

// host is a candidate that shows its metrics to Prometheus.
type host struct {
	*election.Election
	link     *faultproxy.Link
	registry *prometheus.Registry
	metrics  *httptest.Server
}

// newHost returns a host of that name that stands in the election.
func newHost(t *testing.T, s *natstest.Server, name string) *host {
	g, l, registry := NewWithT(t), s.Link(t), prometheus.NewRegistry()
	nc := natstest.Connect(t, l)
	e, err := election.NewElection(name, "jobs", s.Bucket(t, nc, ttl, natstest.WithMarkers), election.WithRegisterer(registry),
		election.WithCampaignInterval(ttl/10)) // which leaves a busy host time to renew
	g.Expect(err).NotTo(HaveOccurred())
	h := &host{Election: e, link: l, registry: registry, metrics: httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))}
	go func() { _ = e.Start(context.Background()) }()
	t.Cleanup(h.metrics.Close)
	t.Cleanup(l.Close)
	t.Cleanup(e.Stop)
	return h
}

// crash leaves nothing of the host that can be reached.
func (h *host) crash() {
	h.link.Cut()
	h.metrics.CloseClientConnections()
	h.metrics.Close()
}

// fleet shows the metrics of all hosts at one target, also of one that crashed, as they are at one instant.
func fleet(t *testing.T, hosts []*host) *httptest.Server {
	all := prometheus.Gatherers{}
	for _, h := range hosts {
		all = append(all, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			families, err := h.registry.Gather()
			return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
				return f.GetName() == "election_build_info" // is the same for all, and one process has it once
			}), err
		}))
	}
	s := httptest.NewServer(promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := all.Gather()
		for err == nil {
			// One is gathered after another. If all is the same a moment later, it was so at the instant between the two.
			var again []*dto.MetricFamily
			if again, err = all.Gather(); err == nil && led(families) == led(again) {
				return again, nil
			}
			families = again
		}
		return nil, err
	}), promhttp.HandlerOpts{}))
	t.Cleanup(s.Close)
	return s
}

// led says who leads, and for which term: one that led for the same term twice did so in between.
func led(families []*dto.MetricFamily) string {
	var b strings.Builder
	for _, f := range families {
		if f.GetName() == "election_leader" || f.GetName() == "election_term" {
			for _, m := range f.GetMetric() {
				fmt.Fprintln(&b, m.GetLabel(), m.GetGauge().GetValue())
			}
		}
	}
	return b.String()
}

// leader waits until one of the hosts, other than that one, was seen to lead for a second.
func (s *server) leader(hosts []*host, other *host) (leader *host) {
	s.Eventually(func() bool {
		for _, h := range hosts {
			seen := s.query(fmt.Sprintf(`sum_over_time(election_leader{instance=%q}[1s]) >= 3`, h.metrics.Listener.Addr()))
			if h != other && len(seen) == 1 {
				leader = h
				return true
			}
		}
		return false
	}).WithTimeout(patience).WithPolling(scrape).Should(BeTrue())
	return leader
}

func TestPrometheusSeesOneLeaderThroughFirstElectionHandoverAndCrash(t *testing.T) {
	nats := natstest.StartTCP(t)
	var hosts []*host
	for _, name := range []string{"a", "b", "c"} {
		hosts = append(hosts, newHost(t, nats, name))
	}
	s := startPrometheus(t, hosts)

	first := s.leader(hosts, nil)
	s.Eventually(s.firing("ElectionNoLeader")).WithTimeout(patience).WithPolling(scrape).Should(BeFalse())
	s.Expect(first.Resign(context.Background())).To(Succeed())
	second := s.leader(hosts, first)
	second.crash()
	s.Eventually(s.firing("ElectionNoLeader")).WithTimeout(patience).WithPolling(scrape).Should(BeTrue())
	s.Eventually(s.firing("ElectionScrapeMissing")).WithTimeout(patience).WithPolling(scrape).Should(BeTrue())
	s.leader(hosts, second)
	s.Eventually(s.firing("ElectionNoLeader")).WithTimeout(patience).WithPolling(scrape).Should(BeFalse())

	s.Expect(s.query(`max_over_time(ALERTS{alertname="ElectionTwoLeaders"}[10m])`)).To(BeEmpty())
	s.oneLeader()
	s.oneLeaderAtATime()
	for _, expr := range []string{ // what is counted by the hand of the test
		`sum(election_transitions_total{job="hosts", reason="resigned"}) == 1`,
		`sum(max_over_time(election_transitions_total{job="hosts", to="leader"}[10m])) == 3`,
		`election:leaders:sum{job="hosts", bucket="ELECTIONS", election="jobs"} == 1`,
		`election:candidates:count{job="hosts", bucket="ELECTIONS", election="jobs"} == 2`,
	} {
		s.eventually(expr).Should(HaveLen(1), expr)
	}
	s.drawsEveryPanel()
}

// eventually waits for what the expression evaluates to: for a moment it is nothing after a scrape that came too late.
func (s *server) eventually(expr string) AsyncAssertion {
	return s.Eventually(func() []series { return s.query(expr) }).WithTimeout(patience).WithPolling(scrape)
}

// empty lists the panels that show nothing in a fleet without trouble and without fenced writes.
var empty = []string{"Writes stored by leader and stream", "Writes fenced off or failed"}

// drawsEveryPanel expects that Prometheus has data for each panel of the dashboard, as Grafana asks for them. A query fails the test
// unless Prometheus takes the expression.
func (s *server) drawsEveryPanel() {
	fill := strings.NewReplacer("$job", "hosts", "$instance", ".+", "$bucket", ".+", "$election", ".+", "$__rate_interval", "10m")
	for _, p := range boardOf(s.WithT).Panels {
		for _, target := range p.Targets {
			expr := fill.Replace(target.Expr)
			if slices.Contains(empty, p.Title) || strings.Contains(target.LegendFormat, "unhealthy") {
				s.Expect(s.query(expr)).To(BeEmpty(), "%s: %s", p.Title, expr)
				continue
			}
			s.eventually(expr).ShouldNot(BeEmpty(), "%s: %s", p.Title, expr)
		}
	}
	for _, expr := range []string{ // quantiles of the native histogram, and of the buckets where there is none
		`histogram_count(sum(election_renewal_duration_seconds{job="hosts"})) > 0`, `election:renewal_duration_seconds:p99_5m{job="hosts"} >= 0`,
	} {
		s.eventually(expr).ShouldNot(BeEmpty(), expr)
	}
}

// oneLeaderAtATime expects that never more than one led. It asks the job whose one target shows all hosts at one instant, in
// steps so short that none of its samples is passed over.
func (s *server) oneLeaderAtATime() {
	leaders := `sum(election_leader{job="fleet"})`
	steps := fmt.Sprintf("[10m:%dms]", (scrape / 5).Milliseconds())
	most := s.query("max_over_time(" + leaders + steps + ")")
	s.Expect(most).To(HaveLen(1))
	s.Expect(most[0].Value.value).To(BeEquivalentTo(1), "leaders at one instant")
	seen := s.query(`count(max_over_time(election_leader{job="fleet"}[10m]) == 1)`)
	s.Expect(seen).To(HaveLen(1))
	s.Expect(seen[0].Value.value).To(BeNumerically(">=", 2), "leadership moved before its eyes")
}

// oneLeader expects of all that was scraped that nobody led once another who led later had done so. A sum would not do: the
// hosts are scraped one after another, so that it counts two for a moment after a handover; see oneLeaderAtATime.
func (s *server) oneLeader() {
	type leader struct {
		identity string
		at, term float64
	}
	leaders := s.query(`election_leader{job="hosts"}[10m]`) // first, for a scrape between the two queries shows in the second alone
	terms := map[string]map[float64]float64{}
	for _, one := range s.query(`election_term{job="hosts"}[10m]`) {
		terms[one.Metric["identity"]] = map[float64]float64{}
		for _, v := range one.Values {
			terms[one.Metric["identity"]][v.at] = v.value
		}
	}
	var all []leader
	for _, one := range leaders {
		for _, v := range one.Values {
			if v.value == 1 {
				identity := one.Metric["identity"]
				s.Expect(terms[identity][v.at]).NotTo(BeZero(), "a leader has a term")
				all = append(all, leader{identity, v.at, terms[identity][v.at]})
			}
		}
	}
	slices.SortFunc(all, func(a, b leader) int { return cmp.Compare(a.at, b.at) })
	s.Expect(len(all)).To(BeNumerically(">=", 9), "three times three")
	for i := range all[1:] {
		s.Expect(all[i+1].term).To(BeNumerically(">=", all[i].term), "%v led after %v", all[i+1], all[i])
	}
}
