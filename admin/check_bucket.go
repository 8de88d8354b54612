package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
	"github.com/natscampaign/election/internal/validate"
)

// checkTTL checks the bucket's TTL, and the options with it.
func (c *checkup) checkTTL() {
	ttl := c.info.TTL
	if !c.info.HasTTL() {
		return // which is a problem of the bucket's info
	}
	switch {
	case ttl < 2*time.Second:
		c.warn("ttl-short", fmt.Sprintf("the bucket's TTL is %v, and servers are up to %v late to expire a key: a short disturbance ends a term", ttl, timing.ExpiryLateness), c.info.EditAdvice("--ttl 5s"))
	case ttl > time.Minute:
		c.warn("ttl-long", fmt.Sprintf("the bucket's TTL is %v, and the key of a leader that crashed is free only after that time", ttl), kv.Idle+", then "+c.info.EditAdvice("--ttl 15s"))
	}
	if t, err := c.TimingIn(c.info); err != nil {
		c.add(SeverityCritical, "options-unfit", strings.TrimPrefix(err.Error(), election.ErrInvalidOption.Error()+": "), "change the option, or the bucket's TTL")
	} else {
		c.timing = &t
	}
}

// checkStorage checks how the stream behind the bucket is stored.
func (c *checkup) checkStorage() {
	if c.info.Stream == nil {
		c.add(SeverityInfo, "not-inspected", "the bucket does not describe the stream behind it, which was not checked", "pass the bucket that OpenBucket or JetStream.KeyValue returned")
		return
	}
	cfg, cluster := c.stream.Config, ""
	if c.stream.Cluster != nil {
		cluster = c.stream.Cluster.Name
	}
	if cfg.Storage == jetstream.MemoryStorage && cfg.Replicas <= 1 {
		fix := c.info.RemakeAdvice()
		if cluster != "" { // it makes the stream again, with the same time of creation
			c.add(SeverityCritical, "memory-replicated", fmt.Sprintf("the bucket is kept in memory in the cluster %s: once its server has restarted it is empty, term numbers begin at 1 again without a sign, and fencing tokens go backwards", cluster), fix)
		} else {
			c.warn("memory", "the bucket is kept in memory: when the server restarts, the bucket and its term numbers are gone, and elections end", fix)
		}
	}
	switch {
	case cfg.Replicas == 1 && cluster != "":
		c.warn("one-replica", fmt.Sprintf("the bucket has 1 replica in the cluster %s: there is no leader while its server is down", cluster), c.info.EditAdvice("--replicas 3"))
	case cfg.Replicas > 1 && cfg.Replicas%2 == 0:
		c.warn("even-replicas", fmt.Sprintf("the bucket has %d replicas, which survive no more failures than %d", cfg.Replicas, cfg.Replicas-1), c.info.EditAdvice("--replicas 3"))
	}
}

const (
	// minLag is by how many operations a replica is behind that counts as lagging: operations under way look like a small lag.
	minLag = 256
	// offlineAfter is how long a replica was not seen that counts as offline. Replicas are seen every second; servers themselves report
	// one as offline much later.
	offlineAfter = 5 * time.Second
)

