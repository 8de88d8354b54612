package election_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

// What follows is about requests to candidates that go wrong, or are meant to.

// sharing returns a candidate on a connection that others use too.
func (f *fleet) sharing(nc *nats.Conn, name string, opts ...election.Option) *candidate {
	f.Helper()
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	return f.candidateOn(name, nil, f.server.Bucket(f.T, nc, ttl, f.options...), append(opts, election.WithJetStream(js))...)
}

func TestWhoeverHearsOfACampaignFindsItsCandidateThere(t *testing.T) {
	for range 20 {
		onVirtualTime(t, func(f *fleet) {
			o := f.operator()
			a := f.hearing("a")
			found := make(chan []election.Candidate, 1)
			ask := sync.OnceFunc(func() {
				all, _ := o.Candidates(context.Background(), key)
				found <- all
			})
			a.link.OnRequest(func(m link.Message) {
				if toKey(m) {
					go ask()
				}
			})
			a.start()
			f.Expect(<-found).To(HaveLen(1))
		}, republished)
	}
}

func TestResumeReachesThoseThatNobodyTold(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		o := f.operator()
		f.Expect(o.Pause(context.Background(), key)).To(Succeed())
		unheard := f.candidate("unheard").start()
		after(5 * ttl)
		f.Expect(unheard.seen()).To(BeEmpty())
		f.Expect(o.Resume(context.Background(), key)).To(Succeed())
		after(3*interval + ttl)
		f.Expect(unheard.IsLeader()).To(BeTrue())
	}, republished)
}

func TestPausedElectionGetsNoLeaderOverARelease(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		b := f.candidate("b").start()
		after(interval)
		c := f.candidate("c").start() // without WithJetStream nobody tells it
		after(3 * interval)
		f.Expect(f.operator().Pause(context.Background(), key)).To(Succeed())
		b.Stop()
		after(3 * ttl)
		f.Expect(c.seen()).To(BeEmpty())
	}, republished)
}

func TestCandidateThatWasCutOffHearsOfAPauseWhenItIsBack(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b")
		others["b"].link.Disconnect()
		others["b"].link.Cut()
		after(10 * time.Millisecond)
		f.Expect(f.operator().Pause(context.Background(), key)).To(Succeed())
		others["b"].link.Heal()
		after(2 * interval)
		a.Stop()
		after(2 * ttl)
		f.Expect(others["b"].seen()).To(BeEmpty())
	}, republished)
}

func TestTwoThatPauseAtOnceBothDo(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		o, p := f.operator(), f.operator()
		done := make(chan error, 2)
		go func() { done <- o.Pause(context.Background(), "x") }()
		go func() { done <- p.Pause(context.Background(), "y") }()
		f.Expect(<-done).To(Succeed())
		f.Expect(<-done).To(Succeed())
		f.Expect(o.Paused(context.Background())).To(Equal([]string{"x", "y"}))
	}, republished)
}

func TestPausedCandidateHearsWhoLeads(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		told := make(chan string, 100)
		a, _ := f.transferring("c")
		b := f.hearing("b", election.OnLeaderChange(func(l election.Leader) { told <- l.Name }))
		b.Pause()
		b.start()
		after(2 * interval)
		f.Expect(a.Transfer(context.Background(), "c")).To(Succeed())
		after(ttl)
		f.Expect(b.Status().Leader.Name).To(Equal("c"))
		var all []string
		for len(told) > 0 {
			all = append(all, <-told)
		}
		f.Expect(all).To(ContainElement("c"))
	}, republished)
}

func TestTransferThatComesLateForATermThatIsReleasedChangesNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		nc := f.server.Connect(f.T)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		bucket := &faulty{KeyValue: f.server.Bucket(f.T, nc, ttl, f.options...)}
		a := f.candidateOn("a", nil, bucket, election.WithJetStream(js)).start()
		after(interval)
		b := f.hearing("b").start()
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

func TestAnswersAreNeverWrittenToAKey(t *testing.T) {
	for _, subject := range []string{"$SRV.PING", control("candidates", key), control("look", key)} {
		t.Run(subject, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a, _ := f.transferring("b")
				nc := f.server.Connect(f.T)
				f.Expect(nc.PublishRequest(subject, "$KV."+natstest.BucketName+"."+key, nil)).To(Succeed())
				f.Expect(nc.Flush()).To(Succeed())
				after(2 * interval)
				f.Expect(a.IsLeader()).To(BeTrue())
			}, republished)
		})
	}
}

