package gocrontest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/gocronelector"
	"github.com/natscampaign/election/internal/test/natstest"
)

var _ gocron.Elector = (*gocronelector.Elector)(nil)

func TestJobsRunOnTheLeaderOnly(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g, s := NewWithT(t), natstest.Start(t)
		var elections []*election.Election
		var misplaced, ran atomic.Int64
		for _, name := range []string{"a", "b", "c"} {
			e, err := election.NewElection(name, "jobs", s.Bucket(t, s.Connect(t), 10*time.Second, natstest.WithMarkers))
			g.Expect(err).NotTo(HaveOccurred())
			elections = append(elections, e)
			scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronelector.New(e)))
			g.Expect(err).NotTo(HaveOccurred())
			_, err = scheduler.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(func() {
				ran.Add(1)
				if !e.IsLeader() {
					misplaced.Add(1)
				}
			}))
			g.Expect(err).NotTo(HaveOccurred())
			go func() { _ = e.Start(context.Background()) }()
			scheduler.Start()
			t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
			t.Cleanup(func() { _ = scheduler.Shutdown() })
		}
		time.Sleep(time.Minute + time.Second/2) // between two runs: a job that has begun cannot notice a resignation in the same instant
		for _, e := range elections {
			_ = e.Resign(context.Background())
		}
		time.Sleep(time.Minute)
		g.Expect(ran.Load()).To(BeNumerically("~", 110, 8))
		g.Expect(misplaced.Load()).To(BeZero())
	})
}
