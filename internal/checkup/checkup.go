// Package checkup judges a bucket and its elections for monitoring, and writes the result as text, as a Nagios plugin does, as JSON or for
// Prometheus.
package checkup

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/internal/timeutil"
)

// Options say what is checked.
type Options struct {
	Keys    []string      // the elections that must have a leader; none for those that have one
	Grace   time.Duration // how long to wait for a leader before its absence is reported
	Overdue time.Duration // the age of a record from which its renewal is overdue; 0 for a part of the TTL
	Ignore  []string      // the codes of findings to leave out
}

// Assess finds out how things are.
func (c Options) Assess(ctx context.Context, v *look.View) (*Result, error) {
	findings, err := v.Findings(ctx)
	if err != nil {
		return nil, err
	}
	patience := time.Now().Add(c.Grace)
	for {
		a, err := c.glance(ctx, v)
		if err != nil {
			return nil, err
		}
		if left := time.Until(patience); a.vacant() && left > 0 {
			if err := timeutil.Pause(ctx, min(left, gracePoll)); err != nil {
				return nil, err
			}
			continue
		}
		for _, f := range findings {
			a.Findings = append(a.Findings, Remark{Finding: f})
		}
		a.settle(c.Ignore)
		return a, nil
	}
}

// glance returns what is to be said of the elections, and of the clocks, as they are now.
func (c Options) glance(ctx context.Context, v *look.View) (*Result, error) {
	if err := v.Refresh(ctx); err != nil {
		return nil, err
	}
	a := &Result{Bucket: v.Bucket.Bucket(), Server: v.ServerURL(), TTLS: v.TTL().Seconds(), Elections: []look.Holder{}, Named: c.Keys}
	if v.Clock.Reported {
		ahead := terminal.RoundMS(v.Clock.Ahead())
		a.ClockAheadS = &ahead
	}
	a.overdue = v.TTL() * overduePart / 100
	if c.Overdue > 0 {
		a.overdue = c.Overdue
	}
	if err := c.find(ctx, v, a); err != nil {
		return nil, err
	}
	asked := slices.Clone(c.Keys)
	for _, e := range a.Elections {
		if !slices.Contains(asked, e.Key) {
			asked = append(asked, e.Key)
		}
	}
	a.Findings = append(a.Findings, judgeClaims(v.Claims(ctx, asked))...)
	a.Findings = append(a.Findings, judgeClock(v.Clock)...)
	return a, nil
}

// find reads who leads, and judges it.
func (c Options) find(ctx context.Context, v *look.View, a *Result) error {
	if len(c.Keys) == 0 {
		var err error
		if a.Elections, err = v.Leaders(ctx); err != nil {
			return err
		}
		for i := range a.Elections {
			a.Findings = append(a.Findings, judge(a.Elections[i].Key, &a.Elections[i], v.TTL(), a.overdue)...)
		}
		return nil
	}
	for _, key := range c.Keys {
		leader, err := v.Leader(ctx, key)
		if err != nil && !errors.Is(err, election.ErrNoLeader) {
			return err
		}
		if leader != nil {
			a.Elections = append(a.Elections, *leader)
		}
		a.Findings = append(a.Findings, judge(key, leader, v.TTL(), a.overdue)...)
	}
	return nil
}

// Grade is how well things are, as plugins for monitoring tell it by their exit codes.
type Grade int

const (
	GradeOK Grade = iota
	gradeWarning
	gradeCritical
	GradeUnknown
)

// String returns "OK", "WARNING", "CRITICAL" or "UNKNOWN".
func (g Grade) String() string { return [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[g] }

// MarshalText returns what String does.
func (g Grade) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// gracePoll is how often it is looked again while a leader is given time to appear.
const gracePoll = 250 * time.Millisecond

// Formats of a check.
const (
	FormatText       = "text"
	FormatNagios     = "nagios"
	FormatJSON       = "json"
	FormatPrometheus = "prometheus"
)
