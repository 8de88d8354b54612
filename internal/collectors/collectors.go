// Package collectors has collectors for Prometheus that client_golang lacks: one that shows metrics by several names, and one that many
// users of a registerer share.
package collectors

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Renamed shows the counters or gauges of a collector, and shows them again by other names. It reads each metric once for all names, so
// that the names never differ in value.
type Renamed struct {
	prometheus.Collector
	Names []*prometheus.Desc // the other names, with the labels of the collector
}

// Describe implements prometheus.Collector.
func (r Renamed) Describe(ch chan<- *prometheus.Desc) {
	r.Collector.Describe(ch)
	for _, d := range r.Names {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (r Renamed) Collect(ch chan<- prometheus.Metric) {
	if len(r.Names) == 0 {
		r.Collector.Collect(ch)
		return
	}
	own := make(chan prometheus.Metric)
	go func() {
		defer close(own)
		r.Collector.Collect(own)
	}()
	for m := range own {
		var value dto.Metric
		if err := m.Write(&value); err != nil {
			ch <- prometheus.NewInvalidMetric(m.Desc(), err)
			continue
		}
		for _, d := range append([]*prometheus.Desc{m.Desc()}, r.Names...) {
			ch <- reading{d, &value}
		}
	}
}

// reading is a metric that was read already.
type reading struct {
	desc  *prometheus.Desc
	value *dto.Metric
}

// Desc implements prometheus.Metric.
func (r reading) Desc() *prometheus.Desc { return r.desc }

// Write implements prometheus.Metric.
func (r reading) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Gauge = r.value.Label, r.value.Counter, r.value.Gauge
	return nil
}

// OneIf returns the value of a gauge that says whether something is so: 1 or 0.
func OneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
