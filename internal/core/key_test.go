package core

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
)

// The simulator found it: a candidate read a replica that lagged, then the release was purged, and the candidate led at once.
func TestStandDownThatAReleasePassesOnOutlastsAStaleRead(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	holder := record.Record{Name: "a", Instance: "a.1", Attempt: "a.1.1"}
	release := holder
	release.Released, release.StandDownMs = time.Now(), 700
	c.changed(time.Now(), &change{Revision: 8, Record: release})
	learn(c, 7, holder)
	g.Expect(c.key.passedStandDown).To(Equal(700 * time.Millisecond))
	c.changed(time.Now(), &change{Revision: 9, Removal: record.Removed})
	g.Expect(c.key.removal.revision).To(BeEquivalentTo(9))
	g.Expect(c.key.passedStandDown).To(Equal(700 * time.Millisecond))
	learn(c, 10, holder)
	g.Expect(c.key.removal.revision).To(BeZero())
	g.Expect(c.key.passedStandDown).To(BeZero())
}
