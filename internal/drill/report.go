package drill

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/drill/timeline"
	"github.com/natscampaign/election/internal/timeutil"
)

// Report is the result of a drill. The help documents its field names, which must not change.
type Report struct {
	Result
	Late        []lateInRound `json:"late"`
	Rounds      int           `json:"rounds"`
	Believed    []float64     `json:"believed_s"`
	TermNumbers []uint64      `json:"term_numbers"`
	Server      string        `json:"server"`
	Embedded    bool          `json:"embedded"`

	termsOutOfOrder string // describes the first term out of order; empty if there is none
}

// lateInRound is a time without a leader that exceeded its bound. It has no duration, because the drill waits no longer than the bound.
type lateInRound struct {
	Late
	Round int `json:"round"`
}

// complete adds the findings of the rehearsal to the report. In JSON an empty list is written as a list, not as null.
func (r *Report) complete(rehearsal *Rehearsal) {
	r.addFaults(rehearsal.failovers)
	r.Believed, r.TermNumbers = []float64{}, []uint64{}
	if r.Late == nil {
		r.Late = []lateInRound{}
	}
	for _, d := range rehearsal.believed {
		r.Believed = append(r.Believed, terminal.ToSeconds(d))
	}
	s := rehearsal.sampler
	for _, t := range s.terms {
		r.TermNumbers = append(r.TermNumbers, t.Number)
	}
	r.Terms = len(r.TermNumbers)
	if t, found := firstOutOfOrder(s.terms); found {
		r.termsOutOfOrder = fmt.Sprintf("term %d of %s led after a term with a number at least as large", t.Number, t.Key)
	}
	r.Overlap = RoundUp(s.overlap)
	r.Samples, r.LongestGap = s.samples, timeutil.Seconds(s.maxGap.Round(time.Microsecond))
	r.DurationS = terminal.ToSeconds(s.last)
}

// addFaults adds an entry for each kind of failover.
func (r *Report) addFaults(failovers []failover) {
	r.Faults = nil
	for k := range failoverKind(failoverKinds) {
		r.Faults = append(r.Faults, Fault{
			Kind: k.name(), Failover: []float64{}, Bound: k.bound(terminal.FromSeconds(r.TTL)).Seconds(), Description: k.description(),
		})
	}
	for _, f := range failovers {
		of := &r.Faults[f.kind]
		of.Count++
		if f.led() {
			of.Failover = append(of.Failover, terminal.ToSeconds(f.duration()))
		}
	}
}

// FailureReason says why the drill failed; it is empty if the drill passed.
func (r *Report) FailureReason() string {
	var reasons []string
	if r.Overlap > 0 {
		reasons = append(reasons, fmt.Sprintf("two candidates led at once for %d ms", r.Overlap.Milliseconds()))
	}
	for _, l := range r.Late {
		reasons = append(reasons, fmt.Sprintf("no candidate led within %s in the %s of round %d", terminal.FormatDuration(terminal.FromSeconds(l.Bound)), textOf(l.Kind), l.Round))
	}
	if r.termsOutOfOrder != "" {
		reasons = append(reasons, r.termsOutOfOrder)
	}
	if reasons == nil {
		return ""
	}
	return "the drill failed: " + strings.Join(reasons, "; ")
}

// stall returns the longest time between two samples if it is so long that the figures mean less: more than a tenth of the TTL; else 0.
func (r *Report) stall() time.Duration {
	if gap := time.Duration(r.LongestGap); gap > terminal.FromSeconds(r.TTL)/10 {
		return gap
	}
	return 0
}

