package admin_test

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
)

func TestCandidateHasSecondsInJSON(t *testing.T) {
	g := NewWithT(t)
	c := admin.Candidate{Key: "scheduler", Name: "web-1", State: election.LeaderState, ClockLag: 1500 * time.Millisecond}
	b, err := json.Marshal(c)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b).To(MatchJSON(`{"key":"scheduler","name":"web-1","instance":"","state":"leader","ready":false,"version":"","clock_lag_s":1.5}`))
	var back admin.Candidate
	g.Expect(json.Unmarshal(b, &back)).To(Succeed())
	g.Expect(back).To(Equal(c))
}
