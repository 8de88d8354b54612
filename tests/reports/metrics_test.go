package reports_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestScrapeShowsTheStateAtItsInstant(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.Candidate("a", election.WithRegisterer(r)).Begin()
		gauges := func(state election.State, remaining, start, leads, term string) {
			f.Helper()
			f.Expect(a.State()).To(Equal(state))
			f.Expect(a.IsLeader()).To(Equal(state == election.LeaderState))
			f.Expect(testutil.GatherAndCompare(r, strings.NewReader(`
# HELP election_leader Whether this candidate leads, 1 or 0.
# TYPE election_leader gauge
election_leader{bucket="ELECTIONS",election="scheduler",identity="a"} `+map[bool]string{true: "1", false: "0"}[a.IsLeader()]+`
# HELP election_leads_since_timestamp_seconds Since when leadership counts, as Unix time, 0 unless this candidate leads.
# TYPE election_leads_since_timestamp_seconds gauge
election_leads_since_timestamp_seconds{bucket="ELECTIONS",election="scheduler",identity="a"} `+leads+`
# HELP election_lease_remaining_seconds What is left of the lease on the key, 0 unless it is held.
# TYPE election_lease_remaining_seconds gauge
election_lease_remaining_seconds{bucket="ELECTIONS",election="scheduler",identity="a"} `+remaining+`
# HELP election_lease_seconds How long a lease lasts from a renewal, 0 until the bucket was reached.
# TYPE election_lease_seconds gauge
election_lease_seconds{bucket="ELECTIONS",election="scheduler",identity="a"} 9
# HELP election_state The state of this candidate: 1 candidate, 2 leader, 3 leader-elect.
# TYPE election_state gauge
election_state{bucket="ELECTIONS",election="scheduler",identity="a"} `+strconv.Itoa(int(state))+`
# HELP election_term Number of the term for which the key is held, 0 unless it is.
# TYPE election_term gauge
election_term{bucket="ELECTIONS",election="scheduler",identity="a"} `+term+`
# HELP election_term_start_timestamp_seconds When the key was won by the present leader or leader-elect, as Unix time, 0 unless it is this candidate.
# TYPE election_term_start_timestamp_seconds gauge
election_term_start_timestamp_seconds{bucket="ELECTIONS",election="scheduler",identity="a"} `+start+`
`), "election_leader", "election_state", "election_lease_seconds", "election_lease_remaining_seconds", "election_term", "election_term_start_timestamp_seconds", "election_leads_since_timestamp_seconds")).To(Succeed())
		}
		gauges(election.LeaderElectState, "9", "9.466848e+08", "0", "1")
		f.Expect(testutil.GatherAndCompare(r, strings.NewReader(`
# HELP election_interval_seconds Time from the last campaign or renewal to the next.
# TYPE election_interval_seconds gauge
election_interval_seconds{bucket="ELECTIONS",election="scheduler",identity="a"} 7.5
`), "election_interval_seconds")).To(Succeed())
		After(Interval)
		gauges(election.LeaderState, "9", "9.466848e+08", "9.466848075e+08", "1")
		After(time.Second)
		gauges(election.LeaderState, "8", "9.466848e+08", "9.466848075e+08", "1")
		a.Link.Cut()
		After(Lease - time.Second - Instant)
		gauges(election.LeaderState, "1e-09", "9.466848e+08", "9.466848075e+08", "1")
		After(Instant)
		gauges(election.CandidateState, "0", "0", "0", "0")
	})
}

