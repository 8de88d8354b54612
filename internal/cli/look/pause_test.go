package look

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
)

func TestPauseIsDescribedAsFarAsItsMetadataSays(t *testing.T) {
	g := NewWithT(t)
	for want, pause := range map[string]kv.Pause{
		"Paused: candidates do not campaign until 'election-cli resume jobs'": {},
		"Paused: by alice@ops-1: candidates do not campaign until":            {By: "alice@ops-1"},
		"Paused: since 2026-11-22 20:08:52 by alice@ops-1: candidates do not campaign until": {
			Since: time.Date(2026, 11, 22, 20, 8, 52, 0, time.Local), By: "alice@ops-1"},
	} {
		v := &View{}
		v.info.Bucket, v.info.Paused = cli.DefaultBucket, map[string]kv.Pause{"jobs": pause}
		g.Expect((&Holder{Leader: election.Leader{Key: "jobs"}, Paused: true}).properties(v).Text(terminal.Style{})).To(ContainSubstring(want))
	}
}
