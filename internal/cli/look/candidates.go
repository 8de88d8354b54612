package look

import (
	"maps"
	"strconv"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/timeutil"
)

// Candidate is a candidate that answered, in the JSON output.
type Candidate struct {
	Name     string           `json:"name"`
	Instance string           `json:"instance"`
	Host     string           `json:"host"`
	PID      int              `json:"pid"`
	State    election.State   `json:"state"`
	Ready    bool             `json:"ready"`
	Standby  *bool            `json:"standby,omitempty"`
	Priority int              `json:"priority"`
	Version  string           `json:"version"`
	ClockLag timeutil.Seconds `json:"clock_lag_s"`

	LastError    string           `json:"last_error,omitempty"`
	LastErrorAge timeutil.Seconds `json:"last_error_age_s,omitempty"`
	Connection   string           `json:"connection,omitempty"`
}

// CandidatesOf returns the candidates of an election for the output, and a table of them.
func CandidatesOf(key string, found []admin.Candidate) ([]Candidate, *terminal.Table) {
	candidates := []Candidate{} // not nil, which JSON would encode as null
	namesakes := len(Namesakes(found)) > 0
	table := &terminal.Table{
		Title:  "Candidates in " + terminal.Printable(key),
		Header: []string{"Name", "State", "Ready", "Priority", "Host", "PID", "Version", "Clock lag"},
		Least:  []string{"Priority", "Host", "Clock lag", "PID", "Version"},
	}
	if namesakes { // 'transfer' takes the instance, which copies share
		table.Header = append(table.Header, "Instance", "Connection")
	}
	for _, f := range found {
		c := Candidate{
			Name: terminal.Printable(f.Name), Instance: terminal.Printable(f.Instance), Host: terminal.Printable(f.Host), PID: f.PID,
			State: f.State, Ready: f.Ready, Standby: f.Standby, Priority: f.Priority, Version: terminal.Printable(f.Version), ClockLag: timeutil.Seconds(f.ClockLag.Round(time.Microsecond)),
			LastError: terminal.PrintableUpTo(f.LastError, terminal.MaxValue), LastErrorAge: timeutil.Seconds(f.LastErrorAge.Round(time.Millisecond)), Connection: terminal.Printable(f.Connection),
		}
		candidates = append(candidates, c)
		row := []string{c.Name, c.State.String(), yesNo(c.Ready), strconv.Itoa(c.Priority), c.Host, strconv.Itoa(c.PID), c.Version, f.ClockLag.Round(time.Millisecond).String()}
		if namesakes {
			row = append(row, c.Instance, c.Connection)
		}
		table.Add(row...)
	}
	return candidates, table
}

// Namesakes returns the candidates whose name another candidate has too, by name.
func Namesakes(candidates []admin.Candidate) map[string][]admin.Candidate {
	byName := map[string][]admin.Candidate{}
	for _, c := range candidates {
		byName[c.Name] = append(byName[c.Name], c)
	}
	maps.DeleteFunc(byName, func(_ string, of []admin.Candidate) bool { return len(of) == 1 })
	return byName
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
