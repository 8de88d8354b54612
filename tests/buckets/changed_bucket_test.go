package buckets_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// dropBucket removes the bucket.
func dropBucket(f *Fleet) {
	f.Helper()
	js := f.JetStream()
	f.Expect(js.DeleteKeyValue(context.Background(), natstest.BucketName)).To(Succeed())
}

// makeBucket makes the bucket that was removed.
func makeBucket(f *Fleet) {
	f.Helper()
	f.Bucket = f.Server.Bucket(f.T, f.Server.Connect(f.T), TTL, f.Changes...)
}

// lostBy returns why the last term of a run that logs in debug ended.
func lostBy(l *Log, reason election.Reason) int {
	return l.Count(`msg="State changed" election=` + Key + ` name=a state=candidate reason=` + string(reason))
}

// The leader ends its term at once, and asks afterwards why it lost the key.
func TestTermThatIsLostInABucketThatWasMadeAgainSaysSoAfterwards(t *testing.T) {
	for name, then := range map[string]func(f *Fleet){
		"empty": func(*Fleet) {},
		"many writes came since": func(f *Fleet) {
			for range 20 {
				f.Write("stranger")
			}
		},
		"the key was removed after many writes": func(f *Fleet) {
			for range 20 {
				f.Write("stranger")
			}
			_ = f.Bucket.Delete(context.Background(), Key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				var log Log
				a := candidate("a", election.WithLogger(log.Logger())).Begin()
				After(3 * TTL)
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Remake(TTL)
				then(f)
				After(TTL)
				f.Expect(lostBy(&log, election.ReasonDeleted) + lostBy(&log, election.ReasonOverwritten)).To(Equal(1))
				f.Expect(log.Count(`msg="Key was lost because the bucket was made again"`)).To(Equal(1))
			})
		})
	}
}

// A revision below the leader's own ends leadership at once, before anybody could be asked why.
func TestTermInABucketThatWasMadeAgainAndHasFewWritesEndsAtOnce(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		var log Log
		a := candidate("a", election.WithLogger(log.Logger())).Begin()
		After(3 * TTL)
		f.Remake(TTL)
		f.Write("stranger")
		After(TTL)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(lostBy(&log, election.ReasonRewound)).To(Equal(1))
	})
}

func TestDeletedKeyIsNoReplacedBucket(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		var log Log
		candidate("a", election.WithLogger(log.Logger())).Begin()
		After(3 * TTL)
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
		After(TTL)
		f.Expect(lostBy(&log, election.ReasonDeleted)).To(Equal(1))
	})
}

func TestRenewalInABucketThatIsGoneSaysSoSoon(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		var log Log
		a := candidate("a", election.WithLogger(log.Logger()), election.WithCampaignInterval(TTL/3)).Begin()
		After(TTL)
		dropBucket(f)
		After(TTL/3 + 600*time.Millisecond)
		f.Expect(log.Count(`level=WARN msg="Renewal failed"`)).To(Equal(1))
		f.Expect(log.Count("reason=no-stream")).To(BeNumerically(">=", 1))
		f.Expect(log.Count("reason=timeout")).To(BeZero())
		f.Expect(a.IsLeader()).To(BeTrue(), "which is no proof of a loss")
		After(TTL)
		f.Expect(lostBy(&log, election.ReasonDeadline)).To(Equal(1))
		f.Expect(log.Count("Bucket is gone, waiting for it")).To(Equal(1))
	})
}

func TestCandidatesSayOnceThatTheirBucketIsGoneAndGoOnInTheNext(t *testing.T) {
	for name, make := range map[string]func(f *Fleet) NewCandidate{
		"republish":    func(f *Fleet) NewCandidate { return f.Connected },
		"watch":        func(f *Fleet) NewCandidate { return f.Candidate },
		"not notified": func(f *Fleet) NewCandidate { return f.Unnotified },
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				var log [2]Log
				a := make(f)("a", election.WithLogger(log[0].Logger())).Begin()
				After(Interval)
				b := make(f)("b", election.WithLogger(log[1].Logger())).Begin()
				After(4 * Interval)
				dropBucket(f)
				After(3 * TTL)
				for i, c := range []*Candidate{a, b} {
					f.Expect(log[i].Count(`level=WARN msg="Bucket is gone, waiting for it"`)).To(Equal(1), "candidate %d", i)
					f.Expect(c.Status().LastError).To(ContainSubstring("stream not found"))
				}
				for range 100 {
					After(TTL / 10)
					f.Expect(a.Status().LastError).NotTo(BeEmpty())
				}
				makeBucket(f)
				After(3 * TTL)
				f.Expect(a.IsLeader()).NotTo(Equal(b.IsLeader()), "exactly one leads")
				for i, c := range []*Candidate{a, b} {
					f.Expect(log[i].Count(`level=WARN msg="Bucket is gone`)).To(Equal(1))
					f.Expect(log[i].Count(`level=INFO msg="Bucket can be used again"`)).To(Equal(1))
					f.Expect(c.Status().LastError).To(BeEmpty())
				}
				if name == "not notified" {
					return
				}
				leader, follower := a, b
				if b.IsLeader() {
					leader, follower = b, a
				}
				After(TTL)
				leader.End()
				After(Spread)
				f.Expect(follower.IsLeader()).To(BeTrue(), "it is notified in the new bucket")
			}, Republished)
		})
	}
}