// checkReplicas checks the state of the replicas.
func (c *checkup) checkReplicas() {
	cluster := c.stream.Cluster
	if cluster == nil {
		return
	}
	var all, offline, seen, lagging []string
	for _, r := range cluster.Replicas {
		all = append(all, r.Name)
		switch {
		case r.Offline, cluster.Leader != "" && r.Active >= offlineAfter: // without a leader nobody sees a replica, not even one that answers
			offline = append(offline, r.Name)
			seen = append(seen, fmt.Sprintf("%s (%s)", r.Name, seenText(r.Active)))
		case cluster.Leader != "" && r.Lag >= minLag:
			lagging = append(lagging, fmt.Sprintf("%s (by %d operations)", r.Name, r.Lag))
		}
	}
	if cluster.Leader == "" {
		c.add(SeverityCritical, "no-stream-leader", fmt.Sprintf("the stream %s has no leader: nothing can be written", c.bucket.Stream()),
			fmt.Sprintf("start those of its servers that are down, or mend the network between them (%s): a majority elects a leader within 10s", strings.Join(all, ", ")))
	}
	if n := c.stream.Config.Replicas; len(offline) > 0 {
		severity, left, fix := SeverityWarning, "a majority is left", fmt.Sprintf("start %s again, or mend the network between the servers", strings.Join(offline, " and "))
		if n-len(offline) <= n/2 {
			severity, left = SeverityCritical, "no majority is left, and nothing can be written"
		} else {
			fix += fmt.Sprintf("; if it is gone for good, have another server take its replica: 'nats stream cluster peer-remove %s %s'", c.bucket.Stream(), offline[0])
		}
		c.add(severity, "replicas-offline", fmt.Sprintf("%d of %d replicas are offline: %s; %s", len(offline), n, strings.Join(seen, ", "), left), fix)
	}
	if len(lagging) > 0 {
		c.warn("replicas-lagging", fmt.Sprintf("replicas lag: %s; reads from them are out of date", strings.Join(lagging, ", ")),
			"wait, if their servers were away: they catch up; else see what slows down the disks of these servers, or the network to them")
	}
}

// seenText says when a replica was last seen.
func seenText(ago time.Duration) string {
	if ago = ago.Round(time.Second); ago > 0 {
		return fmt.Sprintf("seen %v ago", ago)
	}
	return "not seen"
}

// isDown reports whether nothing can be written, whatever is permitted.
func (c *checkup) isDown() bool {
	return slices.ContainsFunc(c.findings, func(f Finding) bool {
		return f.Code == "no-stream-leader" || f.Code == "replicas-offline" && f.Severity == SeverityCritical
	})
}

// checkIdentity checks whether the time of creation, by which candidates tell the bucket from one that was made again, stays the same.
func (c *checkup) checkIdentity() {
	version := cmp.Or(c.serverVersion(), "unknown")
	if c.info.Stream == nil || c.info.Pinned || kv.KeepsCreated(c.info.Stream, version) {
		return
	}
	c.warn("not-pinned", fmt.Sprintf("the bucket's time of creation is not pinned, and file streams of nats-server before 2.14.9 (this one has version %s) report another after a restart, a change of the configuration and another restart: the leader then stands down as in a bucket that was made again", version),
		c.info.EditAdvice()+": either pins the time")
	c.shorten(fmt.Sprintf("the bucket's time of creation is not pinned, and nats-server before 2.14.9 (this one has version %s) may report another one later", version))
}

// checkRollUps checks whether the server takes a roll-up that it could refuse. Where there are expiry markers it always takes one, so nothing is found
// in a bucket that should have them.
func (c *checkup) checkRollUps() {
	if !c.stream.Config.AllowRollup || c.info.MarkerTTL > 0 {
		return
	}
	fix := c.info.EditAdvice() + ": the server then refuses roll-ups"
	if forChoria := c.info.Choria || c.info.PlainNames; !forChoria {
		if order, known := kv.CompareVersion(c.serverVersion(), 2, 11); !known || order >= 0 {
			return
		}
	}
	c.warn("rollup", "the bucket allows roll-ups: a write of one key with the header Nats-Rollup: all removes all other keys, and each user who may write one key can send it", fix)
	c.shorten("the bucket allows roll-ups, by which each user who may write one key can remove all others")
}

