package election

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/watch"
)

const (
	// probeKey is the key that Check tries to read and to write; Connect has it try the candidate's own.
	probeKey = "election-check"
	// neverRevision is one that no key ever has, so that a write over it is refused whenever it arrives.
	neverRevision = math.MaxInt64
	// probedEntries is how many entries of a bucket Check reads at most.
	probedEntries = 1000
	// namedKeys is how many of the keys that hold bare names Check tells by name.
	namedKeys = 3
)

// look reads what the bucket tells of itself.
func (c *checkup) look(ctx context.Context) error {
	c.name = c.bucket.Bucket()
	call, cancel := context.WithTimeout(ctx, maxTry)
	defer cancel()
	status, err := c.bucket.Status(call)
	switch {
	case classify(err) == unusable:
		return fmt.Errorf("%w: %q cannot be used: %w", ErrBucketUnsuitable, c.name, err)
	case err != nil:
		return fmt.Errorf("bucket %q cannot be looked at, which takes permission to publish to $JS.API.STREAM.INFO.KV_%s: %w", c.name, c.name, err)
	}
	c.status = status
	if info := streamInfo(status); info != nil {
		c.info, c.told = *info, true
	}
	if r := c.info.Config.RePublish; r != nil && !r.HeadersOnly && slices.Contains([]string{"", ">", "$KV." + c.name + ".>"}, r.Source) {
		c.republish = r.Destination
	}
	return nil
}

// probe finds out what is permitted. Subscriptions come first and one by one, as the client remembers only the last refusal.
func (c *checkup) probe(ctx context.Context) {
	if c.conn != nil && c.republish != "" {
		c.subscribe = bounded(ctx, func(ctx context.Context) error { return c.trySubscribe(ctx, c.republish) })
	}
	if c.conn != nil {
		c.count = bounded(ctx, func(ctx context.Context) error { return c.trySubscribe(ctx, "$KV."+c.name+".>") })
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { c.read = bounded(ctx, c.tryRead) })
	all.Go(func() { c.write = bounded(ctx, c.tryWrite) })
	all.Go(func() { c.watch = bounded(ctx, c.tryWatch) })
	all.Go(func() { c.watchOne = bounded(ctx, c.tryWatchOne) })
}

// bounded gives a probe its time. A bucket that is not of nats.go may panic at what it does not know.
func bounded(ctx context.Context, probe func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, maxTry)
	defer cancel()
	return probe(ctx)
}

func (c *checkup) trySubscribe(ctx context.Context, subject string) error {
	before := c.conn.LastError()
	sub, err := c.conn.SubscribeSync(subject)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	_, err = refusedSince(ctx, c.conn, before, fmt.Sprintf("Subscription to %q", subject))
	return err
}

// refusedSince returns the server's refusal of what was sent on a connection, which names it, such as Publish to "subject". The
// client reports a refusal as the last error of the connection, and before its answer to a flush; before is what the last error
// was when nothing had been sent. It is unclear whether this was refused if the last error is the refusal of something else.
func refusedSince(ctx context.Context, nc *nats.Conn, before error, what string) (unclear bool, err error) {
	if err := nc.FlushWithContext(ctx); err != nil {
		return false, err
	}
	last := nc.LastError()
	switch {
	case !errors.Is(last, nats.ErrPermissionViolation) || errors.Is(last, before):
		return false, nil
	case strings.Contains(last.Error(), what):
		return false, last
	}
	return true, nil
}

func (c *checkup) tryRead(ctx context.Context) error {
	_, err := c.bucket.Get(ctx, c.key)
	if classify(err) == absent {
		return nil
	}
	return err
}

func (c *checkup) tryWrite(ctx context.Context) error {
	_, err := c.bucket.Update(ctx, c.key, nil, neverRevision)
	if classify(err) == refused {
		return nil
	}
	return err
}

// tryWatch makes a watcher, and reads what stands in the bucket.
func (c *checkup) tryWatch(ctx context.Context) error {
	w, err := watcher(c.bucket.WatchAll(ctx))
	if err != nil {
		return err
	}
	defer dismiss(w)
	for range probedEntries {
		select {
		case <-ctx.Done():
			return nil // it was made, and some of what stands was read
		case entry, ok := <-w.Updates():
			if !ok || entry == nil {
				return nil
			}
			if entry.Operation() == jetstream.KeyValuePut && parseRecord(entry.Value()).Instance == "" {
				if c.plains++; len(c.plain) < namedKeys {
					c.plain = append(c.plain, entry.Key())
				}
			}
		}
	}
	return nil
}

// tryWatchOne makes a watcher of one key, as a process does that has no more than one.
func (c *checkup) tryWatchOne(ctx context.Context) error {
	w, err := watcher(c.bucket.Watch(ctx, c.key))
	if err == nil {
		dismiss(w)
	}
	return err
}

