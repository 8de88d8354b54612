package election

import (
	"testing"
	"time"
)

// A bucket that was made again numbers its revisions from 1, so that the update of a release that was heard some time ago
// may hit another's record. The simulator found it: whoever believes in the release then leads beside that other.
func TestReleaseVouchesForItsBucketForAMomentOnly(t *testing.T) {
	created, heard := time.Unix(1000, 0), time.Now()
	f := &facts{timing: timing{ttl: 10 * time.Second, standDown: time.Second}, created: created}
	for name, c := range map[string]struct {
		w         win
		vouched   bool
		standDown time.Duration
	}{
		"heard just now":      {win{reason: reasonReleased, bucket: created, acknowledged: heard.Add(10 * time.Millisecond)}, true, 0},
		"heard a while ago":   {win{reason: reasonReleased, bucket: created, acknowledged: heard.Add(vouchPatience)}, false, 0},
		"of another bucket":   {win{reason: reasonReleased, bucket: created.Add(-time.Hour), acknowledged: heard}, false, 10 * time.Second},
		"a late write of own": {win{reason: reasonReclaimed, bucket: created, acknowledged: heard}, false, time.Second},
		"one that owed more":  {win{reason: reasonReclaimed, bucket: created, left: 9 * time.Second, acknowledged: heard}, false, 9 * time.Second},
		"one that owed less":  {win{reason: reasonReclaimed, bucket: created, left: time.Millisecond, acknowledged: heard}, false, time.Second},
		"one that owed years": {win{reason: reasonReclaimed, bucket: created, left: 1 << 60, acknowledged: heard}, false, 10 * time.Second},
		"no release":          {win{reason: reasonVacant, acknowledged: heard}, false, time.Second},
	} {
		c.w.known = heard
		if got := c.w.vouched(f); got != c.vouched {
			t.Errorf("%s: vouched is %v", name, got)
		}
		if got := c.w.standDown(f); got != c.standDown {
			t.Errorf("%s: the stand-down is %v, not %v", name, got, c.standDown)
		}
	}
}
