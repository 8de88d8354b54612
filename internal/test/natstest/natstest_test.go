package natstest_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) {
	natstest.VerifyTestMain(m)
}

func TestAVirtualHourOfUpdatesCostsLittleWallTime(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	start := time.Now()

	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t)
		kv := s.Bucket(t, s.Connect(t), 10*time.Second)
		ctx := context.Background()

		rev, err := kv.Create(ctx, "leader", []byte("one"))
		g.Expect(err).NotTo(HaveOccurred())
		begin := time.Now()
		for time.Since(begin) < time.Hour {
			time.Sleep(7500 * time.Millisecond)
			rev, err = kv.Update(ctx, "leader", []byte("one"), rev)
			g.Expect(err).NotTo(HaveOccurred())
		}
	})

	g.Expect(time.Since(start)).To(BeNumerically("<", 20*time.Second))
}

func TestBubbleLeavesNoGoroutineBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t)
		kv := s.Bucket(t, natstest.Connect(t, s.Link(t)), time.Minute)
		_, err := kv.WatchAll(t.Context())
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	})
	goleak.VerifyNone(t, before)
}

func TestTimersDoNotPassBetweenABubbleAndTheRealWorld(t *testing.T) {
	natstest.SkipIfShort(t)
	for range 5 { // a sync.Pool promises nothing, so a mix-up may need some tries
		t.Run("real", func(t *testing.T) {
			g := NewWithT(t)
			nc := natstest.Start(t).Connect(t)
			g.Expect(nc.FlushTimeout(time.Minute)).To(Succeed())
		})
		natstest.Bubble(t, func(t *testing.T) {
			g := NewWithT(t)
			l := natstest.Start(t).Link(t)
			nc := natstest.Connect(t, l)
			l.Cut()
			start := time.Now()
			g.Expect(nc.FlushTimeout(time.Minute)).To(MatchError(nats.ErrTimeout))
			g.Expect(time.Since(start)).To(Equal(time.Minute))
		})
	}
}

func TestKeyExpiresOnVirtualTimeAndItsMarkerArrives(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t)
		kv := s.Bucket(t, s.Connect(t), 10*time.Second, natstest.WithMarkers)
		ctx := context.Background()

		w, err := kv.Watch(ctx, "leader", jetstream.UpdatesOnly())
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = w.Stop() })

		_, err = kv.Create(ctx, "leader", []byte("one"))
		g.Expect(err).NotTo(HaveOccurred())
		created := time.Now()

		g.Expect((<-w.Updates()).Operation()).To(Equal(jetstream.KeyValuePut))
		g.Expect((<-w.Updates()).Operation()).To(Equal(jetstream.KeyValuePurge))
		g.Expect(time.Since(created)).To(BeNumerically("~", 10*time.Second, 50*time.Millisecond))

		_, err = kv.Get(ctx, "leader")
		g.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
	})
}

func TestStoppedServerIsOutOfReachUntilItResumes(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t)
		s.Stop()

		// A client may start before its server.
		nc := natstest.Connect(t, s.Link(t), nats.RetryOnFailedConnect(true))
		time.Sleep(time.Minute)
		g.Expect(nc.IsConnected()).To(BeFalse())

		s.Resume(t)
		g.Eventually(nc.IsConnected, time.Second).Should(BeTrue())
		s.Bucket(t, nc, time.Minute)

		disconnected := nc.StatusChanged(nats.RECONNECTING)
		s.Stop()
		g.Eventually(disconnected, time.Second).Should(Receive())
	})
}

func TestServerInMemoryForgetsItsBucketsWhenItRestarts(t *testing.T) {
	natstest.SkipIfShort(t)
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t)
		nc := s.Connect(t)
		s.Bucket(t, nc, time.Minute)
		begin := time.Now()
		s.Restart(t, time.Hour)
		g.Expect(time.Since(begin)).To(BeNumerically("~", time.Hour, time.Minute))

		g.Eventually(nc.IsConnected, time.Second).Should(BeTrue())
		js, err := jetstream.New(nc)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = js.KeyValue(t.Context(), natstest.BucketName)
		g.Expect(err).To(MatchError(jetstream.ErrBucketNotFound))
	})
}

