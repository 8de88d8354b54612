package quiet_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestHandoverTakesThreeRoundTripsAndATransferFour(t *testing.T) {
	const trip = 100 * time.Millisecond
	Run(t, func(f *Fleet) {
		candidates := map[string]*Candidate{}
		for _, name := range []string{"a", "b", "c"} {
			l := f.Server.Link(f.T)
			bucket := f.Open(natstest.Connect(f.T, l))
			l.DelayReplies(trip)
			candidates[name] = f.CandidateOn(name, l, bucket).Begin()
			After(2 * Interval)
		}
		leads := func(from time.Time, names ...string) time.Duration {
			for ; time.Since(from) < time.Minute; After(time.Millisecond) {
				for _, name := range names {
					if candidates[name].IsLeader() {
						return time.Since(from)
					}
				}
			}
			return time.Minute
		}
		f.Expect(candidates["a"].IsLeader()).To(BeTrue())

		began := time.Now()
		returned := make(chan time.Duration, 1)
		go func() {
			if candidates["a"].Transfer(context.Background(), "b") == nil {
				returned <- time.Since(began)
			}
		}()
		transfer := leads(began, "b")
		after := <-returned
		f.T.Logf("transfer: the target led after %v, and the call returned after %v", transfer, after)
		f.Expect(transfer).To(BeNumerically("~", 4*trip, trip/5))
		f.Expect(after).To(BeNumerically("<", 8*trip), "the target is asked once or twice more")

		After(2 * Interval)
		began = time.Now()
		go func() { _ = candidates["b"].Resign(context.Background()) }()
		handover := leads(began, "a", "c")
		f.T.Logf("handover: %v", handover)
		f.Expect(handover).To(BeNumerically("~", 3*trip, trip/10))

		After(2 * Interval)
		leader, absent := "a", "c"
		if candidates["c"].IsLeader() {
			leader, absent = "c", "a"
		}
		candidates[absent].Link.Cut()
		f.Expect(candidates[leader].Transfer(context.Background(), absent)).To(MatchError(election.ErrNoCandidate))
		f.Expect(candidates[leader].IsLeader()).To(BeTrue())
	}, Republished)
}

func TestLongRoundTripsEndNoTerm(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, trip := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 700 * time.Millisecond} {
		t.Run(trip.String(), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				var all []*Candidate
				for _, name := range []string{"a", "b"} {
					l := f.Server.Link(f.T)
					bucket := f.Open(natstest.Connect(f.T, l))
					l.DelayReplies(trip)
					all = append(all, f.CandidateOn(name, l, bucket).Begin())
				}
				began := time.Now()
				leader := func() (leading []*Candidate) {
					for _, c := range all {
						if c.IsLeader() {
							leading = append(leading, c)
						}
					}
					return leading
				}
				for len(leader()) == 0 && time.Since(began) < time.Minute {
					After(time.Millisecond)
				}
				f.T.Logf("first leader after %v", time.Since(began))
				f.Expect(time.Since(began)).To(BeNumerically("<", Interval+10*trip))
				first := leader()[0]
				After(time.Hour)
				f.Expect(first.IsLeader()).To(BeTrue())
				f.Expect(first.Status().Wins).To(BeEquivalentTo(1))
			}, Republished)
		})
	}
}
