package election_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

// disk is what a health check looks at: the check fails while the disk is full.
type disk struct{ full atomic.Bool }

func (d *disk) check(context.Context) error {
	if d.full.Load() {
		return errors.New("disk full")
	}
	return nil
}

const checkInterval = interval / 4 // from one health check to the next

func TestUnhealthyLeaderHandsOverAndCampaignsAgainWhenHealthy(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var d disk
		a := f.connected("a", election.WithHealthCheck(d.check)).start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		b := f.connected("b").start()
		after(3 * interval)
		d.full.Store(true)
		after(2 * checkInterval)
		f.Expect(a.IsLeader()).To(BeTrue(), "after two failures only")
		f.Expect(a.Status().Unhealthy).To(Equal("disk full"))
		after(checkInterval + time.Second)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(b.IsLeader()).To(BeTrue(), "b takes the release at once")

		b.shutdown()
		after(2 * ttl)
		f.Expect(a.State()).To(Equal(election.CandidateState), "an unhealthy candidate does not campaign")
		d.full.Store(false)
		after(4*checkInterval + interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().Unhealthy).To(BeEmpty())
	}, republished)
}

func TestUnhealthyCandidateDoesNotCampaign(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		var d disk
		d.full.Store(true)
		a := f.candidate("a", election.WithHealthCheck(d.check)).start()
		after(10 * ttl)
		f.Expect(f.revision()).To(BeZero())
		d.full.Store(false)
		after(checkInterval + 2*interval)
		f.Expect(a.IsLeader()).To(BeTrue(), "after the first success")
	})
}

func TestFlappingHealthIsDamped(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var d disk
		a := f.candidate("a", election.WithHealthCheck(d.check), election.WithHealthThreshold(1)).start()
		after(2 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		for range 200 {
			d.full.Store(!d.full.Load())
			after(2 * checkInterval)
		}
		f.Expect(len(a.seen())).To(BeNumerically("<", 10), "changes of leadership")
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
			onVirtualTime(t, func(f *fleet) {
				var failing atomic.Bool
				a := f.candidate("a", election.WithHealthCheck(func(ctx context.Context) error {
					if failing.Load() {
						fail(ctx)
					}
					return nil
				})).start()
				after(2 * interval)
				f.Expect(a.IsLeader()).To(BeTrue())
				failing.Store(true)
				after(5 * checkInterval)
				f.Expect(a.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestHealthCheckMayTakeAsLongWhateverTheIntervalIs(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		slow := func(ctx context.Context) error {
			select {
			case <-time.After(checkInterval - 100*time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		a := f.connected("a", election.WithCampaignInterval(ttl/3), election.WithHealthCheck(slow)).start()
		after(2 * interval)
		f.Expect(a.Status().Unhealthy).To(BeEmpty())
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestHealthChecksNeverOverlap(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var failing atomic.Bool
		var running, most atomic.Int64
		hang, unblock := f.Hanging()
		a := f.candidate("a", election.WithHealthCheck(func(context.Context) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			if failing.Load() {
				hang()
			}
			return nil
		})).start()
		after(2 * interval)
		failing.Store(true)
		after(10 * checkInterval)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(most.Load()).To(BeEquivalentTo(1))
		failing.Store(false)
		unblock()
		after(8*checkInterval + 2*interval)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}
