package standdown_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// cutOffLeader returns a leader that was cut off right after a renewal, and considers itself leader for a whole lease.
func cutOffLeader(f *Fleet, candidate NewCandidate) *Candidate {
	f.Helper()
	a := candidate("a").Begin()
	After(Interval) // the renewal at the end of the stand-down
	f.Expect(a.IsLeader()).To(BeTrue())
	a.Link.Cut()
	return a
}

func TestDeletionIsRememberedAfterAFailedAttempt(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b, bucket := f.FaultyCandidate("b", election.WithStandDown(TTL/10), election.WithBackoff(election.ConstantBackoff(100*time.Millisecond)))
		b.Begin()
		After(3*Interval + time.Second)
		bucket.FailOnce()
		a.Link.Cut()
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
		for !b.IsLeader() {
			After(10 * time.Millisecond)
		}
		f.Expect(a.IsLeader()).To(BeFalse())
	})
}

func TestDeletionAfterAMissedWinIsADeletion(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		b := f.Connected("b", election.WithStandDown(time.Second))
		f.Write("old")
		b.Begin()
		After(TTL - time.Second)
		var lose atomic.Bool
		lose.Store(true)
		b.Link.LoseRequests(func(m faultproxy.Message) bool { return lose.Load() && ToKey(m) })
		After(2 * time.Second) // the key expires, b is notified, and its answer is lost
		b.Link.LoseReplies(func(m faultproxy.Message) bool { return lose.Load() && strings.HasPrefix(m.Subject, "election.") })
		a := f.Connected("a", election.WithStandDown(0)).Begin() // b is not notified of this win
		After(100 * time.Millisecond)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.Link.Cut()
		lose.Store(false)
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
		for a.IsLeader() && !b.IsLeader() {
			After(10 * time.Millisecond)
		}
		f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
	}, Republished)
}

func TestDeletedOrPurgedKeyIsNoRelease(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range Removals {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Write("stranger")
				f.Expect(remove(f)).To(Succeed())
				c := f.Candidate("a").Begin()
				f.Expect(c.State()).To(Equal(election.LeaderElectState))
				After(Interval - Instant)
				f.Expect(c.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestDeletedKeyNeverMakesTwoLeaders(t *testing.T) {
	for _, at := range []time.Duration{0, time.Millisecond, Interval / 2, Interval - time.Millisecond} {
		t.Run(at.String(), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Leading("a")
				b := f.Candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).Begin()
				After(at)
				f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
				for !b.IsLeader() {
					After(time.Millisecond)
					f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
				}
			})
		})
	}
}

