package supervise

import (
	"fmt"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/cli"
)

const (
	longestGrace = 10 * time.Second       // unless more was asked for
	longestDeath = 500 * time.Millisecond // between KILL and the end of the lease
	leastDeath   = 25 * time.Millisecond
	// longestRetry is what a renewal that is due may take before the program is told to end: one try of the longest kind
	// that fails, the pause after it, and another that succeeds.
	longestRetry = 3 * time.Second
)

// leaseTimes is how a lease is spent, from the renewal that began it:
//
//	renewed          next renewal due         TERM            KILL      the lease ends
//	   ├──────── interval ────────┼──── retry ────┼──── grace ────┼── death ──┤   margin, TTL
type leaseTimes struct {
	margin, interval time.Duration
	grace, death     time.Duration
}

// timesFor divides the leases of a bucket with the given TTL. Intervals and graces of 0 that were not set by the user are
// chosen; those that do not fit are refused. A TTL that elections cannot have is left to the library to refuse.
func (r *Config) timesFor(ttl time.Duration) (leaseTimes, error) {
	t := leaseTimes{margin: max(50*time.Millisecond, ttl/50), interval: ttl * 3 / 4}
	if r.IntervalSet {
		t.interval = r.Interval
	}
	room := ttl - t.margin - t.interval
	if cli.CheckTTL(ttl) != nil || room < 100*time.Millisecond { // so little that the library refuses it
		t.grace = r.Grace
		return t, nil
	}
	t.death = min(max(room/3, leastDeath), longestDeath) // a host that is overloaded takes its time to kill
	most := room - t.death - min(room/2, longestRetry)
	if t.grace = min(most, longestGrace); r.GraceSet {
		t.grace = r.Grace
	}
	if t.grace <= most {
		return t, nil
	}
	needed := roomFor(t.grace)
	way := fmt.Sprintf("give a --grace of at most %v, or a bucket with a TTL of at least %v",
		most.Truncate(time.Millisecond), ttlFor(needed, r.Interval, r.IntervalSet))
	if longest := ttl - t.margin - needed; longest >= 10*time.Millisecond {
		way = fmt.Sprintf("give an --interval of at most %v, ", longest.Truncate(time.Millisecond)) + strings.TrimPrefix(way, "give ")
	}
	return t, fmt.Errorf("--grace %v does not fit: with the bucket's TTL of %v and renewals every %v, the program would have to be terminated "+
		"while a renewal may still come in good order; %s", t.grace, ttl, t.interval, way)
}

// roomFor returns how much of a lease must be left when a renewal is due so that a grace fits.
func roomFor(grace time.Duration) time.Duration {
	switch {
	case grace <= longestDeath/2:
		return max(6*grace, 4*leastDeath)
	case grace <= longestRetry-longestDeath:
		return 2 * (grace + longestDeath)
	}
	return grace + longestRetry + longestDeath
}

// ttlFor returns a TTL, in whole seconds, that leaves so much room.
func ttlFor(room, interval time.Duration, given bool) time.Duration {
	ttl := time.Second
	for ttl < time.Hour {
		every := ttl * 3 / 4
		if given {
			every = interval
		}
		if ttl-max(50*time.Millisecond, ttl/50)-every >= room {
			break
		}
		ttl += time.Second
	}
	return ttl
}

// left returns what is left until an instant that is as right by the wall clock as by the monotonic one, as a deadline is that
// a term gave just now: the stricter of the two decides.
func left(until time.Time) time.Duration {
	now := time.Now()
	return min(until.Sub(now), until.Round(0).Sub(now.Round(0)))
}