func TestNoScrapeShowsALeaderThatDoesNotLead(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, disturb := range map[string]func(f *Fleet, a *Candidate, bucket *Faulty, hang func()){
		"its renewal hangs, and so does its loop": func(_ *Fleet, _ *Candidate, bucket *Faulty, hang func()) {
			bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
				hang()
				return update()
			})
		},
		"its key is overwritten": func(f *Fleet, _ *Candidate, _ *Faulty, _ func()) { f.Write("stranger") },
		"it resigns": func(f *Fleet, a *Candidate, _ *Faulty, _ func()) {
			f.Expect(a.Resign(context.Background())).To(Succeed())
		},
		"it stops": func(_ *Fleet, a *Candidate, _ *Faulty, _ func()) { a.End() },
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				r := prometheus.NewPedanticRegistry()
				hang, unblock := f.Hanging()
				a, bucket := f.FaultyCandidate("a", election.WithRegisterer(r), election.WithChoriaMetrics("choria"))
				a.Begin()
				seen := map[bool]int{}
				look := func() {
					f.Helper()
					families := scrape(f, r)
					for _, name := range []string{"election_leader", "choria_election_leader"} {
						value := 0.0 // a missing series counts as 0
						if family, ok := families[name]; ok {
							value = family.GetMetric()[0].GetGauge().GetValue()
						}
						f.Expect(value == 1).To(Equal(a.IsLeader()), "%s after %v", name, time.Since(a.Begun))
					}
					seen[a.IsLeader()]++
				}
				lookOn := func(d time.Duration) {
					f.Helper()
					for range d / ReadyTimeout {
						look()
						After(ReadyTimeout)
					}
				}
				lookOn(2 * Interval)
				f.Expect(seen).To(And(HaveKey(true), HaveKey(false)))
				clear(seen)
				remaining := a.Status().LeaseRemaining
				disturb(f, a, bucket, hang)
				synctest.Wait() // a term may end between the scrape and the question
				look()
				After(remaining - Instant)
				look()
				After(Instant)
				look()
				lookOn(TTL)
				unblock()
				lookOn(3 * TTL)
				f.Expect(seen).To(HaveKey(false))
			})
		})
	}
}

func TestMetricsCountCampaignsTransitionsAndFailures(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.Unnotified("a", election.WithRegisterer(r)).Begin()
		After(Interval + TTL)
		a.Link.LoseReplies(faultproxy.Once(ToKeyReply))
		After(TTL)
		f.Write("stranger")
		After(Interval)
		f.Expect(testutil.GatherAndCompare(r, strings.NewReader(`
# HELP election_campaigns_total Campaigns made, by the state in which they were made.
# TYPE election_campaigns_total counter
election_campaigns_total{bucket="ELECTIONS",election="scheduler",identity="a",state="candidate"} 1
election_campaigns_total{bucket="ELECTIONS",election="scheduler",identity="a",state="leader"} 4
election_campaigns_total{bucket="ELECTIONS",election="scheduler",identity="a",state="leader-elect"} 1
# HELP election_interval_seconds Time from the last campaign or renewal to the next.
# TYPE election_interval_seconds gauge
election_interval_seconds{bucket="ELECTIONS",election="scheduler",identity="a"} 7.5
# HELP election_renewal_failures_total Tries to renew the lease that failed, by the reason.
# TYPE election_renewal_failures_total counter
election_renewal_failures_total{bucket="ELECTIONS",election="scheduler",identity="a",reason="conflict"} 1
election_renewal_failures_total{bucket="ELECTIONS",election="scheduler",identity="a",reason="disconnected"} 0
election_renewal_failures_total{bucket="ELECTIONS",election="scheduler",identity="a",reason="timeout"} 1
# HELP election_transitions_total Changes of state, by the new state and the reason.
# TYPE election_transitions_total counter
election_transitions_total{bucket="ELECTIONS",election="scheduler",identity="a",reason="deadline",to="candidate"} 0
election_transitions_total{bucket="ELECTIONS",election="scheduler",identity="a",reason="overwritten",to="candidate"} 1
election_transitions_total{bucket="ELECTIONS",election="scheduler",identity="a",reason="started",to="candidate"} 1
election_transitions_total{bucket="ELECTIONS",election="scheduler",identity="a",reason="stood-down",to="leader"} 1
election_transitions_total{bucket="ELECTIONS",election="scheduler",identity="a",reason="vacant",to="leader-elect"} 1
`), "election_campaigns_total", "election_interval_seconds", "election_renewal_failures_total", "election_transitions_total")).To(Succeed())
		f.Expect(testutil.CollectAndCount(r, "election_renewal_duration_seconds")).To(Equal(1))
	})
}

