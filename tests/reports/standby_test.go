package reports_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/settings"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// standby is the metric that counts who would take over.
const standby = "election_standby"

func TestStandbyMetricIsOneWhileTheCandidateWouldTakeOver(t *testing.T) {
	Run(t, func(f *Fleet) {
		of := map[string]prometheus.Gatherer{}
		start := func(name string, opts ...election.Option) *Candidate {
			r := prometheus.NewPedanticRegistry()
			of[name] = r
			return f.Connected(name, append(opts, election.WithRegisterer(r))...).Begin()
		}
		standbys := func(names ...string) (values []float64) {
			for _, name := range names {
				values = append(values, valueOf(f, of[name], standby))
			}
			return values
		}
		a := start("a")
		f.Expect(standbys("a")).To(Equal([]float64{0}), "a leader-elect does not take over from itself")
		After(Interval)
		b := start("b")
		sick := start("c", election.WithHealthCheck(func(context.Context) error { return errors.New("sick") }))
		After(2 * Interval)
		f.Expect(standbys("a", "b", "c")).To(Equal([]float64{0, 1, 0}), "the leader, a standby, and one that is sick")
		f.Expect(sick.Status().Unhealthy).NotTo(BeEmpty())
		b.Pause()
		f.Expect(standbys("b")).To(Equal([]float64{0}), "paused")
		b.Resume()
		f.Expect(standbys("b")).To(Equal([]float64{1}))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		After(Interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(standbys("a", "b")).To(Equal([]float64{1, 0}), "they changed places")
		a.Link.Cut()
		After(3 * TTL)
		f.Expect(standbys("a")).To(Equal([]float64{0}), "cut off")
		a.Link.Heal()
		After(6 * TTL)
		f.Expect(standbys("a")).To(Equal([]float64{1}))
		a.End()
		f.Expect(standbys("a")).To(Equal([]float64{-1}), "no series is left")
	}, Republished)
}

func TestUnnotifiedCandidateIsAStandby(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		f.Leading("a")
		b := f.Unnotified("b", election.WithRegisterer(r)).Begin()
		After(2 * Interval)
		f.Expect(b.Status().Notifications).To(Equal("none"))
		f.Expect(valueOf(f, r, standby)).To(BeEquivalentTo(1), "it takes over with its next campaign")
		b.Link.Cut()
		After(3 * TTL)
		f.Expect(valueOf(f, r, standby)).To(BeZero())
	})
}

func TestCandidateThatMayNotReadIsAStandbyWhileItsCampaignsSucceed(t *testing.T) {
	const get = "$JS.API.DIRECT.GET.KV_" + natstest.BucketName + ".>"
	config := fmt.Sprintf(`authorization: {users: [{user: u, password: u, permissions: {publish: {deny: [%q]}}}]}, no_auth_user: u`, get)
	RunGuarded(t, config, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		f.Connected("a").Begin()
		After(2 * Interval)
		b := f.Connected("b", election.WithRegisterer(r)).Begin()
		After(2 * Interval)
		f.Expect(b.Status().Notifications).To(Equal("none"))
		standbys := 0
		const samples = 200
		for range samples {
			After(Interval / 10)
			if valueOf(f, r, standby) == 1 {
				standbys++
			}
		}
		f.Logf("%d of %d", standbys, samples)
		f.Expect(standbys).To(Equal(samples), "it is refused reads, and would win a key that is free")
	})
}

// It reads in between, which succeeds.
func TestCandidateWhoseWritesAreRefusedIsNoStandbyAndNotReady(t *testing.T) {
	const config = `authorization: { users: [
		{user: admin, password: x},
		{user: reader, password: x, permissions: {publish: {deny: ["$KV.>"]}}}
	] }, no_auth_user: admin`
	RunGuarded(t, config, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		a := f.Connected("a").Begin()
		After(2 * Interval)
		b, _ := f.Restricted("reader", "b", true, election.WithRegisterer(r))
		b.Begin()
		operator := f.Operator()
		couldTakeOver := func() (by []bool) {
			candidates, err := operator.Candidates(context.Background(), Key)
			f.Expect(err).NotTo(HaveOccurred())
			for _, c := range candidates {
				if c.Name == "b" {
					by = []bool{c.Ready, *c.Standby, valueOf(f, r, standby) == 1}
				}
			}
			return by
		}
		for vacant := range 2 {
			After(2 * Interval)
			f.Expect(b.Status().LastError).To(ContainSubstring("$KV."))
			for range 200 {
				After(Interval / 10)
				f.Expect(couldTakeOver()).To(Equal([]bool{false, false, false}), "%d", vacant)
			}
			if a.IsLeader() {
				f.Expect(a.Transfer(context.Background(), "b")).To(And(MatchError(election.ErrNoCandidate), MatchError(ContainSubstring("its requests fail: nats: permissions violation"))))
				f.Expect(a.IsLeader()).To(BeTrue())
			}
			a.End()
		}
		f.Server.Reload(f.T, func(o *server.Options) {
			for _, u := range o.Users {
				u.Permissions = nil
			}
		})
		After(2 * TTL)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Connected("c").Begin()
		After(2 * Interval)
		f.Expect(b.Resign(context.Background())).To(Succeed())
		After(2 * Interval)
		f.Expect(couldTakeOver()).To(Equal([]bool{true, true, true}))
	})
}

func TestElectionWithoutStandbysHasNoStandbyMetric(t *testing.T) {
	Run(t, func(f *Fleet) {
		r := prometheus.NewPedanticRegistry()
		f.Connected("a", settings.WithoutStandbys, election.WithRegisterer(r)).Begin()
		After(2 * Interval)
		f.Expect(valueOf(f, r, "election_leader")).To(BeEquivalentTo(1))
		f.Expect(valueOf(f, r, standby)).To(BeEquivalentTo(-1))
	})
}
