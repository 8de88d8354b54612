package admin_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestPausedElectionKeepsItsLeaderAndGetsNoOther(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleet) {
		a, others := f.LeaderWith("b", "c")
		o := operator(f)
		f.Expect(o.Pause(ctx, key)).To(Succeed())
		f.Expect(o.Paused(ctx)).To(Equal([]string{key}))
		after(time.Second)
		f.Expect(others["b"].Status().Paused).To(BeTrue(), "candidates are notified at once")
		after(5 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue(), "the leader leads on")
		f.Expect(a.Status().Losses).To(BeZero())
		a.Stop()
		late := f.Connected("late").Begin() // reads it when it starts
		unnotified := f.Candidate("unnotified").Begin()
		after(5 * ttl)
		all := []*candidate{others["b"], others["c"], late, unnotified}
		for _, c := range all {
			f.Expect(c.State()).To(Equal(election.CandidateState))
			f.Expect(c.Status().Wins).To(BeZero())
		}
		f.Expect(o.Resume(ctx, key)).To(Succeed())
		f.Expect(o.Paused(ctx)).To(BeEmpty())
		after(2*ttl + 2*interval)
		leaders := 0
		for _, c := range all {
			if c.IsLeader() {
				leaders++
			}
		}
		f.Expect(leaders).To(Equal(1))
	}, republished)
}

// The server does not answer at first whether the election is paused.
func TestCandidateThatIsToldOfAPauseAsksUntilItKnows(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		a, others := f.LeaderWith("b")
		b := others["b"]
		b.Link.LoseRequests(faultproxy.Once(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") }))
		f.Expect(operator(f).Pause(ctx, key)).To(Succeed())
		f.Expect(b.Status().Paused).To(BeTrue())
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestPauseSaysWhichCandidateWouldStillTakeOver(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		a, others := f.LeaderWith("b", "c")
		others["b"].Link.LoseRequests(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") })
		err := operator(f).Pause(ctx, key)
		f.Expect(err).To(MatchError(And(ContainSubstring("is paused"), ContainSubstring(`"b"`))))
		f.Expect(others["c"].Status().Paused).To(BeTrue())
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestPausedMetricFollowsAnOperator(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.Connected("a", election.WithRegisterer(r)).Begin()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		shows := func(paused string) error {
			return testutil.GatherAndCompare(r, strings.NewReader(`
# HELP election_paused Whether the election or this candidate is paused, 1 or 0.
# TYPE election_paused gauge
election_paused{bucket="ELECTIONS",election="`+key+`",identity="a"} `+paused+"\n"), "election_paused")
		}
		f.Expect(shows("0")).To(Succeed())
		f.Expect(operator(f).Pause(ctx, key)).To(Succeed())
		after(time.Second)
		f.Expect(shows("1")).To(Succeed())
		f.Expect(operator(f).Resume(ctx, key)).To(Succeed())
		after(time.Second)
		f.Expect(shows("0")).To(Succeed())
	}, republished)
}

func TestCandidateThatIsNotNotifiedOfAPauseReleasesTheKeyWithoutHavingLed(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		b := f.Candidate("b").Begin() // it does not know its connection, over which it would be notified
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		c := f.Candidate("c").Begin()
		after(interval)
		f.Expect(operator(f).Pause(ctx, key)).To(Succeed())
		b.Link.Cut()
		after(5 * ttl)
		f.Expect(c.Status().Wins).To(BeZero())
		f.Expect(c.Status().Paused).To(BeTrue())
		_, err := c.Leader(ctx)
		f.Expect(err).To(MatchError(election.ErrNoLeader))
	})
}

func TestPausedElectionGetsNoLeaderOverARelease(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		b := f.Candidate("b").Begin()
		after(interval)
		c := f.Candidate("c").Begin()
		after(3 * interval)
		f.Expect(operator(f).Pause(ctx, key)).To(Succeed())
		b.Stop()
		after(3 * ttl)
		f.Expect(c.Status().Wins).To(BeZero())
	}, republished)
}

func TestSomebodyLeadsSoonAfterAnOperatorResumesAnElectionThatWasReleased(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, followers := range [][]string{nil, {"b"}, {"b", "c"}} {
		fleettest.Run(t, func(f *fleet) {
			a, others := f.LeaderWith(followers...)
			o := operator(f)
			f.Expect(o.Pause(ctx, key)).To(Succeed())
			f.Expect(a.Resign(ctx)).To(Succeed())
			after(time.Second)
			f.Expect(o.Resume(ctx, key)).To(Succeed())
			after(ttl/16 + 100*time.Millisecond)
			leads := a.IsLeader()
			for _, c := range others {
				leads = leads || c.IsLeader()
			}
			f.Expect(leads).To(BeTrue(), "with %d followers", len(followers))
		}, republished)
	}
}

func TestResumeReachesCandidatesThatCannotBeNotified(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		o := operator(f)
		f.Expect(o.Pause(ctx, key)).To(Succeed())
		c := f.Candidate("c").Begin()
		after(5 * ttl)
		f.Expect(c.Status().Wins).To(BeZero())
		f.Expect(o.Resume(ctx, key)).To(Succeed())
		after(3*interval + ttl)
		f.Expect(c.IsLeader()).To(BeTrue())
	}, republished)
}

func TestCandidateThatWasCutOffLearnsOfAPauseWhenItIsConnectedAgain(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		a, others := f.LeaderWith("b")
		b := others["b"]
		b.Link.Disconnect()
		b.Link.Cut()
		after(10 * time.Millisecond)
		f.Expect(operator(f).Pause(ctx, key)).To(Succeed())
		b.Link.Heal()
		after(2 * interval)
		a.Stop()
		after(2 * ttl)
		f.Expect(b.Status().Wins).To(BeZero())
	}, republished)
}

func TestTwoPausesAtOnceBothTakeEffect(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		o, p := operator(f), operator(f)
		done := make(chan error, 2)
		go func() { done <- o.Pause(ctx, "x") }()
		go func() { done <- p.Pause(ctx, "y") }()
		f.Expect(<-done).To(Succeed())
		f.Expect(<-done).To(Succeed())
		f.Expect(o.Paused(ctx)).To(Equal([]string{"x", "y"}))
	}, republished)
}

func TestPauseOfOneElectionLeavesTheOthersAlone(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		a, others := f.LeaderWith("b")
		o := operator(f)
		f.Expect(o.Pause(ctx, "other")).To(Succeed())
		f.Expect(o.Pause(ctx, "other")).To(Succeed(), "twice is once")
		after(time.Second)
		a.Stop()
		after(time.Second)
		f.Expect(others["b"].IsLeader()).To(BeTrue())
		f.Expect(o.Pause(ctx, "a b")).To(MatchError(election.ErrInvalidOption))
	}, republished)
}
