package election_test

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
	"github.com/natscampaign/election/admin"
)

var errFull = &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}

func TestErrorStaysUntilARequestOfItsKindSucceeds(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		_, bucket := f.faultyCandidate("a", election.WithBackoff(election.ConstantBackoff(time.Second)))
		bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) { return 0, errFull })
		refused := &full{KeyValue: bucket}
		a := f.candidateOn("a", nil, refused, election.WithBackoff(election.ConstantBackoff(time.Second)))
		a.start()
		after(time.Second)
		for range 1000 { // reads succeed meanwhile
			f.Expect(a.Status().LastError).To(ContainSubstring("maximum bytes exceeded"))
			after(10 * time.Millisecond)
		}
		refused.taken.Store(true)
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			return update()
		})
		after(ttl)
		f.Expect(a.Status().LastError).To(BeEmpty())
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestCandidateThatTheServerHasNoRoomForSaysSoOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		refused := &full{KeyValue: f.Bucket}
		a := f.candidateOn("a", nil, refused, election.WithBackoff(election.ConstantBackoff(time.Second)), election.WithLogger(log.logger()))
		a.start()
		after(10 * time.Second)
		f.Expect(log.count("level=WARN")).To(Equal(1), log.String())
		f.Expect(log.count(`level=WARN msg="Campaign failed"`)).To(Equal(1), log.String())
		f.Expect(log.count(`level=DEBUG msg="Campaign failed"`)).To(BeNumerically(">", 5))
		refused.taken.Store(true)
		after(ttl)
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
	onVirtualTime(t, func(f *fleet) {
		f.connected("a").start()
		after(interval)
		b := f.connected("b")
		b.link.LoseRequests(toKey)
		b.start()
		after(5 * interval)
		f.Expect(b.Status().LastError).NotTo(BeEmpty())
		f.Expect(time.Since(b.Status().LastErrorAt)).To(BeNumerically("<", 2*ttl))
		b.link.Heal()
		after(2 * ttl)
		f.Expect(b.Status().LastError).To(BeEmpty())
		f.Expect(b.Status().LastErrorAt).To(BeZero())
	}, republished)
}

func TestUnhealthyEndsWithTheRun(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var d disk
		d.full.Store(true)
		a := f.candidate("a", election.WithHealthCheck(d.check)).start()
		after(ttl)
		f.Expect(a.Status().Unhealthy).To(Equal("disk full"))
		a.shutdown()
		f.Expect(a.Status().Unhealthy).To(BeEmpty())
	})
}

// The handler is the user's: it may take its time, or call the election.
func TestLogHandlerThatHangsCostsNoTerm(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, _ := f.Hanging()
		a := f.connected("a", election.WithLogger(slog.New(&hanging{slog.DiscardHandler, "Election paused", hang}))).start()
		after(interval)
		operator, err := admin.New(f.Open(f.Server.Connect(f.T)))
		f.Expect(err).NotTo(HaveOccurred())
		go func() { _ = operator.Pause(context.Background(), key) }()
		after(time.Second)
		a.link.LoseReplies(once(toKeyReply)) // after which the leader asks about its bucket
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(1))
	}, republished)
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
	onVirtualTime(t, func(f *fleet) {
		var log logged
		a := f.candidate("a", election.WithLogger(log.logger())).start()
		won := time.Now()
		line := regexp.MustCompile(`msg="State changed" .* state=leader-elect reason=vacant term=1 stand-down=7.5s leads-at=(\S+)`).FindStringSubmatch(log.String())
		f.Expect(line).To(HaveLen(2), log.String())
		at, err := time.Parse(time.RFC3339Nano, line[1])
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(at).To(BeTemporally("~", won.Add(interval), time.Millisecond))
		after(time.Until(at) + time.Millisecond)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestReleaseIsNotTakenForDoneByAReadThatIsStale(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		a.start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		var applied atomic.Bool
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			rev, err := update()
			if !applied.Swap(true) { // a renewal whose reply is lost, and that a replica does not know of yet
				return 0, nats.ErrTimeout
			}
			return rev, err
		})
		var stale atomic.Int64
		bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			if stale.Add(1) <= 3 {
				return nil, jetstream.ErrKeyNotFound
			}
			return get()
		})
		for !applied.Load() {
			after(10 * time.Millisecond)
		}
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestLostKeyIsNotSaidToExpire(t *testing.T) {
	for name, overwrite := range map[string]func(f *fleet){
		"before the release is written":  func(f *fleet) { f.Write("stranger") },
		"while a callback has not ended": func(f *fleet) { after(time.Second); f.Write("stranger"); after(ttl) },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				var log logged
				hang, unblock := f.Hanging()
				a := f.leading("a", election.WithLogger(log.logger()), election.WithReleaseTimeout(5*ttl), election.OnLost(hang))
				resigned := make(chan error, 1)
				go func() { resigned <- a.Resign(context.Background()) }()
				synctest.Wait()
				overwrite(f)
				unblock()
				err := <-resigned
				f.Expect(err).To(MatchError(election.ErrNotLeader))
				f.Expect(err).NotTo(MatchError(ContainSubstring("expire")))
				f.Expect(log.count("left to expire")).To(BeZero())
				f.Expect(log.count("Key not released, it was lost before")).To(Equal(1))
			})
		})
	}
}

