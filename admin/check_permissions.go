package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

const (
	// maxEntries is how many entries of a bucket are read at most.
	maxEntries = 1000
	// maxNamedKeys is how many of the keys that hold bare names are named, and of those that outlived the TTL.
	maxNamedKeys = 3
	// probeInterval is how long a probe has before the next one begins beside it.
	probeInterval = 100 * time.Millisecond
)

// probes are the results of trying what candidates do: nil for what succeeded, or was not tried.
type probes struct {
	read, write, watch, watchOne, subscribe, attempts error

	account *jetstream.AccountInfo // nil if the account could not be asked for

	requests []string // the verbs of requests to candidates that are refused
	answers  error    // to those requests: to receive them, or for a candidate to give them

	powers powers

	plain  []string // the first few keys that hold bare names
	plains int      // how many keys do, among the entries that were read

	outlived []outlived // the keys that are older than the TTL, among these entries
	stored   outlived   // what is stored under the key that was read; zero if it is not as old
}

// outlived is a value that did not expire at the end of the TTL.
type outlived struct {
	key      string
	revision uint64
	age      time.Duration
	writer   string
}

// String describes the value.
func (o outlived) String() string {
	return fmt.Sprintf("%q (written %v ago by %s, revision %d)", o.key, timeutil.TwoDigits(o.age), o.writer, o.revision)
}

// outlivedBy returns the value of an entry that is older than the TTL; zero if it is not, or releases the key: that may last, and hinders nobody.
func (c *checkup) outlivedBy(key string, revision uint64, written time.Time, r record.Record) outlived {
	age := c.stream.TimeStamp.Sub(written)
	if _, released := r.IsRelease(); released || c.info.Stream == nil || c.info.TTL <= 0 || age <= c.info.TTL+timing.ExpiryLateness {
		return outlived{}
	}
	writer := strconv.Quote(r.Name)
	switch {
	case kv.IsOtherData(key, r.Instance, r.Name, r.Interval()), r.Name == "":
		writer = "somebody"
	case r.Host != "":
		writer += " on " + strconv.Quote(r.Host)
	}
	return outlived{key, revision, age, writer}
}

