package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

func TestLeaderStandsDownBeforeItsLeaseEndsWhenCutOff(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		term, _ := a.Term()
		after(time.Second)
		a.link.Cut()
		f.Expect(term.Deadline()).To(BeTemporally("==", time.Now().Add(lease-time.Second)))
		after(lease - time.Second - instant)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(term.Valid()).To(BeTrue())
		after(instant)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(term.Valid()).To(BeFalse())
		f.Expect(a.State()).To(Equal(election.CandidateState))
		f.Expect(a.seen()).To(Equal([]string{"won 7.5s", "lost 17.3s"}), "no later than the deadline")
		f.Expect(f.record()).NotTo(BeEmpty(), "the key outlives the lease")
	})
}

func TestLeaseCountsFromTheSendingOfTheRenewalNotFromItsReply(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		const delay = 50 * time.Millisecond
		a.link.DelayReplies(delay)
		after(interval + delay)
		term, _ := a.Term()
		f.Expect(term.Deadline()).To(BeTemporally("==", time.Now().Add(lease-delay)))
	})
}

func TestStoreCallThatNeverReturnsCannotKeepLeadershipUp(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c, bucket := f.faultyCandidate("a")
		ended := false
		hang, letGo := f.hanging()
		go func() {
			c.result <- c.Run(context.Background(), func(ctx context.Context, _ election.Term) error {
				<-ctx.Done()
				ended = true
				return nil
			})
		}()
		f.Cleanup(c.Stop)
		after(interval)
		f.Expect(c.IsLeader()).To(BeTrue())
		bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
			hang() // whatever the context says
			return 0, context.Canceled
		})
		after(lease - instant)
		f.Expect(c.IsLeader()).To(BeTrue(), "also while a renewal hangs")
		after(instant)
		f.Expect(c.IsLeader()).To(BeFalse())
		f.Expect(ended).To(BeTrue(), "the work's context ended")
		f.Expect(c.seen()).To(Equal([]string{"won 7.5s", "lost 17.3s"}))
		letGo()
		c.Stop()
	})
}

func TestAcknowledgementAfterTheDeadlineCountsForNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c, bucket := f.faultyCandidate("a")
		c.start()
		after(interval)
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			rev, err := update()
			time.Sleep(lease) // a pause, of the process or of the network
			return rev, err
		})
		after(interval + lease)
		f.Expect(c.IsLeader()).To(BeFalse())
		f.Expect(c.seen()).To(Equal([]string{"won 7.5s", "lost 17.3s"}))
	})
}

func TestRepliesDelayedPastTheDeadlineLeaveNoTwoLeaders(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b").start()
		a.link.StallReplies()
		for range 60_000 {
			after(time.Millisecond)
			f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
		}
		f.Expect(b.IsLeader()).To(BeTrue())
		a.link.Heal()
		for range 30_000 {
			after(time.Millisecond)
			f.Expect(a.IsLeader()).To(BeFalse())
		}
	})
}

func TestWinnerAfterACrashWaitsOutTheStandDown(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b").start()
		a.link.Cut()
		for b.State() != election.LeaderElectState {
			after(time.Millisecond)
		}
		f.Expect(time.Since(b.begun)).To(BeNumerically(">=", ttl))
		after(interval - 2*time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
		after(2 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(time.Since(b.begun)).To(BeNumerically("<=", ttl+400*time.Millisecond+interval+interval), "P8, by polling")
	})
}

func TestStandDownOfAnyLengthIsWaitedOut(t *testing.T) {
	for _, d := range []time.Duration{0, time.Millisecond, time.Second, interval - time.Millisecond, interval + time.Second, 2 * ttl} {
		t.Run(d.String(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				c := f.candidate("a", election.WithStandDown(d))
				c.start()
				if d > 0 {
					after(d - instant)
					f.Expect(c.State()).To(Equal(election.LeaderElectState))
					after(instant)
				}
				f.Expect(c.State()).To(Equal(election.LeaderState))
			})
		})
	}
}

func TestStandDownCountsFromTheAcknowledgementOfTheWin(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.candidate("a")
		const delay = 50 * time.Millisecond
		c.link.DelayReplies(delay)
		c.start()
		for c.State() != election.LeaderElectState {
			after(time.Millisecond)
		}
		// The win was acknowledged one delay ago, since when the bucket was looked at again. The renewal is sent after the
		// stand-down, and acknowledged.
		after(interval - 2*time.Millisecond)
		f.Expect(c.IsLeader()).To(BeFalse())
		after(2 * time.Millisecond)
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}

func TestReleaseByALeaderIsTakenOverWithoutAStandDownAlsoByPolling(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.deafCandidate("b").start()
		after(time.Second)
		a.Stop()
		revision := f.revision()
		after(interval - time.Second - instant)
		f.Expect(b.State()).To(Equal(election.CandidateState))
		after(instant) // its campaign is due
		f.Expect(b.IsLeader()).To(BeTrue())
		term, _ := b.Term()
		f.Expect(term.Number).To(Equal(revision+1), "by an update of that very record")
	})
}