func TestLeaderLogsOnceThatItWaitsForItsWork(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		hang, unblock := f.Hanging()
		a := f.leading("a", election.WithLogger(log.logger()), election.WithReleaseTimeout(2*ttl), election.OnLost(hang))
		resigned := make(chan error, 1)
		go func() { resigned <- a.Resign(context.Background()) }()
		after(time.Second - instant)
		f.Expect(log.count("Waiting for callbacks and work to return")).To(BeZero())
		after(2 * instant)
		f.Expect(log.String()).To(MatchRegexp(`Waiting for callbacks and work to return" .*at-most=19s`))
		after(ttl) // it renews meanwhile
		unblock()
		f.Expect(<-resigned).To(Succeed())
		f.Expect(log.count("Waiting for callbacks and work to return")).To(Equal(1))
	})
}

func TestTransferOfATermThatWasLostSaysSo(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.leaderAndFollower()
		b.link.DelayReplies(200 * time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- a.Transfer(context.Background(), "b") }()
		synctest.Wait()
		f.Write("stranger")
		after(100 * time.Millisecond)
		err := <-done
		f.Expect(err).To(MatchError(election.ErrNotLeader))
		f.Expect(err).To(MatchError(ContainSubstring("overwritten")))
		f.Expect(err).NotTo(MatchError(ContainSubstring("another handover")))
	}, republished)
}

func TestReleaseTimeoutMayBeAsLongAsADurationCanBe(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, unblock := f.Hanging()
		a := f.leading("a", election.WithReleaseTimeout(math.MaxInt64), election.WithSplay(0), election.OnLost(hang))
		resigned := make(chan error, 1)
		go func() { resigned <- a.Resign(context.Background()) }()
		after(3 * ttl)
		f.Expect(resigned).NotTo(Receive())
		unblock()
		f.Expect(<-resigned).To(Succeed())
	})
}

// small has the bucket take records of so many bytes at most.
func small(bytes int32) func(*jetstream.KeyValueConfig) {
	return func(cfg *jetstream.KeyValueConfig) {
		republished(cfg)
		cfg.MaxValueSize = bytes
	}
}

func TestMetadataThatTheBucketDoesNotTakeCostsNoTerm(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		a := f.connected("a", election.WithLogger(log.logger()), election.WithMetadata(map[string]string{"zone": "eu"})).start()
		b := f.connected("b").start()
		after(3 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.SetMetadata(map[string]string{"zone": strings.Repeat("x", 1000)})).To(Succeed())
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(1))
		f.Expect(f.record()).To(ContainSubstring(`"zone":"eu"`), "what fitted last")
		f.Expect(a.Status().LastError).To(ContainSubstring("metadata not stored"))
		f.Expect(log.count("level=WARN")).To(Equal(1), log.String())
		f.Expect(a.SetMetadata(map[string]string{"zone": "us"})).To(Succeed())
		after(time.Second)
		f.Expect(f.record()).To(ContainSubstring(`"zone":"us"`))
		f.Expect(a.Status().LastError).To(BeEmpty())

		f.Expect(a.SetMetadata(map[string]string{"zone": strings.Repeat("x", 1000)})).To(Succeed())
		a.shutdown()
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue(), "the release was written")
	}, small(800))
}

