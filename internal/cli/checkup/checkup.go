// Package checkup checks a bucket and its elections for monitoring, and writes the result as text, as the output of a Nagios
// plugin, as JSON, or as metrics for Prometheus.
//
// Each problem is a finding with a code and a severity. The status of a Result is that of its most severe finding. The
// package never writes to the bucket; admin.Check, which it calls, tests permissions without a lasting change.
package checkup

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	// overduePercent is the part of the time from a renewal that is due to the end of the lease after which that renewal is overdue.
	overduePercent = 40
	// gracePollInterval separates two evaluations while Evaluate waits for a leader.
	gracePollInterval = 250 * time.Millisecond
)

// Options select what Evaluate checks.
type Options struct {
	Keys     []string       // the elections that must have a leader; if empty, Evaluate checks all that have one
	Expected []string       // without Keys, elections that must have a leader too
	Grace    time.Duration  // how long Evaluate waits for a leader before it reports that there is none
	Overdue  time.Duration  // age of a record from which its renewal is overdue; 0 for the default of its leader
	Interval *time.Duration // of the candidates; nil for that of the leaders
	Ignore   []string       // codes of findings to leave out
	As       admin.Role     // what the user of the connection is for
}

// Status is the result of a check. Its numbers are the exit codes of monitoring plugins.
type Status int

// The values of Status.
const (
	StatusOK Status = iota
	statusWarning
	statusCritical
	StatusUnknown
)