func TestServiceThatRestartsAloneLeadsAgainAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a").Stop()
		b := f.candidate("a").start()
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestReleaseByALeaderElectPassesOnWhatIsLeftOfItsStandDown(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a").start()
		after(2 * time.Second)
		a.Stop()
		b := f.candidate("b").start()
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		after(interval - 2*time.Second - instant)
		f.Expect(b.IsLeader()).To(BeFalse())
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestRecordThatIsNoProperReleaseMustExpire(t *testing.T) {
	for name, value := range map[string]string{
		"a bare name":               `released`,
		"no JSON":                   `{"released":`,
		"another JSON":              `{"released":"2000-01-01T00:00:00Z"}`,
		"a negative stand-down":     `{"name":"x","instance":"x","attempt":"x","released":"2000-01-01T00:00:00Z","stand_down_ms":-1}`,
		"an endless stand-down":     `{"name":"x","instance":"x","attempt":"x","released":"2000-01-01T00:00:00Z","stand_down_ms":9223372036854775807}`,
		"a release of a wrong type": `{"name":"x","instance":"x","attempt":"x","released":true}`,
		"nothing":                   ``,
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				f.write(value)
				c := f.candidate("a").start()
				after(ttl - instant)
				f.Expect(c.State()).To(Equal(election.CandidateState))
				after(500 * time.Millisecond)
				f.Expect(c.State()).To(Equal(election.LeaderElectState))
			})
		})
	}
}

func TestDeletedOrPurgedKeyIsNoRelease(t *testing.T) {
	for name, remove := range map[string]func(jetstream.KeyValue) error{
		"deleted": func(kv jetstream.KeyValue) error { return kv.Delete(context.Background(), key) },
		"purged":  func(kv jetstream.KeyValue) error { return kv.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				f.write("somebody")
				f.Expect(remove(f.bucket)).To(Succeed())
				c := f.candidate("a").start()
				f.Expect(c.State()).To(Equal(election.LeaderElectState))
				after(interval - instant)
				f.Expect(c.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestNoTwoLeadersWhenTheKeyIsDeletedUnderAConnectedLeader(t *testing.T) {
	for _, at := range []time.Duration{0, time.Millisecond, interval / 2, interval - time.Millisecond} {
		t.Run(at.String(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.leading("a")
				b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
				after(at)
				f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
				for !b.IsLeader() {
					after(time.Millisecond)
					f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
				}
			})
		})
	}
}

func TestCandidatesThatMayOnlyWriteStillElectALeader(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		// As Choria grants it: publishing to the key and reading the state of the stream, no more.
		reads := func(m link.Message) bool { return !toKey(m) && m.Subject != "$JS.API.STREAM.INFO.KV_ELECTIONS" }
		a, b := f.candidate("a"), f.candidate("b")
		a.link.LoseRequests(reads)
		b.link.LoseRequests(reads)
		a.start()
		after(settle)
		b.start()
		after(interval + ttl/20) // that long it waits for an answer to its first read
		f.Expect(a.IsLeader()).To(BeTrue())
		a.link.Cut()
		after(ttl + 400*time.Millisecond + interval + interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, withoutMarkers)
}

func TestCandidateThatMayOnlyWriteDoesNotWaitATTLForTheMarkerOfAnExpiryToVanish(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.Start(t)
		js, err := jetstream.New(s.Connect(t))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		bucket, err := election.CreateBucket(context.Background(), js, election.BucketConfig{Name: natstest.BucketName, TTL: ttl, Storage: jetstream.MemoryStorage})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		f := &fleet{T: t, WithT: NewWithT(t), server: s, bucket: bucket}
		l := s.Link(t)
		own, err := jetstream.New(natstest.Connect(t, l))
		f.Expect(err).NotTo(HaveOccurred())
		bucket, err = own.KeyValue(context.Background(), natstest.BucketName)
		f.Expect(err).NotTo(HaveOccurred())
		l.LoseRequests(func(m link.Message) bool { return !toKey(m) && m.Subject != "$JS.API.STREAM.INFO.KV_ELECTIONS" })
		f.write("gone")
		a := f.candidateOn("a", l, bucket, election.WithBackoff(election.ConstantBackoff(100*time.Millisecond))).start()
		after(ttl)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		after(ttl / 2) // a campaign that is refused takes 4 s, two requests for what it may not read
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
	})
}

func TestNoTryOutlastsTheLeaseOrBeginsInItsLastMoments(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c, bucket := f.faultyCandidate("a")
		c.start()
		after(interval)
		term, _ := c.Term()
		tries := 0
		bucket.onUpdate(func(ctx context.Context, _ []byte, _ uint64, _ func() (uint64, error)) (uint64, error) {
			tries++
			ends, bounded := ctx.Deadline()
			f.Expect(bounded).To(BeTrue())
			f.Expect(ends).To(BeTemporally("<", term.Deadline()))
			f.Expect(time.Until(term.Deadline())).To(BeNumerically(">=", 25*time.Millisecond))
			return 0, context.DeadlineExceeded
		})
		after(lease)
		f.Expect(c.IsLeader()).To(BeFalse())
		f.Expect(tries).To(BeNumerically(">", 5))
	})
}

func TestStandDownThatIsPassedOnIsNeverLongerThanALease(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithStandDown(time.Hour)).start()
		after(time.Second)
		a.Stop()
		b := f.candidate("b").start()
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		after(ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}
