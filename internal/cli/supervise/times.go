package supervise

import (
	"fmt"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timing"
)

const (
	// minDefaultGrace and maxDefaultGrace bound the default grace, as far as the lease allows for it. It is no longer than most programs need: in
	// what it takes of a lease a renewal can no longer be tried, and a leader should outlast the crash of a server.
	minDefaultGrace, maxDefaultGrace = 1250 * time.Millisecond, 10 * time.Second

	defaultStopTimeout = 10 * time.Second // as docker stop has it
	minKillTime        = 25 * time.Millisecond
	maxKillTime        = 500 * time.Millisecond
	// maxRetryTime is enough for an attempt to renew that fails after the longest possible time, the pause after it, and a
	// second attempt that succeeds.
	maxRetryTime = 3 * time.Second
)

// leaseTimes is how the TTL of a bucket is divided. The package documentation has the drawing; the retry time is what the
// other times leave.
type leaseTimes struct {
	ttl              time.Duration
	margin, interval time.Duration
	grace, killTime  time.Duration
}

// divideLease divides the TTL of the given bucket. It refuses a grace that leaves too little time to retry a renewal, and names values that
// fit. It does not refuse a TTL or an interval that elections cannot have: the library refuses those, with its own error.
func (r *Config) divideLease(bucket kv.Info) (leaseTimes, error) {
	ttl := bucket.TTL
	t, maxGrace := r.divide(ttl, r.intervalIn(bucket, ttl))
	if t.grace <= maxGrace {
		return t, nil
	}
	needed := roomForGrace(t.grace)
	fix := fmt.Sprintf("give a --grace of at most %v", maxGrace.Truncate(time.Millisecond))
	if longer, ok := r.ttlWithRoom(needed, bucket); ok {
		fix += fmt.Sprintf(", or a bucket with a TTL of at least %v", longer)
	}
	if interval := ttl - t.margin - needed; interval >= 10*time.Millisecond {
		fix = fmt.Sprintf("give an --interval of at most %v, ", interval.Truncate(time.Millisecond)) + strings.TrimPrefix(fix, "give ")
	}
	return t, fmt.Errorf("--grace %v does not fit: with the bucket's TTL of %v and renewals every %v, the program would have to be terminated "+
		"while a renewal may still succeed; %s", t.grace, ttl, t.interval.Round(time.Millisecond), fix)
}

// divide divides a TTL, and returns the longest grace that leaves time to retry a renewal.
func (r *Config) divide(ttl, interval time.Duration) (t leaseTimes, maxGrace time.Duration) {
	t = leaseTimes{ttl: ttl, margin: timing.DefaultMargin(ttl), interval: interval}
	room := ttl - t.margin - t.interval
	if cli.CheckTTL(ttl) != nil || room < timing.MinRoom {
		t.grace = r.Grace
		return t, t.grace
	}
	t.killTime = min(max(room/3, minKillTime), maxKillTime)
	maxGrace = room - t.killTime - min(room/2, maxRetryTime)
	if t.grace = min(maxGrace, max(room/8, minDefaultGrace), maxDefaultGrace); r.GraceSet {
		t.grace = r.Grace
	}
	return t, maxGrace
}

// stopTimeout returns how long the program may take to exit in an orderly stop, in which the lease is renewed until then.
func (r *Config) stopTimeout() time.Duration {
	if r.StopTimeoutSet {
		return r.StopTimeout
	}
	return max(defaultStopTimeout, r.Grace)
}

// roomForGrace returns the smallest room in which a grace fits. It inverts the arithmetic of divideLease.
func roomForGrace(grace time.Duration) time.Duration {
	switch {
	case grace <= maxKillTime/2: // the kill time is a third of the room, and the retry time a half
		return max(6*grace, timing.MinRoom)
	case grace <= maxRetryTime-maxKillTime: // the kill time is at its maximum
		return 2 * (grace + maxKillTime)
	}
	return grace + maxRetryTime + maxKillTime
}

// ttlWithRoom returns the smallest TTL, in whole seconds, with which a lease in the given bucket would have so much room, and false if no bucket for
// elections may have that TTL.
func (r *Config) ttlWithRoom(room time.Duration, bucket kv.Info) (ttl time.Duration, ok bool) {
	for ttl = time.Second; ttl <= timing.MaxTTL; ttl += time.Second {
		if ttl-timing.DefaultMargin(ttl)-r.intervalIn(bucket, ttl) >= room {
			return ttl, true
		}
	}
	return 0, false
}

// intervalIn returns the time between two renewals in the given bucket, if its TTL is the given one.
func (r *Config) intervalIn(bucket kv.Info, ttl time.Duration) time.Duration {
	if r.Interval != nil {
		return *r.Interval
	}
	return bucket.SuitableInterval(ttl)
}
