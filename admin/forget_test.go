package admin_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/observe"
)

func TestForgottenElectionIsNotListedAndItsNextLeaderStandsDown(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		o, ended := operator(f), endedElections(f)
		a := f.Connected("a").Begin()
		after(interval)
		_ = a.Shutdown(ctx)
		after(time.Hour)
		f.Expect(ended()).To(HaveLen(1))
		f.Expect(o.Forget(ctx, ended()[0])).To(Succeed())
		f.Expect(ended()).To(BeEmpty())
		after(2 * ttl)
		f.Expect(f.Stream().Msgs).To(BeZero(), "nothing is left")
		b := f.Connected("b").Begin()
		after(interval - time.Second)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		after(2 * time.Second)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestElectionThatGoesOnIsNotForgotten(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		o, ended := operator(f), endedElections(f)
		a := f.Connected("a").Begin()
		after(interval)
		_ = a.Shutdown(ctx)
		first := ended()[0]
		b := f.Connected("b").Begin()
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(o.Forget(ctx, first)).To(MatchError(ContainSubstring(`"b" holds the key`)))
		f.Expect(b.IsLeader()).To(BeTrue())
		_ = b.Shutdown(ctx)
		f.Expect(o.Forget(ctx, first)).To(MatchError(ContainSubstring(`"b" has led since`)))
		f.Expect(ended()).To(HaveLen(1))
		first.Key = "other"
		f.Expect(o.Forget(ctx, first)).To(Succeed(), "nothing is remembered")
		first.Key = "a b"
		f.Expect(o.Forget(ctx, first)).To(MatchError(election.ErrInvalidOption))
	}, republished)
}

// endedElections returns a function that returns how the elections of the bucket ended.
func endedElections(f *fleet) func() []observe.Event {
	f.Helper()
	o, err := observe.New(f.Open(f.Server.Connect(f.T)))
	f.Expect(err).NotTo(HaveOccurred())
	return func() []observe.Event {
		ended, err := o.Ended(ctx)
		f.Expect(err).NotTo(HaveOccurred())
		return ended
	}
}