func TestOneWhoseCallbacksLingerIsNotReady(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		linger := make(chan struct{})
		defer close(linger)
		f.hearing("b", election.OnLost(func() { <-linger })).start()
		after(interval)
		a := f.hearing("a").start()
		after(3 * interval)
		f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
		after(4 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Transfer(context.Background(), "b")).To(MatchError(election.ErrNoCandidate))
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestManyQuestionsDoNotMakeACandidateDeaf(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b")
		others["b"].link.DelayReplies(20 * time.Millisecond)
		nc := f.server.Connect(f.T)
		for range 200 {
			f.Expect(nc.Publish(control("look", key), nil)).To(Succeed())
		}
		f.Expect(nc.Flush()).To(Succeed())
		after(100 * time.Millisecond)
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
	}, republished)
}

func TestCandidatesOfOneConnectionThatEchoesNothingFindEachOther(t *testing.T) {
	for name, opts := range map[string][2][]election.Option{
		"relinquish": {{election.WithRelinquish(30 * time.Second)}, nil},
		"preempt":    {nil, {election.WithPriority(3), election.WithPreemption()}},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				nc := f.server.Connect(f.T, nats.NoEcho())
				f.sharing(nc, "a", opts[0]...).start()
				after(interval)
				b := f.sharing(nc, "b", opts[1]...).start()
				after(2 * time.Minute)
				f.Expect(b.Status().Wins).To(BeNumerically(">", 0))
			}, republished)
		})
	}
}

func TestTransferReachesACandidateFarAway(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, others := f.transferring("b")
		others["b"].link.DelayReplies(200 * time.Millisecond)
		after(interval)
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
	}, republished)
}

func TestAskingEndsThoughSomebodyKeepsAnswering(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, _ := f.transferring("b")
		nc := f.server.Connect(f.T)
		stop := make(chan struct{})
		defer close(stop)
		_, err := nc.Subscribe(control("candidates", key), func(m *nats.Msg) {
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						_ = m.Respond([]byte("{}"))
					}
				}
			}()
		})
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(nc.Flush()).To(Succeed())
		done := make(chan error, 1)
		go func() { done <- a.Transfer(context.Background(), "nobody") }()
		after(10 * time.Second)
		f.Expect(done).To(Receive(MatchError(election.ErrNoCandidate)))
	}, republished)
}

func TestAskerWhoGivesUpLearnsThatItDidAndNotThatTheLeaderIsCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		giveUp func() (context.Context, context.CancelFunc)
		is     error
	}{
		"cancelled": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled},
		"out of time": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 100*time.Millisecond)
		}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				hang, letGo := f.hanging()
				a := f.hearing("a", election.OnLost(hang)).start()
				after(interval)
				a.link.DelayReplies(200 * time.Millisecond)
				ctx, cancel := c.giveUp()
				defer cancel()
				err := f.operator().Resign(ctx, key)
				f.Expect(err).To(MatchError(c.is))
				f.Expect(err).NotTo(MatchError(ContainSubstring("evict")))
				after(200 * time.Millisecond)
				f.Expect(a.IsLeader()).To(BeFalse(), "it was about to resign")
				letGo()

				hang, letGo = f.hanging()
				b := f.hearing("b", election.OnLost(hang))
				a.Stop()
				b.start()
				after(ttl)
				f.Expect(b.IsLeader()).To(BeTrue())
				again, cancel := c.giveUp()
				defer cancel()
				err = f.operator().Resign(again, key)
				f.Expect(err).To(And(MatchError(c.is), MatchError(ContainSubstring("goes on"))), "it winds up")
				letGo()
			}, republished)
		})
	}
}

func TestRequestThatSaysNoTimeIsGivenOne(t *testing.T) {
	for _, wait := range []int64{0, -5, 1 << 62} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a, others := f.transferring("b")
				nc := f.server.Connect(f.T)
				text := fmt.Appendf(nil, `{"to":"b","wait_ms":%d}`, wait)
				f.Expect(nc.PublishRequest(control("transfer", key), nc.NewInbox(), text)).To(Succeed())
				after(time.Second)
				f.Expect(a.IsLeader()).To(BeFalse())
				f.Expect(others["b"].IsLeader()).To(BeTrue())
			}, republished)
		})
	}
}
