package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/natscampaign/election/admin"
)

// write writes the assessment in the format that is asked for.
func (c *checkup) write(a *assessment) error {
	switch c.format {
	case formatJSON:
		return writeJSON(c.stdout, a)
	case formatNagios:
		_, err := fmt.Fprintln(c.stdout, a.nagios())
		return err
	case formatPrometheus:
		return a.prometheus(c.stdout)
	}
	return a.text(c.stdout)
}

// text writes the assessment for people.
func (a *assessment) text(w io.Writer) error {
	st := styleFor(w)
	colour := map[grade]string{gradeOK: green, gradeWarning: yellow, gradeCritical: red}[a.Status]
	if _, err := fmt.Fprintf(w, "%s  %s\n", st.paint(bold+";"+colour, a.Status.String()), a.summary()); err != nil {
		return err
	}
	findings := make([]admin.Finding, len(a.Findings))
	for i, r := range a.Findings {
		findings[i] = r.Finding
	}
	return writeFindings(w, st, findings, admin.SeverityInfo)
}

// mostReasons is how many findings a summary names.
const mostReasons = 3

// summary says in one line what matters: what is wrong, or else who leads.
func (a *assessment) summary() string {
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
			parts = append(parts, s.sentence())
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

// sentence says who leads.
func (s *holder) sentence() string {
	text := s.Name + " leads " + s.Key
	if s.State == standingLeaderElect {
		text = s.Name + " has won " + s.Key
	}
	if !s.Since.IsZero() {
		text += " since " + exactly(s.Since)
	}
	return text + ", renewed " + ago(s.age)
}

// nagios returns the assessment as a plugin for Nagios tells it: one line, and performance data behind a bar.
func (a *assessment) nagios() string {
	line := fmt.Sprintf("ELECTION %s - %s", a.Status, withoutBars(a.summary()))
	var data []string
	for _, s := range a.Elections {
		label := ""
		if len(a.Elections) > 1 || len(a.named) != 1 {
			label = s.Key + " "
		}
		ttl := a.TTLS
		data = append(data,
			fmt.Sprintf("%s=%.3fs;%.3f:;0:;0;%.3f", perfLabel(label+"lease_left"), max(s.left.Seconds(), 0), max(ttl-a.overdue.Seconds(), 0), ttl),
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
