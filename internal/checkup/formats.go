package checkup

import (
	"fmt"
	"io"
	"strings"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

// Formats of a Result.
const (
	FormatText       = "text"
	FormatNagios     = "nagios"
	FormatJSON       = "json"
	FormatPrometheus = "prometheus"
)

// maxSummaryFindings limits the findings that the summary names.
const maxSummaryFindings = 3

// Write writes the result in the given format.
func (r *Result) Write(w io.Writer, format string) error {
	switch format {
	case FormatJSON:
		return terminal.WriteJSON(w, r)
	case FormatNagios:
		_, err := fmt.Fprintln(w, r.nagios())
		return err
	case FormatPrometheus:
		return r.prometheus(w)
	}
	return r.text(w)
}

// text writes the result for people.
func (r *Result) text(w io.Writer) error {
	st := terminal.StyleFor(w)
	colour := map[Status]string{StatusOK: terminal.Green, statusWarning: terminal.Yellow, statusCritical: terminal.Red}[r.Status]
	if _, err := fmt.Fprintf(w, "%s  %s\n", st.Paint(terminal.Bold+";"+colour, r.Status.String()), r.summary()); err != nil {
		return err
	}
	findings := make([]admin.Finding, len(r.Findings))
	for i, f := range r.Findings {
		findings[i] = f.Finding
	}
	return look.PrintFindings(w, st, findings, admin.SeverityInfo)
}

// summary returns one line: the warnings and critical findings, or the leaders if there are none.
func (r *Result) summary() string {
	if r.Error != "" {
		return r.Error
	}
	var parts []string
	for _, f := range r.Findings {
		if f.Severity > admin.SeverityInfo {
			parts = append(parts, f.Message)
		}
	}
	if parts == nil {
		for _, h := range r.Elections {
			parts = append(parts, describeHolder(h))
		}
	}
	switch {
	case len(parts) == 0:
		return fmt.Sprintf("bucket %s is fit for elections; no election has a leader", r.Bucket)
	case len(parts) > maxSummaryFindings:
		parts = append(parts[:maxSummaryFindings:maxSummaryFindings], fmt.Sprintf("and %d more", len(parts)-maxSummaryFindings))
	}
	return strings.Join(parts, "; ")
}

func describeHolder(h look.Holder) string {
	text := h.Name + " leads " + h.Key
	if h.State == look.StateLeaderElect {
		text = h.Name + " has won " + h.Key
	}
	if !h.Since.IsZero() {
		text += " since " + terminal.Timestamp(h.Since)
	}
	return text + ", renewed " + terminal.Ago(h.RenewalAge)
}

// maxPerfElections is how many elections the line for Nagios has performance data for: monitoring cuts longer lines.
const maxPerfElections = 50

// nagios returns the output of a Nagios plugin: one line, with performance data after a bar.
func (r *Result) nagios() string {
	line := fmt.Sprintf("ELECTION %s - %s", r.Status, withoutBars(r.summary()))
	var data []string
	for i, h := range r.Elections {
		if i == maxPerfElections {
			data = append(data, fmt.Sprintf("elections_left_out=%d", len(r.Elections)-i))
			break
		}
		label := ""
		if len(r.Elections) > 1 || len(r.requiredKeys) != 1 {
			label = h.Key + " "
		}
		ttl := r.TTLS
		data = append(data,
			fmt.Sprintf("%s=%.3fs;%.3f:;0:;0;%.3f", perfLabel(label+"lease_left"), max(h.TimeLeft.Seconds(), 0), max(ttl-r.overdue.Seconds(), 0), ttl),
			fmt.Sprintf("%s=%d", perfLabel(label+"term"), h.Term))
	}
	if data == nil {
		return line
	}
	return line + " | " + strings.Join(data, " ")
}

// withoutBars escapes bars, because the first bar begins the performance data, and joins lines.
func withoutBars(text string) string {
	return strings.NewReplacer("|", `\x7c`, "\n", "; ").Replace(text)
}

// perfLabel returns a label of performance data, without the characters that delimit labels. It quotes a label with spaces.
func perfLabel(label string) string {
	label = strings.NewReplacer("=", "_", "'", "_", "|", "_").Replace(label)
	if strings.Contains(label, " ") {
		return "'" + label + "'"
	}
	return label
}
