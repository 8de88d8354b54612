package bench

import (
	"testing"
	"time"
)

// BenchmarkHerd notifies 1,000 candidates of one election, over 200 connections, of vacancies: of a leader that stops, of a leader
// whose connection ends without a release, so that its key expires, and of a leader whose connection ends before it has renewed
// since all candidates are there. It counts the winners of each vacancy, and the attempts.
func BenchmarkHerd(b *testing.B) {
	b.Run("stop", func(b *testing.B) { herd(b, false, handoverTTL) })
	b.Run("crash", func(b *testing.B) { herd(b, true, handoverTTL) })
	b.Run("early-crash", func(b *testing.B) { herd(b, true, 0) })
}

// herd measures some time after all candidates have made their opening campaigns.
func herd(b *testing.B, crash bool, longer time.Duration) {
	const key = "herd"
	f := newFleet(b, startServerProcess(b), handoverTTL, 1)
	t := f.tally(key)
	leader := f.assemble(key, 1000, f.connections(200), t)
	time.Sleep(longer)
	t.take()

	var attempts, winners, times sample
	for b.Loop() {
		began := time.Now()
		if crash {
			leader.conn.Close()
		} else {
			leader.Stop()
		}
		w := f.win()
		b.StopTimer()
		times.add(w.at.Sub(began), time.Millisecond)
		time.Sleep(calm)
		attempts = append(attempts, float64(t.take()))
		winners = append(winners, float64(1+len(f.wins)))
		f.replace(leader)
		time.Sleep(calm)
		t.take()
		leader = w.by
		b.StartTimer()
	}
	b.ReportMetric(attempts.mean(), "mean-attempts")
	b.ReportMetric(quantile(attempts, 1), "max-attempts")
	b.ReportMetric(quantile(winners, 1), "max-winners")
	b.ReportMetric(quantile(times, 0.5), "median-ms")
	b.ReportMetric(float64(f.consumers()), "consumers")
}

// BenchmarkHerdStart starts 1,000 candidates of one election at once, over 200 connections, on a key that nobody holds. It counts the attempts of the first
// seconds, and those of the first quarter of a second after the win.
func BenchmarkHerdStart(b *testing.B) {
	var attempts, times sample
	for b.Loop() {
		b.StopTimer()
		const key = "herd"
		f := newFleet(b, startServerProcess(b), handoverTTL, 1)
		t := f.tally(key)
		conns := f.connections(200)
		b.StartTimer()
		began := time.Now()
		for i := range 1000 {
			f.join(conns[i%len(conns)], key)
		}
		w := f.win()
		b.StopTimer()
		times.add(w.at.Sub(began), time.Millisecond)
		time.Sleep(2 * time.Second)
		attempts = append(attempts, float64(t.take()))
		b.StartTimer()
	}
	b.ReportMetric(attempts.mean(), "mean-attempts")
	b.ReportMetric(quantile(times, 0.5), "median-ms")
}
