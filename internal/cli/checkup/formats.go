package checkup

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
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

// WriteVerbose writes the result as text for people, with all that is known of each finding.
func (r *Result) WriteVerbose(w io.Writer) error {
	st := terminal.StyleFor(w)
	var findings []admin.Finding
	for _, f := range r.gathered() {
		findings = append(findings, f.Finding)
	}
	_, err := io.WriteString(w, r.statusLine(st, r.summary(describeHolder))+look.FindingsText(st, findings, admin.SeverityInfo))
	return err
}

// text writes the result for people: a line for the status, and one for each finding, or a table on a terminal.
func (r *Result) text(w io.Writer) error {
	st := terminal.StyleFor(w)
	summary := r.summary(describeBriefly)
	if n := len(r.problems()); n > 0 {
		summary = terminal.Plural(n, "problem")
	}
	findings := r.gathered()
	if !r.asksForForecasts() {
		findings = slices.DeleteFunc(findings, func(f ElectionFinding) bool { return strings.HasPrefix(f.Code, "expect-") })
	}
	if _, err := io.WriteString(w, r.statusLine(st, summary)); err != nil || len(findings) == 0 {
		return err
	}
	if terminal.IsTerminal(w) {
		return tableOf(findings).Print(w, st)
	}
	var lines strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&lines, "%-8s  %s: %s\n", f.Severity, f.Code, f.sentence())
	}
	_, err := io.WriteString(w, lines.String())
	return err
}

// statusLine returns the line with the status.
func (r *Result) statusLine(st terminal.Style, summary string) string {
	colour := map[Status]string{StatusOK: terminal.Green, statusWarning: terminal.Yellow, statusCritical: terminal.Red}[r.Status]
	return fmt.Sprintf("%s  %s\n", st.Paint(terminal.Bold+";"+colour, r.Status.String()), summary)
}

// asksForForecasts reports whether people want to know how long failovers take: elections work, and somebody would take one over.
func (r *Result) asksForForecasts() bool {
	switch {
	case r.Status == statusCritical:
		return false
	case len(r.Elections) == 0: // before the first candidate starts
		return !slices.ContainsFunc(r.Findings, func(f ElectionFinding) bool { return f.Key != "" })
	}
	return slices.ContainsFunc(r.Elections, func(h look.Holder) bool { return !h.Paused && !h.IsAlone() })
}

// tableOf returns findings for a terminal.
func tableOf(findings []ElectionFinding) *terminal.Table {
	t := &terminal.Table{Title: "Findings", Header: []string{"Severity", "Code", "Finding"}, Prose: "Finding"}
	for _, f := range findings {
		t.Add(f.Severity.String(), f.Code, f.sentence())
	}
	return t
}

// sentence returns the finding in short, and what to do about it, if something must be done.
func (f ElectionFinding) sentence() string {
	text := cmp.Or(f.Short, f.Message)
	if f.Fix != "" && f.Severity > admin.SeverityInfo {
		text += ". Fix: " + f.Fix
	}
	return text
}

// gathered returns the findings for people: what is found of several keys of one session is one finding, of which the first key is named.
func (r *Result) gathered() (findings []ElectionFinding) {
	if !r.sessions {
		return slices.Clone(r.Findings)
	}
	session := map[string]string{}
	for _, h := range r.Elections {
		session[h.Key] = h.Instance
	}
	type group struct{ code, session string }
	first, more := map[group]int{}, map[int]int{}
	for _, f := range r.Findings {
		g := group{f.Code, session[f.Key]}
		if i, known := first[g]; known && g.session != "" {
			more[i]++
			continue
		}
		first[g] = len(findings)
		findings = append(findings, f)
	}
	for i, n := range more {
		f := &findings[i]
		also := fmt.Sprintf(" (and so for %s of this session)", terminal.Plural(n, "other key"))
		f.Message, f.Short = f.Message+also, cmp.Or(f.Short, f.Message)+also
	}
	return findings
}

// problems returns the messages of the warnings and critical findings.
func (r *Result) problems() (messages []string) {
	for _, f := range r.gathered() {
		if f.Severity > admin.SeverityInfo {
			messages = append(messages, f.Message)
		}
	}
	return messages
}

// summary returns one line: the warnings and critical findings, or the leaders if there are none.
func (r *Result) summary(describe func(look.Holder) string) string {
	if r.Error != "" {
		return r.Error
	}
	parts := r.problems()
	if parts == nil {
		for _, h := range r.Elections {
			parts = append(parts, describe(h))
		}
	}
	switch {
	case len(parts) == 0:
		return fmt.Sprintf("bucket %s is fit for elections; no election has a leader", terminal.Quote(r.Bucket))
	case len(parts) > maxSummaryFindings:
		parts = append(parts[:maxSummaryFindings:maxSummaryFindings], fmt.Sprintf("and %d more", len(parts)-maxSummaryFindings))
	}
	return strings.Join(parts, "; ")
}

func describeHolder(h look.Holder) string {
	text := leadsOrWon(h)
	if since := look.Since(h.Leader); !since.IsZero() {
		text += " since " + terminal.Timestamp(since)
	}
	return text + ", renewed " + terminal.Ago(h.RenewalAge)
}

func describeBriefly(h look.Holder) string {
	return leadsOrWon(h) + ", renewed " + terminal.FormatRoughly(h.RenewalAge) + " ago"
}

func leadsOrWon(h look.Holder) string {
	verb := " leads "
	if h.State == look.StateLeaderElect {
		verb = " has won "
	}
	return terminal.Quote(h.Name) + verb + terminal.Quote(h.Key)
}

// maxPerfElections is how many elections the line for Nagios has performance data for: monitoring cuts longer lines.
const maxPerfElections = 50

// nagios returns the output of a Nagios plugin: one line, with performance data after a bar.
func (r *Result) nagios() string {
	line := fmt.Sprintf("ELECTION %s - %s", r.Status, withoutBars(r.summary(describeHolder)))
	var data []string
	for i, h := range r.Elections {
		if i == maxPerfElections {
			data = append(data, fmt.Sprintf("elections_left_out=%d", len(r.Elections)-i))
			break
		}
		label := ""
		if len(r.Elections) > 1 || len(r.options.Keys) != 1 {
			label = h.Key + " "
		}
		ttl := r.ttl()
		left := ttl - r.overdueAge(&h) // of the lease when the renewal is overdue
		data = append(data,
			fmt.Sprintf("%s=%.3fs;%.3f:;0:;0;%.3f", perfLabel(label+"lease_left"), max(h.TimeLeft.Seconds(), 0), max(left.Seconds(), 0), ttl.Seconds()),
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

// AsksForNagios reports whether the arguments of a command line that could not be parsed ask for the format of Nagios.
func AsksForNagios(args []string) bool {
	for i, arg := range args {
		if arg == "--format="+FormatNagios || arg == "--format" && i+1 < len(args) && args[i+1] == FormatNagios {
			return true
		}
	}
	return false
}
