package serving

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/collectors"
	"github.com/natscampaign/election/observe"
)

// observed is a collector of metrics about the elections that a page observes. Their names begin with election_observed, and never are
// those of a candidate: beside the candidates' own series, an observer's would look like a second leader.
type observed struct{ *statusPage }

var (
	descUp = prometheus.NewDesc("election_observed_up",
		"Whether the elections of the bucket are observed, 1 or 0.", nil, nil)
	descLeader = prometheus.NewDesc("election_observed_leader",
		"The holder of the key: 1 if its leadership counts, 0 if it is the leader-elect or has not renewed in time. There is no such series while nobody holds the key.", []string{"election", "identity"}, nil)
	descLeaders = prometheus.NewDesc("election_observed_leaders",
		"Whether the election has a leader, 1 or 0.", []string{"election"}, nil)
	descTerm = prometheus.NewDesc("election_observed_term",
		"Number of the leader's term, 0 without a leader.", []string{"election"}, nil)
	descLeft = prometheus.NewDesc("election_observed_lease_remaining_seconds",
		"Time until the key expires by the server's clock, 0 if nobody holds it.", []string{"election"}, nil)
	descPaused = prometheus.NewDesc("election_observed_paused",
		"Whether an operator has paused the election, 1 or 0.", []string{"election"}, nil)
	descEnded = prometheus.NewDesc("election_observed_ended_timestamp_seconds",
		"When the last leader released the key, by the server's clock. There is no such series while a candidate holds the key, nor after a crash or an eviction.", []string{"election", "identity"}, nil)
	descEvents = prometheus.NewDesc("election_observed_events_total",
		"Changes of leadership since the page began to observe them, by kind.", []string{"election", "kind"}, nil)
)

// Describe makes observed a collector.
func (o observed) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUp, descLeader, descLeaders, descTerm, descLeft, descPaused, descEnded, descEvents} {
		ch <- d
	}
}

// Collect makes observed a collector.
func (o observed) Collect(ch chan<- prometheus.Metric) {
	o.askBucket(o.ctx, false) // nobody may be reading the page
	l := o.elections
	l.mu.Lock()
	defer l.mu.Unlock()
	gauge(ch, descUp, collectors.OneIf(!l.observedSince.IsZero() && o.observes()))
	if l.observedSince.IsZero() {
		return // the page knows nothing of the elections
	}
	now := l.clock.Now()
	for key, e := range l.byKey {
		e.collect(ch, terminal.Printable(key), now)
	}
}

// collect collects the metrics of one election.
func (e *entry) collect(ch chan<- prometheus.Metric, key string, now time.Time) {
	leads := e.condition(now) == led
	var term uint64
	var left time.Duration
	if e.holder != nil {
		gauge(ch, descLeader, collectors.OneIf(leads), key, e.holder.Name)
		left = max(0, e.holder.Expires.Sub(now))
		if leads {
			term = e.holder.Term
		}
	}
	gauge(ch, descLeaders, collectors.OneIf(leads), key)
	gauge(ch, descTerm, float64(term), key)
	gauge(ch, descLeft, left.Seconds(), key)
	gauge(ch, descPaused, collectors.OneIf(e.pause != nil), key)
	if e.ended != nil {
		gauge(ch, descEnded, float64(e.ended.At.UnixMilli())/1000, key, e.ended.Leader.Name)
	}
	for kind := observe.Elected; kind <= observe.Evicted; kind++ {
		if kind != observe.Renewed {
			ch <- prometheus.MustNewConstMetric(descEvents, prometheus.CounterValue, float64(e.counts[kind]), key, kind.String())
		}
	}
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}
