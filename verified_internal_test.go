package election

import (
	"testing"
	"time"
)

// A bucket that was made again numbers its revisions from 1, so that the update of a release that was read some time ago
// may hit another's record. The simulator found it: a candidate that believes in the release then leads beside that other.
func TestReleaseTellsItsBucketForAMomentOnly(t *testing.T) {
	created, read := time.Unix(1000, 0), time.Now()
	f := &facts{timing: timing{ttl: 10 * time.Second, standDown: time.Second}, created: created}
	for name, c := range map[string]struct {
		w         win
		verified  bool
		standDown time.Duration
	}{
		"read just now":       {win{reason: reasonReleased, bucket: created, acknowledged: read.Add(10 * time.Millisecond)}, true, 0},
		"read a while ago":    {win{reason: reasonReleased, bucket: created, acknowledged: read.Add(verifiedFor)}, false, 0},
		"of another bucket":   {win{reason: reasonReleased, bucket: created.Add(-time.Hour), acknowledged: read}, false, 10 * time.Second},
		"a late write of own": {win{reason: reasonReclaimed, bucket: created, acknowledged: read}, false, time.Second},
		"one that owed more":  {win{reason: reasonReclaimed, bucket: created, left: 9 * time.Second, acknowledged: read}, false, 9 * time.Second},
		"one that owed less":  {win{reason: reasonReclaimed, bucket: created, left: time.Millisecond, acknowledged: read}, false, time.Second},
		"one that owed years": {win{reason: reasonReclaimed, bucket: created, left: 1 << 60, acknowledged: read}, false, 10 * time.Second},
		"no release":          {win{reason: reasonVacant, acknowledged: read}, false, time.Second},
	} {
		c.w.read = read
		if got := c.w.verified(f); got != c.verified {
			t.Errorf("%s: verified is %v", name, got)
		}
		if got := c.w.standDown(f); got != c.standDown {
			t.Errorf("%s: the stand-down is %v, not %v", name, got, c.standDown)
		}
	}
}

// The reads that notifications cause may lag, so that the notifications seem wrong. The simulator found a follower that answered the
// next release late, though a campaign of its own had read by then what it had been notified of.
func TestNotificationsThatALaggingReplicaSeemedToContradictAreTrustedAgain(t *testing.T) {
	a := &ear{election: &Election{instance: "me.1"}, hub: &hub{}, ttl: 10 * time.Second, wrong: wrongLooks, nextLook: time.Now().Add(time.Hour)}
	holder := record{Name: "a", Instance: "a.1", Attempt: "a.1.1"}
	read := func(s keyState) {
		_, done := a.looking()
		s.read, s.record = time.Now(), holder
		done(s, nil)
	}
	a.know(keyState{read: time.Now(), revision: 7, record: holder})
	if read(keyState{revision: 8}); a.wrong != wrongLooks {
		t.Error("a renewal proves nothing")
	}
	holder.Term = 5
	if read(keyState{revision: 9}); a.wrong != 0 {
		t.Error("reads are limited still")
	}
}