func TestCandidateWhoseMetadataIsTooLargeLeadsWithoutIt(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a", election.WithMetadata(map[string]string{"zone": strings.Repeat("x", 1000)})).start()
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(f.record()).NotTo(ContainSubstring("metadata"))
		f.Expect(a.Status().LastError).To(ContainSubstring("metadata not stored"))
		b := f.connected("b", election.WithMetadata(map[string]string{"zone": strings.Repeat("y", 1000)})).start()
		after(3 * interval)
		a.shutdown()
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue(), "its attempts were seen")
	}, small(800))
}

func TestReleaseLeavesTheMetadataOutIfItIsTooLargeWithIt(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		size := len(f.record())
		f.Expect(a.SetMetadata(map[string]string{"x": strings.Repeat("x", 800-size-120)})).To(Succeed())
		after(interval)
		f.Expect(f.record()).To(ContainSubstring("xxx"))
		f.Expect(a.Resign(context.Background())).To(Succeed())
		f.Expect(f.record()).To(And(ContainSubstring(`"released"`), Not(ContainSubstring("xxx"))))
	}, small(800))
}

func TestLeaderSeesACandidateWhoseMetadataNamesIt(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b", election.WithMetadata(map[string]string{"instance": a.Status().Instance})).start()
		after(3 * interval)
		written := f.recordWrites()
		a.shutdown()
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(written()[0]).To(ContainSubstring(`"successors":["b"]`))
	}, republished)
}

// namesakes returns a leader and two candidates that all have the same name, as processes of one host may.
func (f *fleet) namesakes() (leader *candidate, others []*candidate) {
	leader = f.connected("web").start()
	after(interval)
	for range 2 {
		others = append(others, f.connected("web").start())
		after(100 * time.Millisecond)
	}
	after(3 * interval)
	f.Expect(leader.IsLeader()).To(BeTrue())
	return leader, others
}

func TestReleaseNamesASuccessorOfTheSameName(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.namesakes()
		written := f.recordWrites()
		a.shutdown()
		after(instant)
		f.Expect(others[0].IsLeader() || others[1].IsLeader()).To(BeTrue(), "at once, as where names differ")
		f.Expect(written()).To(HaveExactElements(
			And(ContainSubstring(`"successors":["web","web"]`), ContainSubstring(`"successor_ids":[`)), ContainSubstring(`"leads":true`)))
		leader, other := others[0], others[1]
		if other.IsLeader() {
			leader, other = other, leader
		}
		leader.shutdown()
		after(instant)
		f.Expect(other.IsLeader()).To(BeTrue(), "the successor inherited what its predecessor knew")
	}, republished)
}

func TestTransferReachesACandidateOfTheSameName(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.namesakes()
		f.Expect(a.Transfer(context.Background(), a.Status().Instance)).To(Succeed(), "it leads already")
		f.Expect(a.IsLeader()).To(BeTrue())
		for _, to := range others {
			f.Expect(a.Transfer(context.Background(), to.Status().Instance)).To(Succeed())
			f.Expect(to.IsLeader()).To(BeTrue())
			a = to
			after(3 * interval)
		}
		f.Expect(a.Transfer(context.Background(), "web")).To(Succeed())
		f.Expect(a.IsLeader()).To(BeFalse(), "another candidate of the name has taken over")
		operator, err := admin.New(f.Open(f.Server.Connect(f.T)))
		f.Expect(err).NotTo(HaveOccurred())
		after(3 * interval)
		f.Expect(operator.Transfer(context.Background(), key, a.Status().Instance)).To(Succeed())
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestCandidatePreemptsALeaderOfItsOwnName(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("web").start()
		after(interval)
		b := f.connected("web", election.WithPriority(1), election.WithPreemption()).start()
		after(3 * interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestLeaderRelinquishesToACandidateOfItsName(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("web", election.WithRelinquish("5m")).start()
		after(interval)
		b := f.connected("web").start()
		after(7 * time.Minute)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestLeaderWarnsOnceOfACandidateOfItsName(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		var log logged
		f.connected("web", election.WithLogger(log.logger())).start()
		after(interval)
		f.connected("other").start()
		after(3 * interval)
		f.Expect(log.count("Another candidate has the same name")).To(BeZero())
		b := f.connected("web").start()
		after(3 * interval)
		f.connected("web").start()
		after(3 * interval)
		f.Expect(log.count(`msg="Another candidate has the same name" election=scheduler name=web instance=` + b.Status().Instance)).To(Equal(1))
		f.Expect(log.count("Another candidate has the same name")).To(Equal(1))
	}, republished)
}
