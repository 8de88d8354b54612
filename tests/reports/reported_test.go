package reports_test

import (
	"context"
	"log/slog"
	"math"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
)

var errFull = &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}

func TestErrorStaysUntilARequestOfItsKindSucceeds(t *testing.T) {
	Run(t, func(f *Fleet) {
		_, bucket := f.FaultyCandidate("a", election.WithBackoff(election.ConstantBackoff(time.Second)))
		bucket.OnUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) { return 0, errFull })
		refused := &full{KeyValue: bucket}
		a := f.CandidateOn("a", nil, refused, election.WithBackoff(election.ConstantBackoff(time.Second)))
		a.Begin()
		After(time.Second)
		for range 1000 { // reads succeed meanwhile
			f.Expect(a.Status().LastError).To(ContainSubstring("maximum bytes exceeded"))
			After(10 * time.Millisecond)
		}
		refused.taken.Store(true)
		bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			return update()
		})
		After(TTL)
		f.Expect(a.Status().LastError).To(BeEmpty())
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestCandidateThatTheServerHasNoRoomForSaysSoOnce(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		refused := &full{KeyValue: f.Bucket}
		a := f.CandidateOn("a", nil, refused, election.WithBackoff(election.ConstantBackoff(time.Second)), election.WithLogger(log.Logger()))
		a.Begin()
		After(10 * time.Second)
		f.Expect(log.Count("level=WARN")).To(Equal(1), log.String())
		f.Expect(log.Count(`level=WARN msg="Campaign failed"`)).To(Equal(1), log.String())
		f.Expect(log.Count(`level=DEBUG msg="Campaign failed"`)).To(BeNumerically(">", 5))
		refused.taken.Store(true)
		After(TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

// full is a bucket in which no key can be created until it is told.
type full struct {
	jetstream.KeyValue
	taken atomic.Bool
}

func (b *full) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	if !b.taken.Load() {
		return 0, errFull
	}
	return b.KeyValue.Create(ctx, key, value, opts...)
}

// A follower that is notified campaigns once in eighty TTLs. Its error would stay as long.
func TestFollowerForgetsAnErrorSoonAfterItCanWriteAgain(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Connected("a").Begin()
		After(Interval)
		b := f.Connected("b")
		b.Link.LoseRequests(ToKey)
		b.Begin()
		After(5 * Interval)
		f.Expect(b.Status().LastError).NotTo(BeEmpty())
		f.Expect(time.Since(b.Status().LastErrorAt)).To(BeNumerically("<", 2*TTL))
		b.Link.Heal()
		After(2 * TTL)
		f.Expect(b.Status().LastError).To(BeEmpty())
		f.Expect(b.Status().LastErrorAt).To(BeZero())
	}, Republished)
}

func TestUnhealthyEndsWithTheRun(t *testing.T) {
	Run(t, func(f *Fleet) {
		var d Disk
		d.Full.Store(true)
		a := f.Candidate("a", election.WithHealthCheck(d.Check)).Begin()
		After(TTL)
		f.Expect(a.Status().Unhealthy).To(Equal("disk full"))
		a.End()
		f.Expect(a.Status().Unhealthy).To(BeEmpty())
	})
}

// The handler is the user's: it may take its time, or call the election.
func TestLogHandlerThatHangsCostsNoTerm(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, _ := f.Hanging()
		a := f.Connected("a", election.WithLogger(slog.New(&hanging{slog.DiscardHandler, "Election paused", hang}))).Begin()
		After(Interval)
		operator := f.Operator()
		go func() { _ = operator.Pause(context.Background(), Key) }()
		After(time.Second)
		a.Link.LoseReplies(faultproxy.Once(ToKeyReply)) // after which the leader asks about its bucket
		After(3 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Seen()).To(HaveLen(1))
	}, Republished)
}

// hanging is a log handler that hangs at one message.
type hanging struct {
	slog.Handler
	at   string
	hang func()
}

func (h *hanging) Enabled(context.Context, slog.Level) bool { return true }

func (h *hanging) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, h.at) {
		h.hang()
	}
	return nil
}

func (h *hanging) WithAttrs([]slog.Attr) slog.Handler { return h }

func TestWinnerLogsWhenItLeads(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		a := f.Candidate("a", election.WithLogger(log.Logger())).Begin()
		won := time.Now()
		line := regexp.MustCompile(`msg="State changed" .* state=leader-elect reason=vacant term=1 stand-down=7.5s leads-at=(\S+)`).FindStringSubmatch(log.String())
		f.Expect(line).To(HaveLen(2), log.String())
		at, err := time.Parse(time.RFC3339Nano, line[1])
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(at).To(BeTemporally("~", won.Add(Interval), time.Millisecond))
		After(time.Until(at) + time.Millisecond)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestReleaseIsNotTakenForDoneByAReadThatIsStale(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, bucket := f.FaultyCandidate("a")
		a.Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		var applied atomic.Bool
		bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			rev, err := update()
			if !applied.Swap(true) { // a renewal whose reply is lost, and that a replica does not know of yet
				return 0, nats.ErrTimeout
			}
			return rev, err
		})
		var stale atomic.Int64
		bucket.OnGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			if stale.Add(1) <= 3 {
				return nil, jetstream.ErrKeyNotFound
			}
			return get()
		})
		for !applied.Load() {
			After(10 * time.Millisecond)
		}
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(f.Record()).To(ContainSubstring(`"released"`))
	})
}

