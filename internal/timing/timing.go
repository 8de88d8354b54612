// Package timing holds the durations of elections: what options set, what follows from the TTL of a bucket, and the limits of both.
package timing

import (
	"errors"
	"time"

	"github.com/natscampaign/election/internal/validate"
)

const (
	// MinTTL and MaxTTL bound the TTL of a bucket for elections.
	MinTTL, MaxTTL = time.Second, time.Hour
	// RequestTimeout is the longest time that one request to the server is given.
	RequestTimeout = 2 * time.Second
	// ExpiryLateness is how late a server may be to expire a key.
	ExpiryLateness = 400 * time.Millisecond
	// DefaultTTL is the TTL of a bucket whose maker gives none. With an interval of a quarter of it a leader outlasts the crash of the server
	// that leads the bucket's stream.
	DefaultTTL = 15 * time.Second
	// MinTry is the shortest time that a renewal is given; with less time before the deadline no renewal is sent. So none is sent in the last
	// milliseconds of a key's life either, in which a server may acknowledge a write and then expire it all the same.
	MinTry = 25 * time.Millisecond
	// MinPause is the shortest time between two campaigns of one candidate.
	MinPause = 10 * time.Millisecond
	// MinRoom is what must be left between a renewal and the deadline: time for two tries that fail and one more.
	MinRoom = 4 * MinTry
	// longest replaces any longer duration that is given: a century, so that sums of durations do not overflow.
	longest = 100 * 365 * 24 * time.Hour
)

// DefaultMargin returns by how much a lease is shorter than the TTL by default: so much that a lease is over before the server expires the key, and
// can be taken over before, even if the leader's clock is slewed, see [LapseTime].
func DefaultMargin(ttl time.Duration) time.Duration { return max(50*time.Millisecond, ttl/10) }

// TTLOf returns the TTL with which a lease has the given length, with the default margin.
func TTLOf(lease time.Duration) time.Duration {
	return max(lease+DefaultMargin(0), (lease*10+8)/9)
}

// DefaultInterval returns how long a candidate waits from one campaign or renewal to the next by default.
func DefaultInterval(ttl time.Duration) time.Duration { return ttl * 3 / 4 }

// ShortInterval returns the interval that suits most elections: a leader outlasts the crash of the server that leads the bucket's stream, if the
// TTL is 15 s or more.
func ShortInterval(ttl time.Duration) time.Duration { return ttl / 4 }

// RenewalOverdue returns how long after a renewal the next one is overdue: when half of the time is over from when it was due until the key expires.
func RenewalOverdue(interval, ttl time.Duration) time.Duration { return interval + (ttl-interval)/2 }

// LongestInterval returns the longest interval that leaves room to try again before the deadline, with the default margin.
func LongestInterval(ttl time.Duration) time.Duration { return ttl - DefaultMargin(ttl) - MinRoom }

// Durations are the durations that options set. A nil duration stands for its default.
type Durations struct {
	Interval, Splay, StandDown, LeaseMargin, ReleaseTimeout *time.Duration
}

// duration is one row of the table of durations.
type duration struct {
	option   string
	given    func(*Durations) *time.Duration
	set      func(*Timing) *time.Duration
	standard func(Timing) time.Duration // the default, where TTL and all rows above are set
	min, max time.Duration              // 0: no limit
}

// table lists every duration with its option, default and limits.
var table = []duration{
	{"WithCampaignInterval", func(d *Durations) *time.Duration { return d.Interval }, func(t *Timing) *time.Duration { return &t.Interval },
		func(t Timing) time.Duration { return DefaultInterval(t.TTL) }, MinPause, 0},
	{"WithSplay", func(d *Durations) *time.Duration { return d.Splay }, func(t *Timing) *time.Duration { return &t.Splay },
		func(t Timing) time.Duration { return min(5*time.Second, t.Interval) }, 0, 0},
	{"WithStandDown", func(d *Durations) *time.Duration { return d.StandDown }, func(t *Timing) *time.Duration { return &t.StandDown },
		func(t Timing) time.Duration { return t.Interval }, 0, MaxTTL},
	{"WithLeaseMargin", func(d *Durations) *time.Duration { return d.LeaseMargin }, func(t *Timing) *time.Duration { return &t.Margin },
		func(t Timing) time.Duration { return DefaultMargin(t.TTL) }, 0, 0},
	{"WithReleaseTimeout", func(d *Durations) *time.Duration { return d.ReleaseTimeout }, func(t *Timing) *time.Duration { return &t.ReleaseTimeout },
		func(t Timing) time.Duration { return t.TTL }, 0, 0},
}

