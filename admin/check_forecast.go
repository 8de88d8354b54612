package admin

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/forecast"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/timing"
)

// source returns the best source by which candidates with these permissions are notified.
func (c *checkup) source() string {
	switch p := c.probes; {
	case c.conn != nil && c.info.Republish != "" && p.subscribe == nil:
		return core.Republish
	case c.role != RoleCandidate: // the probes do not say what candidates may do: assume that they may watch
		return core.Watch
	case p.watch == nil, p.watchOne == nil:
		return core.Watch
	}
	return core.NoSource
}

// checkNotifications checks what keeps candidates from being notified as well as they could be.
func (c *checkup) checkNotifications() {
	plain := ""
	switch n := c.probes.plains; {
	case n > 0:
		keys := "keys"
		if n == 1 {
			keys = "key"
		}
		plain = fmt.Sprintf("bare names are stored under %d %s (%s)", n, keys, strings.Join(c.probes.plain, ", "))
	case c.PlainValue:
		plain = "WithPlainValue is given"
	case c.info.Choria:
		plain = "it was made for candidates of Choria"
	}
	switch markers := c.info.MarkerTTL; {
	case markers > 0 && plain != "":
		c.warn("markers-plain-names", fmt.Sprintf("%s, but the bucket announces expiries by markers, for %v each: candidates of Choria cannot create a key while its marker is stored", plain, markers),
			fmt.Sprintf("have them campaign in another bucket, which 'election-cli bucket add --bucket %s_CHORIA --ttl %v --choria-compatible' creates: markers cannot be removed", c.name, c.info.TTL))
	case markers <= 0 && plain != "":
		c.add(SeverityInfo, "no-markers", "the bucket does not announce expiries, which is right because "+plain, "")
	case markers <= 0:
		c.warn("no-markers", fmt.Sprintf("the bucket does not announce expiries: candidates wait %v longer to be sure of one, and candidates that are not notified wait for the stand-down after a release too", timing.ExpiryLateness), c.markerFix(c.serverVersion()))
	case markers > kv.MarkerTTL:
		c.add(SeverityInfo, "markers-long", fmt.Sprintf("the marker of an expiry is stored for %v: a candidate that may not read its key cannot create it before", markers), c.info.EditAdvice())
	}
	if c.info.Stream == nil {
		return
	}
	if c.info.MarkerTTL > 0 && !c.info.Remembers {
		c.add(SeverityInfo, "releases-expire", "releases expire after the TTL: a service that was stopped in order for longer starts as slowly as after a crash", c.info.EditAdvice())
	}
	severity, fix := SeverityWarning, c.info.EditAdvice()
	if c.conn == nil {
		severity, fix = SeverityInfo, fix+", and open the bucket by OpenBucket or give WithJetStream"
	}
	const then = ": each process needs a watcher, which is a consumer of the server"
	switch r := c.stream.Config.RePublish; {
	case r == nil:
		c.add(severity, "republish", "the bucket does not republish its changes"+then, fix)
	case r.HeadersOnly:
		c.add(severity, "republish", fmt.Sprintf("the bucket republishes only the headers of its changes, on %s%s", r.Destination, then), fix)
	case c.info.Republish == "":
		c.add(severity, "republish", fmt.Sprintf("the bucket republishes its changes only from %s, on %s%s", r.Source, r.Destination, then), fix)
	case c.conn == nil:
		c.add(SeverityInfo, "republish-unused", fmt.Sprintf("the bucket republishes its changes on %s, which candidates cannot receive without a connection", r.Destination), "open the bucket by OpenBucket or give WithJetStream, which saves each process a watcher")
	}
}

// serverVersion returns the version of the server of the stream or, before 2.11, of the connection; "" if it is not known.
func (c *checkup) serverVersion() string {
	version := c.stream.Config.Metadata[kv.ServerVersion]
	if version == "" && c.conn != nil {
		version = c.conn.ConnectedServerVersion()
	}
	return version
}

// markerFix returns how to get expiry markers from a server of the given version, which may not be known.
func (c *checkup) markerFix(version string) string {
	fix := c.info.EditAdvice() + ", unless candidates of Choria campaign in the bucket"
	switch order, ok := kv.CompareVersion(version, 2, 11); {
	case !ok:
		return fix + ", on servers of version 2.11 or newer"
	case order < 0:
		return fmt.Sprintf("upgrade the servers, of which this one has version %s, to 2.11 or newer, then %s", version, fix)
	}
	return fix
}

// describe returns an estimate in words.
func describe(e forecast.Estimate) string {
	return fmt.Sprintf("%v in the median and %v at worst", e.Median.Round(time.Millisecond), e.Worst.Round(time.Millisecond))
}

// short returns the estimate with two digits, the worst rounded up.
func short(e forecast.Estimate) string {
	return fmt.Sprintf("%v, or %v at worst", timeutil.TwoDigits(e.Median), twoDigitsUp(e.Worst))
}

// twoDigitsUp rounds a duration up to two digits: what is promised at worst must hold.
func twoDigitsUp(d time.Duration) time.Duration {
	unit := timeutil.SecondDigit(d)
	return (d + unit - 1).Truncate(unit)
}

// survival returns how long a leader survives without the bucket, to two digits.
func survival(t timing.Timing) time.Duration {
	room := forecast.Survival(t)
	return room.Truncate(timeutil.SecondDigit(room))
}