func TestLostKeyIsNotSaidToExpire(t *testing.T) {
	for name, overwrite := range map[string]func(f *Fleet){
		"before the release is written":  func(f *Fleet) { f.Write("stranger") },
		"while a callback has not ended": func(f *Fleet) { After(time.Second); f.Write("stranger"); After(TTL) },
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				var log Log
				hang, unblock := f.Hanging()
				a := f.Leading("a", election.WithLogger(log.Logger()), election.WithReleaseTimeout(5*TTL), election.OnLost(hang))
				resigned := make(chan error, 1)
				go func() { resigned <- a.Resign(context.Background()) }()
				synctest.Wait()
				overwrite(f)
				unblock()
				err := <-resigned
				f.Expect(err).To(MatchError(election.ErrNotLeader))
				f.Expect(err).NotTo(MatchError(ContainSubstring("expire")))
				f.Expect(log.Count("left to expire")).To(BeZero())
				f.Expect(log.Count("Key not released, it was lost before")).To(Equal(1))
			})
		})
	}
}

func TestLeaderLogsOnceThatItWaitsForItsWork(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		hang, unblock := f.Hanging()
		a := f.Leading("a", election.WithLogger(log.Logger()), election.WithReleaseTimeout(2*TTL), election.OnLost(hang))
		resigned := make(chan error, 1)
		go func() { resigned <- a.Resign(context.Background()) }()
		After(time.Second - Instant)
		f.Expect(log.Count("Waiting for callbacks and work to return")).To(BeZero())
		After(2 * Instant)
		f.Expect(log.String()).To(MatchRegexp(`Waiting for callbacks and work to return" .*at-most=19s`))
		After(TTL) // it renews meanwhile
		unblock()
		f.Expect(<-resigned).To(Succeed())
		f.Expect(log.Count("Waiting for callbacks and work to return")).To(Equal(1))
	})
}

func TestTransferOfATermThatWasLostSaysSo(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		b.Link.DelayReplies(200 * time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- a.Transfer(context.Background(), "b") }()
		synctest.Wait()
		f.Write("stranger")
		After(100 * time.Millisecond)
		err := <-done
		f.Expect(err).To(MatchError(election.ErrNotLeader))
		f.Expect(err).To(MatchError(ContainSubstring("overwritten")))
		f.Expect(err).NotTo(MatchError(ContainSubstring("another handover")))
	}, Republished)
}

func TestReleaseTimeoutMayBeAsLongAsADurationCanBe(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, unblock := f.Hanging()
		a := f.Leading("a", election.WithReleaseTimeout(math.MaxInt64), election.WithSplay(0), election.OnLost(hang))
		resigned := make(chan error, 1)
		go func() { resigned <- a.Resign(context.Background()) }()
		After(3 * TTL)
		f.Expect(resigned).NotTo(Receive())
		unblock()
		f.Expect(<-resigned).To(Succeed())
	})
}

// small has the bucket take records of so many bytes at most.
func small(bytes int32) func(*jetstream.KeyValueConfig) {
	return func(cfg *jetstream.KeyValueConfig) {
		Republished(cfg)
		cfg.MaxValueSize = bytes
	}
}

func TestMetadataThatTheBucketDoesNotTakeCostsNoTerm(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		a := f.Connected("a", election.WithLogger(log.Logger()), election.WithMetadata(map[string]string{"zone": "eu"})).Begin()
		b := f.Connected("b").Begin()
		After(3 * Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.SetMetadata(map[string]string{"zone": strings.Repeat("x", 1000)})).To(Succeed())
		After(3 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Seen()).To(HaveLen(1))
		f.Expect(f.Record()).To(ContainSubstring(`"zone":"eu"`), "what fitted last")
		f.Expect(a.Status().LastError).To(ContainSubstring("metadata not stored"))
		f.Expect(log.Count("level=WARN")).To(Equal(1), log.String())
		f.Expect(a.SetMetadata(map[string]string{"zone": "us"})).To(Succeed())
		After(time.Second)
		f.Expect(f.Record()).To(ContainSubstring(`"zone":"us"`))
		f.Expect(a.Status().LastError).To(BeEmpty())

		f.Expect(a.SetMetadata(map[string]string{"zone": strings.Repeat("x", 1000)})).To(Succeed())
		a.End()
		After(Instant)
		f.Expect(b.IsLeader()).To(BeTrue(), "the release was written")
	}, small(800))
}

