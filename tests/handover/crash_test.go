package handover_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/internal/timing"
)

func TestOnlyTheSuccessorAnswersACrash(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		all, attempts := f.Crowd(UnlessShort(100, 20), f.Connected)
		After(4 * Interval)
		renewal := f.Record()
		i := slices.IndexFunc(all, func(c *Candidate) bool { return strings.Contains(renewal, `"successor":"`+c.Status().Instance) })
		f.Expect(i).NotTo(Equal(-1), renewal)
		a.Link.Cut()
		attempts.Store(0)
		After(TTL + timing.ExpiryLateness)
		f.Expect(all[i].State()).To(Equal(election.LeaderState))
		After(ExpirySpread)
		f.Expect(attempts.Load()).To(BeNumerically("<=", 1+record.MaxSuccessors+3), "the successor's; as many announce themselves to it as a release names, and a few until it says so")
	}, Republished)
}

// A standby that has seen no renewal cannot take the key over before it expires, and says so.
func TestTheLogTellsAStandbyThatCannotTimeTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration
		reason string
	}{
		"it has seen a renewal": {3 * Interval, "reason=lapsed"},
		"it has just started":   {0, "reason=vacant"},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				often := election.WithCampaignInterval(TTL / 4)
				a := f.Connected("a", often).Begin()
				After(3*Interval + Interval/2)
				var log Log
				b := f.Connected("b", often, election.WithLogger(log.Logger()))
				if c.age == 0 {
					a.Link.Cut()
				}
				b.Begin()
				After(c.age)
				a.Link.Cut()
				After(2 * TTL)
				f.Expect(b.State()).To(Equal(election.LeaderState))
				f.Expect(log.String()).To(And(ContainSubstring("waiting for the end of its lease"), ContainSubstring(c.reason)))
				f.Expect(strings.Contains(log.String(), "cannot time the lease")).To(Equal(c.age == 0))
			}, Republished)
		})
	}
}

func TestOversizedRenewalDropsItsSuccessor(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(2 * Interval)
		size := len("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 1\r\n\r\n") + len(f.Record()) + len(`"successor":""`)
		f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxMsgSize = int32(size) })
		f.Connected("b").Begin()
		After(5 * Interval)
		f.Expect(a.Seen()).To(HaveExactElements(HavePrefix("won")))
		f.Expect(f.Record()).NotTo(ContainSubstring("successor"))
	}, Republished)
}
