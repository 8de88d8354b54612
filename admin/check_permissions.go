package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/notify"
	"github.com/natscampaign/election/internal/record"
)

const (
	// neverRevision is a revision that no key ever has: the server refuses an update of it whenever the update arrives.
	neverRevision = math.MaxInt64
	// maxEntries is how many entries of a bucket are read at most.
	maxEntries = 1000
	// maxNamedKeys is how many of the keys that hold bare names are named.
	maxNamedKeys = 3
)

// probes are the results of trying what candidates do: nil for what succeeded, or was not tried.
type probes struct {
	read, write, watch, watchOne, subscribe, attempts error

	plain  []string // the first few keys that hold bare names
	plains int      // how many keys do, among the entries that were read
}

// probe finds out what is permitted. The subscriptions come first and one by one: the client remembers only the last refusal.
func (c *checkup) probe(ctx context.Context) {
	p := &c.probes
	if c.conn != nil && c.info.Republish != "" {
		p.subscribe = c.trySubscribe(ctx, c.info.Republish)
	}
	if c.conn != nil {
		p.attempts = c.trySubscribe(ctx, c.bucket.Subject(">"))
	}
	ctx, cancel := context.WithTimeout(ctx, kv.RequestTimeout)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { _, p.read = c.bucket.Read(ctx, c.key) })
	all.Go(func() {
		if _, err := c.bucket.Update(ctx, c.key, nil, neverRevision); kv.Classify(err) != kv.Refused {
			p.write = err
		}
	})
	all.Go(func() { p.watch = c.tryWatch(ctx) })
	all.Go(func() { // as a process does that has one election
		w, err := kv.StartWatcher(ctx, func(ctx context.Context) (jetstream.KeyWatcher, error) { return c.bucket.Watch(ctx, c.key) })
		if p.watchOne = err; err == nil {
			kv.StopWatcher(w)
		}
	})
	all.Wait()
}

func (c *checkup) trySubscribe(ctx context.Context, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, kv.RequestTimeout)
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
func (c *checkup) tryWatch(ctx context.Context) error {
	w, err := kv.StartWatcher(ctx, func(ctx context.Context) (jetstream.KeyWatcher, error) { return c.bucket.WatchAll(ctx) })
	if err != nil {
		return err
	}
	defer kv.StopWatcher(w)
	for range maxEntries {
		select {
		case <-ctx.Done():
			return nil // the watcher was started, and some of what is stored was read
		case entry, ok := <-w.Updates():
			if !ok || entry == nil {
				return nil
			}
			if entry.Operation() == jetstream.KeyValuePut && isBareName(entry) {
				if c.probes.plains++; len(c.probes.plain) < maxNamedKeys {
					c.probes.plain = append(c.probes.plain, entry.Key())
				}
			}
		}
	}
	return nil
}

// isBareName reports whether a value is the name of a leader, and no more. An object is none: it is a record, or what a group stores.
func isBareName(entry jetstream.KeyValueEntry) bool {
	var object map[string]json.RawMessage
	return record.Parse(entry.Value(), entry.Revision()).Instance == "" && json.Unmarshal(entry.Value(), &object) != nil
}

// refused adds a finding about a probe that failed. The message says what failed, and then what follows from it; permission is what to
// grant if the server was silent, or refused.
func (c *checkup) refused(s Severity, code, message, then string, err error, permission string) {
	why, fix := err.Error(), "correct what the error names"
	timeout := kv.Failure(err) == kv.FailedTimeout
	if timeout {
		why = fmt.Sprintf("there was no answer within %v, as when it is not permitted", kv.RequestTimeout)
	}
	if timeout || errors.Is(err, nats.ErrPermissionViolation) {
		fix = "permit to " + permission
	}
	c.add(s, code, message+": "+why+then, fix)
}

// checkPermissions reports what the probes found.
func (c *checkup) checkPermissions() {
	const single = "; where permission is granted for single keys, grant it for this key too, under which nothing is ever stored"
	bucket, stream, subject, p := c.bucket.Subject(">"), c.bucket.Stream(), c.bucket.Subject(c.key), c.probes
	if p.write != nil {
		c.refused(SeverityCritical, "write-refused", fmt.Sprintf("the key %s cannot be written", c.key), "", p.write,
			fmt.Sprintf("publish to %s, or to %s%s", bucket, subject, single))
	}
	if p.read != nil {
		permission := fmt.Sprintf("publish to $JS.API.DIRECT.GET.%s.%s, or to $JS.API.DIRECT.GET.%s.%s%s", stream, bucket, stream, subject, single)
		if c.info.Stream != nil && !c.stream.Config.AllowDirect {
			permission = "publish to $JS.API.STREAM.MSG.GET." + stream
		}
		c.refused(SeverityWarning, "read-refused", fmt.Sprintf("the key %s cannot be read", c.key),
			"; a candidate that cannot read its key takes over no release, waits until the key and its marker are gone, and loses its term when the answer to a renewal is lost", p.read, permission)
	}
	if p.watch != nil {
		severity, then := SeverityWarning, "; candidates poll"
		switch {
		case c.source() == notify.Republish:
			severity, then = SeverityInfo, "; candidates are notified only by what is republished, and poll when that fails"
		case p.watchOne == nil:
			severity, then = SeverityInfo, "; single keys can, but a process with several elections in the bucket polls"
		}
		c.refused(severity, "watch-refused", "changes of the whole bucket cannot be watched", then, p.watch,
			fmt.Sprintf("publish to $JS.API.CONSUMER.CREATE.%s.*.%s, $JS.API.CONSUMER.DELETE.%s.* and $JS.FC.%s.>", stream, bucket, stream, stream))
	}
	if p.subscribe != nil {
		c.refused(SeverityWarning, "subscribe-refused", fmt.Sprintf("what the bucket republishes on %s cannot be subscribed to", c.info.Republish), "", p.subscribe,
			"subscribe to "+c.info.Republish)
	}
	if p.attempts != nil {
		c.refused(SeverityInfo, "attempts-refused", fmt.Sprintf("the attempts of candidates, on %s, cannot be subscribed to", bucket),
			"; a leader does not see candidates, so that its release names no successors", p.attempts, "subscribe to "+bucket)
	}
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
	}
}
