package session

import (
	"context"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/session/claims"
	"github.com/natscampaign/election/internal/settings"
)

// claim is what the election of a key has of the session: a settings.Claim.
type claim struct {
	*session.Claim
	s      *Session
	key    string
	hidden func() // has its metric not be shown any more; nil if it is not shown
}

func (c *claim) Lock()                       { c.s.driver.Lock() }
func (c *claim) Unlock()                     { c.s.driver.Unlock() }
func (c *claim) GoOn()                       { c.s.driver.GoOn() }
func (c *claim) Attach(a settings.Attached)  { c.Shell = a }
func (c *claim) Instance() string            { return c.s.driver.ID() }
func (c *claim) Failure() (time.Time, error) { return c.s.driver.Failure() }

// Detach gives the key back: another election of it may be made.
func (c *claim) Detach() {
	if _, known := c.s.claims[c.Claim]; known {
		c.s.driver.Session().Forget(c.Claim)
		delete(c.s.claims, c.Claim)
		delete(c.s.elections, c.key)
		c.hide()
	}
}

// hide has the metric of the key not be shown any more. The mutex is held, for which a scrape may wait.
func (c *claim) hide() {
	if c.hidden != nil {
		go c.hidden()
		c.s.metrics.shown--
		c.hidden = nil
	}
}

// Leader reads the claim, and the session that it names.
func (c *claim) Leader(ctx context.Context) (*settings.Holder, error) {
	stored, err := c.read(ctx, session.ClaimKey(c.key))
	if err != nil || stored.Revision == 0 {
		return &settings.Holder{}, err
	}
	owner, err := c.read(ctx, session.SessionKey(stored.Record.Instance))
	if err != nil {
		return &settings.Holder{}, err
	}
	r, led := session.Holder(stored, owner, time.Now())
	if !led {
		return &settings.Holder{}, nil
	}
	return &settings.Holder{Record: r, Key: c.key, Revision: stored.Revision, Written: owner.Written, TTL: c.s.timing.TTL}, nil
}

// read reads what is stored under a key; the zero value if nothing is.
func (c *claim) read(ctx context.Context, key string) (session.Stored, error) {
	entry, err := c.s.bucket.Get(ctx, key)
	switch {
	case kv.Classify(err) == kv.Absent:
		return session.Stored{}, nil
	case err != nil:
		return session.Stored{}, err
	}
	return claims.StoredIn(entry), nil
}
