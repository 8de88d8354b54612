package core

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// A bucket that was made again numbers its revisions from 1, so that an update of a release that was read some time ago may hit the
// record of another candidate. The simulator found that a candidate which trusts the release then leads beside the other.
func TestReleaseProvesItsBucketForAMomentOnly(t *testing.T) {
	created, read := time.Unix(1000, 0), time.Now()
	bucket := &Bucket{Created: created, Timing: timing.Timing{TTL: 10 * time.Second, StandDown: time.Second}}
	for name, c := range map[string]struct {
		a         acquisition
		verified  bool
		standDown time.Duration
	}{
		"read just now":         {acquisition{reason: Released, bucketCreated: created, acknowledged: read.Add(10 * time.Millisecond)}, true, 0},
		"read a while ago":      {acquisition{reason: Released, bucketCreated: created, acknowledged: read.Add(verifiedFor)}, false, 0},
		"of an earlier bucket":  {acquisition{reason: Released, bucketCreated: created.Add(-time.Hour), acknowledged: read}, false, bucket.mostLeft(0, false)},
		"an own late write":     {acquisition{reason: Reclaimed, bucketCreated: created, acknowledged: read}, false, time.Second},
		"a longer stand-down":   {acquisition{reason: Reclaimed, bucketCreated: created, mustWait: 9 * time.Second, acknowledged: read}, false, 9 * time.Second},
		"a shorter stand-down":  {acquisition{reason: Reclaimed, bucketCreated: created, mustWait: time.Millisecond, acknowledged: read}, false, time.Second},
		"a stand-down of years": {acquisition{reason: Reclaimed, bucketCreated: created, mustWait: 1 << 60, acknowledged: read}, false, bucket.mostLeft(0, false)},
		"no release":            {acquisition{reason: Vacant, acknowledged: read}, false, time.Second},
	} {
		c.a.readAt = read
		if got := c.a.verified(bucket); got != c.verified {
			t.Errorf("%s: verified is %v", name, got)
		}
		if got := c.a.standDown(bucket); got != c.standDown {
			t.Errorf("%s: the stand-down is %v, not %v", name, got, c.standDown)
		}
	}
}

// A leader without a lease margin that was cut off just after a renewal considers itself leader for a whole TTL of its own clock. The winner's clock
// may be faster.
func TestWholeLeaseIsStoodDownForByTheFasterClock(t *testing.T) {
	const ttl = 10 * time.Second
	bucket := &Bucket{Created: time.Unix(1000, 0), Timing: timing.Timing{TTL: ttl, StandDown: time.Second}}
	lapse, least := timing.LapseTime(ttl, ttl, false), timing.LapseTime(0, ttl, false)
	for name, c := range map[string]struct {
		a    acquisition
		want time.Duration
	}{
		"removed":                      {acquisition{reason: Vacant, removed: true, longestLease: ttl}, lapse},
		"unproven release":             {acquisition{reason: Released, unproven: true, bucketCreated: bucket.Created, longestLease: ttl}, lapse},
		"another bucket":               {acquisition{reason: Lapsed, bucketCreated: time.Unix(1, 0), longestLease: ttl}, lapse},
		"the default margin":           {acquisition{reason: Vacant, removed: true, longestLease: ttl - timing.DefaultMargin(ttl)}, least},
		"a lease that is not known":    {acquisition{reason: Vacant, removed: true}, least},
		"what is left of those before": {acquisition{reason: Vacant, mustWait: lapse, longestLease: ttl}, lapse},
		"expired, of a longer TTL":     {acquisition{reason: Vacant, longestLease: 2 * ttl}, time.Second + timing.LapseTime(2*ttl, ttl, false) - ttl},
		"expired":                      {acquisition{reason: Vacant, longestLease: ttl}, time.Second},
	} {
		if got := c.a.standDown(bucket); got != c.want {
			t.Errorf("%s: the stand-down is %v, not %v", name, got, c.want)
		}
	}
}