// Validate checks the durations by themselves.
func (d *Durations) Validate() error {
	var problems []error
	for _, row := range table {
		switch given := row.given(d); {
		case given == nil:
		case *given < 0:
			problems = append(problems, validate.Errorf("%s(%v) is negative: give a positive duration, or leave it out for the default", row.option, *given))
		case *given < row.min:
			problems = append(problems, validate.Errorf("%s(%v) is too short: give at least %v, or leave it out for the default", row.option, *given, row.min))
		case row.max > 0 && *given > row.max:
			problems = append(problems, validate.Errorf("%s(%v) is longer than any lease: give at most %v", row.option, *given, row.max))
		}
	}
	return errors.Join(problems...)
}

// Timing holds the durations of one election in one bucket.
type Timing struct {
	TTL            time.Duration
	Interval       time.Duration
	Splay          time.Duration
	StandDown      time.Duration
	Margin         time.Duration
	ReleaseTimeout time.Duration

	DefaultStandDown bool // no option sets the stand-down
	DefaultSplay     bool // nor the splay
}

// Timing returns the durations for a bucket with the given TTL, or an error if one does not fit it.
func (d *Durations) Timing(ttl time.Duration) (Timing, error) {
	t := Timing{TTL: ttl, DefaultStandDown: d.StandDown == nil, DefaultSplay: d.Splay == nil}
	for _, row := range table {
		if given := row.given(d); given != nil {
			*row.set(&t) = min(*given, longest)
		} else {
			*row.set(&t) = row.standard(t)
		}
	}
	if t.Margin >= ttl/2 {
		return t, validate.Errorf("a lease margin of %v is half of the bucket's TTL of %v or more: use less, or leave WithLeaseMargin out for %v", t.Margin, ttl, DefaultMargin(ttl))
	}
	if room := ttl - t.Margin - t.Interval; room < MinRoom {
		return t, validate.Errorf("with the bucket's TTL of %v and a lease margin of %v, a campaign interval of %v leaves no room to try again before the deadline: use %v to %v, or leave WithCampaignInterval out", ttl, t.Margin, t.Interval, MinPause, ttl-t.Margin-MinRoom)
	}
	return t, nil
}

// LeaseTime returns how long leadership may be believed after the last acknowledged write was sent.
func (t Timing) LeaseTime() time.Duration { return t.TTL - t.Margin }

// How much the speeds of clocks may differ. The least exact clocks are those that are slewed, that is, corrected by running slower or faster for a while:
// chrony slews by up to 83,333 millionths, one part in 12 (its maxslewrate), ntpd and systemd-timesyncd by 500. The speed of a clock that is never
// slewed errs by less than one part in 1,000.

// LapseTime returns how long after a candidate has seen the holder's write the lease of that write is certainly over, in a bucket with the given TTL:
// the leader's clock may have been slewed so that it was slow. unslewed says whether the candidate measures that time by a clock that is never slewed.
// If it does not, its own clock may have been slewed so that it was fast. A stated lease that is shorter than with the default margin is not believed.
func LapseTime(lease, ttl time.Duration, unslewed bool) time.Duration {
	lease = max(lease, ttl-DefaultMargin(ttl))
	if unslewed {
		return lease + lease*1012/11_000 // 12/11 × 1001/1000
	}
	return lease + lease*2/11 // 12/11 × 13/12
}

// Ahead returns by how much more than the given time a clock may advance meanwhile that is slewed so that it is fast.
func Ahead(d time.Duration) time.Duration { return d / 12 }

// ExpiredAfter returns how long after a candidate has seen a write, by any clock of the candidate, the server has expired it, if it ever does.
func ExpiredAfter(ttl time.Duration) time.Duration {
	expired := ttl + ExpiryLateness
	return expired + Ahead(expired)
}

// Slack returns how late a renewal may be and still count as in time: a quarter of the time between a renewal that is due and the deadline.
func (t Timing) Slack() time.Duration { return (t.LeaseTime() - t.Interval) / 4 }

// RequestTimeout returns how long a candidate waits for the answer to one request: short enough that a win which is acknowledged late
// still leaves most of its lease.
func (t Timing) RequestTimeout() time.Duration { return min(t.TTL/4, RequestTimeout) }

// Spread returns the time over which candidates spread their answers to a vacancy that names no successors. However many they are, few of them answer
// before all are notified of the first answer; and compared with a failover the time is short.
func (t Timing) Spread() time.Duration { return min(t.TTL/16, time.Second) }
