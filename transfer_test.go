package election_test

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
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// leaderWith returns a leader and candidates of the given names, all of which know their connection.
func (f *fleet) leaderWith(names ...string) (*candidate, map[string]*candidate) {
	f.Helper()
	a := f.connected("a").start()
	after(interval)
	others := map[string]*candidate{}
	for _, name := range names {
		others[name] = f.connected(name).start()
		after(100 * time.Millisecond)
	}
	after(interval)
	f.Expect(a.IsLeader()).To(BeTrue())
	return a, others
}

func TestTransferDuringAReleaseIsRefused(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		nc := f.Server.Connect(f.T)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		bucket := &faulty{KeyValue: f.Bare(nc)}
		a := f.candidateOn("a", nil, bucket, election.WithJetStream(js)).start()
		after(interval)
		b := f.connected("b").start()
		after(3 * interval)
		b.link.DelayReplies(100 * time.Millisecond)
		bucket.onUpdate(func(_ context.Context, v []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			if bytes.Contains(v, []byte(`"released"`)) {
				return 0, errors.New("no response")
			}
			return update()
		})
		done := make(chan error, 1)
		go func() { done <- a.Transfer(context.Background(), "b") }()
		after(50 * time.Millisecond)
		_ = a.Resign(context.Background())
		f.Expect(<-done).To(MatchError(election.ErrNotLeader))
	}, republished)
}

func TestCandidateWithRunningCallbacksIsNoTarget(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		hang, _ := f.Hanging()
		f.connected("b", election.OnLost(hang)).start()
		after(interval)
		a := f.connected("a").start()
		after(3 * interval)
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		after(4 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(election.ErrNoCandidate))
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestTransferReachesADistantCandidate(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.leaderWith("b")
		others["b"].link.DelayReplies(200 * time.Millisecond)
		after(interval)
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
	}, republished)
}

func TestTransferReturnsWhenItsTargetLeads(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.leaderWith("b", "c", "d", "e") // the leader saw e last, which would be the first successor
		for _, name := range []string{"b", "c", "d"} {
			at := time.Now()
			f.Expect(a.Transfer(context.Background(), name)).To(Succeed())
			f.Expect(time.Since(at)).To(BeNumerically("<", 50*time.Millisecond))
			f.Expect(others[name].IsLeader()).To(BeTrue())
			f.Expect(a.IsLeader()).To(BeFalse())
			a = others[name]
			after(3 * interval)
			f.Expect(a.IsLeader()).To(BeTrue(), "the target leads on")
		}
	}, republished)
}

func TestTargetLeadsAtTheInstantTheTransferReturns(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	s := natstest.StartTCP(t)
	bucket := s.Bucket(t, s.Connect(t), ttl, republished)
	f := &fleet{&fleettest.Fleet{T: t, WithT: NewWithT(t), Server: s, Bucket: bucket}}
	ctx := context.Background()
	candidates := map[string]*election.Election{}
	for _, name := range []string{"a", "b", "c"} {
		e, err := election.NewElection(name, key, f.Open(s.Connect(t)), election.WithSplay(0), election.WithStandDown(0))
		f.Expect(err).NotTo(HaveOccurred())
		go func() { _ = e.Start(ctx) }()
		t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
		candidates[name] = e
		f.Eventually(candidates["a"].IsLeader).Should(BeTrue())
	}
	operator, err := admin.New(f.Open(s.Connect(t)))
	f.Expect(err).NotTo(HaveOccurred())
	from := candidates["a"]
	for i := range 21 {
		to := []string{"b", "c", "a"}[i%3]
		transfer := func() error { return from.Transfer(ctx, to) }
		if i%2 == 1 {
			transfer = func() error { return operator.Transfer(ctx, key, to) }
		}
		var leads bool
		f.Eventually(func() error {
			err := transfer()
			leads = candidates[to].IsLeader()
			return err
		}).WithTimeout(10*time.Second).Should(Succeed(), "once the candidate is ready")
		f.Expect(leads).To(BeTrue(), "after transfer %d, to %s", i, to)
		from = candidates[to]
	}
}

