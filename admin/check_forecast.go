package admin

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/core"
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

// estimate is how long it takes until somebody leads again.
type estimate struct{ median, worst time.Duration }

func (e estimate) String() string {
	return fmt.Sprintf("%v in the median and %v at worst", e.median.Round(time.Millisecond), e.worst.Round(time.Millisecond))
}

// short returns the estimate with two digits, the worst rounded up.
func (e estimate) short() string {
	return fmt.Sprintf("%v, or %v at worst", timeutil.TwoDigits(e.median), twoDigitsUp(e.worst))
}

// twoDigitsUp rounds a duration up to two digits: what is promised at worst must hold.
func twoDigitsUp(d time.Duration) time.Duration {
	unit := timeutil.SecondDigit(d)
	return (d + unit - 1).Truncate(unit)
}

func (e estimate) plus(median, worst time.Duration) estimate {
	return estimate{e.median + median, e.worst + worst}
}

// requestTime stands for the time that a write takes.
const requestTime = time.Millisecond

// capability is what candidates can do about a vacancy.
type capability struct {
	notified   bool          // of changes
	markers    time.Duration // how long the marker of an expiry is stored; 0 if expiries are not announced
	named      bool          // a release and a renewal name successors
	unreadable bool          // they cannot read the key
	remembers  bool          // releases never expire
	connected  bool          // they know their connection, and see who removed the key
	plain      bool          // they write bare names
	backoff    bool          // they campaign at other intervals than they renew
}

// failovers are the times without a leader after a release, a crash and an eviction. The median after a crash is that of a leader that crashes at any
// time between two renewals.
type failovers struct {
	release, crash, eviction estimate

	// after a crash before any standby has been notified of a renewal, so that none can time the lease; zero if that makes no difference
	unseen estimate
}

func (c capability) failovers(t timing.Timing) (f failovers) {
	expiry := estimate{t.TTL - t.Interval/2, t.TTL + timing.ExpiryLateness}
	removed := max(t.StandDown, t.TTL, timing.LapseTime(t.LeaseTime(), t.TTL, true))
	answer := estimate{core.ShortSpread / 2, core.ShortSpread} // to a release
	if c.named {
		answer = estimate{requestTime, core.HeadStart + core.ShortSpread} // at worst the one that is named is gone
	}
	if c.notified && !c.unreadable { // a notification is a reason to read the key, and no more
		spread := estimate{t.Spread() / 2, t.Spread()}
		switch {
		case c.markers == 0: // an expiry is noticed because no renewal comes
			expiry.median += timing.ExpiryLateness
		case c.named && !c.plain:
			spread.median = requestTime
		}
		f = failovers{release: answer, crash: expiry.plus(t.StandDown, t.StandDown).plus(spread.median, spread.worst), eviction: spread.plus(removed, removed)}
		if takeover, possible := c.takeover(t); possible {
			f.unseen, f.crash = f.crash, takeover
		}
		return f
	}
	longest := t.Interval
	if c.backoff {
		longest = t.TTL
	}
	campaign := estimate{longest / 2, longest}
	vacant := campaign.plus(t.StandDown, t.StandDown)
	f.crash = vacant.plus(expiry.median, expiry.worst)
	if c.unreadable { // the release, or the marker of the removal, has to expire, and then the marker of that
		f.crash = f.crash.plus(c.markers, c.markers)
		f.release = vacant.plus(c.markers+t.TTL, c.markers+t.TTL+timing.ExpiryLateness)
		f.eviction = f.release
		if c.remembers { // the release never expires, and counts as nobody's lease once it has outlived the TTL
			f.release = campaign.plus(campaign.median, campaign.worst).plus(t.TTL+timing.ExpiryLateness, t.TTL+timing.ExpiryLateness).plus(removed, removed)
		}
		return f
	}
	if f.eviction = vacant; c.connected {
		f.eviction = campaign.plus(removed, removed)
	}
	if f.release = campaign.plus(0, answer.worst); c.plain || c.markers == 0 { // it is deleted, and then proves nothing
		f.release = f.eviction
	}
	return f
}

// takeover returns the time without a leader after a crash that is answered by a takeover of the lapsed lease. It is possible if some candidate comes
// before the server expires the key; the worst time is that of an expiry if the successor that the last renewal names is gone, and the others may come later.
func (c capability) takeover(t timing.Timing) (e estimate, possible bool) {
	const requests = 5 * requestTime // a read, the takeover and the renewal
	lapse := timing.LapseTime(t.LeaseTime(), t.TTL, true)
	if !c.connected || c.plain || lapse >= t.TTL {
		return e, false
	}
	pause := (&core.Bucket{Timing: t}).TakeoverPause() + requests
	last := lapse + max(core.ShortSpread, min(t.TTL-lapse, t.Spread())/2)
	if c.named {
		last += core.HeadStart
	}
	e = estimate{lapse - t.Interval/2 + pause, last + pause}
	if last+requests >= t.TTL {
		e.worst = t.TTL + timing.ExpiryLateness + t.StandDown + t.Spread()
	}
	return e, true
}

