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
)

// headStart is for how long a release is left to the heir that it names.
const headStart = 25 * time.Millisecond

func TestReleaseIsAnsweredByTheHeirAlone(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		all, attempts := f.crowd(100, f.hearing)
		after(3 * interval)
		latest := f.hearing("latest").start()
		after(3 * interval)
		a.Stop()
		after(instant)
		f.Expect(latest.IsLeader()).To(BeTrue(), "the one that was heard last")

		attempts.Store(0)
		latest.Stop()
		after(headStart - instant) // they hear it after 2 ms
		f.Expect(slices.ContainsFunc(all, func(c *candidate) bool { return c.IsLeader() })).To(BeTrue(), "one that its predecessor knew of")
		after(time.Second)
		f.Expect(attempts.Load()).To(BeEquivalentTo(1))
	}, republished)
}

func TestHeirThatIsGoneCostsAMoment(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		b := f.hearing("b").start()
		after(3 * interval)
		gone := f.hearing("gone").start()
		after(3 * interval)
		gone.link.Cut()
		a.Stop()
		after(headStart - instant)
		f.Expect(b.State()).To(Equal(election.CandidateState))
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestReleaseWhereChanceDecidesNamesNobodyButWhomItIsTransferredTo(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a", election.WithFairness()).start()
		after(interval)
		b := f.hearing("b", election.WithFairness()).start()
		c := f.hearing("c", election.WithFairness()).start()
		after(3 * interval)
		written, err := f.server.Connect(f.T).SubscribeSync("election.>")
		f.Expect(err).NotTo(HaveOccurred())
		after(instant)
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
		b.Stop()
		after(headStart)
		f.Expect(a.IsLeader() || c.IsLeader()).To(BeTrue())
		var releases []string
		for m, err := written.NextMsg(instant); err == nil; m, err = written.NextMsg(instant) {
			if strings.Contains(string(m.Data), `"released":`) {
				releases = append(releases, string(m.Data))
			}
		}
		f.Expect(releases).To(HaveExactElements(ContainSubstring(`"next":"b"`), Not(ContainSubstring(`"next"`))))
	}, republished)
}

func TestCandidateThatHearsNothingIsNoHeir(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		b := f.hearing("b").start()
		after(3 * interval)
		f.deafCandidate("deaf").start()
		after(3 * interval)
		a.Stop()
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestReleaseThatNamesItsHeirIsLeftToItAsLongAsItSays(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		wait time.Duration
	}{
		"as long as it says": {`,"next":"x","head_start_ms":200`, 200 * time.Millisecond},
		"a moment":           {`,"next":"x"`, headStart},
		"never for ever":     {`,"next":"x","head_start_ms":86400000`, headStart},
		"nor for less":       {`,"next":"x","head_start_ms":-5`, headStart},
		"not by the heir":    {`,"next":"b","head_start_ms":200`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
				f.write(`{"name":"a","instance":"a1","attempt":"a1.1"}`)
				b := candidate("b").start()
				after(2 * interval)
				f.write(`{"name":"a","instance":"a1","attempt":"a1.2"}`)
				f.write(fmt.Sprintf(`{"name":"a","instance":"a1","attempt":"a1.3","candidates":2,"released":"2000-01-01T00:00:00Z"%s}`, c.says))
				if c.wait > 0 {
					after(c.wait - instant)
					f.Expect(b.State()).To(Equal(election.CandidateState))
				}
				after(instant)
				f.Expect(b.State()).NotTo(Equal(election.CandidateState))
			})
		})
	}
}

func TestReleaseNamesNoMoreThanFits(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		for i := range 20 {
			f.hearing(fmt.Sprintf("%0100d", i)).start()
		}
		after(3 * interval)
		sub, err := f.server.Connect(f.T).SubscribeSync("election.>")
		f.Expect(err).NotTo(HaveOccurred())
		after(instant)
		a.Stop()
		release, err := sub.NextMsg(time.Second)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(string(release.Data)).To(ContainSubstring(`"next":"000`))
		f.Expect(len(release.Data)).To(BeNumerically("<", 800))
	}, republished)
}

func TestReleaseThatIsTooLargeWithItsHeirsIsMadeWithout(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		for i := range 3 {
			f.hearing(strings.Repeat(fmt.Sprint(i), 120)).start()
		}
		after(3 * interval)
		f.Expect(a.Resign(context.Background())).To(Succeed())
	}, func(cfg *jetstream.KeyValueConfig) {
		republished(cfg)
		cfg.MaxValueSize = 480
	})
}

func TestHeirOfAnOddNameKnowsThatItIsMeant(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		f.hearing("c").start()
		after(3 * interval)
		b := f.hearing("<b&>ü").start()
		after(3 * interval)
		a.Stop()
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}
