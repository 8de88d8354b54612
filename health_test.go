package election_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

// ailing is a health check that fails while it is ill, and counts how often it was asked.
type ailing struct {
	ill   atomic.Bool
	asked atomic.Int64
}

func (a *ailing) check(context.Context) error {
	a.asked.Add(1)
	if a.ill.Load() {
		return errors.New("disk full")
	}
	return nil
}

const checks = interval / 4 // from one health check to the next

func TestUnhealthyLeaderHandsOverInOrderAndStandsAgainWhenItIsWell(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var disk ailing
		a := f.hearing("a", election.WithHealthCheck(disk.check)).start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		b := f.hearing("b").start()
		after(3 * interval)
		disk.ill.Store(true)
		after(2 * checks)
		f.Expect(a.IsLeader()).To(BeTrue(), "two failures may pass")
		f.Expect(a.Status().Unhealthy).To(Equal("disk full"))
		after(checks + time.Second)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(b.IsLeader()).To(BeTrue(), "at once, by a release")

		b.Stop()
		after(2 * ttl)
		f.Expect(a.State()).To(Equal(election.CandidateState), "an unhealthy candidate does not campaign")
		disk.ill.Store(false)
		after(4*checks + interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().Unhealthy).To(BeEmpty())
	}, republished)
}

func TestCandidateThatIsUnhealthyFromTheStartNeverCampaigns(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var disk ailing
		disk.ill.Store(true)
		a := f.candidate("a", election.WithHealthCheck(disk.check)).start()
		after(10 * ttl)
		f.Expect(f.revision()).To(BeZero())
		disk.ill.Store(false)
		after(checks + 2*interval)
		f.Expect(a.IsLeader()).To(BeTrue(), "one success is enough for who never was well")
	})
}

func TestFlappingHealthIsDamped(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var disk ailing
		a := f.candidate("a", election.WithHealthCheck(disk.check), election.WithHealthThreshold(1)).start()
		after(2 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		for range 200 {
			disk.ill.Store(!disk.ill.Load())
			after(2 * checks)
		}
		f.Expect(len(a.seen())).To(BeNumerically("<", 10), "changes of leadership")
	})
}

func TestHealthCheckThatHangsOrPanicsHasFailed(t *testing.T) {
	for name, fail := range map[string]func(context.Context){
		"panics":             func(context.Context) { panic("no disk") },
		"hangs":              func(ctx context.Context) { <-ctx.Done() },
		"ends its goroutine": func(context.Context) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				var ill atomic.Bool
				a := f.candidate("a", election.WithHealthCheck(func(ctx context.Context) error {
					if ill.Load() {
						fail(ctx)
					}
					return nil
				})).start()
				after(2 * interval)
				f.Expect(a.IsLeader()).To(BeTrue())
				ill.Store(true)
				after(5 * checks)
				f.Expect(a.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestHealthCheckThatIgnoresItsContextIsNotMadeTwiceAtATime(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var ill atomic.Bool
		var running, most atomic.Int64
		hang, letGo := f.hanging()
		a := f.candidate("a", election.WithHealthCheck(func(context.Context) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			if ill.Load() {
				hang()
			}
			return nil
		})).start()
		after(2 * interval)
		ill.Store(true)
		after(10 * checks)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(most.Load()).To(BeEquivalentTo(1))
		ill.Store(false)
		letGo()
		after(8*checks + 2*interval)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestPausedCandidateDoesNotCampaignAndAPausedLeaderLeadsOn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		b := f.hearing("b")
		b.Pause()
		b.start()
		a.Pause()
		f.Expect(a.Status().Paused).To(BeTrue())
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue(), "a leader leads on")
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(election.ErrNoCandidate), "who is paused is not ready")
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(3 * ttl)
		f.Expect(a.State()).To(Equal(election.CandidateState), "but is paused as a candidate")
		f.Expect(b.State()).To(Equal(election.CandidateState))
		b.Resume()
		after(2 * interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(b.Status().Paused).To(BeFalse())
		f.Expect(a.IsLeader()).To(BeFalse())
	}, republished)
}

func TestMetadataThatALeaderChangesIsReadSoon(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.WithMetadata(map[string]string{"url": "http://old"}))
		after(time.Second)
		f.Expect(a.SetMetadata(map[string]string{"url": "http://new"})).To(Succeed())
		after(100 * time.Millisecond)
		l, err := a.Leader(context.Background())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(l.Metadata).To(Equal(map[string]string{"url": "http://new"}))
		before := f.revision()
		for range 1000 {
			f.Expect(a.SetMetadata(map[string]string{"url": "http://newer"})).To(Succeed())
			after(time.Millisecond)
		}
		f.Expect(f.revision()-before).To(BeNumerically("<=", 11), "renewals for a thousand changes in a second")
		f.Expect(a.SetMetadata(map[string]string{"": "x"})).To(MatchError(election.ErrInvalidOption))
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestStopAndResignFromInsideALogHandlerOfTheHealthChecksDoNotDeadlock(t *testing.T) {
	for name, call := range map[string]func(*candidate){
		"Stop":   func(a *candidate) { a.Stop() },
		"Resign": func(a *candidate) { _ = a.Resign(context.Background()) },
	} {
		for _, line := range []string{"Healthy", "Health check failed", "Unhealthy"} {
			t.Run(name+" at "+line, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					var disk ailing
					var a *candidate
					var returned atomic.Bool
					a = f.candidate("a", election.WithHealthCheck(disk.check), election.WithDebug(func(_ string, v ...any) {
						if strings.HasPrefix(v[0].(string), line) {
							call(a)
							returned.Store(true)
						}
					}))
					a.start()
					after(interval)
					disk.ill.Store(true)
					after(ttl)
					f.Expect(returned.Load()).To(BeTrue())
					a.Stop()
				})
			})
		}
	}
}
