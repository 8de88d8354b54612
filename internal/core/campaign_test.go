package core

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// The simulator found it: a leader that had not learned of the end of a pause resigned, loaded the bucket's info, and took the key again at once,
// before those for whom it had given the key up.
func TestLeaderThatResignedHoldsBackThoughAPauseEndsMeanwhile(t *testing.T) {
	g := NewWithT(t)
	c := candidate()
	now := time.Now()
	c.bucket.Read = now
	c.hold(PausedByOperator, true)
	c.beginCampaigning(now, now.Add(c.bucket.Interval), 0)
	c.wait.yields = now.Add(time.Second)
	c.catchUp(now)
	c.loaded(now, c.bucket, nil, NoFailure)
	c.catchUp(now)
	g.Expect(c.holds).To(BeZero())
	g.Expect(c.wait.due).To(Equal(now.Add(time.Second)))

	c.wait.yields = time.Time{}
	c.hold(PausedByOperator, true)
	c.catchUp(now)
	c.loaded(now, c.bucket, nil, NoFailure)
	c.catchUp(now)
	g.Expect(c.wait.due).To(BeTemporally("<", now.Add(time.Second)), "all others answer as they do a vacancy")
}