func TestElectionsShareARegistryAndUnregister(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.Candidate("a", election.WithRegisterer(r)).Begin()
		b := f.Candidate("b", election.WithRegisterer(r)).Begin()
		After(Interval)
		problems, err := testutil.GatherAndLint(r)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(problems).To(BeEmpty())
		f.Expect(testutil.GatherAndCount(r, "election_leader")).To(Equal(2))
		a.End()
		f.Expect(testutil.GatherAndCount(r, "election_leader")).To(Equal(1))
		b.End()
		f.Expect(testutil.GatherAndCount(r)).To(BeZero())
		f.Expect(testutil.GatherAndCount(prometheus.DefaultGatherer.(*prometheus.Registry), "election_leader", "election_campaigns_total")).To(BeZero())
	})
}

func TestCandidatesOfOneNameCannotShareARegistry(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		f.Candidate("a", election.WithRegisterer(r)).Begin()
		err := f.Candidate("a", election.WithRegisterer(r)).Start(context.Background())
		f.Expect(err).To(MatchError(election.ErrInvalidOption))
		f.Expect(err.Error()).To(ContainSubstring(`candidate "a"`))
	})
}

func TestNoRegistererIsNoMetrics(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a", election.WithRegisterer(nil)).Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestChoriasNamesOfMetricsHaveTheSameValues(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.Candidate("a", election.WithRegisterer(r), election.WithChoriaMetrics("choria")).Begin()
		agree := func(leader float64) {
			f.Helper()
			families := scrape(f, r)
			for old, now := range map[string]string{
				"choria_election_campaigns": "election_campaigns_total", "choria_election_leader": "election_leader",
				"choria_election_interval_seconds": "election_interval_seconds",
			} {
				f.Expect(families).To(HaveKey(old))
				f.Expect(families[old].GetType()).To(Equal(families[now].GetType()))
				f.Expect(families[old].GetMetric()).To(Equal(families[now].GetMetric()), old)
			}
			f.Expect(families["choria_election_leader"].GetMetric()[0].GetGauge().GetValue()).To(Equal(leader))
		}
		agree(0)
		After(Interval)
		agree(1)
		f.Expect(testutil.GatherAndCompare(r, strings.NewReader(`
# HELP choria_election_campaigns Choria's name of election_campaigns_total.
# TYPE choria_election_campaigns counter
choria_election_campaigns{bucket="ELECTIONS",election="scheduler",identity="a",state="candidate"} 1
choria_election_campaigns{bucket="ELECTIONS",election="scheduler",identity="a",state="leader"} 0
choria_election_campaigns{bucket="ELECTIONS",election="scheduler",identity="a",state="leader-elect"} 1
# HELP choria_election_interval_seconds Choria's name of election_interval_seconds.
# TYPE choria_election_interval_seconds gauge
choria_election_interval_seconds{bucket="ELECTIONS",election="scheduler",identity="a"} 7.5
# HELP choria_election_leader Choria's name of election_leader.
# TYPE choria_election_leader gauge
choria_election_leader{bucket="ELECTIONS",election="scheduler",identity="a"} 1
`), "choria_election_campaigns", "choria_election_interval_seconds", "choria_election_leader")).To(Succeed())
		a.Link.Cut()
		After(Lease - Instant)
		agree(1)
		After(Instant)
		agree(0)
		a.End()
		f.Expect(scrape(f, r)).To(BeEmpty())
	})
}

// scrape returns the metrics of a registry by name.
func scrape(f *Fleet, r prometheus.Gatherer) map[string]*dto.MetricFamily {
	f.Helper()
	gathered, err := r.Gather()
	f.Expect(err).NotTo(HaveOccurred())
	families := map[string]*dto.MetricFamily{}
	for _, m := range gathered {
		families[m.GetName()] = m
	}
	return families
}

func TestChoriasNamesOfMetricsExistOnlyOnDemand(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		f.Candidate("a", election.WithRegisterer(r)).Begin()
		f.Candidate("b", election.WithRegisterer(r), election.WithChoriaMetrics("choria_asyncjobs")).Begin()
		f.Candidate("c", election.WithRegisterer(nil), election.WithChoriaMetrics("choria")).Begin()
		After(Interval)
		families := scrape(f, r)
		f.Expect(families["election_leader"].GetMetric()).To(HaveLen(2))
		f.Expect(families["choria_asyncjobs_election_leader"].GetMetric()).To(HaveLen(1))
		f.Expect(families).NotTo(HaveKey("choria_election_leader"))
	})
}
