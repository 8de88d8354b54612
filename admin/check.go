package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// Severity says how much a [Finding] matters.
type Severity int

const (
	// SeverityInfo is good to know.
	SeverityInfo Severity = iota
	// SeverityWarning means that elections work, but worse than they could.
	SeverityWarning
	// SeverityCritical means that elections do not work, or not safely.
	SeverityCritical
)

var severityNames = validate.Enum[Severity]{"info", "warning", "critical"}

// String returns "info", "warning" or "critical".
func (s Severity) String() string { return severityNames.Text(s) }

// MarshalText returns what String does.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Severity) UnmarshalText(text []byte) error { return severityNames.Parse(text, s) }

// Finding is one result of [Check]. The codes are stable:
//
//	no-ttl, ttl-out-of-range   critical   Start refuses the bucket
//	history                    critical   likewise
//	stream-settings            critical   likewise: sealed, unacknowledged, or not kept by limits alone
//	copied-bucket              critical   likewise: the bucket mirrors another stream, or copies from one
//	memory-replicated          critical   term numbers may begin anew without a sign; Start refuses more than one replica
//	options-unfit              critical   Start refuses the options in this bucket
//	claims-expire              critical   of a bucket for sessions: it has a TTL
//	claims-disappear           critical   likewise: records may be deleted, purged or dropped
//	no-stream-leader           critical   nothing can be written
//	write-refused              critical   a key cannot be written
//	replicas-offline           critical   if no majority is left, else warning
//	message-size               critical   if no record fits, warning if one with a long name does not
//	bucket-full                critical   if no further election fits, warning from 80 % on
//	account-full               critical   if the account has no room for a record, warning if none for a long one, and from 80 % on
//	ttl-short, ttl-long        warning    below 2 s, above 1 min
//	memory                     warning    the bucket does not outlive its server
//	not-pinned                 warning    the server may report another time of creation later, which ends the leader's term
//	rollup                     warning    each user who may write one key can remove all others, which this bucket could refuse
//	one-replica                warning    in a cluster
//	even-replicas              warning    an even number survives no more failures than one less
//	replicas-lagging           warning
//	discard-old                warning    a full bucket drops leases instead of refusing writes
//	consumers                  warning    from 80 % of the most that the stream may have
//	outlived                   warning    something is stored under a key for longer than the TTL, and does not expire
//	no-markers                 warning    expiries are not announced; info where bare names are stored or written, or a bucket is for Choria
//	markers-plain-names        warning    expiries are announced where bare names are stored or written
//	markers-long               info       the marker of an expiry is stored for more than a second
//	releases-expire            info       a service that was stopped for longer than the TTL waits at its start
//	republish                  warning    changes are not republished whole; info if the connection is not known
//	read-refused               warning    a key cannot be read
//	request-refused            warning    an operator cannot ask candidates
//	answers-refused            warning    an operator cannot receive the answers of candidates; info if a candidate cannot answer
//	allow-responses            warning    the user may publish to every subject
//	inboxes-writable           warning    the user may publish to the inboxes of others
//	watch-refused              warning    changes cannot be watched; info where candidates are notified otherwise, or key by key
//	subscribe-refused          warning    what is republished cannot be subscribed to
//	reconnect-buffer           warning    the connection sends writes late
//	reconnects-limited         warning    the connection gives up: after some attempts, or after refused credentials
//	ping-interval              warning    the client notices late that the network has forgotten the connection
//	republish-unused           info       changes are republished, but the connection is not known
//	attempts-refused           info       a leader cannot see candidates, so that its release names no successors
//	inboxes-readable           info       the user may read what the server answers to others
//	not-inspected              info       the bucket does not describe the stream behind it
//	session-keys               info       how many keys sessions lead, and how many were led by sessions that are over
//	expect-release             info       the time without a leader after a release
//	expect-crash               info       after the crash of the leader
//	expect-eviction            info       after somebody deleted the leader's key
//	expect-outage              info       the outage of the server that a term survives
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`       // what is wrong, with the value
	Fix      string   `json:"fix,omitempty"` // what to do about it; empty if nothing needs to be done
	Short    string   `json:"-"`             // the message in a line for people, with durations of two digits; empty if Message is one
}

// Role is what the user of a connection is for: it decides which permissions a check asks for. The values match the blocks of
// docs/PERMISSIONS.md.
type Role int

const (
	// RoleCandidate campaigns.
	RoleCandidate Role = iota
	// RoleObserver reads who leads, and changes nothing.
	RoleObserver
	// RoleOperator lists candidates, and asks leaders to hand over.
	RoleOperator
)

var roleNames = validate.Enum[Role]{"candidate", "observer", "operator"}

// String returns "candidate", "observer" or "operator".
func (r Role) String() string { return roleNames.Text(r) }

// MarshalText returns what String does.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Role) UnmarshalText(text []byte) error { return roleNames.Parse(text, r) }

// probeKey is the key that [Check] tries to read and to write.
const probeKey = "election-check"

// Check reports what about the bucket, its server, the connection's permissions and these options is wrong for elections, the worst
// first, and which failover times to expect. Give it the options that the elections are given. It finds out more if the bucket knows its
// connection. The findings are those of one moment and of this connection: candidates with other credentials have to check for
// themselves.
//
// In a bucket for sessions, see package session, it reports what makes the bucket unfit for these, the state of the stream, and how many keys sessions lead. It
// tests no permission there but that to watch the bucket, and the options have no effect.
//
// Check writes nothing. It tests whether a key may be written by an update of the key "election-check" that the server must refuse
// whenever it arrives, and whether a key may be read by reading that one: where permission is granted for single keys, grant it for this
// key too, or use [CheckKey]. It checks the limits of the account only where it may publish to $JS.API.INFO, which no role needs. Where a
// server refuses without a sign, Check may take some 8 s. It also tries what a user should not be permitted, so that the server logs
// refusals.
//
// The error wraps [election.ErrInvalidOption] for options that cannot be used, and [election.ErrBucketUnsuitable] for a bucket that does
// not exist. Any other error means that the bucket cannot be inspected, or that ctx ended before.
func Check(ctx context.Context, bucket jetstream.KeyValue, opts ...election.Option) ([]Finding, error) {
	return CheckKey(ctx, bucket, probeKey, opts...)
}

// CheckKey is [Check] with the given key in place of "election-check".
func CheckKey(ctx context.Context, bucket jetstream.KeyValue, key string, opts ...election.Option) ([]Finding, error) {
	return CheckAs(ctx, bucket, RoleCandidate, key, opts...)
}

// CheckAs is [CheckKey] for a user of the given role. It does not report the lack of a permission that the role does not need, and tries
// to write the key for [RoleCandidate] only. The forecasts are for candidates in any case. An empty key stands for "election-check".
func CheckAs(ctx context.Context, bucket jetstream.KeyValue, role Role, key string, opts ...election.Option) ([]Finding, error) {
	key = cmp.Or(key, probeKey)
	s, err := settings.Of(opts, "name", key, bucket)
	if err != nil {
		return nil, err
	}
	c := &checkup{Options: s, bucket: s.Bucket(bucket), name: bucket.Bucket(), role: role, key: key}
	c.conn = c.bucket.Conn()
	c.info, err = c.bucket.LoadUntilRefused(ctx)
	switch {
	case kv.Classify(err) == kv.Unusable:
		return nil, fmt.Errorf("%w: %q cannot be used: %w", election.ErrBucketUnsuitable, c.name, err)
	case err != nil:
		return nil, fmt.Errorf("bucket %q cannot be inspected, which takes permission to publish to $JS.API.STREAM.INFO.%s: %w", c.name, c.bucket.Stream(), err)
	}
	if c.info.Stream != nil {
		c.stream = *c.info.Stream
	}
	if c.info.SessionTTL > 0 {
		c.checkSessions(ctx)
	} else {
		c.checkElections(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("the check of bucket %q did not finish: %w", c.name, err)
	}
	slices.SortStableFunc(c.findings, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	return c.findings, nil
}

// checkElections reports what it finds in a bucket of elections.
func (c *checkup) checkElections(ctx context.Context) {
	c.probe(ctx)
	c.info.PlainNames = c.PlainValue || c.probes.plains > 0
	for _, p := range c.info.Problems() {
		c.add(SeverityCritical, p.Code, "the bucket "+p.Message, p.Fix)
	}
	c.checkTTL()
	c.checkStorage()
	c.checkIdentity()
	c.checkRollUps()
	c.checkReplicas()
	c.checkLimits()
	c.checkConsumers()
	c.checkAccount()
	c.checkOutlived(ctx)
	c.checkNotifications()
	c.checkPermissions()
	c.checkConnection()
	c.forecast()
}

// checkup is one call of CheckKey.
type checkup struct {
	*settings.Options
	bucket   *kv.Bucket
	name     string     // of the bucket
	role     Role       // of the user of the connection
	key      string     // to be probed
	conn     *nats.Conn // nil if it is not known
	info     kv.Info
	stream   jetstream.StreamInfo // zero if the bucket does not describe it
	timing   *timing.Timing       // nil if the options do not fit the bucket
	probes   probes
	findings []Finding
}

func (c *checkup) add(s Severity, code, message, fix string) {
	c.findings = append(c.findings, Finding{Code: code, Severity: s, Message: message, Fix: fix})
}

// shorten gives the last finding a short text.
func (c *checkup) shorten(text string) { c.findings[len(c.findings)-1].Short = text }

func (c *checkup) warn(code, message, fix string) { c.add(SeverityWarning, code, message, fix) }