func TestStandDownIsExplained(t *testing.T) {
	bucket := &Bucket{Created: time.Unix(1000, 0)}
	for want, c := range map[string]acquisition{
		"if there was one":            {reason: Vacant},
		"somebody removed the key":    {reason: Vacant, removed: true},
		"nothing proves":              {reason: Released, unproven: true, bucketCreated: bucket.Created},
		"requests of the leader that": {reason: Released, died: true, mustWait: 250 * time.Millisecond, bucketCreated: bucket.Created},
		"an earlier stand-down":       {reason: Lapsed, mustWait: time.Second, bucketCreated: bucket.Created},
	} {
		if got := c.because(bucket); !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	if got := (&acquisition{reason: Lapsed}).because(bucket); !strings.Contains(got, "nothing proves") {
		t.Errorf("%q, of a record of an earlier bucket", got)
	}
}

func TestRemovalThatWasReadCountsThoughTheKeyCannotBeReadAgain(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	c.Connected, c.bucket.StandDown = true, time.Second
	standDown := func() time.Duration {
		return c.creation(time.Now(), &record.Record{}, time.Time{}).standDown(&c.bucket)
	}
	state := func(revision uint64, removal record.Removal) *record.State {
		return &record.State{Read: time.Now(), Revision: revision, Removal: removal}
	}
	c.learn(time.Now(), state(7, record.Expired))
	g.Expect(standDown()).To(Equal(time.Second))
	c.learn(time.Now(), state(8, record.Removed))
	g.Expect(standDown()).To(Equal(c.bucket.TTL), "its leader may be cut off, and lead for the rest of its lease")
	c.learn(time.Now(), state(0, record.Gone))
	g.Expect(standDown()).To(Equal(c.bucket.TTL), "the marker of the removal has expired")
	learn(c, 9, record.Record{Name: "other", Instance: "other.1"})
	g.Expect(c.key.removal).To(BeZero(), "a later record was read")
	c.key.removal = incident{10, time.Now()} // by a watcher, which cannot tell
	c.learn(time.Now(), state(10, record.Expired))
	g.Expect(c.key.removal).To(BeZero(), "it was no removal")

	c = candidate()
	c.bucket.StandDown = time.Second
	c.learn(time.Now(), state(8, record.Removed))
	g.Expect(standDown()).To(Equal(time.Second), "without the connection an expiry looks like a removal")
}

func TestDefaultStandDownOutlastsTheIntervalOfThePredecessor(t *testing.T) {
	const ttl = 15 * time.Second
	for name, c := range map[string]struct {
		predecessor, standDown, want time.Duration // predecessor is its interval; 0 if nothing is known of one
	}{
		"of one that renews alike":                    {5 * time.Second, 0, 5 * time.Second},
		"of one that renews less often":               {12 * time.Second, 0, 12 * time.Second},
		"of one that renews more often":               {time.Second, 0, 5 * time.Second},
		"of one of which nothing is known":            {0, 0, 11250 * time.Millisecond},
		"of none, for the candidate has its own time": {0, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d := timing.Durations{Interval: new(5 * time.Second)}
			if c.standDown > 0 {
				d.StandDown = &c.standDown
			}
			b := &Bucket{}
			var err error
			b.Timing, err = d.Timing(ttl)
			g := NewWithT(t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect((&acquisition{reason: Vacant, interval: c.predecessor}).standDown(b)).To(Equal(c.want))
		})
	}
}

// The simulator found it: a marker that was taken for that of an expiry had replaced the release of a leader-elect, and what that release passed on was forgotten.
func TestStandDownThatAReleasePassedOnLastsThoughTheReleaseIsGone(t *testing.T) {
	for _, removal := range []record.Removal{record.Gone, record.Expired, record.Removed} {
		g := NewWithT(t)
		now := time.Now()
		c := candidate()
		c.key.notePassedOn(&record.Record{Name: "a", Instance: "a.1", Released: now, StandDownMs: 5000}, 5, now)
		a := c.acquisitionOver(now, &record.State{Read: now, Revision: 6, Removal: removal})
		g.Expect(a.mustWait).To(BeNumerically(">=", 5*time.Second))
	}
}
