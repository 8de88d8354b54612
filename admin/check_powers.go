package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// powers are permissions by which a user that may not do everything can forge messages. A client cannot ask for its permissions where that is
// not permitted, so they are tried, on subjects that nobody uses.
type powers struct {
	responds      bool // to publish to every subject, by allow_responses
	writesInboxes bool // to publish to the inboxes of others
	readsInboxes  bool // to subscribe to them
}

// selfTimeout is how long a message to this connection itself is waited for.
const selfTimeout = 250 * time.Millisecond

// tryPowers finds out which powers the user has. It finds none of a user that may publish to every subject anyway.
func (c *checkup) tryPowers(ctx context.Context) (p powers) {
	id := record.NewID()
	if _, refused := c.tryPublish(ctx, &nats.Msg{Subject: "election-check." + id}); !refused {
		return p
	}
	p.readsInboxes = c.trySubscribe(ctx, nats.InboxPrefix+id+".*") == nil
	p.writesInboxes, _ = c.tryPublish(ctx, &nats.Msg{Subject: nats.InboxPrefix + id + ".x"})
	p.responds = c.tryToRespond(ctx, control.Subject(c.name, "candidates", c.key)) || c.tryToRespond(ctx, c.bucket.Subject(c.key))
	return p
}

// tryPublish publishes a message, and reports whether the server permits or refuses that. Neither is the case if that is not known.
func (c *checkup) tryPublish(ctx context.Context, m *nats.Msg) (permitted, refused bool) {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	before := c.conn.LastError()
	if c.conn.PublishMsg(m) != nil {
		return false, false
	}
	unclear, err := kv.RefusedSince(ctx, c.conn, before, fmt.Sprintf("Publish to %q", m.Subject))
	return err == nil && !unclear, errors.Is(err, nats.ErrPermissionViolation)
}

// tryToRespond reports whether the user may publish to a subject that it may not publish to, once it has sent itself a request which names
// that subject for the answer. Whoever else receives the request does nothing: nobody answers on that subject, and no bucket stores it.
func (c *checkup) tryToRespond(ctx context.Context, to string) bool {
	sub, err := c.conn.SubscribeSync(to)
	if err != nil {
		return false
	}
	defer func() { _ = sub.Unsubscribe() }()
	request := &nats.Msg{Subject: to, Reply: "election-check." + record.NewID(), Header: nats.Header{"Nats-Expected-Last-Subject-Sequence": {strconv.FormatUint(record.NeverRevision, 10)}}}
	if permitted, _ := c.tryPublish(ctx, request); !permitted {
		return false
	}
	for end := time.Now().Add(selfTimeout); ; {
		m, err := sub.NextMsg(time.Until(end))
		if err != nil {
			return false // the user may not subscribe, or its connection does not echo
		}
		if m.Reply == request.Reply {
			permitted, _ := c.tryPublish(ctx, &nats.Msg{Subject: m.Reply})
			return permitted
		}
	}
}

// checkPowers reports permissions that no user should have.
func (c *checkup) checkPowers() {
	p := c.probes.powers
	if p.responds {
		c.warn("allow-responses", "this user has allow_responses, and so may publish to every subject: it sends itself a request which names that subject for the answer; it can resign every leader, overwrite every key and delete every stream",
			"remove allow_responses, and permit to publish to "+control.AnswerSubject(c.name, "*", c.key)+" instead; docs/PERMISSIONS.md has blocks")
	}
	if p.writesInboxes {
		c.warn("inboxes-writable", "this user may publish to the inboxes of others, and so can forge what the server answers to them: a leader then takes a renewal for stored that was not",
			"permit to publish to "+control.AnswerSubject(c.name, "*", c.key)+" instead; docs/PERMISSIONS.md has blocks")
	}
	if p.readsInboxes {
		c.add(SeverityInfo, "inboxes-readable", "this user may read what the server answers to others below _INBOX", "permit to subscribe to an inbox prefix of its own instead, such as _INBOX_web.>, and connect with that prefix")
	}
}
