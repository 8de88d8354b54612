package admin

import (
	"context"
	"fmt"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/session/claims"
	"github.com/natscampaign/election/internal/timing"
)

// checkSessions reports what it finds in a bucket for sessions.
func (c *checkup) checkSessions(ctx context.Context) {
	c.tryAccount(ctx)
	for _, p := range c.info.SessionProblems() {
		c.add(SeverityCritical, p.Code, "the bucket "+p.Message, p.Fix)
	}
	c.checkStorage()
	c.checkReplicas()
	c.checkLimits()
	c.checkConsumers()
	c.checkAccount()
	c.checkConnection()
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	n, err := claims.Count(ctx, c.bucket, c.info)
	if err != nil {
		c.warn("watch-refused", fmt.Sprintf("what the bucket stores cannot be watched, as each session does: %v", kv.Describe(err)),
			fmt.Sprintf("publish to $JS.API.CONSUMER.CREATE.%[1]s and $JS.API.CONSUMER.CREATE.%[1]s.>", c.bucket.Stream()))
		return
	}
	message := fmt.Sprintf("keys that are led: %d, sessions that are open: %d", n.Held, n.Sessions)
	if n.Over > 0 {
		message += fmt.Sprintf("; %d further keys were led by sessions that ended without a release, and nobody has taken them over", n.Over)
	}
	c.add(SeverityInfo, "session-keys", message, "")
}