// Print writes the report as text.
func (r *Report) Print(w io.Writer, s terminal.Style) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", s.Paint(terminal.Bold, s.Wrap(r.title())))
	figures, parts := fmt.Sprintf("%-32s%3s%10s%10s%10s%10s", "time until a candidate leads", "n", "min", "median", "max", "limit"), "   min / median / max as part of the TTL"
	fmt.Fprintf(&b, "%s\n", s.Paint(terminal.Faint, s.Line(figures, parts)))
	withParts := s.Fits(len(figures + parts))
	for _, f := range r.Faults {
		r.row(&b, f.Description, f.Failover, f.Bound, withParts)
	}
	fmt.Fprintf(&b, "\n")
	r.row(&b, "cut-off leader still led for", r.Believed, r.TTL, withParts)
	fmt.Fprintf(&b, "\n%s\n%s\n", r.overlapLine(s), r.termsLine(s))
	if stall := r.stall(); stall > 0 {
		text := fmt.Sprintf("no samples for %s, because this host was busy or stood still: times may include that, and two leaders meanwhile would not have been seen", terminal.FormatDuration(stall))
		fmt.Fprintf(&b, "\n%s\n", s.Paint(terminal.Yellow, s.Wrap(text)))
	}
	for _, l := range r.Late {
		fmt.Fprintf(&b, "%s  no candidate led within %s: %s, round %d\n", s.Paint(terminal.Red, "missed"), terminal.FormatDuration(terminal.FromSeconds(l.Bound)), textOf(l.Kind), l.Round)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) title() string {
	return fmt.Sprintf("%d candidates, TTL %s, %s in %s, nats-server %s",
		r.Candidates, terminal.FormatDuration(terminal.FromSeconds(r.TTL)), terminal.Plural(r.Rounds, "round"), terminal.FormatDuration(terminal.FromSeconds(r.DurationS)), r.ServerVersion)
}

// row writes one line of the table, with the figures as parts of the TTL too if there is room. No figure may exceed the limit.
func (r *Report) row(b *strings.Builder, name string, figures []float64, limit float64, withParts bool) {
	if len(figures) == 0 {
		fmt.Fprintf(b, "%-32s%3d%10s%10s%10s%8.2f s\n", name, 0, "-", "-", "-", limit)
		return
	}
	lo, mid, hi := terminal.MinMedianMax(figures)
	fmt.Fprintf(b, "%-32s%3d%10s%10s%10s%8.2f s",
		name, len(figures), terminal.FormatSeconds(lo), terminal.FormatSeconds(mid), terminal.FormatSeconds(hi), limit)
	if withParts {
		fmt.Fprintf(b, "   %.2f / %.2f / %.2f", lo/r.TTL, mid/r.TTL, hi/r.TTL)
	}
	b.WriteByte('\n')
}

func (r *Report) overlapLine(s terminal.Style) string {
	colour := terminal.Green
	switch {
	case r.Overlap > 0:
		colour = terminal.Red
	case r.stall() > 0:
		colour = terminal.Yellow
	}
	return s.Line(fmt.Sprintf("%-32s%s", "two candidates led at once for", s.Paint(terminal.Bold+";"+colour, fmt.Sprintf("%3d ms", r.Overlap.Milliseconds()))),
		fmt.Sprintf("  (%d samples, at most %d ms apart)", r.Samples, r.LongestGap.Milliseconds()))
}

func (r *Report) termsLine(s terminal.Style) string {
	if r.termsOutOfOrder != "" {
		return fmt.Sprintf("%-32s%s", "terms", s.Paint(terminal.Red, r.termsOutOfOrder))
	}
	return s.Line(fmt.Sprintf("%-32s%3d", "terms", r.Terms), ", each with a larger number", " than the term before")
}

// Draw draws the run as an SVG document.
func (r *Rehearsal) Draw(w io.Writer) error {
	t := timeline.Timeline{
		Title:    fmt.Sprintf("Election drill: %d candidates, TTL %s", r.Report.Candidates, terminal.FormatDuration(r.ttl)),
		Subtitle: fmt.Sprintf("%s, nats-server %s, %d samples", terminal.Plural(r.Report.Rounds, "round"), r.Report.ServerVersion, r.Report.Samples),
		Verdict:  fmt.Sprintf("%d ms with two leaders", r.Report.Overlap.Milliseconds()),
		Passed:   r.Report.FailureReason() == "",
		Cuts:     r.cuts,
		Terms:    r.sampler.terms,
		Length:   r.sampler.last,
	}
	if stall := r.Report.stall(); stall > 0 {
		t.Subtitle += "; times may include the gap"
		t.Verdict += ", no samples for " + terminal.FormatDuration(stall)
		t.Passed = false
	}
	for i, c := range r.fleet.candidates {
		t.Rows = append(t.Rows, timeline.Row{Name: c.name, Spans: r.sampler.spans[i]})
	}
	for _, f := range r.failovers {
		if f.kind == firstElection {
			t.Rounds = append(t.Rounds, f.faultAt)
		}
		m := timeline.Mark{At: f.faultAt, Row: f.candidate, Fault: [...]string{"start", "stop", "cut", "delete"}[f.kind], Outcome: "no leader"}
		if f.led() {
			m.Outcome = terminal.FormatSeconds(f.duration().Seconds())
		}
		t.Marks = append(t.Marks, m)
	}
	return t.Write(w)
}