func TestServerOnTCPKeepsItsBucketAndAddressWhenItRestarts(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	nc := s.Connect(t)
	kv := s.Bucket(t, nc, time.Minute)
	rev, err := kv.Put(t.Context(), "leader", []byte("one"))
	g.Expect(err).NotTo(HaveOccurred())

	url := s.URL()
	s.Restart(t, 100*time.Millisecond)
	g.Expect(s.URL()).To(Equal(url))

	g.Eventually(nc.IsConnected, 10*time.Second).Should(BeTrue())
	e, err := kv.Get(t.Context(), "leader")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(e.Revision()).To(Equal(rev))
	g.Expect(string(e.Value())).To(Equal("one"))
}

func TestLinkToAServerOnTCPCanBeCut(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	l := s.Link(t)
	nc := natstest.Connect(t, l)
	g.Expect(nc.FlushTimeout(5 * time.Second)).To(Succeed())

	l.Cut()
	g.Expect(nc.FlushTimeout(100 * time.Millisecond)).To(MatchError(nats.ErrTimeout))
	l.Heal()
	g.Eventually(func() error { return nc.FlushTimeout(time.Second) }, 10*time.Second).Should(Succeed())
}

func TestBucketIsOpenedIfItExistsWithOtherSettings(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t)
		nc := s.Connect(t)
		s.Bucket(t, nc, time.Minute, natstest.WithMarkers)
		kv := s.Bucket(t, nc, time.Hour)

		status, err := kv.Status(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.TTL()).To(Equal(time.Minute))
		g.Expect(status.LimitMarkerTTL()).To(Equal(time.Minute))
		g.Expect(status.History()).To(BeEquivalentTo(1))
		g.Expect(status.Config().Storage).To(Equal(jetstream.MemoryStorage))
	})
}

func TestHelpersFailTheTestWithTheReason(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t)
		l := s.Link(t)
		nc := natstest.Connect(t, l)
		l.Cut()

		g.Expect(failureOf(t, func(t testing.TB) { natstest.Connect(t, l) })).
			To(ContainSubstring("the link is cut"))
		g.Expect(failureOf(t, func(t testing.TB) { s.Bucket(t, nc, 0) })).
			To(MatchRegexp("bucket ELECTIONS: not within 20s: .*deadline exceeded"))
		g.Expect(failureOf(t, func(t testing.TB) { s.Resume(t) })).
			To(ContainSubstring("is already running"))
	})
}

// failing is a test that records why it failed.
type failing struct {
	testing.TB
	reason string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.reason = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf returns the message that a helper fails a test with, or "".
func failureOf(t *testing.T, helper func(testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		helper(f)
	}()
	<-done
	return f.reason
}

func TestCopiesOfABucketAreAsItWas(t *testing.T) {
	g := NewWithT(t)
	s := natstest.StartTCP(t)
	nc := s.Connect(t)
	kv := s.Bucket(t, nc, time.Minute)
	put := func(value string) {
		t.Helper()
		_, err := kv.PutString(t.Context(), "key", value)
		g.Expect(err).NotTo(HaveOccurred())
	}
	stored := func() (string, error) {
		e, err := kv.Get(t.Context(), "key")
		if err != nil {
			return "", err
		}
		return fmt.Sprint(string(e.Value()), " ", e.Revision()), nil
	}
	put("first")
	snapshot := natstest.TakeSnapshot(t, nc, natstest.BucketName)
	put("second")
	s.Stop()
	putBack := s.BackUp(t)
	s.Resume(t)
	g.Eventually(stored).WithTimeout(10 * time.Second).Should(Equal("second 2"))
	put("third")
	s.Stop()
	putBack()
	s.Resume(t)
	g.Eventually(stored).WithTimeout(10 * time.Second).Should(Equal("second 2"))
	snapshot.Restore(t, nc)
	g.Expect(stored()).To(Equal("first 1"))
}