func TestCandidatesOfABucketWithoutATTLSayWhyNobodyLeadsUntilItHasOne(t *testing.T) {
	for name, c := range map[string]struct {
		ttl  time.Duration
		says string
	}{"none": {0, "has no TTL"}, "too short": {500 * time.Millisecond, "has a TTL of 500ms"}, "too long": {2 * time.Hour, "has a TTL of 2h0m0s"}} {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				var log Log
				a := candidate("a").Begin()
				After(Interval)
				b := candidate("b", election.WithLogger(log.Logger())).Begin()
				After(3 * Interval)
				f.Configure(func(cfg *jetstream.StreamConfig) {
					cfg.MaxAge = c.ttl
					cfg.Duplicates = min(cfg.Duplicates, max(c.ttl, 100*time.Millisecond))
				})
				a.Link.Cut()
				After(3 * TTL)
				f.Expect(log.Count(`level=WARN msg="Bucket is not fit for elections any more, waiting until it is"`)).To(Equal(1))
				f.Expect(b.Status().LastError).To(And(ContainSubstring(c.says), ContainSubstring("give the bucket a TTL")))
				for range 100 {
					After(TTL / 10)
					f.Expect(b.Status().LastError).To(ContainSubstring(c.says))
				}
				f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = TTL })
				After(4 * TTL)
				f.Expect(b.IsLeader()).To(BeTrue())
				f.Expect(b.Status().LastError).To(BeEmpty())
				f.Expect(log.Count(`level=WARN msg="Bucket is not fit`)).To(Equal(1))
				f.Expect(log.Count(`level=INFO msg="Bucket can be used again"`)).To(Equal(1))
			})
		})
	}
}

func TestFollowerAdaptsToALongerTTL(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a, b := f.LeaderAndFollower(candidate)
		After(time.Second)
		f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 6 * TTL })
		a.Link.Cut()
		After(2 * TTL)
		f.Expect(b.Status().TTL).To(Equal(6 * TTL))
		f.Expect(b.Status().CampaignInterval).To(Equal(6 * Interval))
		After(4*TTL + time.Second + 6*Interval + 6*ExpirySpread)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestLeaderThatLearnsOfAnotherTTLRenewsByIt(t *testing.T) {
	for name, to := range map[string]time.Duration{"shorter": TTL / 2, "longer": 4 * TTL} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(3 * Interval)
				f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = to; cfg.Duplicates = min(cfg.Duplicates, to) })
				refresh(f)
				f.Expect(a.Status().LeaseRemaining).To(BeNumerically("<=", min(to, TTL)))
				After(to)
				f.Expect(a.Status().TTL).To(Equal(to))
				f.Expect(a.Status().LeaseRemaining).To(BeNumerically(">", to/8))
				After(10 * to)
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Expect(a.Seen()).To(HaveLen(1))
			}, Republished)
		})
	}
}

func TestLeaderWhoseKeyExpiredEarlyLearnsOfTheShorterTTL(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a").Begin()
		After(3*Interval + time.Second)
		f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = TTL / 5; cfg.Duplicates = min(cfg.Duplicates, TTL/5) })
		After(3 * TTL)
		f.Expect(a.Status().TTL).To(Equal(TTL / 5))
		before := len(a.Seen())
		After(5 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Seen()).To(HaveLen(before), "it renews in time")
	})
}

// refresh has all candidates load the bucket's info, as an operator does who pauses an election.
func refresh(f *Fleet) {
	f.Helper()
	bucket := kv.With(f.Open(f.Server.Connect(f.T)), nil)
	f.Expect(control.Client{Bucket: bucket}.Refresh(context.Background(), Key)).To(Succeed())
	After(time.Second)
}
