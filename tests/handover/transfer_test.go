package handover_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestTransferDuringAReleaseIsRefused(t *testing.T) {
	Run(t, func(f *Fleet) {
		nc := f.Server.Connect(f.T)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		bucket := &Faulty{KeyValue: f.Bare(nc)}
		a := f.CandidateOn("a", nil, bucket, election.WithJetStream(js)).Begin()
		After(Interval)
		b := f.Connected("b").Begin()
		After(3 * Interval)
		b.Link.DelayReplies(100 * time.Millisecond)
		bucket.OnUpdate(func(_ context.Context, v []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			if bytes.Contains(v, []byte(`"released"`)) {
				return 0, errors.New("no response")
			}
			return update()
		})
		done := make(chan error, 1)
		go func() { done <- a.Transfer(context.Background(), "b") }()
		After(50 * time.Millisecond)
		_ = a.Resign(context.Background())
		f.Expect(<-done).To(MatchError(election.ErrNotLeader))
	}, Republished)
}

func TestCandidateWithRunningCallbacksIsNoTarget(t *testing.T) {
	Run(t, func(f *Fleet) {
		hang, _ := f.Hanging()
		f.Connected("b", election.OnLost(hang)).Begin()
		After(Interval)
		a := f.Connected("a").Begin()
		After(3 * Interval)
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
		After(4 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(election.ErrNoCandidate))
		f.Expect(a.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestTransferReachesADistantCandidate(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, others := f.LeaderWith("b")
		others["b"].Link.DelayReplies(200 * time.Millisecond)
		After(Interval)
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
	}, Republished)
}

func TestTransferReturnsWhenItsTargetLeads(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, others := f.LeaderWith("b", "c", "d", "e") // the leader saw e last, which would be the first successor
		for _, name := range []string{"b", "c", "d"} {
			at := time.Now()
			f.Expect(a.Transfer(context.Background(), name)).To(Succeed())
			f.Expect(time.Since(at)).To(BeNumerically("<", 50*time.Millisecond))
			f.Expect(others[name].IsLeader()).To(BeTrue())
			f.Expect(a.IsLeader()).To(BeFalse())
			a = others[name]
			After(3 * Interval)
			f.Expect(a.IsLeader()).To(BeTrue(), "the target leads on")
		}
	}, Republished)
}

func TestTargetLeadsAtTheInstantTheTransferReturns(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	s := natstest.StartTCP(t)
	bucket := s.Bucket(t, s.Connect(t), 10*TTL, Republished) // a lease outlasts the stalls of a busy host
	f := &Fleet{T: t, WithT: NewWithT(t), Server: s, Bucket: bucket}
	ctx := context.Background()
	candidates := map[string]*election.Election{}
	for _, name := range []string{"a", "b", "c"} {
		e, err := election.NewElection(name, Key, f.Open(s.Connect(t)), election.WithSplay(0), election.WithCampaignInterval(Interval), election.WithStandDown(0))
		f.Expect(err).NotTo(HaveOccurred())
		go func() { _ = e.Start(ctx) }()
		t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
		candidates[name] = e
		f.Eventually(candidates["a"].IsLeader).WithTimeout(20 * time.Second).Should(BeTrue())
	}
	operator, err := admin.New(f.Open(s.Connect(t)))
	f.Expect(err).NotTo(HaveOccurred())
	for i := range 21 {
		to := []string{"b", "c", "a"}[i%3]
		var leads bool
		f.Eventually(func() (err error) {
			if i%2 == 1 {
				err = operator.Transfer(ctx, Key, to)
			} else {
				err = election.ErrNotLeader
				for _, from := range candidates { // another may have been quicker than the target
					if from.IsLeader() {
						err = from.Transfer(ctx, to)
					}
				}
			}
			leads = candidates[to].IsLeader()
			return err
		}).WithTimeout(time.Minute).Should(Succeed(), "once the candidate is ready")
		f.Expect(leads).To(BeTrue(), "after transfer %d, to %s", i, to)
	}
}

