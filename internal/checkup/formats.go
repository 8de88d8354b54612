package checkup

import (
	"fmt"
	"io"
	"strings"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

// Write writes the assessment in one of the formats.
func (a *Result) Write(w io.Writer, format string) error {
	switch format {
	case FormatJSON:
		return terminal.WriteJSON(w, a)
	case FormatNagios:
		_, err := fmt.Fprintln(w, a.nagios())
		return err
	case FormatPrometheus:
		return a.prometheus(w)
	}
	return a.text(w)
}

// text writes the assessment for people.
func (a *Result) text(w io.Writer) error {
	st := terminal.StyleFor(w)
	colour := map[Grade]string{GradeOK: terminal.Green, gradeWarning: terminal.Yellow, gradeCritical: terminal.Red}[a.Status]
	if _, err := fmt.Fprintf(w, "%s  %s\n", st.Paint(terminal.Bold+";"+colour, a.Status.String()), a.summary()); err != nil {
		return err
	}
	findings := make([]admin.Finding, len(a.Findings))
	for i, r := range a.Findings {
		findings[i] = r.Finding
	}
	return look.PrintFindings(w, st, findings, admin.SeverityInfo)
}

// mostReasons is how many findings a summary names.
const mostReasons = 3

// summary says in one line what matters: what is wrong, or else who leads.
func (a *Result) summary() string {
	if a.Error != "" {
		return a.Error
	}
	var parts []string
	for _, r := range a.Findings {
		if r.Severity > admin.SeverityInfo {
			parts = append(parts, r.Message)
		}
	}
	if parts == nil {
		for _, s := range a.Elections {
			parts = append(parts, sentenceOn(s))
		}
	}
	switch {
	case len(parts) == 0:
		return fmt.Sprintf("bucket %s is fit for elections; nobody leads in any", a.Bucket)
	case len(parts) > mostReasons:
		parts = append(parts[:mostReasons:mostReasons], fmt.Sprintf("and %d more", len(parts)-mostReasons))
	}
	return strings.Join(parts, "; ")
}

// sentenceOn says who leads.
func sentenceOn(s look.Holder) string {
	text := s.Name + " leads " + s.Key
	if s.State == look.StateLeaderElect {
		text = s.Name + " has won " + s.Key
	}
	if !s.Since.IsZero() {
		text += " since " + terminal.Timestamp(s.Since)
	}
	return text + ", renewed " + terminal.Ago(s.Age)
}

// nagios returns the assessment as a plugin for Nagios tells it: one line, and performance data behind a bar.
func (a *Result) nagios() string {
	line := fmt.Sprintf("ELECTION %s - %s", a.Status, withoutBars(a.summary()))
	var data []string
	for _, s := range a.Elections {
		label := ""
		if len(a.Elections) > 1 || len(a.Named) != 1 {
			label = s.Key + " "
		}
		ttl := a.TTLS
		data = append(data,
			fmt.Sprintf("%s=%.3fs;%.3f:;0:;0;%.3f", perfLabel(label+"lease_left"), max(s.Left.Seconds(), 0), max(ttl-a.overdue.Seconds(), 0), ttl),
			fmt.Sprintf("%s=%d", perfLabel(label+"term"), s.Term))
	}
	if data == nil {
		return line
	}
	return line + " | " + strings.Join(data, " ")
}

// withoutBars returns text in which no bar begins the performance data.
func withoutBars(text string) string {
	return strings.NewReplacer("|", `\x7c`, "\n", "; ").Replace(text)
}

// perfLabel returns a label of performance data, which may have neither of the signs by which it is told apart.
func perfLabel(label string) string {
	label = strings.NewReplacer("=", "_", "'", "_", "|", "_").Replace(label)
	if strings.Contains(label, " ") {
		return "'" + label + "'"
	}
	return label
}
