package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/natstest"
)

// dropBucket removes the bucket.
func (f *fleet) dropBucket() {
	f.Helper()
	js, err := jetstream.New(f.Server.Connect(f.T))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(js.DeleteKeyValue(context.Background(), natstest.BucketName)).To(Succeed())
}

// makeBucket makes the bucket that was removed.
func (f *fleet) makeBucket() {
	f.Helper()
	f.Bucket = f.Server.Bucket(f.T, f.Server.Connect(f.T), ttl, f.Changes...)
}

// lostBy returns why the last term of a run that logs in debug ended.
func (l *logged) lostBy(reason election.Reason) int {
	return l.count(`msg="State changed" election=` + key + ` name=a state=candidate reason=` + string(reason))
}

// The leader ends its term at once, and asks afterwards why it lost the key.
func TestTermThatIsLostInABucketThatWasMadeAgainSaysSoAfterwards(t *testing.T) {
	for name, then := range map[string]func(f *fleet){
		"empty": func(*fleet) {},
		"many writes came since": func(f *fleet) {
			for range 20 {
				f.Write("stranger")
			}
		},
		"the key was removed after many writes": func(f *fleet) {
			for range 20 {
				f.Write("stranger")
			}
			_ = f.Bucket.Delete(context.Background(), key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				var log logged
				a := candidate("a", election.WithLogger(log.logger())).start()
				after(3 * ttl)
				f.Expect(a.IsLeader()).To(BeTrue())
				f.remake(ttl)
				then(f)
				after(ttl)
				f.Expect(log.lostBy(election.ReasonDeleted) + log.lostBy(election.ReasonOverwritten)).To(Equal(1))
				f.Expect(log.count(`msg="Key was lost because the bucket was made again"`)).To(Equal(1))
			})
		})
	}
}

// A revision below the leader's own ends leadership at once, before anybody could be asked why.
func TestTermInABucketThatWasMadeAgainAndHasFewWritesEndsAtOnce(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		var log logged
		a := candidate("a", election.WithLogger(log.logger())).start()
		after(3 * ttl)
		f.remake(ttl)
		f.Write("stranger")
		after(ttl)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(log.lostBy(election.ReasonRewound)).To(Equal(1))
	})
}

func TestDeletedKeyIsNoReplacedBucket(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		var log logged
		candidate("a", election.WithLogger(log.logger())).start()
		after(3 * ttl)
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		after(ttl)
		f.Expect(log.lostBy(election.ReasonDeleted)).To(Equal(1))
	})
}

func TestRenewalInABucketThatIsGoneSaysSoSoon(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		var log logged
		a := candidate("a", election.WithLogger(log.logger()), election.WithCampaignInterval(ttl/3)).start()
		after(ttl)
		f.dropBucket()
		after(ttl/3 + 600*time.Millisecond)
		f.Expect(log.count(`level=WARN msg="Renewal failed"`)).To(Equal(1))
		f.Expect(log.count("reason=no-stream")).To(BeNumerically(">=", 1))
		f.Expect(log.count("reason=timeout")).To(BeZero())
		f.Expect(a.IsLeader()).To(BeTrue(), "which is no proof of a loss")
		after(ttl)
		f.Expect(log.lostBy(election.ReasonDeadline)).To(Equal(1))
		f.Expect(log.count("Bucket is gone, waiting for it")).To(Equal(1))
	})
}

func TestCandidatesSayOnceThatTheirBucketIsGoneAndGoOnInTheNext(t *testing.T) {
	for name, make := range map[string]func(f *fleet) newCandidate{
		"republish":    func(f *fleet) newCandidate { return f.connected },
		"watch":        func(f *fleet) newCandidate { return f.candidate },
		"not notified": func(f *fleet) newCandidate { return f.unnotified },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				var log [2]logged
				a := make(f)("a", election.WithLogger(log[0].logger())).start()
				after(interval)
				b := make(f)("b", election.WithLogger(log[1].logger())).start()
				after(4 * interval)
				f.dropBucket()
				after(3 * ttl)
				for i, c := range []*candidate{a, b} {
					f.Expect(log[i].count(`level=WARN msg="Bucket is gone, waiting for it"`)).To(Equal(1), "candidate %d", i)
					f.Expect(c.Status().LastError).To(ContainSubstring("stream not found"))
				}
				for range 100 {
					after(ttl / 10)
					f.Expect(a.Status().LastError).NotTo(BeEmpty())
				}
				f.makeBucket()
				after(3 * ttl)
				f.Expect(a.IsLeader()).NotTo(Equal(b.IsLeader()), "exactly one leads")
				for i, c := range []*candidate{a, b} {
					f.Expect(log[i].count(`level=WARN msg="Bucket is gone`)).To(Equal(1))
					f.Expect(log[i].count(`level=INFO msg="Bucket can be used again"`)).To(Equal(1))
					f.Expect(c.Status().LastError).To(BeEmpty())
				}
				if name == "not notified" {
					return
				}
				leader, follower := a, b
				if b.IsLeader() {
					leader, follower = b, a
				}
				after(ttl)
				leader.shutdown()
				after(spread)
				f.Expect(follower.IsLeader()).To(BeTrue(), "it is notified in the new bucket")
			}, republished)
		})
	}
}

