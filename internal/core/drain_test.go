package core

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// A reader found it: it was said that somebody else had the key.
func TestReleaseThatFindsNothingStoredHasReleasedTheKeyThoughItCannotBeRead(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, held := holding(10*time.Second, 0, now)
	c.term, c.phase = held, leading
	c.Notice(now, End{held, Resigned})
	_, _ = c.Next(now) // it waits for callbacks and work
	c.Done(now, Result{Quiet: true})
	op, _ := c.Next(now)
	g.Expect(op.Kind).To(Equal(Write))
	c.Done(now, Result{Outcome: Refused, Named: true, Last: 0, Err: errUnreadable})
	op, _ = c.Next(now)
	g.Expect(op.Kind).To(Equal(Read))
	c.Done(now, Result{Err: errUnreadable, Failure: Timeout})
	_, _ = c.Next(now)
	g.Expect(held.Outcome.How).To(Equal(KeyReleased))
}
