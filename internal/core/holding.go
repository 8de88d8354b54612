package core

import (
	"time"

	"github.com/natscampaign/election/internal/timing"
)

const (
	// minRenewal is the least time from one renewal to another for which something new is the reason.
	minRenewal = 10 * timing.MinPause
	// NewcomerPart bounds how often newcomers have a leader renew before its time: once in one of so many parts of the TTL. Until a candidate has been
	// notified of a renewal it knows only that the lease began before its own start, and the key expires before it can take over.
	NewcomerPart = 16
)

// holding is the role of a leader or leader-elect between two renewals. All that it knows is in the term.
type holding struct{}

// holdKey has the candidate hold the key that it won. If there is a reason for the term to end, it ends at once.
func (c *Candidate) holdKey(now time.Time, t *Term, queue []string, ends Reason) role {
	c.term = t
	switch {
	case c.stopping: // it was stopped while it campaigned, and no other candidate should see it lead
		c.endLeadership(now, t, Stopped)
	case ends != "":
		c.endLeadership(now, t, ends)
	case t.AtOnce && c.lasts(now, t):
		l := *t.Lease
		l.State = Leader
		t.Lease = &l
		t.renewAt = t.due()
		c.beginToLead(t)
	}
	c.recordAttempts(true)
	c.inherit(now, queue)
	return holding{}
}

func (holding) at() Step { return HoldingWait }

func (holding) next(c *Candidate, now time.Time) Op {
	t := c.term
	if t.Lease.State == Follower {
		return Op{Kind: Wait, Due: now, Until: now}
	}
	c.bringForward(now, t)
	return Op{Kind: Wait, Due: t.renewAt, Until: earlier(c.readDue(), t.renewAt)}
}

func (h holding) done(c *Candidate, now time.Time, _ Result) role {
	t, hint := c.term, c.readDue()
	switch {
	case t.Lease.State == Follower:
		return c.beginToRelease(now, t)
	case !hint.IsZero() && !now.Before(hint):
		return c.verify(now, t)
	case !now.Before(t.renewAt):
		return c.renew(now, t, h)
	}
	return h
}

// bringForward brings the next renewal forward if there is a reason to.
func (c *Candidate) bringForward(now time.Time, t *Term) {
	c.adapt(now, t) // which the last try left to be done
	if t.renewSoon {
		t.renewSoon = false
		t.renewAt = earlier(t.renewAt, t.sent.Add(minRenewal))
	}
	soon := t.sent.Add(c.bucket.TTL / NewcomerPart)
	if c.others.enough {
		soon = t.sent.Add(timing.MinPause)
	}
	if c.others.newcomer && soon.Before(t.renewAt) {
		t.regular, t.renewAt = later(t.regular, t.renewAt), later(now, soon)
	}
	c.others.newcomer, c.others.enough = false, false
}