// probe finds out what is permitted. The subscriptions come first and one by one: the client remembers only the last refusal.
func (c *checkup) probe(ctx context.Context) {
	p := &c.probes
	if c.role == RoleCandidate && c.conn != nil && c.info.Republish != "" {
		p.subscribe = c.trySubscribe(ctx, c.info.Republish)
	}
	if c.role == RoleCandidate && c.conn != nil {
		p.attempts = c.trySubscribe(ctx, c.bucket.Subject(c.key))
	}
	if c.role == RoleOperator && c.conn != nil {
		p.requests = control.Client{Bucket: c.bucket}.Refused(ctx, c.key)
		p.answers = c.trySubscribe(ctx, control.AnswerSubject(c.name, record.NewID(), c.key))
	}
	if c.conn != nil {
		p.powers = c.tryPowers(ctx)
	}
	if c.conn != nil && c.role == RoleCandidate && !p.powers.responds {
		if _, refused := c.tryPublish(ctx, &nats.Msg{Subject: control.AnswerSubject(c.name, record.NewID(), c.key)}); refused {
			p.answers = c.conn.LastError()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	tries := []func(context.Context){c.tryRead, c.tryWatch, c.tryWatchOne}
	if c.role == RoleCandidate {
		tries = append(tries, c.tryWrite)
	}
	if c.conn != nil {
		tries = append(tries, c.tryAccount)
	}
	var all sync.WaitGroup
	for _, try := range tries {
		done := make(chan struct{})
		all.Go(func() {
			defer close(done)
			try(ctx)
		})
		select { // one after the other where the server answers, or refuses at once: then it is clear what is refused
		case <-done:
		case <-time.After(probeInterval):
		}
	}
	all.Wait()
}

func (c *checkup) tryRead(ctx context.Context) {
	c.probes.read = kv.UntilRefused(ctx, c.conn, c.bucket.ToRead(c.key), func(ctx context.Context) error {
		s, err := c.bucket.Read(ctx, c.key)
		if err == nil && s.Removal == record.Kept {
			c.probes.stored = c.outlivedBy(c.key, s.Revision, s.Written, s.Record)
		}
		return err
	})
}

func (c *checkup) tryWrite(ctx context.Context) {
	err := kv.UntilRefused(ctx, c.conn, c.bucket.ToWrite(c.key), func(ctx context.Context) error {
		_, err := c.bucket.Update(ctx, c.key, nil, record.NeverRevision)
		return err
	})
	if kv.Classify(err) != kv.Refused {
		c.probes.write = err
	}
}

// tryAccount asks for the account, which no role needs.
func (c *checkup) tryAccount(ctx context.Context) {
	if account, err := c.bucket.Account(ctx); err == nil {
		c.probes.account = account
	}
}

// tryWatchOne watches one key, as a process does that has one election.
func (c *checkup) tryWatchOne(ctx context.Context) {
	w, err := c.bucket.StartWatcher(ctx, c.key, func(ctx context.Context) (jetstream.KeyWatcher, error) { return c.bucket.Watch(ctx, c.key) })
	if c.probes.watchOne = err; err == nil {
		kv.StopWatcher(w)
	}
}

func (c *checkup) trySubscribe(ctx context.Context, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	before := c.conn.LastError()
	sub, err := c.conn.SubscribeSync(subject)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	_, err = kv.RefusedSince(ctx, c.conn, before, fmt.Sprintf("Subscription to %q", subject))
	return err
}

// tryWatch starts a watcher of the bucket, and reads what is stored.
func (c *checkup) tryWatch(ctx context.Context) {
	w, err := c.bucket.StartWatcher(ctx, ">", func(ctx context.Context) (jetstream.KeyWatcher, error) { return c.bucket.WatchAll(ctx) })
	if c.probes.watch = err; err != nil {
		return
	}
	defer kv.StopWatcher(w)
	for range maxEntries {
		select {
		case <-ctx.Done():
			return // the watcher was started, and some of what is stored was read
		case entry, ok := <-w.Updates():
			if !ok || entry == nil {
				return
			}
			if entry.Operation() != jetstream.KeyValuePut {
				continue
			}
			r := record.Parse(entry.Value(), entry.Revision())
			if o := c.outlivedBy(entry.Key(), entry.Revision(), entry.Created(), r); o.key != "" {
				c.probes.outlived = append(c.probes.outlived, o)
			} else if isBareName(entry.Value(), r) {
				if c.probes.plains++; len(c.probes.plain) < maxNamedKeys {
					c.probes.plain = append(c.probes.plain, strconv.Quote(entry.Key()))
				}
			}
		}
	}
}

// isBareName reports whether a value is the name of a leader, and no more. An object is none: it is a record, or what a group stores.
func isBareName(value []byte, r record.Record) bool {
	var object map[string]json.RawMessage
	return r.Instance == "" && json.Unmarshal(value, &object) != nil
}

// refused adds a finding about a probe that failed. The message says what failed, and then what follows from it; permission is what to
// grant if the server was silent, or refused. Where nothing can be written, only what the server says is a refusal.
func (c *checkup) refused(s Severity, code, message, then string, err error, permission string) {
	if c.isDown() && !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	why, short, fix := err.Error(), err.Error(), "correct what the error names"
	switch {
	case kv.Failure(err) == kv.FailedTimeout:
		why, short = fmt.Sprintf("there was no answer within %v, as when it is not permitted", timing.RequestTimeout), "no answer, as when it is not permitted"
		fix = "permit to " + permission
	case errors.Is(err, nats.ErrPermissionViolation):
		why, short, fix = "not permitted", "not permitted", "permit to "+permission
	}
	c.add(s, code, message+": "+why+then, fix)
	c.shorten(message + ": " + short)
}

// checkPermissions reports what the probes found.
func (c *checkup) checkPermissions() {
	bucket, key, single, p := c.bucket.Subject(">"), fmt.Sprintf("%q", c.key), "", c.probes
	if c.key == probeKey {
		single = "; where permission is granted for single keys, grant it for this key too, under which nothing is ever stored"
	}
	if p.write != nil {
		c.refused(SeverityCritical, "write-refused", "the key "+key+" cannot be written by this user", "", p.write,
			fmt.Sprintf("publish to %s, or to %s%s; if this user does not campaign, check as RoleObserver or RoleOperator", bucket, c.bucket.Subject(c.key), single))
	}
	if p.read != nil {
		then := ""
		if c.role == RoleCandidate {
			then = "; a candidate that cannot read its key takes over no release, waits until the key and its marker are gone, and loses its term when the answer to a renewal is lost"
		}
		c.refused(SeverityWarning, "read-refused", "the key "+key+" cannot be read by this user", then, p.read, c.readPermission()+single)
	}
	if len(p.requests) > 0 {
		var subjects []string
		for _, verb := range p.requests {
			subjects = append(subjects, control.Subject(c.name, verb, c.key))
		}
		c.warn("request-refused", fmt.Sprintf("candidates of %s cannot be asked: not permitted: %s", key, strings.Join(p.requests, ", ")), "permit to publish to "+strings.Join(subjects, " and to "))
	}
	switch answers := control.AnswerSubject(c.name, "*", c.key); {
	case p.answers == nil:
	case c.role == RoleCandidate:
		c.refused(SeverityInfo, "answers-refused", "requests of operators and candidates about "+key+" cannot be answered", "; only a candidate that answers is asked to resign or is transferred to", p.answers, "publish to "+answers+single)
	default:
		c.refused(SeverityWarning, "answers-refused", "the answers of candidates of "+key+" cannot be received", "", p.answers, "subscribe to "+answers)
	}
	c.checkPowers()
	c.checkWatchPermission()
	if p.subscribe != nil {
		c.refused(SeverityWarning, "subscribe-refused", fmt.Sprintf("what the bucket republishes on %s cannot be subscribed to", c.info.Republish), "", p.subscribe,
			"subscribe to "+c.anyRepublish())
	}
	if p.attempts != nil {
		c.refused(SeverityInfo, "attempts-refused", fmt.Sprintf("the attempts of candidates, on %s, cannot be subscribed to", c.bucket.Subject(c.key)),
			"; a leader does not see candidates, so that its release names no successors", p.attempts, fmt.Sprintf("subscribe to %s, or to %s%s", bucket, c.bucket.Subject(c.key), single))
	}
}

// anyRepublish returns the subjects on which the bucket republishes, also after it was made again: then CreateBucket chooses others.
func (c *checkup) anyRepublish() string {
	if all := "election." + c.name + ".>"; strings.HasPrefix(c.info.Republish, strings.TrimSuffix(all, ">")) {
		return all
	}
	return c.info.Republish
}

// readPermission returns what to permit so that a key can be read.
func (c *checkup) readPermission() string {
	if c.info.Stream != nil && !c.stream.Config.AllowDirect {
		return "publish to $JS.API.STREAM.MSG.GET." + c.bucket.Stream()
	}
	get := "$JS.API.DIRECT.GET." + c.bucket.Stream() + "."
	return fmt.Sprintf("publish to %s%s, or to %s%s", get, c.bucket.Subject(">"), get, c.bucket.Subject(c.key))
}

// checkWatchPermission reports whether changes can be watched, to a role that watches.
func (c *checkup) checkWatchPermission() {
	p := c.probes
	if p.watch == nil || c.role == RoleOperator {
		return
	}
	severity, then := SeverityWarning, "; candidates poll"
	switch {
	case c.role == RoleObserver && p.watchOne == nil:
		severity, then = SeverityInfo, "; single keys can"
	case c.role == RoleObserver:
		severity, then = SeverityInfo, "; the leaders can be read, but not Observe, Leaders and 'election-cli watch'"
	case c.source() == core.Republish:
		severity, then = SeverityInfo, "; candidates are notified only by what is republished, and poll when that fails"
	case p.watchOne == nil:
		severity, then = SeverityInfo, "; single keys can, but a process with several elections in the bucket polls"
	}
	stream := c.bucket.Stream()
	c.refused(severity, "watch-refused", "changes of the whole bucket cannot be watched", then, p.watch,
		fmt.Sprintf("publish to $JS.API.CONSUMER.CREATE.%s.*.%s, $JS.API.CONSUMER.DELETE.%s.* and $JS.FC.%s.>", stream, c.bucket.Subject(">"), stream, stream))
}

// checkConnection checks the settings of the connection.
func (c *checkup) checkConnection() {
	if c.conn == nil {
		return
	}
	o := c.conn.Opts
	if o.ReconnectBufSize >= 0 {
		c.warn("reconnect-buffer", fmt.Sprintf("the connection keeps up to %d bytes while it is down and sends them when it is back: writes that were given up long ago are applied late", o.ReconnectBufSize), "connect with nats.ReconnectBufSize(-1)")
	}
	switch {
	case !o.AllowReconnect:
		c.warn("reconnects-limited", "the connection does not reconnect: a candidate that was cut off once never campaigns again", "connect without nats.NoReconnect, and with nats.MaxReconnects(-1)")
	case o.MaxReconnect >= 0:
		c.warn("reconnects-limited", fmt.Sprintf("the connection gives up after %d attempts to reconnect: a candidate that was cut off for longer never campaigns again", o.MaxReconnect), "connect with nats.MaxReconnects(-1)")
	case !o.IgnoreAuthErrorAbort:
		c.warn("reconnects-limited", "the connection gives up once a server has refused its credentials twice in a row, as after a mistake in a reload: its candidates never campaign again", "connect with nats.IgnoreAuthErrorAbort()")
	}
	c.checkPings(o.PingInterval, o.MaxPingsOut)
}

const (
	// pingTTLs is after how many TTLs the client should notice that a connection was forgotten.
	pingTTLs = 3
	// minPingTime is the time that is good enough for any TTL, as that of connect.Connect.
	minPingTime = 30 * time.Second
)

// checkPings checks when the client notices that the server, or the network between, has forgotten the connection.
func (c *checkup) checkPings(interval time.Duration, unanswered int) {
	const code, consequence = "ping-interval", "a candidate that is notified of nothing takes over late"
	fix := fmt.Sprintf("connect with nats.PingInterval(%v)", min(max(c.info.LeaseTTL()/6, time.Second), 10*time.Second).Round(100*time.Millisecond))
	switch noticed := time.Duration(unanswered+1) * interval; {
	case interval <= 0:
		c.warn(code, "the connection sends no pings, and a connection that the network has forgotten is not noticed: "+consequence, fix)
	case c.info.LeaseTTL() > 0 && noticed > max(pingTTLs*c.info.LeaseTTL(), minPingTime):
		c.warn(code, fmt.Sprintf("by its pings every %v the client notices after up to %v that the network has forgotten the connection, and the bucket's TTL is %v: %s", interval, noticed, c.info.LeaseTTL(), consequence), fix)
	}
}
