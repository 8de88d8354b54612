package session

import (
	"context"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/session"
	"github.com/natscampaign/election/internal/session/claims"
	"github.com/natscampaign/election/internal/settings"
)

// claim is what the election of a key has of the session: a settings.Claim.
type claim struct {
	*session.Claim
	s        *Session
	key      string
	hide     func() // ends that the metrics show who leads; nil if they do not
	detached sync.Once
}

func (c *claim) Lock()                       { c.s.driver.Lock() }
func (c *claim) Unlock()                     { c.s.driver.Unlock() }
func (c *claim) GoOn()                       { c.s.driver.GoOn() }
func (c *claim) Attach(a settings.Attached)  { c.Shell = a }
func (c *claim) Instance() string            { return c.s.driver.ID() }
func (c *claim) Failure() (time.Time, error) { return c.s.driver.FailureOf(c.key, time.Now()) }

// Detach frees the key: another election of it may be made. The metric goes first, for the other election has the same.
func (c *claim) Detach() {
	c.detached.Do(func() {
		if c.hide != nil {
			c.hide()
		}
		c.Lock()
		defer c.Unlock()
		c.s.driver.Session().Forget(c.Claim)
		delete(c.s.claims, c.Claim)
		delete(c.s.elections, c.key)
	})
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