// forecast reports what to expect of elections with these options in this bucket.
func (c *checkup) forecast() {
	if c.timing == nil {
		return
	}
	t, source := *c.timing, c.source()
	can := forecast.Candidates{
		Notified: source != core.NoSource, Markers: c.info.MarkerTTL, Named: c.conn != nil && c.probes.attempts == nil, Remembers: c.info.Remembers, Unreadable: c.role == RoleCandidate && c.probes.read != nil,
		Connected: c.conn != nil, Plain: c.PlainValue, Backoff: c.Backoff != nil,
	}
	acts := can.Notified && !can.Unreadable
	best := can.Failovers(t)
	can.Notified = false
	polled := can.Failovers(t)
	expect := func(code, after string, e, polled forecast.Estimate, more, fix string) {
		until := fmt.Sprintf("%v until somebody leads again, as candidates cannot act on notifications", describe(polled))
		if acts {
			until = fmt.Sprintf("%v until somebody leads again, as candidates are notified (%s); %v if one is not", describe(e), source, describe(polled))
		} else {
			e = polled
		}
		c.add(SeverityInfo, code, "after "+after+" it takes "+until+more, fix)
		c.shorten("after " + after + " somebody leads again in " + short(e))
	}
	expect("expect-release", "a release", best.Release, polled.Release, "", "")
	expect("expect-crash", "the crash of a leader", best.Crash, polled.Crash, crashTerms(t, best.Unseen, can.Named), "for less, lower the TTL")
	if unseen := best.Unseen.Worst; acts && unseen > best.Crash.Worst {
		c.shorten(fmt.Sprintf("%s; %v if no standby has been notified of a renewal yet", c.findings[len(c.findings)-1].Short, twoDigitsUp(unseen)))
	}
	expect("expect-eviction", "somebody deleted the leader's key", best.Eviction, polled.Eviction, "", "have the leader resign instead, which takes no stand-down")

	can.Notified = acts
	c.forecastOutage(t, can)
}

// crashTerms says of what the time after a crash consists, and which standby can answer a crash by the lease, in words that follow that time. unseen is
// the time if none can; zero if none ever can.
func crashTerms(t timing.Timing, unseen forecast.Estimate, named bool) string {
	if unseen.Worst == 0 {
		return fmt.Sprintf(": what is left of the TTL of %v, and a stand-down of %v", t.TTL, t.StandDown)
	}
	seen := fmt.Sprintf("which is within %v", t.Interval)
	if named {
		seen = fmt.Sprintf("which is within %v of its first campaign, and within %v of a reconnection", t.TTL/core.NewcomerPart, t.Interval)
	}
	return fmt.Sprintf(": what is left of the lease, if a standby has been notified of a renewal, %s; else %v at worst: the TTL of %v, its lateness of %v, and a stand-down of %v",
		seen, unseen.Worst.Round(time.Millisecond), t.TTL, timing.ExpiryLateness, t.StandDown)
}

// forecastOutage reports which outage of the bucket a term survives, and how it would survive the crash of a server.
func (c *checkup) forecastOutage(t timing.Timing, can forecast.Candidates) {
	message, fix := fmt.Sprintf("a leader survives %v without the bucket", survival(t)), ""
	short := message
	const crash = "the crash of the server that leads the bucket's stream, after which the others take 4 to 9s"
	switch cfg := c.stream.Config; {
	case c.info.Stream == nil, cfg.Storage == jetstream.MemoryStorage:
	case cfg.Replicas <= 1:
		message += ": a restart of its server that takes no longer ends no term"
	case forecast.Survival(t) >= forecast.ServerFailover:
		message += ", and so " + crash
		short += ", and so the crash of a server"
	default:
		message += ", but not " + crash + ": the leader then stands down, safely but needlessly"
		short += ", but not the crash of a server, which takes 4 to 9s"
		fix = c.outlastServer(t, can)
	}
	c.add(SeverityInfo, "expect-outage", message, fix)
	c.shorten(short)
}

// sharedTTL is the TTL with which leaders survive the crash of a server though they renew after 0.75 of it.
const sharedTTL = 65 * time.Second

// outlastServer returns with which TTL and interval leaders survive the crash of a server, and what these do to failovers. Where candidates of Choria
// may campaign too the interval stays what theirs is: they learn of a loss by their next renewal only.
func (c *checkup) outlastServer(t timing.Timing, can forecast.Candidates) string {
	ttl := timing.DefaultTTL
	if c.SuitableInterval(c.info, ttl) != timing.ShortInterval(ttl) {
		ttl = max(sharedTTL, t.TTL)
	}
	d := timing.Durations{Interval: new(c.SuitableInterval(c.info, ttl)), StandDown: c.StandDown}
	better, _ := d.Timing(ttl) // which fit each other
	fix := fmt.Sprintf("an interval of %v (WithCampaignInterval)", better.Interval)
	if t.TTL != better.TTL {
		fix = fmt.Sprintf("a TTL of %v and ", better.TTL) + fix
	}
	if c.LeaseMargin != nil {
		fix += ", without WithLeaseMargin"
	}
	median := func(t timing.Timing) time.Duration {
		return timeutil.TwoDigits(can.Failovers(t).Crash.Median)
	}
	return fmt.Sprintf("use %s: then a leader survives %v, and after the crash of a leader somebody leads again in %v in the median, in place of %v", fix, survival(better), median(better), median(t))
}