func TestTransferFailsIfItsTargetDoesNotLead(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, others := f.LeaderWith("b")
		b := others["b"]
		b.Link.OnRequest(func(m faultproxy.Message) {
			if ToKey(m) {
				b.Link.StallReplies() // it wins, and does not learn that it did
			}
		})
		at := time.Now()
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(ContainSubstring(`"b" has not taken over within 2s`)))
		f.Expect(time.Since(at)).To(BeNumerically("<", 2100*time.Millisecond))
		f.Expect(b.IsLeader()).To(BeFalse())
		f.Expect(f.Record()).To(ContainSubstring(`"name":"b"`))
	}, Republished)
}

func TestTransferByAWriteOnlyLeaderReturnsWhenItsTargetLeads(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, others := f.LeaderWith("b")
		a.Link.LoseRequests(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET") })
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		f.Expect(others["b"].IsLeader()).To(BeTrue())
	}, Republished)
}

func TestTransferToAnUnreadyCandidateIsRefused(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, others := f.LeaderWith("b", "cut", "plain")
		others["cut"].Link.Cut()
		stopped := f.Connected("stopped").Begin()
		After(Interval)
		stopped.End()
		f.Candidate("unconnected").Begin()
		After(Interval)
		for _, name := range []string{"nobody", "cut", "stopped", "unconnected"} {
			err := a.Transfer(context.Background(), name)
			f.Expect(err).To(MatchError(election.ErrNoCandidate), name)
			f.Expect(err).To(MatchError(ContainSubstring(name)))
			f.Expect(a.IsLeader()).To(BeTrue())
		}
		f.Expect(a.Transfer(context.Background(), "")).To(MatchError(election.ErrInvalidOption))
		f.Expect(a.Transfer(context.Background(), "a")).To(Succeed(), "a leads already")
		over, cancel := context.WithCancel(context.Background())
		cancel()
		f.Expect(a.Transfer(over, "a")).To(MatchError(context.Canceled), "another candidate of the name may be there")
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(others["b"].Transfer(context.Background(), "a")).To(MatchError(election.ErrNotLeader))
		f.Expect(a.Seen()).To(HaveLen(1))
	}, Republished)
}

func TestOthersTakeATransferWhoseTargetFails(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a, others := f.LeaderWith("b", "c")
		hang, unblock := f.Hanging()
		a.End()
		After(Interval)
		b, target := others["b"], others["c"]
		if !b.IsLeader() {
			b, target = target, b
		}
		d := f.Connected("d", election.OnLost(hang)).Begin()
		After(Interval)
		f.Expect(b.Transfer(context.Background(), "d")).To(Succeed())
		result := make(chan error, 1)
		go func() { result <- d.Transfer(context.Background(), target.Status().Name) }()
		After(time.Second) // the callbacks of d have not returned
		target.Link.Cut()
		unblock()
		After(600 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue(), "other candidates hold back for half a second")
		f.Expect(<-result).To(MatchError(ContainSubstring("was quicker than")))
	}, Republished)
}

func TestTransferWithoutAConnectionNamesTheFix(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(ContainSubstring("WithJetStream")))
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestNewCandidateLeavesATransferToItsTarget(t *testing.T) {
	natstest.SkipIfShort(t)
	const far = 100 * time.Millisecond // from the server to the target
	for offset := -far; offset <= 2*far; offset += far / 10 {
		t.Run(fmt.Sprint(offset), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a, others := f.LeaderWith("b")
				others["b"].Link.DelayReplies(far)
				c := f.Connected("c")
				go func() {
					time.Sleep(2*far + offset)
					c.BeginWith(context.Background())
				}()
				time.Sleep(far)
				f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
				f.Expect(others["b"].State()).NotTo(Equal(election.CandidateState))
				After(Interval)
				f.Expect(others["b"].IsLeader()).To(BeTrue())
			}, Republished)
		})
	}
}

func TestNewCandidateTakesATransferWhoseTargetIsGone(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, others := f.LeaderWith("b")
		others["b"].Link.OnRequest(func(m faultproxy.Message) {
			if ToKey(m) {
				others["b"].Link.Cut() // just as it answers the release
			}
		})
		c := f.Connected("c")
		go func() { _ = a.Transfer(context.Background(), "b") }()
		After(Instant)
		c.Begin()
		After(700 * time.Millisecond)
		f.Expect(c.IsLeader() || c.State() == election.LeaderElectState).To(BeTrue(), c.State().String())
		After(Interval)
		f.Expect(c.IsLeader() || a.IsLeader()).To(BeTrue())
	}, Republished)
}
