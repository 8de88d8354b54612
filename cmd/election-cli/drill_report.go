package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// report is the result of a drill. Its field names are documented in the help and stay as they are.
type report struct {
	TTL           float64   `json:"ttl_s"`
	Candidates    int       `json:"candidates"`
	Rounds        int       `json:"rounds"`
	First         []float64 `json:"first_election_s"`
	Handover      []float64 `json:"handover_s"`
	Crash         []float64 `json:"crash_s"`
	Evict         []float64 `json:"evict_s"`
	Believed      []float64 `json:"believed_s"`
	OverlapMS     int64     `json:"overlap_ms"`
	Terms         []uint64  `json:"terms"`
	Missed        []missed  `json:"missed"`
	Samples       int       `json:"samples"`
	LongestGapMS  int64     `json:"longest_gap_ms"`
	DurationS     float64   `json:"duration_s"`
	Server        string    `json:"server"`
	ServerVersion string    `json:"server_version"`
	Embedded      bool      `json:"embedded"`

	disorder string // what is wrong with the order of terms; empty if nothing is
}

// missed is a failover that did not come in time.
type missed struct {
	Round  int     `json:"round"`
	Kind   string  `json:"kind"`
	BoundS float64 `json:"bound_s"`
}

// fill takes over what the rehearsal found out.
func (p *report) fill(r *rehearsal) {
	lists := [kinds]*[]float64{&p.First, &p.Handover, &p.Crash, &p.Evict}
	for _, l := range lists {
		*l = []float64{} // an empty list in JSON is no null
	}
	p.Believed, p.Terms = []float64{}, []uint64{}
	if p.Missed == nil {
		p.Missed = []missed{}
	}
	for _, f := range r.faults {
		if f.led > 0 {
			l := lists[f.kind]
			*l = append(*l, roundMS(f.led-f.at))
		}
	}
	for _, d := range r.believed {
		p.Believed = append(p.Believed, roundMS(d))
	}
	s := r.sampler
	for _, t := range s.terms {
		p.Terms = append(p.Terms, t.number)
	}
	if t, found := disorder(s.terms); found {
		p.disorder = fmt.Sprintf("term %d of %s led after a term with a larger number", t.number, t.key)
	}
	p.OverlapMS = int64(math.Ceil(float64(s.overlap) / float64(time.Millisecond)))
	p.Samples, p.LongestGapMS = s.samples, s.gap.Milliseconds()
	p.DurationS = roundMS(s.last)
}

func roundMS(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// complaint says why the drill was not passed; it is empty if it was.
func (p *report) complaint() string {
	var reasons []string
	if p.OverlapMS > 0 {
		reasons = append(reasons, fmt.Sprintf("two candidates led at once for %d ms", p.OverlapMS))
	}
	for _, m := range p.Missed {
		reasons = append(reasons, fmt.Sprintf("nobody led within %s in the %s of round %d", human(seconds(m.BoundS)), m.Kind, m.Round))
	}
	if p.disorder != "" {
		reasons = append(reasons, p.disorder)
	}
	if reasons == nil {
		return ""
	}
	return "the drill was not passed: " + strings.Join(reasons, "; ")
}

// spreadOf returns the smallest, middle and largest of some figures.
func spreadOf(figures []float64) (smallest, median, largest float64) {
	if len(figures) == 0 {
		return 0, 0, 0
	}
	f := slices.Sorted(slices.Values(figures))
	n := len(f)
	return f[0], (f[(n-1)/2] + f[n/2]) / 2, f[n-1]
}

// table writes the report for people.
func (p *report) table(w io.Writer, s style) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", s.paint(bold, p.title()))
	fmt.Fprintf(&b, "%s\n", s.paint(faint, fmt.Sprintf("%-32s%3s%10s%10s%10s%10s   %s", "time until somebody leads", "n", "min", "median", "max", "limit", "min / median / max as part of the TTL")))
	for _, row := range []struct {
		name    string
		figures []float64
		kind    kind
	}{
		{"first election (nobody yet)", p.First, kindFirst},
		{"handover (leader stops)", p.Handover, kindHandover},
		{"crash (leader's link is cut)", p.Crash, kindCrash},
		{"eviction (key is deleted)", p.Evict, kindEvict},
	} {
		p.row(&b, row.name, row.figures, row.kind.bound(seconds(p.TTL)))
	}
	fmt.Fprintf(&b, "\n")
	p.row(&b, "a cut-off leader believed for", p.Believed, seconds(p.TTL))
	fmt.Fprintf(&b, "\n%s\n%s\n", p.overlapLine(s), p.termsLine(s))
	for _, m := range p.Missed {
		fmt.Fprintf(&b, "%s  nobody led within %s: %s, round %d\n", s.paint(red, "missed"), human(seconds(m.BoundS)), m.Kind, m.Round)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *report) title() string {
	return fmt.Sprintf("%d candidates, TTL %s, %s in %s, nats-server %s",
		p.Candidates, human(seconds(p.TTL)), plural(p.Rounds, "round"), human(seconds(p.DurationS)), p.ServerVersion)
}

// row writes one line of the table; limit is what none of the figures may exceed.
func (p *report) row(b *strings.Builder, name string, figures []float64, limit time.Duration) {
	if len(figures) == 0 {
		fmt.Fprintf(b, "%-32s%3d%10s%10s%10s%8.2f s\n", name, 0, "-", "-", "-", limit.Seconds())
		return
	}
	lo, mid, hi := spreadOf(figures)
	fmt.Fprintf(b, "%-32s%3d%10s%10s%10s%8.2f s   %.2f / %.2f / %.2f\n",
		name, len(figures), figure(lo), figure(mid), figure(hi), limit.Seconds(), lo/p.TTL, mid/p.TTL, hi/p.TTL)
}

// figure returns a time in seconds, or in milliseconds where it is too short for that.
func figure(s float64) string {
	if s < 0.0995 {
		return fmt.Sprintf("%.0f ms", 1000*s)
	}
	return fmt.Sprintf("%.2f s", s)
}

func (p *report) overlapLine(s style) string {
	colour := green
	if p.OverlapMS > 0 {
		colour = red
	}
	return fmt.Sprintf("%-32s%s  (%d samples, the longest gap between two %d ms)",
		"two led at once for", s.paint(bold+";"+colour, fmt.Sprintf("%3d ms", p.OverlapMS)), p.Samples, p.LongestGapMS)
}

func (p *report) termsLine(s style) string {
	if p.disorder != "" {
		return fmt.Sprintf("%-32s%s", "terms", s.paint(red, p.disorder))
	}
	return fmt.Sprintf("%-32s%3d, each with a larger number than the one before", "terms", len(p.Terms))
}
