package admin_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// promised returns what the line of a finding about a crash promises: at worst, and at worst if no standby has been notified of a renewal.
func promised(g *WithT, line string) (worst, unseen time.Duration) {
	m := regexp.MustCompile(`, or (\S+) at worst(?:; (\S+) if no standby has been notified of a renewal yet)?$`).FindStringSubmatch(line)
	g.Expect(m).NotTo(BeNil(), line)
	worst, err := time.ParseDuration(m[1])
	g.Expect(err).NotTo(HaveOccurred())
	if m[2] != "" {
		unseen, err = time.ParseDuration(m[2])
		g.Expect(err).NotTo(HaveOccurred())
	}
	return worst, unseen
}

func TestWhatCheckPromisesOfACrashHoldsHoweverYoungTheStandbyIs(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, ttl := range []time.Duration{2 * time.Second, 5 * time.Second, 15 * time.Second} {
		for _, interval := range []time.Duration{ttl * 3 / 4, ttl / 3} {
			for _, age := range []time.Duration{0, ttl / 40, ttl/16 + 10*time.Millisecond, ttl / 5, ttl / 2, 2 * ttl} { // since the standby's first campaign
				for _, since := range []time.Duration{time.Millisecond, ttl / 6, interval - time.Millisecond} { // the last renewal, when it starts
					t.Run(fmt.Sprintf("TTL %v interval %v age %v, %v after a renewal", ttl, interval, age, since), func(t *testing.T) {
						fleettest.Run(t, func(f *fleet) {
							each := election.WithCampaignInterval(interval)
							a := f.Connected("a", each).Begin()
							for !a.IsLeader() {
								after(time.Millisecond)
							}
							after(3*interval + since)
							b := f.Connected("b", each).Begin()
							after(age)
							_, bucket := connected(f)
							worst, unseen := promised(f.WithT, check(f, bucket, each)["expect-crash"].Short)
							a.Link.Cut()
							crashed := time.Now()
							for !b.IsLeader() && time.Since(crashed) < 3*ttl {
								after(time.Millisecond)
							}
							if age <= ttl/16 {
								worst = max(worst, unseen)
							}
							f.Expect(time.Since(crashed)).To(BeNumerically("<=", worst))
						}, republished, func(cfg *jetstream.KeyValueConfig) { cfg.TTL = ttl })
					})
				}
			}
		}
	}
}

// The successor that the last renewal names has first go. If it is gone too, the others come after it.
func TestWhatCheckPromisesOfACrashHoldsWhenTheNamedSuccessorCrashesToo(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, ttl := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				a := f.Connected("a").Begin()
				after(3 * ttl)
				b := f.Connected("b").Begin()
				after(ttl)
				c := f.Connected("c").Begin()
				after(3 * ttl)
				f.Expect(a.IsLeader()).To(BeTrue())
				renewals, err := f.Server.Connect(f.T).SubscribeSync("election.>")
				f.Expect(err).NotTo(HaveOccurred())
				_, err = renewals.NextMsg(ttl)
				f.Expect(err).NotTo(HaveOccurred())
				after(time.Millisecond)
				_, bucket := connected(f)
				worst, _ := promised(f.WithT, check(f, bucket)["expect-crash"].Short)
				a.Link.Cut()
				b.Link.Cut()
				crashed := time.Now()
				for !c.IsLeader() && time.Since(crashed) < 3*ttl {
					after(time.Millisecond)
				}
				f.Expect(time.Since(crashed)).To(BeNumerically("<=", worst))
			}, republished, func(cfg *jetstream.KeyValueConfig) { cfg.TTL = ttl })
		})
	}
}

// A check by a user whose candidates are not notified, or who may not see their attempts, promises no more than they can keep.
func TestCheckSaysWhichStandbyAnswersACrashWithinTheLease(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		_, bucket := connected(f)
		found := check(f, bucket)["expect-crash"]
		f.Expect(found.Severity).To(Equal(admin.SeverityInfo))
		f.Expect(found.Message).To(And(ContainSubstring("within 625ms of its first campaign"), ContainSubstring("stand-down of 7.5s")))
		f.Expect(check(f, bucket.KeyValue)["expect-crash"].Short).To(HaveSuffix(" at worst"), "there the worst is that of an expiry in any case")
	}, republished)
}
