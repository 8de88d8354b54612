// Package forecast computes how long an election has no leader after a release, a crash or an eviction, and which outage of its bucket a leader
// survives. It is the arithmetic of docs/TUNING.md. Package admin and the command ask it.
package forecast

import (
	"time"

	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/timing"
)

// Estimate is how long it takes until somebody leads again.
type Estimate struct{ Median, Worst time.Duration }

func (e Estimate) plus(median, worst time.Duration) Estimate {
	return Estimate{e.Median + median, e.Worst + worst}
}

// requestTime stands for the time that a write takes.
const requestTime = time.Millisecond

// Candidates are what candidates can do about a vacancy.
type Candidates struct {
	Notified   bool          // of changes
	Markers    time.Duration // how long the marker of an expiry is stored; 0 if expiries are not announced
	Named      bool          // a release and a renewal name successors
	Unreadable bool          // they cannot read the key
	Remembers  bool          // releases never expire
	Connected  bool          // they know their connection, and see who removed the key
	Plain      bool          // they write bare names
	Backoff    bool          // they campaign at other intervals than they renew
}

// Failovers are the times without a leader after a release, a crash and an eviction. The median after a crash is that of a leader that crashes at any
// time between two renewals.
type Failovers struct {
	Release, Crash, Eviction Estimate

	// after a crash before any standby has been notified of a renewal, so that none can time the lease; zero if that makes no difference
	Unseen Estimate
}

// Failovers returns how long the candidates take, with the given durations.
func (c Candidates) Failovers(t timing.Timing) (f Failovers) {
	expiry := Estimate{t.TTL - t.Interval/2, t.TTL + timing.ExpiryLateness}
	removed := max(t.StandDown, t.TTL, timing.LapseTime(t.LeaseTime(), t.TTL, true))
	answer := Estimate{core.ShortSpread / 2, core.ShortSpread} // to a release
	if c.Named {
		answer = Estimate{requestTime, core.HeadStart + core.ShortSpread} // at worst the one that is named is gone
	}
	if c.Notified && !c.Unreadable { // a notification is a reason to read the key, and no more
		spread := Estimate{t.Spread() / 2, t.Spread()}
		switch {
		case c.Markers == 0: // an expiry is noticed because no renewal comes
			expiry.Median += timing.ExpiryLateness
		case c.Named && !c.Plain:
			spread.Median = requestTime
		}
		f = Failovers{Release: answer, Crash: expiry.plus(t.StandDown, t.StandDown).plus(spread.Median, spread.Worst), Eviction: spread.plus(removed, removed)}
		if takeover, possible := c.takeover(t); possible {
			f.Unseen, f.Crash = f.Crash, takeover
		}
		return f
	}
	longest := t.Interval
	if c.Backoff {
		longest = t.TTL
	}
	campaign := Estimate{longest / 2, longest}
	vacant := campaign.plus(t.StandDown, t.StandDown)
	f.Crash = vacant.plus(expiry.Median, expiry.Worst)
	if c.Unreadable { // the release, or the marker of the removal, has to expire, and then the marker of that
		f.Crash = f.Crash.plus(c.Markers, c.Markers)
		f.Release = vacant.plus(c.Markers+t.TTL, c.Markers+t.TTL+timing.ExpiryLateness)
		f.Eviction = f.Release
		if c.Remembers { // the release never expires, and counts as nobody's lease once it has outlived the TTL
			outlived := timing.ExpiredAfter(t.TTL)
			f.Release = campaign.plus(campaign.Median, campaign.Worst).plus(outlived+removed, outlived+removed)
		}
		return f
	}
	if f.Eviction = vacant; c.Connected {
		f.Eviction = campaign.plus(removed, removed)
	}
	if f.Release = campaign.plus(0, answer.Worst); c.Plain || c.Markers == 0 { // it is deleted, and then proves nothing
		f.Release = f.Eviction
	}
	return f
}

// takeover returns the time without a leader after a crash that is answered by a takeover of the lapsed lease. It is possible if some candidate comes
// before the server expires the key; the worst time is that of an expiry if the successor that the last renewal names is gone, and the others may come later.
func (c Candidates) takeover(t timing.Timing) (e Estimate, possible bool) {
	const requests = 5 * requestTime // a read, the takeover and the renewal
	lapse := timing.LapseTime(t.LeaseTime(), t.TTL, true)
	if !c.Connected || c.Plain || lapse >= t.TTL {
		return e, false
	}
	pause := (&core.Bucket{Timing: t}).TakeoverPause() + requests
	last := lapse + max(core.ShortSpread, min(t.TTL-lapse, t.Spread())/2)
	if c.Named {
		last += core.HeadStart
	}
	e = Estimate{lapse - t.Interval/2 + pause, last + pause}
	if last+requests >= t.TTL {
		e.Worst = t.TTL + timing.ExpiryLateness + t.StandDown + t.Spread()
	}
	return e, true
}

// ServerFailover is how long a replicated stream may refuse writes after the server that led it has crashed, until the others have noticed and
// elected another: 4 to 9 s, and a little more for the renewal.
const ServerFailover = 9500 * time.Millisecond

// Survival returns how long a leader survives without the bucket, in the worst case: it has been about to renew.
func Survival(t timing.Timing) time.Duration { return t.LeaseTime() - t.Interval }