// watcher makes an error of a watcher that is not there.
func watcher(w jetstream.KeyWatcher, err error) (jetstream.KeyWatcher, error) {
	if err == nil && w == nil {
		err = errors.New("there is no watcher")
	}
	return w, err
}

// dismiss ends a watcher, but does not wait long: the server is asked to forget it, and may not answer.
func dismiss(w jetstream.KeyWatcher) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch.Stop(w)
	}()
	select {
	case <-done:
	case <-time.After(closePatience):
	}
}

// refusal says in words why a probe failed.
func refusal(err error) string {
	if failure(err) == "timeout" {
		return fmt.Sprintf("there was no answer within %v, as when it is not permitted", maxTry)
	}
	return err.Error()
}

// grant is the remedy for a failed probe: permission, if the failure was silence or a refusal of it.
func grant(err error, permission string) string {
	if failure(err) == "timeout" || errors.Is(err, nats.ErrPermissionViolation) {
		return permission
	}
	return "put right what the error names"
}

// permissions says what the probes found.
func (c *checkup) permissions() {
	const single = "; where single keys are granted, grant that one as well, as a probe that is never stored"
	subject := "$KV." + c.name + "." + c.key
	if c.write != nil {
		c.add(SeverityCritical, "write-refused", fmt.Sprintf("the key %s cannot be written: %s", c.key, refusal(c.write)), grant(c.write, fmt.Sprintf("permit to publish to $KV.%s.>, or to %s%s", c.name, subject, single)))
	}
	if c.read != nil {
		subjects := fmt.Sprintf("$JS.API.DIRECT.GET.KV_%s.$KV.%s.>, or to $JS.API.DIRECT.GET.KV_%s.%s%s", c.name, c.name, c.name, subject, single)
		if c.told && !c.info.Config.AllowDirect {
			subjects = "$JS.API.STREAM.MSG.GET.KV_" + c.name
		}
		c.add(SeverityWarning, "read-refused", fmt.Sprintf("the key %s cannot be read: %s; a candidate that cannot read its key takes over no release, waits until its key and the marker of that are gone, and loses its term when the answer to a renewal is lost", c.key, refusal(c.read)), grant(c.read, "permit to publish to "+subjects))
	}
	if c.watch != nil {
		severity, then := SeverityWarning, "candidates poll"
		switch {
		case c.source() == sourceRepublish:
			severity, then = SeverityInfo, "only what is republished is heard, and when that fails candidates poll"
		case c.watchOne == nil:
			severity, then = SeverityInfo, "single keys can, but a process that has several elections in the bucket polls"
		}
		c.add(severity, "watch-refused", fmt.Sprintf("changes of the whole bucket cannot be watched: %s; %s", refusal(c.watch), then), grant(c.watch, fmt.Sprintf("permit to publish to $JS.API.CONSUMER.CREATE.KV_%s.*.$KV.%s.>, $JS.API.CONSUMER.DELETE.KV_%s.* and $JS.FC.KV_%s.>", c.name, c.name, c.name, c.name)))
	}
	if c.subscribe != nil {
		c.add(SeverityWarning, "subscribe-refused", fmt.Sprintf("what the bucket republishes on %s cannot be subscribed to: %s", c.republish, refusal(c.subscribe)), grant(c.subscribe, "permit to subscribe to "+c.republish))
	}
	if c.count != nil {
		c.add(SeverityInfo, "count-refused", fmt.Sprintf("candidates cannot be counted by their attempts: %s; how many of them answer a vacancy then rests on a guess", refusal(c.count)), grant(c.count, fmt.Sprintf("permit to subscribe to $KV.%s.>", c.name)))
	}
}

// connection says what is wrong with the settings of the connection.
func (c *checkup) connection() {
	if c.conn == nil {
		return
	}
	o := c.conn.Opts
	if o.ReconnectBufSize >= 0 {
		c.add(SeverityWarning, "reconnect-buffer", fmt.Sprintf("the connection keeps up to %d bytes while it is down and sends them when it is back: writes that were long given up are applied late", o.ReconnectBufSize), "connect with nats.ReconnectBufSize(-1)")
	}
	switch {
	case !o.AllowReconnect:
		c.add(SeverityWarning, "reconnects-limited", "the connection does not reconnect: a candidate that was cut off once never stands again", "connect without nats.NoReconnect, and with nats.MaxReconnects(-1)")
	case o.MaxReconnect >= 0:
		c.add(SeverityWarning, "reconnects-limited", fmt.Sprintf("the connection gives up after %d attempts to reconnect: a candidate that was cut off for longer never stands again", o.MaxReconnect), "connect with nats.MaxReconnects(-1)")
	}
}