func TestCandidatesOfABucketWithoutATTLSayWhyNobodyLeadsUntilItHasOne(t *testing.T) {
	for name, c := range map[string]struct {
		ttl  time.Duration
		says string
	}{"none": {0, "has no TTL"}, "too short": {500 * time.Millisecond, "has a TTL of 500ms"}, "too long": {2 * time.Hour, "has a TTL of 2h0m0s"}} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				var log logged
				a := candidate("a").start()
				after(interval)
				b := candidate("b", election.WithLogger(log.logger())).start()
				after(3 * interval)
				f.configure(func(cfg *jetstream.StreamConfig) {
					cfg.MaxAge = c.ttl
					cfg.Duplicates = min(cfg.Duplicates, max(c.ttl, 100*time.Millisecond))
				})
				a.link.Cut()
				after(3 * ttl)
				f.Expect(log.count(`level=WARN msg="Bucket is not fit for elections any more, waiting until it is"`)).To(Equal(1))
				f.Expect(b.Status().LastError).To(And(ContainSubstring(c.says), ContainSubstring("give the bucket a TTL")))
				for range 100 {
					after(ttl / 10)
					f.Expect(b.Status().LastError).To(ContainSubstring(c.says))
				}
				f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = ttl })
				after(4 * ttl)
				f.Expect(b.IsLeader()).To(BeTrue())
				f.Expect(b.Status().LastError).To(BeEmpty())
				f.Expect(log.count(`level=WARN msg="Bucket is not fit`)).To(Equal(1))
				f.Expect(log.count(`level=INFO msg="Bucket can be used again"`)).To(Equal(1))
			})
		})
	}
}

func TestFollowerAdaptsToALongerTTL(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3*interval + time.Second)
		f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 6 * ttl })
		a.link.Cut()
		after(2 * ttl)
		f.Expect(b.Status().TTL).To(Equal(6 * ttl))
		f.Expect(b.Status().CampaignInterval).To(Equal(6 * interval))
		after(4*ttl + time.Second + 6*interval + 6*expirySpread)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestLeaderThatLearnsOfAnotherTTLRenewsByIt(t *testing.T) {
	for name, to := range map[string]time.Duration{"shorter": ttl / 2, "longer": 4 * ttl} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(3 * interval)
				f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = to; cfg.Duplicates = min(cfg.Duplicates, to) })
				f.refresh()
				f.Expect(a.Status().LeaseRemaining).To(BeNumerically("<=", min(to, ttl)))
				after(to)
				f.Expect(a.Status().TTL).To(Equal(to))
				f.Expect(a.Status().LeaseRemaining).To(BeNumerically(">", to/8))
				after(10 * to)
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Expect(a.seen()).To(HaveLen(1))
			}, republished)
		})
	}
}

func TestLeaderWhoseKeyExpiredEarlyLearnsOfTheShorterTTL(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(3*interval + time.Second)
		f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = ttl / 5; cfg.Duplicates = min(cfg.Duplicates, ttl/5) })
		after(3 * ttl)
		f.Expect(a.Status().TTL).To(Equal(ttl / 5))
		before := len(a.seen())
		after(5 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(before), "it renews in time")
	})
}

// refresh has all candidates load the bucket's info, as an operator does who pauses an election.
func (f *fleet) refresh() {
	f.Helper()
	bucket := kv.With(f.Open(f.Server.Connect(f.T)), nil)
	f.Expect(control.Client{Bucket: bucket}.Refresh(context.Background(), key)).To(Succeed())
	after(time.Second)
}
