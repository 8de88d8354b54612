package core

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
)

// A reader found it: it was said that somebody else had the key.
func TestReleaseThatFindsNothingStoredHasReleasedTheKeyThoughItCannotBeRead(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, held := leading(10*time.Second, 0, now)
	c.term, c.role = held, holding{}
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

func TestReleaseNamesWhoTakesThePlaceOfATargetThatIsGone(t *testing.T) {
	for name, target := range map[string]record.Successor{"another": {Name: "b"}, "nobody": {}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Now()
			c, held := leading(10*time.Second, 0, now)
			c.Target = func(asked record.Successor) record.Successor {
				g.Expect(asked.Name).To(Equal("a"))
				return target
			}
			c.term, c.role = held, holding{}
			_, refused := c.Handover(now, held, record.Successor{Name: "a"}, Transferred)
			g.Expect(refused).To(BeFalse())
			_, _ = c.Next(now) // it waits for callbacks and work
			c.Done(now, Result{Quiet: true})
			op, _ := c.Next(now)
			g.Expect(op.Kind).To(Equal(Write))
			g.Expect(record.Parse(op.Value, 0).Named()).To(HaveLen(len(target.Name)))
			c.Done(now, Result{Outcome: Applied, Revision: 7})
			_, _ = c.Next(now)
			c.Done(now, Result{Quiet: true})
			g.Expect(c.waiting.due.After(now)).To(Equal(target.Name != ""), "it campaigns again at once if nobody is named")
		})
	}
}
