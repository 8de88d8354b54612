package sessions

import (
	"testing"

	"github.com/natscampaign/election/internal/test/mutation"
)

// mutants break package session, one rule or guard each. The simulator must catch each by the promise that it breaks.
var mutants = []mutation.Mutant{
	// vacancy.go: which claims may be taken, and for how long their taker waits.
	{Name: "wait for nobody over a key that was never claimed", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"		return s.lapses(now, s.openedAt, 0), true\n",
		"		if MUTANT { return now, true }; return s.lapses(now, s.openedAt, 0), true\n",
	}}},
	{Name: "wait for nobody over what a stranger wrote", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"	case foreign: // the session",
		"	case foreign: if MUTANT { return now, true } // the session",
	}}},
	{Name: "wait for nobody over a release", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"	case released:\n",
		"	case released: if MUTANT { return now, true }\n",
	}}},
	{Name: "wait for a lease after a release", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"		return s.passedOn(now, c), true\n",
		"		if MUTANT { return s.lapses(now, c.seen, 0), true }; return s.passedOn(now, c), true\n",
	}}},
	{Name: "wait for nobody over a copy of a claim", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"		return timeutil.Later(ends, s.lapses(now, c.seen, 0)), true\n",
		"		if MUTANT { return ends, true }; return timeutil.Later(ends, s.lapses(now, c.seen, 0)), true\n",
	}}},
	{Name: "wait for a session that was released", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"		return timeutil.Later(s.after(now, c.seen, c.known), s.after(now, o.closedAt, o.settles)), true\n",
		"		if MUTANT { return s.lapses(now, o.closedAt, 0), true }; return timeutil.Later(s.after(now, c.seen, c.known), s.after(now, o.closedAt, o.settles)), true\n",
	}}},
	{Name: "take the claims of a session at once that somebody else closed", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"		return timeutil.Later(ends, s.lapses(now, o.timed, o.lease)), true\n",
		"		if MUTANT { return ends, true }; return timeutil.Later(ends, s.lapses(now, o.timed, o.lease)), true\n",
	}}},
	{Name: "time a lease by another renewal than was closed over", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"o.closedOver == o.renewal)",
		"(MUTANT || o.closedOver == o.renewal))",
	}}},
	{Name: "take the claims of a closed session at once that nobody here timed", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"		return timeutil.Later(ends, s.lapses(now, o.closedAt, o.lease)), true\n",
		"		if MUTANT { return ends, true }; return timeutil.Later(ends, s.lapses(now, o.closedAt, o.lease)), true\n",
	}}},
	{Name: "take a claim once a lease is over, though its session is not closed", Promise: "P6", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"	switch ends = s.passedOn(now, c); {\n",
		"	switch ends = s.passedOn(now, c); {\n	case MUTANT && o.status == open && o.timed.Known() && !now.Before(s.lapses(now, o.timed, o.lease)):\n		return now, true\n",
	}}},
	{Name: "pass over for how long a taker waits by its own word", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"	return s.after(now, c.seen, max(c.wait, c.known))\n",
		"	if MUTANT { return now }; return s.after(now, c.seen, max(c.wait, c.known))\n",
	}}},
	{Name: "wait for as long as anybody states", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"	wait = min(wait, s.longestWait())\n",
		"	if !MUTANT { wait = min(wait, s.longestWait()) }\n",
	}}},
	{Name: "believe a taker of the claim of a session that is open", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"		if !vacant {\n			return s.longestWait()\n",
		"		if !vacant && !MUTANT {\n			return s.longestWait()\n",
	}}},
	{Name: "believe a taker of the claim of a session that was closed early", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"		return min(s.longestWait(), max(0, ends.Sub(now)))\n",
		"		if MUTANT && before.kind == claimed { return max(0, s.passedOn(now, before).Sub(now)) }\n		return min(s.longestWait(), max(0, ends.Sub(now)))\n",
	}}},
	{Name: "allow for no difference of speeds", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"	left := timing.LapseTime(length, s.Timing.TTL, unslewed) - passed\n",
		"	left := timing.LapseTime(length, s.Timing.TTL, unslewed) - passed; if MUTANT { left = length - passed }\n",
	}}},

	// stored.go: what is believed.
	{Name: "believe the release of a claim by another secret", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/stored.go",
		"isRelease && (anybodys ||",
		"isRelease && (MUTANT || anybodys ||",
	}}},
	{Name: "believe the release of a claim without a secret", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/stored.go",
		" && r.Commitment.OpenedBy(r.Secret):\n		c.kind",
		" && (MUTANT || r.Commitment.OpenedBy(r.Secret)):\n		c.kind",
	}}},
	{Name: "believe the release of a session by another secret", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/stored.go",
		"r.Commitment != o.commitment && o.commitment !=",
		"!MUTANT && r.Commitment != o.commitment && o.commitment !=",
	}}},
	{Name: "believe the release of a session without a secret", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/stored.go",
		"	case isRelease && r.Commitment.OpenedBy(r.Secret):\n",
		"	case isRelease && (MUTANT || r.Commitment.OpenedBy(r.Secret)):\n",
	}}},
	{Name: "take a session for open that was closed", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/stored.go",
		"r.Instance != id, r.ClosedBy != \"\",",
		"r.Instance != id, !MUTANT && r.ClosedBy != \"\",",
	}}},

	// session.go: the session.
	{Name: "count a lease from the answer", Promise: "P1", Patches: []mutation.Patch{{
		"internal/session/session.go",
		"	length := s.Timing.LeaseTime()\n",
		"	length := s.Timing.LeaseTime(); if MUTANT { t.sent = now }\n",
	}}},
	{Name: "verify a renewal by its answer", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/session.go",
		"		s.readBy(now.Add(verifyTime), r.Revision)\n",
		"		if x := *t; MUTANT && s.position > 0 { s.delivered = &x; s.verify(now) } else { s.readBy(now.Add(verifyTime), r.Revision) }\n",
	}}},
	{Name: "renew a session that was closed", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/session.go",
		"		s.lose(now, core.Overwritten,",
		"		if MUTANT { s.revision = ch.Revision; return }\n		s.lose(now, core.Overwritten,",
	}}},
	{Name: "keep a session whose lease is over", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/session.go",
		"		s.lose(now, core.Deadline, \"the lease is over\")\n",
		"		if MUTANT { return time.Time{} }\n		s.lose(now, core.Deadline, \"the lease is over\")\n",
	}}},
	{Name: "settle a bucket that is younger than a lease", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/session.go",
		"	if due := s.lapses(now, s.openedAt, 0); now.Before(due) {\n",
		"	if due := s.lapses(now, s.openedAt, 0); !MUTANT && now.Before(due) {\n",
	}}},
	{Name: "believe that a bucket is settled, however it was written", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/session.go",
		"	if ch.Key == settledKey && !ch.Unconditional &&",
		"	if ch.Key == settledKey && (MUTANT || !ch.Unconditional) &&",
	}}},
	{Name: "keep what a read shows not to be stored", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/reading.go",
		"	s.correct(now, stored, r.Position, anew)\n",
		"	if !MUTANT { s.correct(now, stored, r.Position, anew) }\n",
	}}},
	{Name: "take a session for open whose record has expired", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/reading.go",
		"		case o.status == open && isGone(SessionKey(id)):\n			o.status, o.closedAt",
		"		case !MUTANT && o.status == open && isGone(SessionKey(id)):\n			o.status, o.closedAt",
	}}},
	{Name: "take the own record for one of another session if a read shows it twice", Promise: "P9", Patches: []mutation.Patch{{
		"internal/session/reading.go",
		"ch.Key != SessionKey(s.id) && !s.isBehind(ch, r.Position)",
		"(ch.Key != SessionKey(s.id) || MUTANT && ch != own) && !s.isBehind(ch, r.Position)",
	}}},
	{Name: "read everything at each renewal", Promise: "P9", Patches: []mutation.Patch{{
		"internal/session/session.go",
		"	if len(s.reads.missing) == 0 && now.Before(s.reads.at) {\n		s.reads.at = time.Time{}\n	}\n",
		"	if len(s.reads.missing) == 0 && now.Before(s.reads.at) {\n		s.reads.at = time.Time{}\n	}; if MUTANT { s.reads.at = now }\n",
	}}},
	{Name: "never close a session whose lease has lapsed", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/others.go",
		"		if o.named == 0 || o.status",
		"		if MUTANT || o.named == 0 || o.status",
	}}},
	{Name: "close a session whose lease lasts", Promise: "P6", Patches: []mutation.Patch{{
		"internal/session/others.go",
		"slewPrecision); now.Before(at) {",
		"slewPrecision); now.Before(at) && (!MUTANT || now.Before(at.Add(-s.Timing.TTL/3))) {",
	}}},
	{Name: "never ask why a session could not be closed", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/others.go",
		"			o.refusedAt = time.Time{} // the",
		"			if MUTANT { continue }\n			o.refusedAt = time.Time{} // the",
	}}},
	{Name: "forget sessions that claims name", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/others.go",
		"		case named[id], o.closing:\n",
		"		case MUTANT: delete(s.others, id)\n		case named[id], o.closing:\n",
	}}},

	// claim.go: one key.
	{Name: "lead beside the leaders before", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/claim.go",
		"	case now.Before(t.LeadsFrom):\n",
		"	case !MUTANT && now.Before(t.LeadsFrom):\n",
	}}},
	{Name: "never prove a claim", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/session.go",
		"				c.proven = true\n",
		"				c.proven = !MUTANT\n",
	}}},
	{Name: "use the number of a term again", Promise: "P5", Patches: []mutation.Patch{{
		"internal/session/claim.go",
		"	case own && c.wants(now) && st.revision == c.lastTerm: //",
		"	case MUTANT && own && c.wants(now) && st.revision == c.lastTerm:\n		c.holdKey(now, st, timeutil.Later(now, s.passedOn(now, st)), st.since, core.Reclaimed)\n		return\n	case own && c.wants(now) && st.revision == c.lastTerm: //",
	}}},
	{Name: "lead on though the claim was overwritten", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/claim.go",
		"		c.lost(now, core.Overwritten)\n",
		"		if !MUTANT { c.lost(now, core.Overwritten) }\n",
	}}},
	{Name: "release a claim before callbacks and work have returned", Promise: "P3", Patches: []mutation.Patch{{
		"internal/session/claim.go",
		"	case quiet:\n",
		"	case quiet || MUTANT:\n",
	}}},

	{Name: "leave claims in the queue", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/claim.go",
		"	for len(s.queue) > 0 && s.claimsLeft() > 0 {\n",
		"	for !MUTANT && len(s.queue) > 0 && s.claimsLeft() > 0 {\n",
	}}},
	{Name: "take a key again at once that was resigned", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/claim.go",
		"		c.yields = now.Add(c.s.Timing.TTL)\n",
		"		if !MUTANT { c.yields = now.Add(c.s.Timing.TTL) }\n",
	}}},
	{Name: "leave a key to no successor", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/vacancy.go",
		"		return to.ID ==",
		"		return !MUTANT && to.ID ==",
	}}},
	{Name: "believe one read that the own session is gone", Promise: "P6", Patches: []mutation.Patch{{
		"internal/session/reading.go",
		"	case s.step == Open && anew:\n",
		"	case s.step == Open && (MUTANT || anew):\n",
	}}},
	{Name: "lead on after the loop has panicked", Promise: "P7", Patches: []mutation.Patch{{
		"internal/shell/shell.go",
		"	if s.term != nil {\n		s.core.Notice(now, core.End{",
		"	if s.term != nil && !MUTANT {\n		s.core.Notice(now, core.End{",
	}, {
		"internal/shell/shell.go",
		"	s.publish(now)\n	s.returned",
		"	if !MUTANT { s.publish(now) }\n	s.returned",
	}}},
	{Name: "begin the work again that has returned by itself", Promise: "P3", Patches: []mutation.Patch{{
		"internal/session/claim.go",
		"c.stopping || t.Reason == core.WorkEnded",
		"c.stopping || !MUTANT && t.Reason == core.WorkEnded",
	}}},
	{Name: "release at once what a loop that panicked has left", Promise: "P3", Patches: []mutation.Patch{{
		"internal/session/claim.go",
		"			st.keptUntil = now.Add(c.s.Timing.TTL)\n",
		"			if !MUTANT { st.keptUntil = now.Add(c.s.Timing.TTL) }\n",
	}}},

	// records.go and release.go.
	{Name: "state no wait in a claim, and know of none", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/records.go",
		"	r.StandDownMs, r.Won = record.Milliseconds(wait), string(won)\n",
		"	r.StandDownMs, r.Won = record.Milliseconds(wait), string(won); if MUTANT { r.StandDownMs = 0 }\n",
	}, {
		"internal/session/vacancy.go",
		"c *storedClaim, r *record.Record) time.Duration {\n",
		"c *storedClaim, r *record.Record) time.Duration {\n	if MUTANT { return 0 }\n",
	}}},
	{Name: "state no wait in the release of a claim, and know of none", Promise: "P2", Patches: []mutation.Patch{{
		"internal/session/claim.go",
		"	return max(0, c.term.LeadsFrom.Sub(now))\n",
		"	if MUTANT { return 0 }; return max(0, c.term.LeadsFrom.Sub(now))\n",
	}, {
		"internal/session/vacancy.go",
		"c *storedClaim, r *record.Record) time.Duration {\n",
		"c *storedClaim, r *record.Record) time.Duration {\n	if MUTANT { return 0 }\n",
	}}},
	{Name: "release a session while work goes on", Promise: "P3", Patches: []mutation.Patch{{
		"internal/session/release.go",
		"		case c == nil:\n",
		"		case c == nil, MUTANT:\n",
	}}},
	{Name: "release a session with a claim whose work goes on after it was given up", Promise: "P3", Patches: []mutation.Patch{{
		"internal/session/release.go",
		"c.step == Returning && own:\n",
		"!MUTANT && c.step == Returning && own:\n",
	}, { // else that claim is released before
		"internal/session/release.go",
		"c.step == Returning && c.outlived {",
		"!MUTANT && c.step == Returning && c.outlived {",
	}}},
	{Name: "lead by a notice", Promise: "P4", Patches: []mutation.Patch{{
		"internal/session/claim.go",
		"	c.s.touch(c)\n	return nil\n",
		"	if MUTANT { c.decide(now, false); return c.takeEvents() }; c.s.touch(c)\n	return nil\n",
	}}},
	{Name: "leave a key to nobody while work goes on", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/release.go",
		"c.step == Returning && c.outlived {",
		"!MUTANT && c.step == Returning && c.outlived {",
	}}},
	{Name: "have nobody wait for work that goes on", Promise: "P3", Patches: []mutation.Patch{{
		"internal/session/release.go",
		"st.attempt, s.longestWait(), core.Stopped)",
		"st.attempt, map[bool]time.Duration{false: s.longestWait()}[MUTANT], core.Stopped)",
	}}},
	{Name: "try once to release a claim that the process does not hold", Promise: "P8", Patches: []mutation.Patch{{
		"internal/session/release.go",
		"|| c.step == Finished || c.step == Watching ||",
		"|| c.step == Finished || !MUTANT && c.step == Watching ||",
	}}},
}

func TestMutantsAreCaught(t *testing.T) {
	program := mutation.Build(t, mutants)
	program.ExpectSound(t, "^TestSchedules$", "-schedules", "300") // without mutants TestSchedules plays more
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			program.ExpectCaught(t, m.Name, m.Promise+": .*", "^TestSchedules$", "-promise", m.Promise)
		})
	}
}
