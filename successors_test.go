package election_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/settings"
)

// headStart is for how long a release is left to its first successor.
const headStart = 25 * time.Millisecond

func TestShortLivedCandidatesDoNotSlowAHandover(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b").start()
		after(2 * interval)
		for i := range unlessShort(500, 100) { // one lost campaign each
			_, err := f.Bucket.Update(context.Background(), key, fmt.Appendf(nil, `{"name":"cron","instance":"i%d","attempt":"i%d.1"}`, i, i), 1<<40)
			f.Expect(err).To(HaveOccurred())
		}
		after(5 * interval)
		a.shutdown()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestOnlyTheSuccessorAnswersARelease(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		all, attempts := f.crowd(unlessShort(100, 20), f.connected)
		after(3 * interval)
		latest := f.connected("latest").start()
		after(3 * interval)
		a.shutdown()
		after(instant)
		f.Expect(latest.IsLeader()).To(BeTrue(), "the candidate that the leader saw last")

		attempts.Store(0)
		latest.shutdown()
		after(headStart - instant) // they are notified after 2 ms
		f.Expect(slices.ContainsFunc(all, func(c *candidate) bool { return c.IsLeader() })).To(BeTrue(), "a candidate that its predecessor saw")
		after(time.Second)
		f.Expect(attempts.Load()).To(BeEquivalentTo(1))
	}, republished)
}

func TestUnreachableSuccessorCostsOneHeadStart(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b").start()
		after(3 * interval)
		gone := f.connected("gone").start()
		after(3 * interval)
		gone.link.Cut()
		a.shutdown()
		after(headStart - instant)
		f.Expect(b.State()).To(Equal(election.CandidateState))
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestFairReleaseNamesOnlyTheTargetOfATransfer(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a", settings.Fair.(election.Option)).start()
		after(interval)
		b := f.connected("b", settings.Fair.(election.Option)).start()
		c := f.connected("c", settings.Fair.(election.Option)).start()
		after(3 * interval)
		written, err := f.Server.Connect(f.T).SubscribeSync("election.>")
		f.Expect(err).NotTo(HaveOccurred())
		after(instant)
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
		b.shutdown()
		after(headStart)
		f.Expect(a.IsLeader() || c.IsLeader()).To(BeTrue())
		var releases []string
		for m, err := written.NextMsg(instant); err == nil; m, err = written.NextMsg(instant) {
			if strings.Contains(string(m.Data), `"released":`) {
				releases = append(releases, string(m.Data))
			}
		}
		f.Expect(releases).To(HaveExactElements(ContainSubstring(`"successors":["b"]`), Not(ContainSubstring(`"successors"`))))
	}, republished)
}

func TestUnnotifiedCandidateIsNoSuccessor(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b").start()
		after(3 * interval)
		f.unnotified("c").start()
		after(3 * interval)
		a.shutdown()
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestOthersWaitForTheHeadStartOfASuccessor(t *testing.T) {
	for name, c := range map[string]struct {
		fields string
		wait   time.Duration
	}{
		"200 ms":        {`,"successors":["x"],"head_start_ms":200`, 200 * time.Millisecond},
		"the default":   {`,"successors":["x"]`, headStart},
		"too long":      {`,"successors":["x"],"head_start_ms":86400000`, headStart},
		"negative":      {`,"successors":["x"],"head_start_ms":-5`, headStart},
		"the successor": {`,"successors":["b","x"],"head_start_ms":200`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				f.Write(`{"name":"a","instance":"a1","attempt":"a1.1"}`)
				b := candidate("b").start()
				after(2 * interval)
				f.Write(`{"name":"a","instance":"a1","attempt":"a1.2"}`)
				f.Write(fmt.Sprintf(`{"name":"a","instance":"a1","attempt":"a1.3","released":"2000-01-01T00:00:00Z"%s}`, c.fields))
				if c.wait > 0 {
					after(c.wait - instant)
					f.Expect(b.State()).To(Equal(election.CandidateState))
				}
				if after(instant); c.wait > 0 {
					after(spread) // over which the other candidates answer
				}
				f.Expect(b.State()).NotTo(Equal(election.CandidateState))
			})
		})
	}
}

func TestReleaseBoundsItsSuccessors(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		for i := range 20 {
			f.connected(fmt.Sprintf("%0100d", i)).start()
		}
		after(3 * interval)
		sub, err := f.Server.Connect(f.T).SubscribeSync("election.>")
		f.Expect(err).NotTo(HaveOccurred())
		after(instant)
		a.shutdown()
		release, err := sub.NextMsg(time.Second)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(string(release.Data)).To(ContainSubstring(`"successors":["000`))
		f.Expect(len(release.Data)).To(BeNumerically("<", 800))
	}, republished)
}

func TestOversizedReleaseDropsItsSuccessors(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		for i := range 3 {
			f.connected(strings.Repeat(fmt.Sprint(i), 120)).start()
		}
		after(3 * interval)
		f.Expect(a.Resign(context.Background())).To(Succeed())
	}, func(cfg *jetstream.KeyValueConfig) {
		republished(cfg)
		cfg.MaxValueSize = 480
	})
}

func TestSuccessorWithAnOddNameRecognisesItself(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		f.connected("c").start()
		after(3 * interval)
		b := f.connected("<b&>ü").start()
		after(3 * interval)
		a.shutdown()
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}
