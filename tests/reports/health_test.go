package reports_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// from one health check to the next

func TestUnhealthyLeaderHandsOverAndCampaignsAgainWhenHealthy(t *testing.T) {
	Run(t, func(f *Fleet) {
		var d Disk
		a := f.Connected("a", election.WithHealthCheck(d.Check)).Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		b := f.Connected("b").Begin()
		After(3 * Interval)
		d.Full.Store(true)
		After(2 * CheckInterval)
		f.Expect(a.IsLeader()).To(BeTrue(), "after two failures only")
		f.Expect(a.Status().Unhealthy).To(Equal("disk full"))
		After(CheckInterval + time.Second)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(b.IsLeader()).To(BeTrue(), "b takes the release at once")

		b.End()
		After(2 * TTL)
		f.Expect(a.State()).To(Equal(election.CandidateState), "an unhealthy candidate does not campaign")
		d.Full.Store(false)
		After(4*CheckInterval + Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().Unhealthy).To(BeEmpty())
	}, Republished)
}

func TestUnhealthyCandidateDoesNotCampaign(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		var d Disk
		d.Full.Store(true)
		a := f.Candidate("a", election.WithHealthCheck(d.Check)).Begin()
		After(10 * TTL)
		f.Expect(f.Revision()).To(BeZero())
		d.Full.Store(false)
		After(CheckInterval + 2*Interval)
		f.Expect(a.IsLeader()).To(BeTrue(), "after the first success")
	})
}

func TestFlappingHealthIsDamped(t *testing.T) {
	Run(t, func(f *Fleet) {
		var d Disk
		a := f.Candidate("a", election.WithHealthCheck(d.Check), election.WithHealthThreshold(1)).Begin()
		After(2 * Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		for range 200 {
			d.Full.Store(!d.Full.Load())
			After(2 * CheckInterval)
		}
		f.Expect(len(a.Seen())).To(BeNumerically("<", 10), "changes of leadership")
	})
}

func TestHangingOrPanickingHealthCheckFails(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, fail := range map[string]func(context.Context){
		"panics":             func(context.Context) { panic("no disk") },
		"hangs":              func(ctx context.Context) { <-ctx.Done() },
		"ends its goroutine": func(context.Context) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				var failing atomic.Bool
				a := f.Candidate("a", election.WithHealthCheck(func(ctx context.Context) error {
					if failing.Load() {
						fail(ctx)
					}
					return nil
				})).Begin()
				After(2 * Interval)
				f.Expect(a.IsLeader()).To(BeTrue())
				failing.Store(true)
				After(5 * CheckInterval)
				f.Expect(a.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestHealthCheckMayTakeAsLongWhateverTheIntervalIs(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		slow := func(ctx context.Context) error {
			select {
			case <-time.After(CheckInterval - 100*time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		a := f.Connected("a", election.WithCampaignInterval(TTL/3), election.WithHealthCheck(slow)).Begin()
		After(2 * Interval)
		f.Expect(a.Status().Unhealthy).To(BeEmpty())
		f.Expect(a.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestHealthChecksNeverOverlap(t *testing.T) {
	Run(t, func(f *Fleet) {
		var failing atomic.Bool
		var running, most atomic.Int64
		hang, unblock := f.Hanging()
		a := f.Candidate("a", election.WithHealthCheck(func(context.Context) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			if failing.Load() {
				hang()
			}
			return nil
		})).Begin()
		After(2 * Interval)
		failing.Store(true)
		After(10 * CheckInterval)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(most.Load()).To(BeEquivalentTo(1))
		failing.Store(false)
		unblock()
		After(8*CheckInterval + 2*Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}
