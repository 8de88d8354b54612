package chaos

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/drill"
)

// FailureReason says why the drill failed; it is empty if the drill passed.
func (r *Report) FailureReason() string {
	var reasons []string
	if r.Overlap > 0 {
		reasons = append(reasons, fmt.Sprintf("two candidates led at once for %d ms", r.Overlap.Milliseconds()))
	}
	if r.WorkOverlap > 0 {
		reasons = append(reasons, fmt.Sprintf("the work of two candidates ran at once for %d ms", r.WorkOverlap.Milliseconds()))
	}
	if r.Overtaken > 0 {
		reasons = append(reasons, terminal.Plural(r.Overtaken, "time")+" a candidate considered itself leader although the stream had a record of a later term")
	}
	if r.Terms > 0 && r.Records == 0 && !r.recordsMissing {
		reasons = append(reasons, "no record was stored in "+terminal.Plural(r.Terms, "term"))
	}
	if r.OutOfOrder > 0 {
		reasons = append(reasons, terminal.Plural(r.OutOfOrder, "record")+" out of order")
	}
	if r.TermsOutOfOrder > 0 {
		reasons = append(reasons, terminal.Plural(r.TermsOutOfOrder, "term")+" out of order")
	}
	if r.Unneeded > 0 {
		reasons = append(reasons, terminal.Plural(r.Unneeded, "unneeded change")+" of leader")
	}
	for _, l := range r.Late[:min(len(r.Late), maxExplained)] {
		reasons = append(reasons, fmt.Sprintf("no candidate led within %s (%s)", terminal.FormatDuration(terminal.FromSeconds(l.Bound)), l.Kind))
	}
	if more := len(r.Late) - maxExplained; more > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d further times", more))
	}
	if reasons == nil {
		return ""
	}
	return "the drill failed: " + strings.Join(reasons, "; ")
}

// Print writes the report as text.
func (r *Report) Print(w io.Writer, s terminal.Style) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", s.Paint(terminal.Bold, s.Wrap(r.title())))
	r.writeFaults(&b, s)
	fmt.Fprintln(&b)
	line := func(name, figure, rest string, a ...any) {
		fmt.Fprintln(&b, s.Line(fmt.Sprintf("%-40s%s", name, figure), fmt.Sprintf(rest, a...)))
	}
	line("two candidates led at once for", violationCount(s, r.Overlap.Milliseconds(), " ms"), "  (%d samples, longest pause %d ms)", r.Samples, r.LongestGap.Milliseconds())
	if r.Keys > 0 {
		line("the work of two ran at once for", violationCount(s, r.WorkOverlap.Milliseconds(), " ms"), "  (of a key; each session has %d)", r.Keys)
		line("most requests of a session in a second", fmt.Sprintf("%6d", r.Requests), "")
	}
	line("led after a record of a later term", violationCount(s, int64(r.Overtaken), ""), "")
	line("records out of order", violationCount(s, int64(r.OutOfOrder), ""), "  (of %d; %d fenced)", r.Records, r.Fenced)
	line("terms out of order", violationCount(s, int64(r.TermsOutOfOrder), ""), "  (of %d)", r.Terms)
	line("unneeded changes of leader", violationCount(s, int64(r.Unneeded), ""), "  (of %d)", len(r.Changes))
	line("failovers beyond their limit", violationCount(s, int64(len(r.Late)), ""), "  (longest time without a leader %s)", terminal.FormatDuration(terminal.FromSeconds(r.LongestWithout)))
	if slices.ContainsFunc(r.Faults, func(f drill.Fault) bool { return f.Kind == Rewind }) {
		line("before a leader could detect a rewind", fmt.Sprintf("%6d ms with two leaders, %s a leader after a record of a later term",
			r.RewindOverlap.Milliseconds(), terminal.Plural(r.RewindOvertaken, "time")), "")
		line("repeated term numbers after a rewind", fmt.Sprintf("%6d", r.RepeatedTerms), "")
	}
	total, longest := 0.0, 0.0
	for _, o := range r.Outages {
		total, longest = total+o, max(longest, o)
	}
	line("outages of the bucket", fmt.Sprintf("%6d", len(r.Outages)), "  (total %s, longest %s)", terminal.FormatDuration(terminal.FromSeconds(total)), terminal.FormatDuration(terminal.FromSeconds(longest)))
	if r.LoseReplies > 0 {
		line("replies lost", fmt.Sprintf("%6d", r.RepliesLost), "")
	}
	for _, v := range r.violations[:min(len(r.violations), maxListed)] {
		fmt.Fprintf(&b, "%s  %s\n", s.Paint(terminal.Red, "wrong"), v.text)
		for _, text := range v.nearby {
			fmt.Fprintf(&b, "       %s\n", s.Paint(terminal.Faint, text))
		}
	}
	if more := len(r.violations) - maxListed; more > 0 {
		fmt.Fprintf(&b, "%s  and %d more\n", s.Paint(terminal.Red, "wrong"), more)
	}
	if r.Kept != "" {
		fmt.Fprintf(&b, "Histories and logs are in %s; 0 s in this report is %s in the logs\n", r.Kept, r.wall.Format(terminal.TimeOfDayLayout))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// violationCount formats a figure that is 0 in a drill that passed.
func violationCount(s terminal.Style, figure int64, unit string) string {
	colour := terminal.Green
	if figure > 0 {
		colour = terminal.Red
	}
	return s.Paint(terminal.Bold+";"+colour, fmt.Sprintf("%6d%s", figure, unit))
}

func (r *Report) title() string {
	return fmt.Sprintf("%s and %d servers as processes, TTL %s, stand-down %s, %s, seed %d, nats-server %s",
		candidates(r.Candidates, r.Keys), r.Servers, terminal.FormatDuration(terminal.FromSeconds(r.TTL)), terminal.FormatDuration(terminal.FromSeconds(r.StandDown)), terminal.FormatDuration(terminal.FromSeconds(r.DurationS)), r.Seed, r.ServerVersion)
}

// writeFaults writes the table of faults. On a narrow terminal it leaves out what each fault does, and the last column.
func (r *Report) writeFaults(b *strings.Builder, s terminal.Style) {
	const figures, parts = "%6s%11s%9s%10s%10s", "   median / max as part of the TTL"
	width := 46
	wide := s.Fits(width + 46 + len(parts))
	if !wide {
		width = 30
	}
	header := fmt.Sprintf("%-*s"+figures, width, "time until a candidate leads", "faults", "failovers", "median", "max", "limit")
	if wide {
		header += parts
	}
	fmt.Fprintln(b, s.Paint(terminal.Faint, header))
	for _, f := range r.Faults {
		name, median, longest, limit := f.Kind, "-", "-", "-"
		if wide {
			name += " (" + f.Description + ")"
		}
		ratio := ""
		if len(f.Failover) > 0 {
			_, mid, hi := terminal.MinMedianMax(f.Failover)
			median, longest, limit = terminal.FormatSeconds(mid), terminal.FormatSeconds(hi), fmt.Sprintf("%.2f s", f.Bound)
			if wide {
				ratio = fmt.Sprintf("   %.2f / %.2f", mid/r.TTL, hi/r.TTL)
			}
		}
		fmt.Fprintf(b, "%-*s"+figures+"%s\n", width, name, fmt.Sprint(f.Count), fmt.Sprint(len(f.Failover)), median, longest, limit, ratio)
	}
}
