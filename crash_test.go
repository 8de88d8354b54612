package election_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/timing"
)

func TestOnlyTheSuccessorAnswersACrash(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		all, attempts := f.crowd(unlessShort(100, 20), f.connected)
		after(4 * interval)
		renewal := f.record()
		i := slices.IndexFunc(all, func(c *candidate) bool { return strings.Contains(renewal, `"successor":"`+c.Status().Instance) })
		f.Expect(i).NotTo(Equal(-1), renewal)
		a.link.Cut()
		attempts.Store(0)
		after(ttl + timing.ExpiryLateness)
		f.Expect(all[i].State()).To(Equal(election.LeaderState))
		after(expirySpread)
		f.Expect(attempts.Load()).To(BeNumerically("<=", 1+record.MaxSuccessors+1), "the successor's; as many announce themselves to it as a release names")
	}, republished)
}

// A standby that has seen no renewal cannot take the key over before it expires, and says so.
func TestTheLogTellsAStandbyThatCannotTimeTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration
		reason string
	}{
		"it has seen a renewal": {3 * interval, "reason=lapsed"},
		"it has just started":   {0, "reason=vacant"},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				often := election.WithCampaignInterval(ttl / 4)
				a := f.connected("a", often).start()
				after(3*interval + interval/2)
				var log logged
				b := f.connected("b", often, election.WithLogger(log.logger()))
				if c.age == 0 {
					a.link.Cut()
				}
				b.start()
				after(c.age)
				a.link.Cut()
				after(2 * ttl)
				f.Expect(b.State()).To(Equal(election.LeaderState))
				f.Expect(log.String()).To(And(ContainSubstring("waiting for the end of its lease"), ContainSubstring(c.reason)))
				f.Expect(strings.Contains(log.String(), "cannot time the lease")).To(Equal(c.age == 0))
			}, republished)
		})
	}
}

func TestOversizedRenewalDropsItsSuccessor(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(2 * interval)
		size := len("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 1\r\n\r\n") + len(f.record()) + len(`"successor":""`)
		f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxMsgSize = int32(size) })
		f.connected("b").start()
		after(5 * interval)
		f.Expect(a.seen()).To(HaveExactElements(HavePrefix("won")))
		f.Expect(f.record()).NotTo(ContainSubstring("successor"))
	}, republished)
}