func TestCandidateWhoseMetadataIsTooLargeLeadsWithoutIt(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a", election.WithMetadata(map[string]string{"zone": strings.Repeat("x", 1000)})).Begin()
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(f.Record()).NotTo(ContainSubstring("metadata"))
		f.Expect(a.Status().LastError).To(ContainSubstring("metadata not stored"))
		b := f.Connected("b", election.WithMetadata(map[string]string{"zone": strings.Repeat("y", 1000)})).Begin()
		After(3 * Interval)
		a.End()
		After(Instant)
		f.Expect(b.IsLeader()).To(BeTrue(), "its attempts were seen")
	}, small(800))
}

func TestReleaseLeavesTheMetadataOutIfItIsTooLargeWithIt(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		size := len(f.Record())
		f.Expect(a.SetMetadata(map[string]string{"x": strings.Repeat("x", 800-size-120)})).To(Succeed())
		After(Interval)
		f.Expect(f.Record()).To(ContainSubstring("xxx"))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(f.Record()).To(And(ContainSubstring(`"released"`), Not(ContainSubstring("xxx"))))
	}, small(800))
}

func TestLeaderSeesACandidateWhoseMetadataNamesIt(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(Interval)
		b := f.Connected("b", election.WithMetadata(map[string]string{"instance": a.Status().Instance})).Begin()
		After(3 * Interval)
		written := f.RecordWrites()
		a.End()
		After(Instant)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(written()[0]).To(ContainSubstring(`"successors":["b"]`))
	}, Republished)
}

// namesakes returns a leader and two candidates that all have the same name, as processes of one host may.
func namesakes(f *Fleet) (leader *Candidate, others []*Candidate) {
	leader = f.Connected("web").Begin()
	After(Interval)
	for range 2 {
		others = append(others, f.Connected("web").Begin())
		After(100 * time.Millisecond)
	}
	After(3 * Interval)
	f.Expect(leader.IsLeader()).To(BeTrue())
	return leader, others
}

func TestReleaseNamesASuccessorOfTheSameName(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, others := namesakes(f)
		written := f.RecordWrites()
		a.End()
		After(Instant)
		f.Expect(others[0].IsLeader() || others[1].IsLeader()).To(BeTrue(), "at once, as where names differ")
		f.Expect(written()).To(HaveExactElements(
			And(ContainSubstring(`"successors":["web","web"]`), ContainSubstring(`"successor_ids":[`)), ContainSubstring(`"leads":true`)))
		leader, other := others[0], others[1]
		if other.IsLeader() {
			leader, other = other, leader
		}
		leader.End()
		After(Instant)
		f.Expect(other.IsLeader()).To(BeTrue(), "the successor inherited what its predecessor knew")
	}, Republished)
}

func TestTransferReachesACandidateOfTheSameName(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, others := namesakes(f)
		f.Expect(a.Transfer(context.Background(), a.Status().Instance)).To(Succeed(), "it leads already")
		f.Expect(a.IsLeader()).To(BeTrue())
		for _, to := range others {
			f.Expect(a.Transfer(context.Background(), to.Status().Instance)).To(Succeed())
			f.Expect(to.IsLeader()).To(BeTrue())
			a = to
			After(3 * Interval)
		}
		f.Expect(a.Transfer(context.Background(), "web")).To(Succeed())
		f.Expect(a.IsLeader()).To(BeFalse(), "another candidate of the name has taken over")
		operator := f.Operator()
		After(3 * Interval)
		f.Expect(operator.Transfer(context.Background(), Key, a.Status().Instance)).To(Succeed())
		f.Expect(a.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestCandidatePreemptsALeaderOfItsOwnName(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("web").Begin()
		After(Interval)
		b := f.Connected("web", election.WithPriority(1), election.WithPreemption()).Begin()
		After(3 * Interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestLeaderRelinquishesToACandidateOfItsName(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("web", election.WithRelinquish("5m")).Begin()
		After(Interval)
		b := f.Connected("web").Begin()
		After(7 * time.Minute)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestLeaderWarnsOnceOfACandidateOfItsName(t *testing.T) {
	Run(t, func(f *Fleet) {
		var log Log
		f.Connected("web", election.WithLogger(log.Logger())).Begin()
		After(Interval)
		f.Connected("other").Begin()
		After(3 * Interval)
		f.Expect(log.Count("Another candidate has the same name")).To(BeZero())
		b := f.Connected("web").Begin()
		After(3 * Interval)
		f.Connected("web").Begin()
		After(3 * Interval)
		f.Expect(log.Count(`msg="Another candidate has the same name" election=scheduler name=web instance=` + b.Status().Instance)).To(Equal(1))
		f.Expect(log.Count("Another candidate has the same name")).To(Equal(1))
	}, Republished)
}
