package admin_test

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/group"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/mutex"
	"github.com/natscampaign/election/semaphore"
)

func TestCandidateHasSecondsInJSON(t *testing.T) {
	g := NewWithT(t)
	c := admin.Candidate{Key: "scheduler", Name: "web-1", State: election.LeaderState, ClockLag: 1500 * time.Millisecond, LastError: "full", LastErrorAge: time.Minute}
	b, err := json.Marshal(c)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b).To(MatchJSON(`{"key":"scheduler","name":"web-1","instance":"","state":"leader","ready":false,"version":"","last_error":"full","clock_lag_s":1.5,"last_error_age_s":60}`))
	var back admin.Candidate
	g.Expect(json.Unmarshal(b, &back)).To(Succeed())
	g.Expect(back).To(Equal(c))
}

// standbysOf returns what each candidate says of itself, by name: whether it would take over, or nil.
func standbysOf(f *fleet, key string) map[string]any {
	f.Helper()
	found, err := operator(f).Candidates(ctx, key)
	f.Expect(err).NotTo(HaveOccurred())
	answers := map[string]any{}
	for _, c := range found {
		answers[c.Name] = nil
		if c.Standby != nil {
			answers[c.Name] = *c.Standby
		}
	}
	return answers
}

func TestCandidateSaysWhetherItWouldTakeOver(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		_, others := f.LeaderWith("b")
		f.Expect(standbysOf(f, key)).To(Equal(map[string]any{"a": false, "b": true}))
		others["b"].Pause()
		f.Expect(standbysOf(f, key)).To(Equal(map[string]any{"a": false, "b": false}))
	}, republished)
}

func TestLocksSlotsAndKeysOfGroupsNeedNoStandby(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		bucket, _ := f.Connect()
		m, err := mutex.New("m", "lock", bucket)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(m.Lock(ctx)).To(Succeed())
		f.Cleanup(func() { _ = m.Unlock() })
		s, err := semaphore.New("s", "slots", 1, bucket)
		f.Expect(err).NotTo(HaveOccurred())
		slot, err := s.Acquire(ctx)
		f.Expect(err).NotTo(HaveOccurred())
		f.Cleanup(func() { _ = slot.Release() })
		g, err := group.New("g", "shards", []string{"0"}, bucket)
		f.Expect(err).NotTo(HaveOccurred())
		ended := make(chan struct{})
		go func() { _ = g.Start(ctx); close(ended) }()
		f.Cleanup(func() { g.Stop(); <-ended })
		after(3 * ttl)
		for key, name := range map[string]string{"lock": "m", "slots.0": "s", "shards.keys.0": "g"} {
			f.Expect(standbysOf(f, key)).To(Equal(map[string]any{name: nil}), key)
		}
	}, republished)
}