func TestNewCandidateOfARemovedKeyWaitsOneTTL(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range Removals {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				a := cutOffLeader(f, candidate)
				f.Expect(remove(f)).To(Succeed())
				b := candidate("b", election.WithStandDown(0)).Begin()
				After(TTL - Instant)
				f.Expect(b.State()).To(Equal(election.LeaderElectState))
				f.Expect(a.IsLeader()).To(BeFalse())
				After(Instant)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestWinnerOfAKeyRemovedDuringItsCampaignWaitsOneTTL(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := cutOffLeader(f, candidate)
		b := candidate("b", election.WithStandDown(0))
		removal := sync.OnceFunc(func() { _ = f.Bucket.Delete(context.Background(), Key) })
		b.Link.OnRequest(func(m faultproxy.Message) {
			if ToKey(m) {
				removal()
			}
		})
		b.Link.DelayReplies(time.Millisecond) // so that the notification of the removal comes before the answer
		b.Begin()
		After(TTL - Instant)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		f.Expect(a.IsLeader()).To(BeFalse())
		After(ExpirySpread + 10*time.Millisecond) // over which it answered the removal, by requests that take a millisecond each
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestDistantNewCandidateOfADeletedKeyWaits(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, rtt := range []time.Duration{20, 40, 60, 90, 200} {
		t.Run(fmt.Sprint(rtt), func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				a := cutOffLeader(f, candidate)
				f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
				b := candidate("b", election.WithStandDown(0))
				b.Link.DelayReplies(rtt * time.Millisecond)
				b.Begin()
				for !b.IsLeader() {
					After(10 * time.Millisecond)
				}
				f.Expect(a.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestNewCandidateBesideOtherElectionsWaits(t *testing.T) {
	natstest.SkipIfShort(t)
	for n := range UnlessShort(4, 2) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				l := f.Server.Link(f.T)
				bucket := f.Bare(natstest.Connect(f.T, l))
				for i := range n {
					f.Election("c", fmt.Sprintf("other-%d", i), bucket)
				}
				After(TTL)
				a := cutOffLeader(f, f.Candidate)
				f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
				b := f.CandidateOn("b", l, bucket, election.WithStandDown(0)).Begin()
				After(TTL - Margin - 20*time.Millisecond)
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Expect(b.IsLeader()).To(BeFalse())
				After(TTL)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestNewCandidateAfterAnExpiryWaitsForItsStandDownOnly(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Write("stranger")
		After(TTL + time.Second) // the key has expired, and its marker is stored
		b := f.Connected("b").Begin()
		After(Interval)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, Republished)
}

func TestUnnotifiedCandidateForgetsAnOldDeletion(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Write("x")
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
		l := f.Server.Link(f.T)
		nc := natstest.Connect(f.T, l)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		bucket := &Faulty{KeyValue: Unwatchable{KeyValue: f.Bare(nc)}}
		b := f.CandidateOn("b", l, bucket, election.WithJetStream(js), election.WithStandDown(time.Second))
		var lose atomic.Bool
		lose.Store(true)
		l.LoseRequests(func(m faultproxy.Message) bool { return lose.Load() && ToKey(m) })
		b.Begin()
		After(time.Millisecond)
		a := f.Candidate("a").Begin()
		After(TTL + time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
		lose.Store(false)
		f.Expect(b.Status().Notifications).To(Equal("none"))
		a.Link.Cut()
		f.Expect(b.StandsDown()).To(BeNumerically("<=", time.Second+20*time.Millisecond))
	})
}

func TestWinnerOfARemovedKeyWaitsOneTTL(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range Removals {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				a, b := f.LeaderAndFollower(candidate)
				After(time.Second)
				a.Link.Cut() // it considers itself leader
				f.Expect(remove(f)).To(Succeed())
				After(ExpirySpread)
				f.Expect(b.State()).To(Equal(election.LeaderElectState))
				After(TTL - ExpirySpread - Instant)
				f.Expect(b.IsLeader()).To(BeFalse())
				After(ExpirySpread + Instant)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

// vanishings are the ways in which a key can vanish without a marker, other than by an expiry.
var vanishings = map[string]func(f *Fleet){
	"a roll-up by another key": func(f *Fleet) {
		m := nats.NewMsg("$KV." + natstest.BucketName + ".locks.of-another-program")
		m.Header.Set("Nats-Rollup", "all")
		answer, err := f.Server.Connect(f.T).RequestMsg(m, time.Second)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(string(answer.Data)).NotTo(ContainSubstring("error"))
	},
	"a purge of the stream":  func(f *Fleet) { purge(f) },
	"a purge of the subject": func(f *Fleet) { purge(f, jetstream.WithPurgeSubject("$KV."+natstest.BucketName+"."+Key)) },
	"another bucket":         func(f *Fleet) { f.Remake(TTL) },
}

// purge purges the stream behind the bucket.
func purge(f *Fleet, opts ...jetstream.StreamPurgeOpt) {
	f.Helper()
	js := f.JetStream()
	stream, err := js.Stream(context.Background(), "KV_"+natstest.BucketName)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(stream.Purge(context.Background(), opts...)).To(Succeed())
}

// The candidate has seen the leader's last renewal, and finds nothing under the key by one of its campaigns before that can have expired.
func TestKeyThatVanishesBeforeItCanHaveExpiredWasRemoved(t *testing.T) {
	natstest.SkipIfShort(t)
	often := election.WithBackoff(election.ConstantBackoff(100 * time.Millisecond))
	for how, vanish := range vanishings {
		for source, setting := range map[string]struct {
			candidate func(f *Fleet) NewCandidate
			change    func(*jetstream.KeyValueConfig)
			opts      []election.Option
		}{
			"republished":              {func(f *Fleet) NewCandidate { return f.Connected }, Republished, nil},
			"watched":                  {func(f *Fleet) NewCandidate { return f.Candidate }, natstest.WithMarkers, nil},
			"watched, without markers": {func(f *Fleet) NewCandidate { return f.Connected }, WithoutMarkers, nil},
			"polled":                   {func(f *Fleet) NewCandidate { return f.Unnotified }, natstest.WithMarkers, []election.Option{often}},
		} {
			t.Run(how+"/"+source, func(t *testing.T) {
				Run(t, func(f *Fleet) {
					f.Configure(func(cfg *jetstream.StreamConfig) { cfg.AllowRollup = true })
					candidate := setting.candidate(f)
					a := candidate("a").Begin()
					After(2*Interval - time.Second)
					b := candidate("b", append(setting.opts, election.WithStandDown(time.Second))...).Begin()
					After(time.Second + 200*time.Millisecond) // a has renewed, and the second campaign of a notified b is due in 6.3 s
					f.Expect(a.IsLeader()).To(BeTrue())
					a.Link.Cut()
					vanish(f)
					f.ExpectOneLeader(TTL+Interval, a, b)
					f.Expect(b.State()).NotTo(Equal(election.CandidateState))
					After(TTL)
					f.Expect(b.IsLeader()).To(BeTrue())
				}, setting.change)
			})
		}
	}
}

// shortLived are ways to store something over the leader's record that expires after a second.
var shortLived = map[string]func(f *Fleet){
	"an answer of the server": func(f *Fleet) {
		read := storeShortLived(f, "locks.of-another-program", "")
		nc := f.Server.Connect(f.T)
		f.Expect(nc.PublishRequest("$JS.API.DIRECT.GET.KV_"+natstest.BucketName+"."+read, "$KV."+natstest.BucketName+"."+Key, nil)).To(Succeed())
		f.Expect(nc.Flush()).To(Succeed())
	},
	"a bare name": func(f *Fleet) { storeShortLived(f, Key, "x") },
	"nothing":     func(f *Fleet) { storeShortLived(f, Key, "") },
}

// storeShortLived stores a value that expires after a second, and returns its subject.
func storeShortLived(f *Fleet, under, value string) (subject string) {
	f.Helper()
	m := nats.NewMsg("$KV." + natstest.BucketName + "." + under)
	m.Data = []byte(value)
	m.Header.Set("Nats-TTL", "1s")
	answer, err := f.Server.Connect(f.T).RequestMsg(m, time.Second)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(string(answer.Data)).NotTo(ContainSubstring("error"))
	return m.Subject
}

// The server announces an expiry, which is none of the leader's record.
func TestWhatExpiresOverTheRecordOfALeaderThatIsCutOffElectsNobody(t *testing.T) {
	natstest.SkipIfShort(t)
	often := election.WithBackoff(election.ConstantBackoff(100 * time.Millisecond))
	for how, store := range shortLived {
		for source, setting := range map[string]struct {
			candidate func(f *Fleet) NewCandidate
			change    func(*jetstream.KeyValueConfig)
		}{
			"republished": {func(f *Fleet) NewCandidate { return f.Connected }, Republished},
			"watched":     {func(f *Fleet) NewCandidate { return f.Candidate }, natstest.WithMarkers},
			"polled":      {func(f *Fleet) NewCandidate { return f.Unnotified }, natstest.WithMarkers},
		} {
			t.Run(how+"/"+source, func(t *testing.T) {
				Run(t, func(f *Fleet) {
					candidate := setting.candidate(f)
					a := candidate("a").Begin()
					After(2*Interval - time.Second)
					b := candidate("b", often, election.WithStandDown(time.Second)).Begin()
					After(time.Second + 200*time.Millisecond) // a has renewed
					f.Expect(a.IsLeader()).To(BeTrue())
					before := f.Stream().LastSeq
					a.Link.Cut()
					store(f)
					After(Instant)
					f.Expect(f.Stream().LastSeq).To(BeNumerically(">", before))
					f.ExpectOneLeader(TTL+Interval, a, b)
					After(TTL)
					f.Expect(b.IsLeader()).To(BeTrue())
				}, setting.change)
			})
		}
	}
}

// A key that expired unseen is no removed key: a candidate that was cut off meanwhile owes no more than its stand-down.
func TestKeyThatExpiredUnseenWasNotRemoved(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, setting := range map[string]struct {
		candidate func(f *Fleet) NewCandidate
		change    func(*jetstream.KeyValueConfig)
	}{
		"polled":  {func(f *Fleet) NewCandidate { return f.Unnotified }, WithoutMarkers},
		"watched": {func(f *Fleet) NewCandidate { return f.Candidate }, WithoutMarkers},
		"republished": {func(f *Fleet) NewCandidate { return f.Connected }, func(cfg *jetstream.KeyValueConfig) {
			Republished(cfg)
			cfg.LimitMarkerTTL = time.Second
		}},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				candidate := setting.candidate(f)
				a := candidate("a").Begin()
				After(Interval)
				b := candidate("b", election.WithStandDown(time.Second)).Begin()
				After(3*Interval + time.Second)
				a.Link.Cut()
				if name == "republished" { // so that the marker is gone before b learns of the expiry
					b.Link.Cut()
					After(TTL + 2*time.Second)
					b.Link.Heal()
				}
				f.Expect(b.StandsDown()).To(BeNumerically("<=", time.Second+20*time.Millisecond))
			}, setting.change)
		})
	}
}
