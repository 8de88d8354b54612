package election_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/internal/settings"
)

// standby is the metric that counts who would take over.
const standby = "election_standby"

func TestStandbyMetricIsOneWhileTheCandidateWouldTakeOver(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		of := map[string]prometheus.Gatherer{}
		start := func(name string, opts ...election.Option) *candidate {
			r := prometheus.NewPedanticRegistry()
			of[name] = r
			return f.connected(name, append(opts, election.WithRegisterer(r))...).start()
		}
		standbys := func(names ...string) (values []float64) {
			for _, name := range names {
				values = append(values, valueOf(f, of[name], standby))
			}
			return values
		}
		a := start("a")
		f.Expect(standbys("a")).To(Equal([]float64{0}), "a leader-elect does not take over from itself")
		after(interval)
		b := start("b")
		sick := start("c", election.WithHealthCheck(func(context.Context) error { return errors.New("sick") }))
		after(2 * interval)
		f.Expect(standbys("a", "b", "c")).To(Equal([]float64{0, 1, 0}), "the leader, a standby, and one that is sick")
		f.Expect(sick.Status().Unhealthy).NotTo(BeEmpty())
		b.Pause()
		f.Expect(standbys("b")).To(Equal([]float64{0}), "paused")
		b.Resume()
		f.Expect(standbys("b")).To(Equal([]float64{1}))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(standbys("a", "b")).To(Equal([]float64{1, 0}), "they changed places")
		a.link.Cut()
		after(3 * ttl)
		f.Expect(standbys("a")).To(Equal([]float64{0}), "cut off")
		a.link.Heal()
		after(6 * ttl)
		f.Expect(standbys("a")).To(Equal([]float64{1}))
		a.shutdown()
		f.Expect(standbys("a")).To(Equal([]float64{-1}), "no series is left")
	}, republished)
}

func TestUnnotifiedCandidateIsAStandby(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		f.leading("a")
		b := f.unnotified("b", election.WithRegisterer(r)).start()
		after(2 * interval)
		f.Expect(b.Status().Notifications).To(Equal("none"))
		f.Expect(valueOf(f, r, standby)).To(BeEquivalentTo(1), "it takes over with its next campaign")
		b.link.Cut()
		after(3 * ttl)
		f.Expect(valueOf(f, r, standby)).To(BeZero())
	})
}

func TestCandidateThatMayNotReadIsAStandbyWhileItsCampaignsSucceed(t *testing.T) {
	const get = "$JS.API.DIRECT.GET.KV_" + natstest.BucketName + ".>"
	config := fmt.Sprintf(`authorization: {users: [{user: u, password: u, permissions: {publish: {deny: [%q]}}}]}, no_auth_user: u`, get)
	onGuardedServer(t, config, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		f.connected("a").start()
		after(2 * interval)
		b := f.connected("b", election.WithRegisterer(r)).start()
		after(2 * interval)
		f.Expect(b.Status().Notifications).To(Equal("none"))
		standbys := 0
		const samples = 200
		for range samples {
			after(interval / 10)
			if valueOf(f, r, standby) == 1 {
				standbys++
			}
		}
		f.Logf("%d of %d", standbys, samples)
		f.Expect(standbys).To(Equal(samples), "it is refused reads, and would win a key that is free")
	})
}

func TestElectionWithoutStandbysHasNoStandbyMetric(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		r := prometheus.NewPedanticRegistry()
		f.connected("a", settings.WithoutStandbys, election.WithRegisterer(r)).start()
		after(2 * interval)
		f.Expect(valueOf(f, r, "election_leader")).To(BeEquivalentTo(1))
		f.Expect(valueOf(f, r, standby)).To(BeEquivalentTo(-1))
	})
}