func TestTransferFailsIfItsTargetDoesNotLead(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.leaderWith("b")
		b := others["b"]
		b.link.OnRequest(func(m faultproxy.Message) {
			if toKey(m) {
				b.link.StallReplies() // it wins, and does not learn that it did
			}
		})
		at := time.Now()
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(ContainSubstring(`"b" has not taken over within 2s`)))
		f.Expect(time.Since(at)).To(BeNumerically("<", 2100*time.Millisecond))
		f.Expect(b.IsLeader()).To(BeFalse())
		f.Expect(f.record()).To(ContainSubstring(`"name":"b"`))
	}, republished)
}

func TestTransferByAWriteOnlyLeaderReturnsWhenItsTargetLeads(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.leaderWith("b")
		a.link.LoseRequests(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET") })
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		f.Expect(others["b"].IsLeader()).To(BeTrue())
	}, republished)
}

func TestTransferToAnUnreadyCandidateIsRefused(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.leaderWith("b", "cut", "plain")
		others["cut"].link.Cut()
		stopped := f.connected("stopped").start()
		after(interval)
		stopped.shutdown()
		f.candidate("unconnected").start()
		after(interval)
		for _, name := range []string{"nobody", "cut", "stopped", "unconnected"} {
			err := a.Transfer(context.Background(), name)
			f.Expect(err).To(MatchError(election.ErrNoCandidate), name)
			f.Expect(err).To(MatchError(ContainSubstring(name)))
			f.Expect(a.IsLeader()).To(BeTrue())
		}
		f.Expect(a.Transfer(context.Background(), "")).To(MatchError(election.ErrInvalidOption))
		f.Expect(a.Transfer(context.Background(), "a")).To(Succeed(), "a leads already")
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(others["b"].Transfer(context.Background(), "a")).To(MatchError(election.ErrNotLeader))
		f.Expect(a.seen()).To(HaveLen(1))
	}, republished)
}

func TestOthersTakeATransferWhoseTargetFails(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a, others := f.leaderWith("b", "c")
		hang, unblock := f.Hanging()
		a.shutdown()
		after(interval)
		b, target := others["b"], others["c"]
		if !b.IsLeader() {
			b, target = target, b
		}
		d := f.connected("d", election.OnLost(hang)).start()
		after(interval)
		f.Expect(b.Transfer(context.Background(), "d")).To(Succeed())
		result := make(chan error, 1)
		go func() { result <- d.Transfer(context.Background(), target.Status().Name) }()
		after(time.Second) // the callbacks of d have not returned
		target.link.Cut()
		unblock()
		after(600 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue(), "other candidates hold back for half a second")
		f.Expect(<-result).To(MatchError(ContainSubstring("was quicker than")))
	}, republished)
}

func TestTransferWithoutAConnectionNamesTheFix(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(ContainSubstring("WithJetStream")))
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestNewCandidateLeavesATransferToItsTarget(t *testing.T) {
	natstest.SkipIfShort(t)
	const far = 100 * time.Millisecond // from the server to the target
	for offset := -far; offset <= 2*far; offset += far / 10 {
		t.Run(fmt.Sprint(offset), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a, others := f.leaderWith("b")
				others["b"].link.DelayReplies(far)
				c := f.connected("c")
				go func() {
					time.Sleep(2*far + offset)
					c.startWith(context.Background())
				}()
				time.Sleep(far)
				f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
				f.Expect(others["b"].State()).NotTo(Equal(election.CandidateState))
				after(interval)
				f.Expect(others["b"].IsLeader()).To(BeTrue())
			}, republished)
		})
	}
}

func TestNewCandidateTakesATransferWhoseTargetIsGone(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.leaderWith("b")
		others["b"].link.OnRequest(func(m faultproxy.Message) {
			if toKey(m) {
				others["b"].link.Cut() // just as it answers the release
			}
		})
		c := f.connected("c")
		go func() { _ = a.Transfer(context.Background(), "b") }()
		after(instant)
		c.start()
		after(700 * time.Millisecond)
		f.Expect(c.IsLeader() || c.State() == election.LeaderElectState).To(BeTrue(), c.State().String())
		after(interval)
		f.Expect(c.IsLeader() || a.IsLeader()).To(BeTrue())
	}, republished)
}
