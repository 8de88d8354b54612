package drill

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/internal/timeline"
)

// Report is the result of a drill. Its field names are documented in the help and stay as they are.
type Report struct {
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
func (p *Report) fill(r *Rehearsal) {
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
			*l = append(*l, terminal.RoundMS(f.led-f.at))
		}
	}
	for _, d := range r.believed {
		p.Believed = append(p.Believed, terminal.RoundMS(d))
	}
	s := r.sampler
	for _, t := range s.terms {
		p.Terms = append(p.Terms, t.Number)
	}
	if t, found := disorder(s.terms); found {
		p.disorder = fmt.Sprintf("term %d of %s led after a term with a larger number", t.Number, t.Key)
	}
	p.OverlapMS = int64(math.Ceil(float64(s.overlap) / float64(time.Millisecond)))
	p.Samples, p.LongestGapMS = s.samples, s.gap.Milliseconds()
	p.DurationS = terminal.RoundMS(s.last)
}

// Complaint says why the drill was not passed; it is empty if it was.
func (p *Report) Complaint() string {
	var reasons []string
	if p.OverlapMS > 0 {
		reasons = append(reasons, fmt.Sprintf("two candidates led at once for %d ms", p.OverlapMS))
	}
	for _, m := range p.Missed {
		reasons = append(reasons, fmt.Sprintf("nobody led within %s in the %s of round %d", terminal.Human(terminal.Seconds(m.BoundS)), m.Kind, m.Round))
	}
	if p.disorder != "" {
		reasons = append(reasons, p.disorder)
	}
	if reasons == nil {
		return ""
	}
	return "the drill was not passed: " + strings.Join(reasons, "; ")
}

// Print writes the report for people.
func (p *Report) Print(w io.Writer, s terminal.Style) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", s.Paint(terminal.Bold, p.title()))
	fmt.Fprintf(&b, "%s\n", s.Paint(terminal.Faint, fmt.Sprintf("%-32s%3s%10s%10s%10s%10s   %s", "time until somebody leads", "n", "min", "median", "max", "limit", "min / median / max as part of the TTL")))
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
		p.row(&b, row.name, row.figures, row.kind.bound(terminal.Seconds(p.TTL)))
	}
	fmt.Fprintf(&b, "\n")
	p.row(&b, "a cut-off leader believed for", p.Believed, terminal.Seconds(p.TTL))
	fmt.Fprintf(&b, "\n%s\n%s\n", p.overlapLine(s), p.termsLine(s))
	for _, m := range p.Missed {
		fmt.Fprintf(&b, "%s  nobody led within %s: %s, round %d\n", s.Paint(terminal.Red, "missed"), terminal.Human(terminal.Seconds(m.BoundS)), m.Kind, m.Round)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *Report) title() string {
	return fmt.Sprintf("%d candidates, TTL %s, %s in %s, nats-server %s",
		p.Candidates, terminal.Human(terminal.Seconds(p.TTL)), terminal.Plural(p.Rounds, "round"), terminal.Human(terminal.Seconds(p.DurationS)), p.ServerVersion)
}

// row writes one line of the table; limit is what none of the figures may exceed.
func (p *Report) row(b *strings.Builder, name string, figures []float64, limit time.Duration) {
	if len(figures) == 0 {
		fmt.Fprintf(b, "%-32s%3d%10s%10s%10s%8.2f s\n", name, 0, "-", "-", "-", limit.Seconds())
		return
	}
	lo, mid, hi := terminal.Spread(figures)
	fmt.Fprintf(b, "%-32s%3d%10s%10s%10s%8.2f s   %.2f / %.2f / %.2f\n",
		name, len(figures), terminal.Figure(lo), terminal.Figure(mid), terminal.Figure(hi), limit.Seconds(), lo/p.TTL, mid/p.TTL, hi/p.TTL)
}

func (p *Report) overlapLine(s terminal.Style) string {
	colour := terminal.Green
	if p.OverlapMS > 0 {
		colour = terminal.Red
	}
	return fmt.Sprintf("%-32s%s  (%d samples, the longest gap between two %d ms)",
		"two led at once for", s.Paint(terminal.Bold+";"+colour, fmt.Sprintf("%3d ms", p.OverlapMS)), p.Samples, p.LongestGapMS)
}

func (p *Report) termsLine(s terminal.Style) string {
	if p.disorder != "" {
		return fmt.Sprintf("%-32s%s", "terms", s.Paint(terminal.Red, p.disorder))
	}
	return fmt.Sprintf("%-32s%3d, each with a larger number than the one before", "terms", len(p.Terms))
}

// Draw draws the run as an SVG document.
func (r *Rehearsal) Draw(w io.Writer) error {
	t := timeline.Timeline{
		Title:    fmt.Sprintf("Election drill: %d candidates, TTL %s", r.Report.Candidates, terminal.Human(r.ttl)),
		Subtitle: fmt.Sprintf("%s, nats-server %s, %d samples", terminal.Plural(r.Report.Rounds, "round"), r.Report.ServerVersion, r.Report.Samples),
		Verdict:  fmt.Sprintf("%d ms with two leaders", r.Report.OverlapMS),
		Passed:   r.Report.Complaint() == "",
		Cuts:     r.cuts,
		Terms:    r.sampler.terms,
		Length:   r.sampler.last,
	}
	for i, m := range r.fleet.members {
		t.Rows = append(t.Rows, timeline.Row{Name: m.name, Spans: r.sampler.spans[i]})
	}
	for _, f := range r.faults {
		if f.kind == kindFirst {
			t.Rounds = append(t.Rounds, f.at)
		}
		m := timeline.Mark{At: f.at, Member: f.member, What: [...]string{"start", "stop", "cut", "delete"}[f.kind], Took: "nobody led"}
		if f.led > 0 {
			m.Took = terminal.Figure((f.led - f.at).Seconds())
		}
		t.Marks = append(t.Marks, m)
	}
	return t.Write(w)
}
