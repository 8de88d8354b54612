package bench

import (
	"flag"
	"math"
	"slices"
	"testing"
	"time"
)

// How long and how often to measure, where -benchtime does not say it.
var (
	trials  = flag.Int("trials", 40, "crashes per benchmark, all at once")
	warmUp  = flag.Duration("warmup", 5*time.Minute, "time before the requests of followers are counted")
	measure = flag.Duration("measure", 2*time.Minute, "time for which the requests of followers are counted")
	ttl     = flag.Duration("ttl", 5*time.Second, "TTL of the bucket, for BenchmarkTiming")
	every   = flag.Duration("interval", 0, "campaign interval, for BenchmarkTiming; 0 is 0.75 of the TTL")
	ttls    = flag.Int("ttls", 3, "time for which many elections are led, in TTLs")
)

// quantile returns the smallest value that at least a fraction q of all does not exceed.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// sample is what was measured, one value per trial.
type sample []float64

func (s *sample) add(d, unit time.Duration) { *s = append(*s, float64(d)/float64(unit)) }

// report shows median, 99th percentile and maximum under the name of the unit.
func (s sample) report(b *testing.B, unit string) {
	b.ReportMetric(quantile(s, 0.5), "median-"+unit)
	b.ReportMetric(quantile(s, 0.99), "p99-"+unit)
	b.ReportMetric(quantile(s, 1), "max-"+unit)
}

// mean returns the mean.
func (s sample) mean() float64 {
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	return sum / float64(len(s))
}

func TestQuantiles(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v of %v is %v, not %v", q, values, got, want)
		}
	}
}
