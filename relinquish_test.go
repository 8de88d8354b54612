package election_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestRelinquishHandsOverToAnotherOnTime(t *testing.T) {
	for name, option := range map[string]election.Option{
		"period":   election.WithRelinquish(time.Minute),
		"schedule": election.WithRelinquishSchedule("* * * * *"),
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				all := []*candidate{f.hearing("a", option).start()}
				after(interval)
				for _, other := range []string{"b", "c"} {
					all = append(all, f.hearing(other, option).start())
				}
				vacant, wins := 0, 0
				for range 600 {
					after(time.Second)
					leaders := 0
					for _, c := range all {
						if c.IsLeader() {
							leaders++
						}
					}
					if leaders == 0 {
						vacant++
					}
				}
				for _, c := range all {
					f.Expect(c.Status().Wins).To(BeNumerically(">=", 1), "another really takes over")
					wins += int(c.Status().Wins)
				}
				f.Expect(wins).To(BeNumerically("~", 10, 2), "of ten minutes")
				f.Expect(vacant).To(BeZero())
			}, republished)
		})
	}
}

func TestRelinquishingLeaderLeadsOnWhereThereIsNobody(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a", election.WithRelinquish(20*time.Second)).start()
		after(interval)
		after(10 * time.Minute)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(1))
	}, republished)
}

func TestOptionsOfHandingOverAreJudgedAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		for _, c := range []struct {
			says string
			opts []election.Option
		}{
			{"WithRelinquish(0s)", []election.Option{election.WithRelinquish(0)}},
			{`WithRelinquishSchedule("at tea time")`, []election.Option{election.WithRelinquishSchedule("at tea time")}},
			{`WithRelinquishSchedule("0 0 30 2 *") never comes`, []election.Option{election.WithRelinquishSchedule("0 0 30 2 *")}},
			{"exclude each other", []election.Option{election.WithRelinquish(time.Hour), election.WithRelinquishSchedule("@daily")}},
			{"give WithJetStream", []election.Option{election.WithRelinquish(time.Hour)}},
			{"give WithJetStream", []election.Option{election.WithPreemption()}},
			{"WithHealthThreshold(0)", []election.Option{election.WithHealthThreshold(0)}},
			{"give WithHealthCheck", []election.Option{election.WithHealthThreshold(2)}},
			{"WithHealthCheck was given nil", []election.Option{election.WithHealthCheck(nil)}},
		} {
			_, err := election.NewElection("a", key, f.bucket, c.opts...)
			f.Expect(err).To(MatchError(election.ErrInvalidOption), c.says)
			f.Expect(err).To(MatchError(ContainSubstring(c.says)))
		}
	})
}
