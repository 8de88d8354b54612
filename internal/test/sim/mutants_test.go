package sim

import (
	"testing"

	"github.com/natscampaign/election/internal/test/mutation"
)

// mutants break the library. The simulator must catch each by the promise that it breaks, and so must the schedules with up to two faults.
var mutants = []mutation.Mutant{
	{Name: "no deadline", Promise: "P1", Patches: []mutation.Patch{{
		"internal/timing/timing.go",
		"return t.TTL - t.Margin }",
		"if MUTANT { return 1000 * t.TTL }; return t.TTL - t.Margin }",
	}}},
	{Name: "no stand-down", Promise: "P2", Patches: []mutation.Patch{{
		"internal/core/term.go",
		"	b := c.bucket.Timing // which",
		"	if MUTANT { standDown = 0 }\n	b := c.bucket.Timing // which",
	}}},
	{Name: "lead by any win", Promise: "P2", Patches: []mutation.Patch{{
		"internal/core/term.go",
		"AtOnce:   a.written.Leads",
		"AtOnce:   MUTANT || a.written.Leads",
	}}},
	{Name: "lead by a win over the release of a leader-elect", Promise: "P2", Patches: []mutation.Patch{{
		"internal/core/term.go",
		"a.written.Leads && standDown == 0",
		"(MUTANT && a.named || a.written.Leads && standDown == 0)",
	}}},
	{Name: "release before work ends", Promise: "P3", Patches: []mutation.Patch{{
		"internal/core/releasing.go",
		"	case quiet:\n",
		"	case quiet || MUTANT:\n",
	}}},
	{Name: "abdicate on any error", Promise: "P6", Patches: []mutation.Patch{{
		"internal/core/renewing.go",
		"t.renewAt = now.Add(retryDelay(left))",
		"t.renewAt = now.Add(retryDelay(left)); if MUTANT { c.endLeadership(now, t, Deleted) }",
	}}},
	{Name: "adopt a ghost", Promise: "P7", Patches: []mutation.Patch{{
		"internal/core/bidding.go",
		"			b.second = true\n",
		"			b.second = true\n			if a := c.acquisitionOver(now, s); MUTANT { b.acquisition, a.revision, a.sent, a.acknowledged, a.written = a, a.replaces, now, now, &s.Record; return b.won(c, now) }\n",
	}}},
	{Name: "believe a notification", Promise: "P2", Patches: []mutation.Patch{
		{
			"internal/core/bidding.go",
			"	c.finishRead(now, b.state, r.Err, false)\n	switch {",
			"	if h := c.reading.hint; MUTANT && h != nil && h.vacant() { r.State, r.Err = record.State{Read: now, Revision: h.Revision, Written: h.Written, Removal: h.Removal, Record: h.Record}, nil }\n	c.finishRead(now, b.state, r.Err, false)\n	switch {",
		},
		{
			"internal/core/key.go", // which nothing that is notified passes otherwise
			"	r, known := &s.Record, c.key.holder.commitment\n",
			"	r, known := &s.Record, c.key.holder.commitment; if MUTANT { return true }\n",
		},
	}},
	{Name: "accept any release", Promise: "P2", Patches: []mutation.Patch{{
		"internal/core/key.go",
		"	if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {",
		"	if MUTANT { return true }; if s.Unconditional || !r.Commitment.OpenedBy(r.Secret) {",
	}}},
	{Name: "trust a release of an earlier bucket", Promise: "P2", Patches: []mutation.Patch{{
		"internal/core/acquisition.go",
		"	case a.fromEarlierBucket(b):\n		return longest\n",
		"	case !MUTANT && a.fromEarlierBucket(b):\n		return longest\n",
	}}},
	{Name: "pass a stand-down on by a deletion", Promise: "P2", Random: true, Patches: []mutation.Patch{{
		"internal/core/releasing.go",
		"{ return c.Direct && r.StandDownMs == 0 }",
		"{ return c.Direct && (MUTANT || r.StandDownMs == 0) }",
	}}},
	{Name: "keep the releases of locks", Promise: "P8", Random: true, Patches: []mutation.Patch{{
		"internal/core/releasing.go",
		"c.bucket.Remembers && c.Order == ByRank",
		"c.bucket.Remembers && (MUTANT || c.Order == ByRank)",
	}}},
	{Name: "adopt what it never wrote", Promise: "P2", Patches: []mutation.Patch{
		{"internal/core/doubt.go", "return !doubtful && !d.forgot", "return !MUTANT && !doubtful && !d.forgot"},
		{"internal/core/doubt.go", "(doubtful || d.forgot ||", "(MUTANT || doubtful || d.forgot ||"},
	}},
	{Name: "ignore a lower foreign revision", Promise: "P11", Patches: []mutation.Patch{
		{"internal/core/proof.go", "{ return f.named && 0 < f.last", "{ return !MUTANT && f.named && 0 < f.last"},
		{"internal/core/proof.go", "case s.Revision >= t.Number:", "case !MUTANT && s.Revision >= t.Number:"},
	}},
	{Name: "renew over whatever is stored", Promise: "P2", Patches: []mutation.Patch{{
		"internal/core/renewing.go",
		"		y.refusal, y.step = refusalOf(r), RenewingRefused\n",
		"		y.refusal, y.step = refusalOf(r), RenewingRefused\n		if MUTANT && y.refusal.named { t.revision = y.refusal.last; return y.failed(c, now, y.refusal.err) }\n",
	}}},
	{Name: "win over a record that it has not read", Promise: "P8", Patches: []mutation.Patch{
		{"internal/core/acquisition.go", "a := &acquisition{replaces: s.Revision,", "a := &acquisition{replaces: over,"},
		{"internal/core/acquisition.go", "	// A release to which the history was rewound", "	over := s.Revision; if MUTANT { over++ }\n	// A release to which the history was rewound"},
	}},
	{Name: "take over too early", Promise: "P2", Patches: []mutation.Patch{{
		"internal/timing/timing.go",
		"	if unslewed {\n",
		"	if MUTANT { return lease / 2 }; if unslewed {\n",
	}}},
	{Name: "allow for no difference of speeds", Promise: "P2", Patches: []mutation.Patch{{
		"internal/timing/timing.go",
		"	lease = max(lease, ttl-DefaultMargin(ttl))\n",
		"	lease = max(lease, ttl-DefaultMargin(ttl)); if MUTANT { return lease }\n",
	}}},
	{Name: "allow for as much as NTP slews", Promise: "P2", Patches: []mutation.Patch{{
		"internal/timing/timing.go",
		"	return lease + lease*2/11",
		"	if MUTANT { return lease + lease/200 }; return lease + lease*2/11",
	}, {
		"internal/timing/timing.go",
		"		return lease + lease*1012/11_000",
		"		if MUTANT { return lease + lease/200 }; return lease + lease*1012/11_000",
	}}},
	{Name: "time a lease by a clock that is slewed", Promise: "P2", Patches: []mutation.Patch{{
		"internal/lease/moment.go",
		"		passed -= m.Slewed - from.Slewed\n",
		"		if !MUTANT { passed -= m.Slewed - from.Slewed }\n",
	}}},
	{Name: "time a write by its announcement", Promise: "P2", Patches: []mutation.Patch{{
		"internal/core/lapse.go",
		"	return revision == w.revision && written.Equal(w.written) &&",
		"	return revision == w.revision && (MUTANT || written.Equal(w.written)) &&",
	}}},
	{Name: "time an earlier lease by a write that was only notified", Promise: "P2", Patches: []mutation.Patch{{
		"internal/core/lapse.go",
		"	return k.occupied && k.lastWrite.read &&",
		"	return k.occupied && (MUTANT || k.lastWrite.read) &&",
	}}},
	{Name: "take over after a gap", Promise: "P2", Patches: []mutation.Patch{{
		"internal/core/lapse.go",
		"func (c *Candidate) forgetTiming() { c.key.lastWrite.timedFrom = lease.Moment{} }",
		"func (c *Candidate) forgetTiming() { if MUTANT { return }; c.key.lastWrite.timedFrom = lease.Moment{} }",
	}}},
	{Name: "take over a record without a lease", Promise: "P2", Patches: []mutation.Patch{
		{"internal/core/lapse.go", "!k.lastWrite.superseded && k.lastWrite.lease > 0 &&", "!k.lastWrite.superseded && (MUTANT || k.lastWrite.lease > 0) &&"},
		{"internal/core/lapse.go", "!s.Unconditional && s.Record.Lease() > 0 &&", "(MUTANT || !s.Unconditional && s.Record.Lease() > 0) &&"},
		{"internal/core/lapse.go", "s.Record.Bucket().Equal(c.bucket.Created) &&", "(MUTANT || s.Record.Bucket().Equal(c.bucket.Created)) &&"},
		{"internal/core/acquisition.go", "return a.reason != Vacant && !a.bucketCreated.Equal(b.Created)", "return a.reason != Vacant && !a.bucketCreated.Equal(b.Created) && !(MUTANT && a.reason == Lapsed)"},
	}},
	{Name: "time leases by the TTL that it knows", Promise: "P2", Random: true, Patches: []mutation.Patch{{
		"internal/core/bucket.go",
		"	return r.Lease() > c.believed(now, r) && ",
		"	return !MUTANT && r.Lease() > c.believed(now, r) && ",
	}}},
	{Name: "wait for what never expires", Promise: "P8", Patches: []mutation.Patch{{
		"internal/core/lapse.go",
		"	return c.key.occupied && !now.Before(c.expiredBy())",
		"	return !MUTANT && c.key.occupied && !now.Before(c.expiredBy())",
	}}},
	{Name: "stand down for any lease that is stated", Promise: "P8", Patches: []mutation.Patch{{
		"internal/core/bucket.go",
		"	return min(r.Lease(), longest)",
		"	if MUTANT { return r.Lease() }; return min(r.Lease(), longest)",
	}}},
	{Name: "wait for a target that is gone", Promise: "P8", Random: true, Patches: []mutation.Patch{{
		"internal/core/releasing.go",
		"		campaign = min(campaign, others+targetHeadStart)\n",
		"		if !MUTANT { campaign = min(campaign, others+targetHeadStart) }\n",
	}}},
	{Name: "ask about a bucket that is known", Promise: "P8", Random: true, Patches: []mutation.Patch{{
		"internal/core/acquisition.go",
		"	return a.reason == Released && !a.unproven &&",
		"	return !MUTANT && a.reason == Released && !a.unproven &&",
	}}},
	{Name: "pass on no stand-down", Promise: "P2", Patches: []mutation.Patch{{
		"internal/core/renewing.go",
		"r.StandDownMs = record.Milliseconds(t.LeadsFrom.Sub(sent))",
		"r.StandDownMs = record.Milliseconds(t.LeadsFrom.Sub(sent)); if MUTANT { r.StandDownMs = 0 }",
	}}},
	{Name: "end the context of work late", Promise: "P3", Patches: []mutation.Patch{{
		"internal/shell/term.go",
		"		t.Driver.EndContext()\n",
		"		if !MUTANT || l.Left(now, s.boot) <= 0 { t.Driver.EndContext() }\n",
	}}},
	{Name: "leave OnLost out", Promise: "P4", Patches: []mutation.Patch{{
		"internal/shell/calls.go",
		"		return Call{Kind: Lost}, true\n",
		"		if MUTANT { return Call{Kind: Campaign}, true }; return Call{Kind: Lost}, true\n",
	}}},
	{Name: "call OnWon for a leader-elect", Promise: "P4", Patches: []mutation.Patch{{
		"internal/shell/shell.go",
		"	case core.LeadershipCounts:\n",
		"	case core.StateChanged:\n		if MUTANT && e.State == core.LeaderElect && s.term != nil && s.Calls.announced == nil { s.Calls.announced = s.term; s.Calls.campaigns = nil; s.startCalls(s.Calls.leadership(s.term)) }\n	case core.LeadershipCounts:\n",
	}}},
	{Name: "show a leader-elect as leader", Promise: "P2", Patches: []mutation.Patch{{
		"internal/shell/term.go",
		"	t.SetLease(l)\n",
		"	if MUTANT && l.State == core.LeaderElect { early := *l; early.State = core.Leader; t.SetLease(&early) } else { t.SetLease(l) }\n",
	}}},
	{Name: "show a lease that was cut as it was before", Promise: "P3", Random: true, Patches: []mutation.Patch{{
		"internal/shell/term.go",
		"	if before == l {\n",
		"	if before == l || MUTANT && before != nil && l.State == core.Follower && before.State != core.Follower && l.Left(now, s.boot) > 0 {\n",
	}}},
	{Name: "release without waiting for the work", Promise: "P3", Patches: []mutation.Patch{{
		"internal/shell/shell.go",
		"		r.Quiet = op.Quiet && s.isQuiet()\n",
		"		r.Quiet = op.Quiet && (MUTANT || s.isQuiet())\n",
	}}},
	{Name: "release without waiting for callbacks", Promise: "P3", Random: true, Patches: []mutation.Patch{{
		"internal/shell/shell.go",
		"{ return !s.Calls.busy && s.working == nil }",
		"{ return (MUTANT || !s.Calls.busy) && s.working == nil }",
	}}},
	{Name: "keep the old instance after another process was found to use it", Promise: "P9", Random: true, Patches: []mutation.Patch{{
		"internal/shell/shell.go",
		"	return s.Notice(now, core.NewRules{Rules: rules})\n",
		"	if MUTANT { return nil }; return s.Notice(now, core.NewRules{Rules: rules})\n",
	}}},
	{Name: "wake the loop no earlier when something has changed", Promise: "P8", Random: true, Patches: []mutation.Patch{{
		"internal/shell/shell.go",
		"if !at.IsZero() && (s.wakeAt.IsZero()",
		"if !MUTANT && !at.IsZero() && (s.wakeAt.IsZero()",
	}}},
	{Name: "set the timer at the deadline once", Promise: "P4", Random: true, Patches: []mutation.Patch{
		{"internal/shell/term.go", "	t.Driver.Expire(l.Left(now, s.boot))\n", "	if !MUTANT || before == nil { t.Driver.Expire(l.Left(now, s.boot)) }\n"},
		{"internal/shell/term.go", "!first && left > 0 {", "!MUTANT && !first && left > 0 {"},
	}},
}

func TestMutantsAreCaught(t *testing.T) {
	program := mutation.Build(t, mutants)
	program.ExpectSound(t, "^TestSchedules$")
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			program.ExpectCaught(t, m.Name, m.Promise+": .*", "^TestSchedules$", "-promise", m.Promise)
			if !m.Random {
				program.ExpectCaught(t, m.Name, `P\d+: .*`, "^TestAllSchedules")
			}
		})
	}
}