// maxServerFailover is how long a replicated stream may refuse writes after the server that led it has crashed, until the others have
// noticed and elected another: 4 to 9 s, and a little more for the renewal.
const maxServerFailover = 9500 * time.Millisecond

// survival returns how long a leader survives without the bucket, to two digits.
func survival(t timing.Timing) time.Duration {
	room := t.LeaseTime() - t.Interval
	return room.Truncate(timeutil.SecondDigit(room))
}

// forecast reports what to expect of elections with these options in this bucket.
func (c *checkup) forecast() {
	if c.timing == nil {
		return
	}
	t, source := *c.timing, c.source()
	can := capability{
		notified: source != core.NoSource, markers: c.info.MarkerTTL, named: c.conn != nil && c.probes.attempts == nil, remembers: c.info.Remembers, unreadable: c.role == RoleCandidate && c.probes.read != nil,
		connected: c.conn != nil, plain: c.PlainValue, backoff: c.Backoff != nil,
	}
	acts := can.notified && !can.unreadable
	best := can.failovers(t)
	can.notified = false
	polled := can.failovers(t)
	expect := func(code, after string, e, polled estimate, more, fix string) {
		until := fmt.Sprintf("%v until somebody leads again, as candidates cannot act on notifications", polled)
		if acts {
			until = fmt.Sprintf("%v until somebody leads again, as candidates are notified (%s); %v if one is not", e, source, polled)
		} else {
			e = polled
		}
		c.add(SeverityInfo, code, "after "+after+" it takes "+until+more, fix)
		c.shorten("after " + after + " somebody leads again in " + e.short())
	}
	expect("expect-release", "a release", best.release, polled.release, "", "")
	expect("expect-crash", "the crash of a leader", best.crash, polled.crash, crashTerms(t, best.unseen, can.named), "for less, lower the TTL")
	if unseen := best.unseen.worst; acts && unseen > best.crash.worst {
		c.shorten(fmt.Sprintf("%s; %v if no standby has been notified of a renewal yet", c.findings[len(c.findings)-1].Short, twoDigitsUp(unseen)))
	}
	expect("expect-eviction", "somebody deleted the leader's key", best.eviction, polled.eviction, "", "have the leader resign instead, which takes no stand-down")

	can.notified = acts
	c.forecastOutage(t, can)
}

// crashTerms says of what the time after a crash consists, and which standby can answer a crash by the lease, in words that follow that time. unseen is
// the time if none can; zero if none ever can.
func crashTerms(t timing.Timing, unseen estimate, named bool) string {
	if unseen.worst == 0 {
		return fmt.Sprintf(": what is left of the TTL of %v, and a stand-down of %v", t.TTL, t.StandDown)
	}
	seen := fmt.Sprintf("which is within %v", t.Interval)
	if named {
		seen = fmt.Sprintf("which is within %v of its first campaign, and within %v of a reconnection", t.TTL/core.NewcomerPart, t.Interval)
	}
	return fmt.Sprintf(": what is left of the lease, if a standby has been notified of a renewal, %s; else %v at worst: the TTL of %v, its lateness of %v, and a stand-down of %v",
		seen, unseen.worst.Round(time.Millisecond), t.TTL, timing.ExpiryLateness, t.StandDown)
}

// forecastOutage reports which outage of the bucket a term survives, and how it would survive the crash of a server.
func (c *checkup) forecastOutage(t timing.Timing, can capability) {
	message, fix := fmt.Sprintf("a leader survives %v without the bucket", survival(t)), ""
	short := message
	const crash = "the crash of the server that leads the bucket's stream, after which the others take 4 to 9s"
	switch cfg := c.stream.Config; {
	case c.info.Stream == nil, cfg.Storage == jetstream.MemoryStorage:
	case cfg.Replicas <= 1:
		message += ": a restart of its server that takes no longer ends no term"
	case t.LeaseTime()-t.Interval >= maxServerFailover:
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
func (c *checkup) outlastServer(t timing.Timing, can capability) string {
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
		return timeutil.TwoDigits(can.failovers(t).crash.median)
	}
	return fmt.Sprintf("use %s: then a leader survives %v, and after the crash of a leader somebody leads again in %v in the median, in place of %v", fix, survival(better), median(better), median(t))
}