// checkOutlived checks which keys outlived the TTL by what their writers stored. Whatever else is that old, the server could not expire: it is full, say.
func (c *checkup) checkOutlived(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, timing.RequestTimeout)
	defer cancel()
	all := c.probes.outlived
	if s := c.probes.stored; s.key != "" && !slices.ContainsFunc(all, func(o outlived) bool { return o.key == s.key }) { // the whole bucket may not be watched
		all = append(all, s)
	}
	all = slices.DeleteFunc(all, func(o outlived) bool {
		lasts, err := c.bucket.HasTTL(ctx, o.key, o.revision)
		return !lasts && !errors.Is(err, nats.ErrPermissionViolation)
	})
	if len(all) == 0 {
		return
	}
	var named []string
	for _, o := range all[:min(len(all), maxNamedKeys)] {
		named = append(named, o.String())
	}
	if more := len(all) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	key := "KEY"
	if len(all) == 1 {
		key = all[0].key
	}
	c.warn("outlived", fmt.Sprintf("keys are older than the bucket's TTL of %v and do not expire, as after a write with the header Nats-TTL: never: %s", c.info.TTL, strings.Join(named, ", ")),
		fmt.Sprintf("evict each, by Admin.Evict or 'election-cli evict %s --bucket %s', and find out who may write it: no candidate holds a key by such a write", key, c.name))
}

const (
	nearLimit        = 0.8  // of a limit, from which a value is near to it
	defaultConsumers = 1000 // the most of a stream from 2.15 on, unless the stream, the account or the server says otherwise
	headerBytes      = 100  // the most of a write
)

// checkLimits checks which limits are near or too low.
func (c *checkup) checkLimits() {
	cfg, state := c.stream.Config, c.stream.State
	payload := int64(0)
	if c.conn != nil {
		payload = c.conn.MaxPayload()
	}
	small, large := c.recordBytes()
	for _, l := range []struct {
		what, fix string
		bytes     int64
	}{{"the bucket", c.info.EditAdvice(), int64(cfg.MaxMsgSize)}, {"the server", "raise the server's max_payload", payload}} {
		if l.bytes > 0 && l.bytes < large {
			c.add(severityIf(l.bytes < small), "message-size", fmt.Sprintf("%s takes messages of up to %d bytes, and a record may take between %d and %d, by the length of names", l.what, l.bytes, small, large),
				l.fix+", or give less metadata")
		}
	}
	for _, l := range []struct {
		what, fix        string
		used, more, most int64
	}{
		{"bytes", c.info.EditAdvice(fmt.Sprintf("--max-bytes %d", max(1<<20, 2*cfg.MaxBytes))), int64(state.Bytes), large, cfg.MaxBytes},
		{"keys", c.info.EditAdvice(), int64(state.Msgs), 1, cfg.MaxMsgs},
	} {
		if l.most <= 0 {
			continue
		}
		full := l.used+l.more > l.most
		if full || near(l.used, l.most) {
			message := fmt.Sprintf("the bucket holds %d of at most %d %s", l.used, l.most, l.what)
			if full {
				message += ": no further election fits"
			}
			c.add(severityIf(full), "bucket-full", message, l.fix)
		}
		if cfg.Discard == jetstream.DiscardOld {
			c.warn("discard-old", fmt.Sprintf("the bucket is limited to %d %s and then drops the oldest key: a leader would lose its lease and not know", l.most, l.what), c.info.EditAdvice())
		}
	}
}

// checkConsumers checks whether further processes can watch.
func (c *checkup) checkConsumers() {
	stream, used, most := c.bucket.Stream(), int64(c.stream.State.Consumers), int64(c.stream.Config.MaxConsumers)
	granted, limit := int64(kv.UseOf(c.probes.account, c.stream.Config).Consumers), "that the stream is limited to"
	ofAccount := granted > 0 && (most <= 0 || granted <= most)
	order, known := kv.CompareVersion(c.serverVersion(), 2, 15)
	switch {
	case ofAccount:
		most, limit = granted, "that the account grants a stream"
	case most <= 0 && (!known || order >= 0): // earlier servers have no limit of their own
		most, limit = defaultConsumers, "that servers grant a stream by default"
	}
	if most <= 0 || !near(used, most) {
		return
	}
	raise := "raise max_consumers of the account"
	if !ofAccount {
		more := 2 * most
		if granted > 0 {
			more = min(more, granted)
		}
		raise = fmt.Sprintf("raise the limit: 'nats stream edit %s --max-consumers %d'", stream, more)
	}
	c.warn("consumers", fmt.Sprintf("the bucket has %d watchers or other consumers of the %d %s: further processes cannot watch, and poll", used, most, limit),
		fmt.Sprintf("delete those that nobody needs, which 'nats consumer ls %s' lists; in programs with a bare bucket use OpenBucket or WithJetStream, which takes no consumer where the bucket republishes; or %s", stream, raise))
}

