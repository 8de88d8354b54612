package core

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/record"
)

// A review found it: metadata that was set while a renewal was under way waited for a whole interval.
func TestMetadataThatIsSetDuringARenewalIsWrittenSoon(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, held := leading(10*time.Second, 0, now)
	c.term, c.role = held, holding{}
	now = held.renewAt
	op, _ := c.Next(now)
	g.Expect(op.Kind).To(Equal(Write))
	c.Notice(now, SetMetadata{map[string]string{"zone": "b"}})
	c.Done(now.Add(time.Millisecond), Result{Outcome: Applied, Revision: 6})
	op, _ = c.Next(now.Add(time.Millisecond))
	g.Expect(op.Kind).To(Equal(Wait))
	g.Expect(op.Until).To(BeTemporally("<=", now.Add(minRenewal)))
	op, _ = c.Next(op.Until)
	c.Done(op.Until, Result{})
	op, _ = c.Next(now.Add(minRenewal))
	g.Expect(record.Parse(op.Value, 0).Metadata).To(HaveKeyWithValue("zone", "b"))
}

// The connection may be made again while a renewal is under way: then the answer may be that of another bucket.
func TestRenewalDuringWhichTheConnectionWasMadeAgainIsConfirmedByTheBucket(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	c, held := leading(10*time.Second, 0, now)
	c.term, c.role = held, holding{}
	now = held.renewAt
	_, _ = c.Next(now)
	c.Done(now, Result{Outcome: Applied, Revision: 6, Reconnects: 1})
	op, _ := c.Next(now)
	g.Expect(op.Kind).To(Equal(Load))
}
