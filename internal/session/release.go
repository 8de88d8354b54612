package session

import (
	"slices"
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// releaseIfQuiet releases the session, and with it all claims, once the work of all has returned.
func (s *Session) releaseIfQuiet(now time.Time) (until time.Time) {
	if now.Before(s.closeAgain) {
		return s.closeAgain
	}
	if !now.Before(s.limit) { // the work of a claim goes on: the session is left to lapse
		s.finish(now, core.Ending{How: core.NotReleased})
		return time.Time{}
	}
	until = s.limit
	for _, c := range s.list { // the loop of one may be late
		if due := c.endedAt.Add(s.Timing.ReleaseTimeout); (c.step == Holding || c.step == Ending) && !c.endedAt.IsZero() {
			if until = earlier(until, due); !now.Before(due) {
				s.releaseOneByOne(now)
				until = s.limit
			}
		}
	}
	named := false           // by a claim that its next owner is to take at once, however late
	wait := time.Duration(0) // for leaders before this session
	for key, st := range s.claims {
		c, own := s.own[key], st.names(s.id)
		named = named || own
		switch {
		case !own:
		case c != nil && c.step == Sharing:
			wait = max(wait, s.waitAfter(now, c))
		default: // a claim that the process does not hold: somebody else may have stored a copy over another's
			wait = s.longestWait()
		}
		switch {
		case own && now.Before(st.keptUntil) && (c == nil || c.step != Sharing):
			return earlier(st.keptUntil, until)
		case c == nil:
		case c.step == Taking, c.step == Holding, c.step == Ending, c.step == Giving, c.step == Returning && own:
			return until
		}
	}
	for _, d := range s.doubtful { // such a claim may be stored
		wait = max(wait, d.ends.Sub(now))
	}
	s.enter(Releasing)
	r := s.sessionRecord()
	r.Released, r.Secret, r.Reason, r.StandDownMs = now.Round(0), s.secret, string(core.Stopped), record.Milliseconds(wait)
	op := Op{Key: SessionKey(s.id), Value: r.Encode(), Replaces: s.revision, Limit: now.Add(s.Timing.RequestTimeout())}
	if !named {
		op.Expires = s.Timing.TTL
	}
	s.request(op, func(now time.Time, answer *Result) {
		switch {
		case s.step != Releasing:
		case answer.Outcome == core.Applied:
			s.finish(now, core.Ending{How: core.KeyReleased})
		case now.Before(s.limit) && s.leads(now):
			s.enter(Open)
			s.closeAgain = now.Add(timing.MinPause)
			s.readBy(now, 0)
		default:
			s.finish(now, core.Ending{How: core.NotConfirmed, Err: answer.Err})
		}
	})
	return time.Time{}
}

// finish ends the terms that waited for the release of the session. Others, whose work goes on, end without it.
func (s *Session) finish(now time.Time, end core.Ending) {
	s.enter(Released)
	for _, c := range s.list {
		if c.step == Sharing {
			c.over(now, end)
		}
	}
	s.touchAll()
}

// releaseOneByOne has the claims be released one by one: the work of one of them goes on, so that the session cannot be released.
func (s *Session) releaseOneByOne(now time.Time) {
	if !s.closing {
		return
	}
	s.oneByOne = true
	for _, c := range s.list {
		if c.step == Sharing {
			c.beginToGive(now)
			s.touch(c)
		}
	}
}

// releaseUnwanted releases a claim of this session that the process does not hold: a write was applied after it was given up, an earlier release
// failed, its work has outlived the release timeout, or somebody else stored a copy. The next owner waits for the longest lease, as if the claim expired.
func (s *Session) releaseUnwanted(now time.Time, key string, st *storedClaim) {
	s.stray = true // until it is known to be released
	if s.unwanted[key] || now.Before(st.keptUntil) {
		return
	}
	s.unwanted[key] = true
	delete(s.doubtful, st.attempt) // it is not held after all: the release may be applied late
	led := uint64(0)
	if c := s.own[key]; c != nil && c.outlived {
		led = st.revision
	}
	r := s.claimRelease(now, st.since, led, st.attempt, s.longestWait(), core.Stopped)
	replaces := st.revision
	s.request(Op{Key: ClaimKey(key), Value: r.Encode(), Replaces: replaces, Limit: now.Add(s.Timing.RequestTimeout())}, func(now time.Time, answer *Result) {
		delete(s.unwanted, key)
		if answer.Outcome == core.Applied {
			s.claimSeen(now, key, &Change{Key: ClaimKey(key), Revision: answer.Revision, Replaced: replaces, Record: r})
		}
	})
}

// releaseAllUnwanted releases the claims of this session that the process does not hold, and has those decide again that watch such a claim: an earlier
// release may have been lost.
func (s *Session) releaseAllUnwanted(now time.Time) {
	if !s.stray {
		return
	}
	var unwanted []string
	s.stray = false
	for key, st := range s.claims {
		c := s.own[key]
		if !st.names(s.id) || c != nil && c.term != nil {
			continue
		}
		s.stray = true
		if c == nil || c.step == NotRunning || c.step == Finished || c.step == Watching || c.step == Returning && c.outlived {
			unwanted = append(unwanted, key)
		}
	}
	slices.Sort(unwanted)
	for _, key := range unwanted {
		if c := s.own[key]; c != nil && c.step == Watching {
			s.touch(c)
			continue
		}
		s.releaseUnwanted(now, key, s.claims[key])
	}
}

// leaseFor returns the lease of a term in the given state. All such terms share it, and it lasts as long as the session's does: so a renewal costs the same,
// however many keys are led.
func (s *Session) leaseFor(state core.State) *core.Lease {
	if s.leases[state] == nil {
		s.leases[state] = &core.Lease{Timing: &s.Timing, State: state, Session: s.shown}
	}
	return s.leases[state]
}
