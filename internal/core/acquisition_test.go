package core

import (
	"testing"
	"time"

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
		"of an earlier bucket":  {acquisition{reason: Released, bucketCreated: created.Add(-time.Hour), acknowledged: read}, false, 10 * time.Second},
		"an own late write":     {acquisition{reason: Reclaimed, bucketCreated: created, acknowledged: read}, false, time.Second},
		"a longer stand-down":   {acquisition{reason: Reclaimed, bucketCreated: created, left: 9 * time.Second, acknowledged: read}, false, 9 * time.Second},
		"a shorter stand-down":  {acquisition{reason: Reclaimed, bucketCreated: created, left: time.Millisecond, acknowledged: read}, false, time.Second},
		"a stand-down of years": {acquisition{reason: Reclaimed, bucketCreated: created, left: 1 << 60, acknowledged: read}, false, 10 * time.Second},
		"no release":            {acquisition{reason: Vacant, acknowledged: read}, false, time.Second},
	} {
		c.a.read = read
		if got := c.a.verified(bucket); got != c.verified {
			t.Errorf("%s: verified is %v", name, got)
		}
		if got := c.a.standDown(bucket); got != c.standDown {
			t.Errorf("%s: the stand-down is %v, not %v", name, got, c.standDown)
		}
	}
}