// checkAccount checks whether the account has room for further writes.
func (c *checkup) checkAccount() {
	cfg := c.stream.Config
	u := kv.UseOf(c.probes.account, cfg)
	if c.info.Stream == nil || u.Most < 0 {
		return
	}
	small, large := c.recordBytes()
	fits := func(record int64) bool { return u.Used+c.bucket.StoredBytes(c.key, record, cfg) <= u.Most }
	limit, kind := u.Limit, "in files"
	if cfg.Storage == jetstream.MemoryStorage {
		kind = "in memory"
	}
	if u.Tier != "" {
		limit += " of tier " + u.Tier
	}
	message := fmt.Sprintf("the account stores %d of at most %d bytes %s (%s)", u.Used, u.Most, kind, limit)
	switch {
	case !fits(small):
		message += ": no record fits, so that nobody can win, and no leader can renew"
	case !fits(large):
		message += fmt.Sprintf(": no record of %d bytes fits, as one with long names takes", large)
	case !near(u.Used, u.Most):
		return
	}
	c.add(severityIf(!fits(small)), "account-full", message,
		fmt.Sprintf("raise %s of the account, or remove messages or streams of the account, which 'nats stream report' lists; an account for elections alone is filled by nobody else", u.Limit))
}

func near(used, most int64) bool { return float64(used) >= nearLimit*float64(most) }

func severityIf(critical bool) Severity {
	if critical {
		return SeverityCritical
	}
	return SeverityWarning
}

// recordBytes returns the size of the smallest and of the largest write of a candidate with these options.
func (c *checkup) recordBytes() (smallest, largest int64) {
	if c.PlainValue {
		return 1 + headerBytes, validate.MaxNameBytes + headerBytes
	}
	host, _ := os.Hostname()
	now := time.Date(2000, 1, 1, 0, 0, 0, 999_999_999, time.FixedZone("", 3600)) // the longest that a time can be
	id := strings.Repeat("x", 22)
	r := record.Record{
		Name: "x", Instance: id, Attempt: id, Started: now, Since: now, Term: math.MaxUint32, BucketCreated: now,
		Won: string(election.ReasonReclaimed), Host: host, PID: math.MaxInt32, Metadata: c.Metadata, IntervalMs: timing.MaxTTL.Milliseconds(),
		LeaseMs: timing.MaxTTL.Milliseconds(), Commitment: record.Commitment{1},
	}
	smallest = int64(len(r.Encode()) + headerBytes)
	r.Name, r.Priority, r.Priorities = strings.Repeat("x", validate.MaxNameBytes), math.MinInt32, slices.Repeat([]int{math.MinInt32}, record.MaxPriorities)
	r.Released, r.StandDownMs, r.HeadStartMs = now, timing.MaxTTL.Milliseconds(), record.MaxHeadStart.Milliseconds()
	r.Secret, r.Predecessors = record.Secret{1}, []record.Secret{{1}}
	r.Successors = slices.Repeat([]string{strings.Repeat("x", record.MaxSuccessorBytes/record.MaxSuccessors)}, record.MaxSuccessors)
	return smallest, int64(len(r.Encode()) + headerBytes)
}