// String returns "OK", "WARNING", "CRITICAL" or "UNKNOWN".
func (s Status) String() string { return [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[s] }

// MarshalText returns the text of String.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Result is the result of a check. The help documents its JSON field names, so they must not change.
type Result struct {
	Status      Status            `json:"status"`
	Error       string            `json:"error,omitempty"`
	Bucket      string            `json:"bucket"`
	Server      string            `json:"server,omitempty"`
	TTLS        float64           `json:"ttl_s,omitempty"`
	ClockAheadS *float64          `json:"clock_ahead_s,omitempty"`
	Elections   []look.Holder     `json:"elections"`
	Findings    []ElectionFinding `json:"findings"`

	options  Options
	sessions bool // the bucket is for sessions, each of which leads many keys
}

// ElectionFinding is a finding about the election of Key, or about the bucket if Key is empty.
type ElectionFinding struct {
	Key string `json:"key,omitempty"`
	admin.Finding
}

// UnknownResult returns the result of a check that failed with err.
func UnknownResult(bucket string, err error) *Result {
	text := strings.ReplaceAll(err.Error(), "\n", ". ")
	return &Result{Status: StatusUnknown, Error: terminal.PrintableUpTo(text, terminal.MaxValue), Bucket: terminal.Printable(bucket), Elections: []look.Holder{}, Findings: []ElectionFinding{}}
}

// WithoutBucket returns the result of a check of a bucket that does not exist: nobody can lead.
func (o Options) WithoutBucket(bucket string, missing *cli.MissingBucketError) *Result {
	return &Result{
		Status: statusCritical, Bucket: terminal.Printable(bucket), Elections: []look.Holder{}, options: o,
		Findings: []ElectionFinding{{Finding: admin.Finding{Code: codeNoBucket, Severity: admin.SeverityCritical, Message: missing.Message, Fix: missing.Fix}}},
	}
}

// Evaluate checks the bucket and its elections. An error means that it could not read them.
func (o Options) Evaluate(ctx context.Context, v *look.View) (*Result, error) {
	key := "" // any
	if len(o.Keys) > 0 {
		key = o.Keys[0]
	}
	findings, err := v.Findings(ctx, o.As, key, o.Interval)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(o.Grace)
	for again := false; ; {
		r, err := o.evaluateElections(ctx, v)
		if err != nil {
			return nil, err
		}
		if left := time.Until(deadline); r.lacksLeader() && left > 0 {
			if err := timeutil.Pause(ctx, min(left, gracePollInterval)); err != nil {
				return nil, err
			}
			continue
		}
		answers := o.ask(ctx, v, o.keysOf(r))
		if !again && r.contradicted(answers) { // somebody has won meanwhile
			again = true
			continue
		}
		look.SetStandbys(r.Elections, answers)
		v.ConfirmAlone(ctx, r.Elections)
		r.explainVacancies(answers, findings)
		r.addEnds(ctx, v)
		r.Findings = append(r.Findings, checkClaims(v.Disputed(ctx, answers), r.Elections)...)
		r.Findings = append(r.Findings, checkNames(answers)...)
		r.Findings = append(r.Findings, r.checkStandbys(answers, findings)...)
		for _, f := range findings {
			r.Findings = append(r.Findings, ElectionFinding{Finding: f})
		}
		r.setStatus(o.Ignore)
		return r, nil
	}
}

// askTimeout is how long the candidates of a bucket for sessions are asked, which may have 20,000 keys. Those of the required keys come first.
const askTimeout = 3 * time.Second

// ask asks the candidates of the keys.
func (o Options) ask(ctx context.Context, v *look.View, keys []string) map[string]look.Answers {
	if v.ForSessions() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	return v.Ask(ctx, keys)
}

// evaluateElections returns a Result with the findings about the leaders and the clock of this host, but without a status.
func (o Options) evaluateElections(ctx context.Context, v *look.View) (*Result, error) {
	if err := v.Refresh(ctx); err != nil {
		return nil, err
	}
	r := &Result{Bucket: v.Bucket.Bucket(), Server: v.ServerURL(), TTLS: v.TTL().Seconds(), Elections: []look.Holder{}, options: o, sessions: v.ForSessions()}
	if v.Clock.Reported {
		ahead := terminal.ToSeconds(v.Clock.Ahead())
		r.ClockAheadS = &ahead
	}
	if err := o.evaluateLeaders(ctx, v, r); err != nil {
		return nil, err
	}
	keys := o.Keys
	if len(keys) == 0 {
		keys = v.Paused() // those that are expected are among them
	}
	r.Findings = append(append(r.Findings, r.checkPaused(keys, v)...), checkClock(v.Clock)...)
	return r, nil
}

// keysOf returns the keys of the required and expected elections, and of the elections that have a leader.
func (o Options) keysOf(r *Result) []string {
	keys := slices.Concat(o.Keys, o.Expected)
	for _, h := range r.Elections {
		if !slices.Contains(keys, h.Key) {
			keys = append(keys, h.Key)
		}
	}
	return keys
}

// evaluateLeaders adds the leaders to r, and the findings about them.
func (o Options) evaluateLeaders(ctx context.Context, v *look.View, r *Result) error {
	if len(o.Keys) == 0 {
		var err error
		if r.Elections, err = v.Leaders(ctx); err != nil {
			return err
		}
		for i := range r.Elections {
			r.Findings = append(r.Findings, r.checkLeader(r.Elections[i].Key, &r.Elections[i], "")...)
		}
		for _, key := range o.Expected {
			if !slices.ContainsFunc(r.Elections, func(h look.Holder) bool { return h.Key == key }) {
				r.Findings = append(r.Findings, r.checkLeader(key, nil, v.DescribePause(key))...)
			}
		}
		return nil
	}
	for _, key := range o.Keys {
		leader, err := v.Leader(ctx, key)
		if err != nil && !errors.Is(err, election.ErrNoLeader) {
			return err
		}
		if leader != nil {
			r.Elections = append(r.Elections, *leader)
		}
		r.Findings = append(r.Findings, r.checkLeader(key, leader, v.DescribePause(key))...)
	}
	return nil
}

// lacksLeader reports whether a required election has no leader.
func (r *Result) lacksLeader() bool {
	return slices.ContainsFunc(r.Findings, func(f ElectionFinding) bool { return f.Code == codeNoLeader })
}

// contradicted reports whether a candidate says that it leads an election that was found without a leader.
func (r *Result) contradicted(answers map[string]look.Answers) bool {
	return slices.ContainsFunc(r.Findings, func(f ElectionFinding) bool {
		return (f.Code == codeNoLeader || f.Code == codeLeaseOver) && answers[f.Key].Leads()
	})
}

// setStatus removes the ignored findings, sorts the others by falling severity, and sets the status.
func (r *Result) setStatus(ignored []string) {
	r.Findings = slices.DeleteFunc(r.Findings, func(f ElectionFinding) bool { return slices.Contains(ignored, f.Code) })
	slices.SortStableFunc(r.Findings, func(a, b ElectionFinding) int { return cmp.Compare(b.Severity, a.Severity) })
	if r.Findings == nil {
		r.Findings = []ElectionFinding{} // JSON would encode nil as null
	}
	r.Status = StatusOK
	if len(r.Findings) > 0 {
		r.Status = Status(r.Findings[0].Severity) // info, warning and critical have the numbers of OK, WARNING and CRITICAL
	}
}
