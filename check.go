package election

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Severity says how much a [Finding] matters.
type Severity int

const (
	// SeverityInfo is that of what is good to know.
	SeverityInfo Severity = iota
	// SeverityWarning is that of what works, but worse than it could.
	SeverityWarning
	// SeverityCritical is that of what keeps elections from working, or from being safe.
	SeverityCritical
)

var severityNames = [...]string{"info", "warning", "critical"}

// String returns "info", "warning" or "critical".
func (s Severity) String() string {
	if s >= 0 && int(s) < len(severityNames) {
		return severityNames[s]
	}
	return fmt.Sprintf("Severity(%d)", int(s))
}

// MarshalText returns what String does.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Severity) UnmarshalText(text []byte) error {
	i := slices.Index(severityNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is no severity: use one of %q", text, severityNames)
	}
	*s = Severity(i)
	return nil
}

// Finding is one thing that [Check] has to say. The codes are stable:
//
//	no-ttl, ttl-out-of-range   critical   Start refuses the bucket
//	history                    critical   likewise
//	options-unfit              critical   Start refuses the options on this bucket
//	stream-settings            critical   sealed, unacknowledged, or not kept by limits alone
//	copied-bucket              critical   it mirrors another stream, or takes writes in from one
//	memory-replicated          critical   term numbers may begin anew without a sign
//	no-stream-leader           critical   nothing can be written
//	write-refused              critical   a key cannot be written
//	replicas-offline           critical   if no majority is left, else warning
//	message-size               critical   if no record fits, warning if one with a long name does not
//	bucket-full                critical   if no further election fits, warning from 80 % on
//	ttl-short, ttl-long        warning    below 2 s, above 1 min
//	memory                     warning    the bucket does not outlive its server
//	one-replica                warning    in a cluster
//	even-replicas              warning    an even number bears no more failures than one less
//	replicas-lagging           warning
//	discard-old                warning    a full bucket drops leases in place of refusing writes
//	consumers                  warning    from 80 % of the most that the stream may have
//	no-markers                 warning    expiries are not announced; info where bare names stand or are written
//	markers-plain-names        warning    expiries are announced where bare names stand or are written
//	markers-long               info       the marker of an expiry stands for more than a second
//	republish                  warning    changes are not republished whole, info without WithJetStream
//	read-refused               warning    a key cannot be read
//	watch-refused              warning    changes cannot be watched; info where they are heard otherwise, or key by key
//	subscribe-refused          warning    what is republished cannot be subscribed to
//	reconnect-buffer           warning    the connection sends writes late
//	reconnects-limited         warning    the connection gives up
//	republish-unused           info       changes are republished, but WithJetStream was not given
//	count-refused              info       candidates cannot be counted
//	not-inspected              info       the bucket does not tell of the stream behind it
//	expect-release             info       the time without a leader after a release
//	expect-crash               info       after the crash of the leader
//	expect-eviction            info       after somebody deleted the key under the leader
//	expect-outage              info       the outage of the server that a term survives
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`          // what is the matter, with the value that is
	Remedy   string   `json:"remedy,omitempty"` // what to do; empty where nothing need be done
}

// Check says what about the bucket, its server, the connection's permissions and these options is wrong for elections, the
// worst first, and what failover times to expect. Give it the options that the elections are given; with [WithJetStream]
// it finds out more. Its findings are those of one moment, and of this connection: candidates with other credentials have
// to check for themselves.
//
// Nothing is written. Whether a key may be written is found out by an update of the key "election-check" that the server
// must refuse whenever it arrives, and whether it may be read by reading that key: who is granted single keys only has to
// be granted this one too. What is not permitted is never answered, so that Check may take some 8 s.
//
// It returns an error only for options that cannot be used ([ErrInvalidOption]), for a bucket that cannot be looked at
// ([ErrBucketUnsuitable] if it does not exist), and if ctx ends before all is known.
func Check(ctx context.Context, bucket jetstream.KeyValue, opts ...Option) ([]Finding, error) {
	return check(ctx, bucket, probeKey, opts)
}

// check does what Check does, with probes of the given key.
func check(ctx context.Context, bucket jetstream.KeyValue, key string, opts []Option) ([]Finding, error) {
	c := &checkup{bucket: bucket, key: key, opts: collect(opts)}
	if err := c.opts.validate("name", key, bucket); err != nil {
		return nil, err
	}
	c.conn = c.opts.conn()
	if err := c.look(ctx); err != nil {
		return nil, err
	}
	c.probe(ctx)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("bucket %q was not checked to the end: %w", c.name, err)
	}
	c.lease()
	c.stream()
	c.cluster()
	c.capacity()
	c.changes()
	c.permissions()
	c.connection()
	c.forecast()
	slices.SortStableFunc(c.findings, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	return c.findings, nil
}

// checkup is one call of Check.
type checkup struct {
	opts     options
	bucket   jetstream.KeyValue
	key      string     // to be probed
	conn     *nats.Conn // nil without WithJetStream
	findings []Finding

	name      string
	status    jetstream.KeyValueStatus
	info      jetstream.StreamInfo // zero if the bucket does not tell
	told      bool                 // whether it does
	timing    *timing              // nil if the options do not fit the bucket
	republish string               // the subject on which every change of the bucket is repeated, whole; empty if none is

	// What came of the probes: nil if it went well or was not tried.
	read, write, watch, watchOne, subscribe, count error
	plain                                          []string // the first few keys that hold bare names
	plains                                         int      // how many keys do, as far as was read
}

func (c *checkup) add(s Severity, code, message, remedy string) {
	c.findings = append(c.findings, Finding{Code: code, Severity: s, Message: message, Remedy: remedy})
}

// lease says what is wrong with the bucket's TTL and history, and with the options on it, by the rules of Start.
func (c *checkup) lease() {
	ttl := c.status.TTL()
	advice := fmt.Sprintf("give the bucket a TTL between 2s and 1m0s, such as 5s, while nobody leads: CreateBucket does for %q too", c.name)
	switch {
	case ttl <= 0:
		c.add(SeverityCritical, "no-ttl", "the bucket has no TTL, so that the key of a leader that crashed would stay for ever", advice)
	case ttl < minTTL || ttl > maxTTL:
		c.add(SeverityCritical, "ttl-out-of-range", fmt.Sprintf("the bucket's TTL is %v, not between %v and %v", ttl, minTTL, maxTTL), advice)
	case ttl < 2*time.Second:
		c.add(SeverityWarning, "ttl-short", fmt.Sprintf("the bucket's TTL is %v, and servers are up to %v late to expire a key: a short disturbance ends a term", ttl, expiryLateness), advice)
	case ttl > time.Minute:
		c.add(SeverityWarning, "ttl-long", fmt.Sprintf("the bucket's TTL is %v, and it takes as long until the key of a leader that crashed is free", ttl), advice)
	}
	if h := c.status.History(); h != 1 {
		c.add(SeverityCritical, "history", fmt.Sprintf("the bucket keeps a history of %d", h), "set it to 1, elections have no use for more: CreateBucket does")
	}
	if ttl < minTTL || ttl > maxTTL {
		return
	}
	t, err := c.opts.timing(ttl)
	if err != nil {
		c.add(SeverityCritical, "options-unfit", strings.TrimPrefix(err.Error(), ErrInvalidOption.Error()+": "), "change the option, or the bucket's TTL")
		return
	}
	c.timing = &t
}

// stream says what is wrong with the stream behind the bucket.
func (c *checkup) stream() {
	if !c.told {
		c.add(SeverityInfo, "not-inspected", "the bucket does not tell of the stream behind it, which was not checked", "pass the bucket that JetStream.KeyValue returned")
		return
	}
	cfg := c.info.Config
	var odd []string
	if cfg.Sealed {
		odd = append(odd, "is sealed, so that nothing can be written")
	}
	if cfg.NoAck {
		odd = append(odd, "acknowledges nothing, so that nobody learns that it won")
	}
	if cfg.Retention != jetstream.LimitsPolicy {
		odd = append(odd, fmt.Sprintf("has the retention policy %v, by which consumers remove keys", cfg.Retention))
	}
	if len(odd) > 0 {
		c.add(SeverityCritical, "stream-settings", fmt.Sprintf("the stream KV_%s %s", c.name, strings.Join(odd, ", and ")), "use a bucket that CreateBucket made")
	}
	switch {
	case cfg.Mirror != nil:
		c.add(SeverityCritical, "copied-bucket", fmt.Sprintf("the bucket mirrors the stream %s: what is read here is late, and what is won here is not", cfg.Mirror.Name), "campaign in the bucket that it mirrors")
	case len(cfg.Sources) > 0:
		c.add(SeverityCritical, "copied-bucket", fmt.Sprintf("the bucket takes in what is written to the stream %s, which overwrites leases unasked", cfg.Sources[0].Name), "use a bucket without sources")
	}
	clustered := c.info.Cluster != nil && c.info.Cluster.Name != ""
	if cfg.Storage == jetstream.MemoryStorage {
		advice := "use file storage, for which the bucket has to be made again"
		if cfg.Replicas > 1 || clustered {
			c.add(SeverityCritical, "memory-replicated", fmt.Sprintf("the bucket is kept in memory, with %d replicas: when all their servers have restarted it is empty and term numbers begin at 1 again, without a sign, so that fencing tokens go backwards", cfg.Replicas), advice)
		} else {
			c.add(SeverityWarning, "memory", "the bucket is kept in memory: when the server restarts it is gone, term numbers with it, and elections end", advice)
		}
	}
	switch {
	case cfg.Replicas == 1 && clustered:
		c.add(SeverityWarning, "one-replica", fmt.Sprintf("the bucket has 1 replica in the cluster %s: there is no leader while its server is down", c.info.Cluster.Name), "use 3 replicas")
	case cfg.Replicas > 1 && cfg.Replicas%2 == 0:
		c.add(SeverityWarning, "even-replicas", fmt.Sprintf("the bucket has %d replicas, which bear no more failures than %d", cfg.Replicas, cfg.Replicas-1), "use 3 or 5 replicas")
	}
}

// lagging is how many operations a replica is behind that is said to lag: what is under way just now looks like a small
// lag. unseen is how long one was not heard of that is said to be offline: they are heard of every second, and servers
// themselves call one offline much later.
const (
	lagging = 256
	unseen  = 5 * time.Second
)

// cluster says what is wrong with the replicas just now.
func (c *checkup) cluster() {
	cl := c.info.Cluster
	if cl == nil {
		return
	}
	if cl.Leader == "" {
		c.add(SeverityCritical, "no-stream-leader", fmt.Sprintf("the stream KV_%s has no leader, so that nothing can be written", c.name), "bring its servers back, or wait for them to elect one, which takes up to 10s")
	}
	var offline, behind []string
	for _, r := range cl.Replicas {
		switch {
		case r.Offline, r.Active >= unseen:
			offline = append(offline, fmt.Sprintf("%s (seen %v ago)", r.Name, r.Active.Round(time.Second)))
		case r.Lag >= lagging:
			behind = append(behind, fmt.Sprintf("%s (by %d operations)", r.Name, r.Lag))
		}
	}
	if n := c.info.Config.Replicas; len(offline) > 0 {
		severity, left := SeverityWarning, "a majority is left"
		if n-len(offline) <= n/2 {
			severity, left = SeverityCritical, "no majority is left, so that nothing can be written"
		}
		c.add(severity, "replicas-offline", fmt.Sprintf("%d of %d replicas are offline: %s; %s", len(offline), n, strings.Join(offline, ", "), left), "bring them back")
	}
	if len(behind) > 0 {
		c.add(SeverityWarning, "replicas-lagging", fmt.Sprintf("replicas lag: %s; reads from them are out of date", strings.Join(behind, ", ")), "see to their servers, disks and network")
	}
}

const (
	nearLimit        = 0.8  // of a limit, from which it is near
	defaultConsumers = 1000 // of a stream, at most, unless the stream, the account or the server says otherwise
	headerBytes      = 100  // of a write, at most
)

// capacity says which limits are near or too low.
func (c *checkup) capacity() {
	cfg, state := c.info.Config, c.info.State
	small, large := c.opts.recordBytes(1), c.opts.recordBytes(maxNameBytes)
	for _, l := range []struct {
		what, advice string
		bytes        int64
	}{
		{"the bucket", "raise the bucket's MaxValueSize, or give less metadata", int64(cfg.MaxMsgSize)},
		{"the server", "raise the server's max_payload, or give less metadata", c.maxPayload()},
	} {
		message := fmt.Sprintf("%s takes messages of up to %d bytes, and a record may take between %d and %d, by the length of the name", l.what, l.bytes, small, large)
		switch {
		case l.bytes > 0 && l.bytes < small:
			c.add(SeverityCritical, "message-size", message, l.advice)
		case l.bytes > 0 && l.bytes < large:
			c.add(SeverityWarning, "message-size", message, l.advice)
		}
	}
	for _, l := range []struct {
		what             string
		used, more, most int64
	}{
		{"bytes", int64(state.Bytes), large, cfg.MaxBytes},
		{"keys", int64(state.Msgs), 1, cfg.MaxMsgs},
	} {
		message := fmt.Sprintf("the bucket holds %d of at most %d %s", l.used, l.most, l.what)
		advice := "raise the limit or take it away: a bucket for elections needs none"
		switch {
		case l.most <= 0:
			continue
		case l.used+l.more > l.most:
			c.add(SeverityCritical, "bucket-full", message+": no further election fits", advice)
		case float64(l.used) >= nearLimit*float64(l.most):
			c.add(SeverityWarning, "bucket-full", message, advice)
		}
		if cfg.Discard == jetstream.DiscardOld {
			c.add(SeverityWarning, "discard-old", fmt.Sprintf("the bucket is limited to %d %s and drops the oldest key when they are used up: a leader would lose its lease while it believes in it", l.most, l.what), "set the stream's discard policy to new, and "+advice)
		}
	}
	if c.told {
		c.consumers()
	}
}

func (c *checkup) consumers() {
	used, most := c.info.State.Consumers, c.info.Config.MaxConsumers
	limit := "that the stream is limited to"
	if most <= 0 {
		most, limit = defaultConsumers, "that servers grant a stream by default"
	}
	if float64(used) >= nearLimit*float64(most) {
		c.add(SeverityWarning, "consumers", fmt.Sprintf("the bucket has %d watchers or other consumers of the %d %s: a process too many cannot watch, and polls", used, most, limit), "give elections WithJetStream on a bucket that republishes, which takes no consumer")
	}
}

// serverVersion returns the version of the server that the connection is to; empty if it is not known.
func (c *checkup) serverVersion() string {
	if c.conn == nil {
		return ""
	}
	return c.conn.ConnectedServerVersion()
}

func (c *checkup) maxPayload() int64 {
	if c.conn == nil {
		return 0
	}
	return c.conn.MaxPayload()
}

// recordBytes returns how much a candidate writes whose name has the given length.
func (o *options) recordBytes(name int) int64 {
	if o.plain {
		return int64(name + headerBytes)
	}
	host, _ := os.Hostname()
	now := time.Date(2000, 1, 1, 0, 0, 0, 999_999_999, time.FixedZone("", 3600)) // as long as a time is
	id := strings.Repeat("x", 22)
	r := record{
		Name: strings.Repeat("x", name), Instance: id, Attempt: id + ".xxxxxx", Since: now, Term: math.MaxUint32, Bucket: now, Won: reasonReclaimed,
		Host: host, PID: math.MaxInt32, Metadata: o.metadata, Candidates: maxCounted, Released: now,
		Next: strings.Repeat("x", maxHeirBytes), Heirs: make([]string, maxHeirs), HeadStartMs: 100,
	}
	return int64(len(r.encode()) + headerBytes)
}

// changes says what keeps candidates from hearing of changes as well as they could.
func (c *checkup) changes() {
	mixed := "WithPlainValue is given"
	if c.plains > 0 {
		mixed = fmt.Sprintf("bare names stand under %d keys (%s)", c.plains, strings.Join(c.plain, ", "))
	}
	isMixed := c.plains > 0 || c.opts.plain
	switch markers := c.status.LimitMarkerTTL(); {
	case markers > 0 && isMixed:
		c.add(SeverityWarning, "markers-plain-names", fmt.Sprintf("%s, but the bucket announces expiries by markers, for %v each, and candidates of Choria cannot create a key while one stands", mixed, markers), "use another bucket for them, made with BucketConfig.Mixed: markers cannot be taken away")
	case markers <= 0 && isMixed:
		c.add(SeverityInfo, "no-markers", "the bucket does not announce expiries, as it must not where "+mixed, "")
	case markers <= 0:
		c.add(SeverityWarning, "no-markers", fmt.Sprintf("the bucket does not announce expiries: candidates wait %v longer to be sure of one, and those that cannot hear wait for the stand-down after a release too", expiryLateness), markerRemedy(c.serverVersion()))
	case markers > markerLife:
		c.add(SeverityInfo, "markers-long", fmt.Sprintf("the marker of an expiry stands for %v: a candidate that may not read its key waits as long to create it", markers), fmt.Sprintf("let CreateBucket bring the bucket to %v", markerLife))
	}
	if !c.told {
		return
	}
	severity, advice := SeverityWarning, "let CreateBucket bring the bucket to it"
	if c.opts.js == nil {
		severity, advice = SeverityInfo, advice+", and give elections WithJetStream"
	}
	const then = ": each process needs a watcher, and a consumer of the server's for it"
	switch r := c.info.Config.RePublish; {
	case r == nil:
		c.add(severity, "republish", "the bucket does not republish its changes"+then, advice)
	case r.HeadersOnly:
		c.add(severity, "republish", fmt.Sprintf("the bucket republishes only the headers of its changes, on %s%s", r.Destination, then), advice)
	case c.republish == "":
		c.add(severity, "republish", fmt.Sprintf("the bucket republishes its changes only from %s, on %s%s", r.Source, r.Destination, then), advice)
	case c.opts.js == nil:
		c.add(SeverityInfo, "republish-unused", fmt.Sprintf("the bucket republishes its changes on %s, which cannot be heard without WithJetStream", r.Destination), "give elections WithJetStream, which spares each process a watcher")
	}
}

// source returns how candidates with these permissions hear of changes.
func (c *checkup) source() string {
	switch {
	case c.conn != nil && c.republish != "" && c.subscribe == nil:
		return sourceRepublish
	case c.watch == nil, c.watchOne == nil:
		return sourceWatch
	}
	return sourceNone
}

// outlook is how long it takes until somebody leads again.
type outlook struct{ median, worst time.Duration }

func (o outlook) String() string {
	return fmt.Sprintf("%v in the median and %v at worst", o.median.Round(time.Millisecond), o.worst.Round(time.Millisecond))
}

func (o outlook) plus(median, worst time.Duration) outlook {
	return outlook{o.median + median, o.worst + worst}
}

// hearing is what candidates hear of a vacancy.
type hearing struct {
	source  string
	markers time.Duration // how long a marker stands for an expiry, which is heard too; 0 if none does
	counted bool          // their number is known, so that the first answer comes early
	blind   bool          // they cannot read the key
}

// vacancies returns the outlook after a release, a crash and an eviction. The median after a crash is that of a leader
// that dies at any time between two renewals. A candidate that is not notified, and has no JetStream context to see markers with, does
// not know that a key was removed, and keeps the usual stand-down.
func (o *options) vacancies(t timing, h hearing) (release, crash, eviction outlook) {
	expiry := outlook{t.ttl - t.interval/2, t.ttl + expiryLateness}
	if h.source == sourceNone || h.blind {
		longest := t.interval
		if o.backoff != nil {
			longest = t.ttl
		}
		free := outlook{longest / 2, longest}
		stood := free.plus(t.standDown, t.standDown)
		if h.blind { // what is stored under the key has to expire, be it a release or the marker of a removal, and its marker too
			stood = stood.plus(h.markers, h.markers)
			gone := stood.plus(t.ttl, t.ttl+expiryLateness)
			return gone, stood.plus(expiry.median, expiry.worst), gone
		}
		eviction = stood
		if o.js != nil { // it sees who removed the key
			eviction = free.plus(max(t.standDown, t.ttl), max(t.standDown, t.ttl))
		}
		if release = free; o.plain || h.markers == 0 { // it is deleted, and proves nothing when that is found out
			release = eviction
		}
		return release, stood.plus(expiry.median, expiry.worst), eviction
	}
	answers := spread(unknownCandidates, t.ttl)
	answer := outlook{answers / 2, answers}
	if h.counted {
		answer.median = answerSpacing
	}
	removed := max(t.standDown, t.ttl)
	eviction = answer.plus(removed, removed)
	if release = answer; h.counted { // the release names a successor, which may be gone
		release.worst += headStart
	}
	crash = expiry.plus(t.standDown+answer.median, t.standDown+answer.worst)
	if h.markers == 0 { // it is known from the silence, which must have lasted
		crash.median += expiryLateness
	}
	return release, crash, eviction
}

// serverCrash is how long a replicated stream may take no writes after the server that led it has crashed: until the
// others have missed it and elected another. It is just less than the 10 s that are advised.
const serverCrash = 9500 * time.Millisecond

// forecast says what to expect of elections with these options on this bucket.
func (c *checkup) forecast() {
	if c.timing == nil {
		return
	}
	t := *c.timing
	h := hearing{source: c.source(), markers: c.status.LimitMarkerTTL(), blind: c.read != nil}
	if h.blind { // a notification is reason to read the key, and no more
		h.source = sourceNone
	}
	h.counted = h.source == sourceRepublish && c.count == nil
	deaf := h
	deaf.source = sourceNone
	release, crash, eviction := c.opts.vacancies(t, h)
	deafRelease, deafCrash, deafEviction := c.opts.vacancies(t, deaf)
	takes := func(after string, hears, deaf outlook) string {
		if h.source == sourceNone {
			return fmt.Sprintf("after %s it takes %v until somebody leads again, as candidates cannot act on notifications", after, deaf)
		}
		return fmt.Sprintf("after %s it takes %v until somebody leads again, as candidates hear of it (%s); %v for one that cannot", after, hears, h.source, deaf)
	}
	c.add(SeverityInfo, "expect-release", takes("a release", release, deafRelease), "")
	c.add(SeverityInfo, "expect-crash", takes("the crash of a leader", crash, deafCrash)+fmt.Sprintf(": what is left of the TTL of %v, and a stand-down of %v", t.ttl, t.standDown),
		"for less, lower the TTL, or set WithStandDown to what the error of clocks demands")
	c.add(SeverityInfo, "expect-eviction", takes("somebody deleted the key under a leader", eviction, deafEviction), "have the leader resign instead, which takes no stand-down")

	room := t.leaseTime() - t.interval
	message := fmt.Sprintf("a leader survives %v without the bucket, whenever it begins", room.Round(time.Millisecond))
	switch cfg := c.info.Config; {
	case !c.told, cfg.Storage == jetstream.MemoryStorage:
		c.add(SeverityInfo, "expect-outage", message, "")
	case cfg.Replicas <= 1:
		c.add(SeverityInfo, "expect-outage", message+": a restart of its server that takes no longer ends no term", "")
	case room >= serverCrash:
		c.add(SeverityInfo, "expect-outage", message+", and so the crash of the server that leads its stream, after which the others take up to 10s", "")
	default:
		c.add(SeverityInfo, "expect-outage", message+", but not the crash of the server that leads its stream, after which the others take up to 10s: the leader then stands down, safely, for nothing",
			"to survive it, use a TTL of 45s, or of 15s and WithCampaignInterval of a third of it")
	}
}
