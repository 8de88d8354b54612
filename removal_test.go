package election_test

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
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// cutOffLeader returns a leader that was cut off right after a renewal, and considers itself leader for a whole lease.
func (f *fleet) cutOffLeader(candidate newCandidate) *candidate {
	f.Helper()
	a := candidate("a").start()
	after(interval) // the renewal at the end of the stand-down
	f.Expect(a.IsLeader()).To(BeTrue())
	a.link.Cut()
	return a
}

func TestDeletionIsRememberedAfterAFailedAttempt(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b", election.WithStandDown(ttl/10), election.WithBackoff(election.ConstantBackoff(100*time.Millisecond)))
		b.start()
		after(3*interval + time.Second)
		bucket.failOnce()
		a.link.Cut()
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		for !b.IsLeader() {
			after(10 * time.Millisecond)
		}
		f.Expect(a.IsLeader()).To(BeFalse())
	})
}

func TestDeletionAfterAMissedWinIsADeletion(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		b := f.connected("b", election.WithStandDown(time.Second))
		f.Write("old")
		b.start()
		after(ttl - time.Second)
		var lose atomic.Bool
		lose.Store(true)
		b.link.LoseRequests(func(m faultproxy.Message) bool { return lose.Load() && toKey(m) })
		after(2 * time.Second) // the key expires, b is notified, and its answer is lost
		b.link.LoseReplies(func(m faultproxy.Message) bool { return lose.Load() && strings.HasPrefix(m.Subject, "election.") })
		a := f.connected("a", election.WithStandDown(0)).start() // b is not notified of this win
		after(100 * time.Millisecond)
		f.Expect(a.IsLeader()).To(BeTrue())
		a.link.Cut()
		lose.Store(false)
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		for a.IsLeader() && !b.IsLeader() {
			after(10 * time.Millisecond)
		}
		f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
	}, republished)
}

func TestDeletedOrPurgedKeyIsNoRelease(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range map[string]func(jetstream.KeyValue) error{
		"deleted": func(kv jetstream.KeyValue) error { return kv.Delete(context.Background(), key) },
		"purged":  func(kv jetstream.KeyValue) error { return kv.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				f.Write("stranger")
				f.Expect(remove(f.Bucket)).To(Succeed())
				c := f.candidate("a").start()
				f.Expect(c.State()).To(Equal(election.LeaderElectState))
				after(interval - instant)
				f.Expect(c.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestDeletedKeyNeverMakesTwoLeaders(t *testing.T) {
	for _, at := range []time.Duration{0, time.Millisecond, interval / 2, interval - time.Millisecond} {
		t.Run(at.String(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.leading("a")
				b := f.candidate("b", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
				after(at)
				f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
				for !b.IsLeader() {
					after(time.Millisecond)
					f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
				}
			})
		})
	}
}

func TestNewCandidateOfARemovedKeyWaitsOneTTL(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range map[string]func(f *fleet) error{
		"deleted": func(f *fleet) error { return f.Bucket.Delete(context.Background(), key) },
		"purged":  func(f *fleet) error { return f.Bucket.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := f.cutOffLeader(candidate)
				f.Expect(remove(f)).To(Succeed())
				b := candidate("b", election.WithStandDown(0)).start()
				after(ttl - instant)
				f.Expect(b.State()).To(Equal(election.LeaderElectState))
				f.Expect(a.IsLeader()).To(BeFalse())
				after(instant)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestWinnerOfAKeyRemovedDuringItsCampaignWaitsOneTTL(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := f.cutOffLeader(candidate)
		b := candidate("b", election.WithStandDown(0))
		removal := sync.OnceFunc(func() { _ = f.Bucket.Delete(context.Background(), key) })
		b.link.OnRequest(func(m faultproxy.Message) {
			if toKey(m) {
				removal()
			}
		})
		b.link.DelayReplies(time.Millisecond) // so that the notification of the removal comes before the answer
		b.start()
		after(ttl - instant)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		f.Expect(a.IsLeader()).To(BeFalse())
		after(expirySpread + 10*time.Millisecond) // over which it answered the removal, by requests that take a millisecond each
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestDistantNewCandidateOfADeletedKeyWaits(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, rtt := range []time.Duration{20, 40, 60, 90, 200} {
		t.Run(fmt.Sprint(rtt), func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := f.cutOffLeader(candidate)
				f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
				b := candidate("b", election.WithStandDown(0))
				b.link.DelayReplies(rtt * time.Millisecond)
				b.start()
				for !b.IsLeader() {
					after(10 * time.Millisecond)
				}
				f.Expect(a.IsLeader()).To(BeFalse())
			})
		})
	}
}

func TestNewCandidateBesideOtherElectionsWaits(t *testing.T) {
	natstest.SkipIfShort(t)
	for n := range unlessShort(4, 2) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				l := f.Server.Link(f.T)
				bucket := f.Bare(natstest.Connect(f.T, l))
				for i := range n {
					f.election("c", fmt.Sprintf("other-%d", i), bucket)
				}
				after(ttl)
				a := f.cutOffLeader(f.candidate)
				f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
				b := f.candidateOn("b", l, bucket, election.WithStandDown(0)).start()
				after(ttl - margin - 20*time.Millisecond)
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Expect(b.IsLeader()).To(BeFalse())
				after(ttl)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestNewCandidateAfterAnExpiryWaitsForItsStandDownOnly(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.Write("stranger")
		after(ttl + time.Second) // the key has expired, and its marker is stored
		b := f.connected("b").start()
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
	}, republished)
}

func TestUnnotifiedCandidateForgetsAnOldDeletion(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.Write("x")
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		l := f.Server.Link(f.T)
		nc := natstest.Connect(f.T, l)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		bucket := &faulty{KeyValue: fleettest.Unwatchable{KeyValue: f.Bare(nc)}}
		b := f.candidateOn("b", l, bucket, election.WithJetStream(js), election.WithStandDown(time.Second))
		var lose atomic.Bool
		lose.Store(true)
		l.LoseRequests(func(m faultproxy.Message) bool { return lose.Load() && toKey(m) })
		b.start()
		after(time.Millisecond)
		a := f.candidate("a").start()
		after(ttl + time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
		lose.Store(false)
		f.Expect(b.Status().Notifications).To(Equal("none"))
		a.link.Cut()
		f.Expect(b.standsDown()).To(BeNumerically("<=", time.Second+20*time.Millisecond))
	})
}

func TestWinnerOfARemovedKeyWaitsOneTTL(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range map[string]func(jetstream.KeyValue) error{
		"deleted": func(kv jetstream.KeyValue) error { return kv.Delete(context.Background(), key) },
		"purged":  func(kv jetstream.KeyValue) error { return kv.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := candidate("a").start()
				after(interval)
				b := candidate("b").start()
				after(3*interval + time.Second)
				a.link.Cut() // it considers itself leader
				f.Expect(remove(f.Bucket)).To(Succeed())
				after(expirySpread)
				f.Expect(b.State()).To(Equal(election.LeaderElectState))
				after(ttl - expirySpread - instant)
				f.Expect(b.IsLeader()).To(BeFalse())
				after(expirySpread + instant)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

// vanishings are the ways in which a key can vanish without a marker, other than by an expiry.
var vanishings = map[string]func(f *fleet){
	"a roll-up by another key": func(f *fleet) {
		m := nats.NewMsg("$KV." + natstest.BucketName + ".locks.of-another-program")
		m.Header.Set("Nats-Rollup", "all")
		answer, err := f.Server.Connect(f.T).RequestMsg(m, time.Second)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(string(answer.Data)).NotTo(ContainSubstring("error"))
	},
	"a purge of the stream":  func(f *fleet) { f.purge() },
	"a purge of the subject": func(f *fleet) { f.purge(jetstream.WithPurgeSubject("$KV." + natstest.BucketName + "." + key)) },
	"another bucket":         func(f *fleet) { f.remake(ttl) },
}

// purge purges the stream behind the bucket.
func (f *fleet) purge(opts ...jetstream.StreamPurgeOpt) {
	f.Helper()
	js, err := jetstream.New(f.Server.Connect(f.T))
	f.Expect(err).NotTo(HaveOccurred())
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
			candidate func(f *fleet) newCandidate
			change    func(*jetstream.KeyValueConfig)
			opts      []election.Option
		}{
			"republished":              {func(f *fleet) newCandidate { return f.connected }, republished, nil},
			"watched":                  {func(f *fleet) newCandidate { return f.candidate }, natstest.WithMarkers, nil},
			"watched, without markers": {func(f *fleet) newCandidate { return f.connected }, withoutMarkers, nil},
			"polled":                   {func(f *fleet) newCandidate { return f.unnotified }, natstest.WithMarkers, []election.Option{often}},
		} {
			t.Run(how+"/"+source, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					f.configure(func(cfg *jetstream.StreamConfig) { cfg.AllowRollup = true })
					candidate := setting.candidate(f)
					a := candidate("a").start()
					after(2*interval - time.Second)
					b := candidate("b", append(setting.opts, election.WithStandDown(time.Second))...).start()
					after(time.Second + 200*time.Millisecond) // a has renewed, and the second campaign of a notified b is due in 6.3 s
					f.Expect(a.IsLeader()).To(BeTrue())
					a.link.Cut()
					vanish(f)
					f.expectOneLeader(ttl+interval, a, b)
					f.Expect(b.State()).NotTo(Equal(election.CandidateState))
					after(ttl)
					f.Expect(b.IsLeader()).To(BeTrue())
				}, setting.change)
			})
		}
	}
}

// shortLived are ways to store something over the leader's record that expires after a second.
var shortLived = map[string]func(f *fleet){
	"an answer of the server": func(f *fleet) {
		read := f.storeShortLived("locks.of-another-program", "")
		nc := f.Server.Connect(f.T)
		f.Expect(nc.PublishRequest("$JS.API.DIRECT.GET.KV_"+natstest.BucketName+"."+read, "$KV."+natstest.BucketName+"."+key, nil)).To(Succeed())
		f.Expect(nc.Flush()).To(Succeed())
	},
	"a bare name": func(f *fleet) { f.storeShortLived(key, "x") },
	"nothing":     func(f *fleet) { f.storeShortLived(key, "") },
}

// storeShortLived stores a value that expires after a second, and returns its subject.
func (f *fleet) storeShortLived(under, value string) (subject string) {
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
			candidate func(f *fleet) newCandidate
			change    func(*jetstream.KeyValueConfig)
		}{
			"republished": {func(f *fleet) newCandidate { return f.connected }, republished},
			"watched":     {func(f *fleet) newCandidate { return f.candidate }, natstest.WithMarkers},
			"polled":      {func(f *fleet) newCandidate { return f.unnotified }, natstest.WithMarkers},
		} {
			t.Run(how+"/"+source, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					candidate := setting.candidate(f)
					a := candidate("a").start()
					after(2*interval - time.Second)
					b := candidate("b", often, election.WithStandDown(time.Second)).start()
					after(time.Second + 200*time.Millisecond) // a has renewed
					f.Expect(a.IsLeader()).To(BeTrue())
					before := f.Stream().LastSeq
					a.link.Cut()
					store(f)
					after(instant)
					f.Expect(f.Stream().LastSeq).To(BeNumerically(">", before))
					f.expectOneLeader(ttl+interval, a, b)
					after(ttl)
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
		candidate func(f *fleet) newCandidate
		change    func(*jetstream.KeyValueConfig)
	}{
		"polled":  {func(f *fleet) newCandidate { return f.unnotified }, withoutMarkers},
		"watched": {func(f *fleet) newCandidate { return f.candidate }, withoutMarkers},
		"republished": {func(f *fleet) newCandidate { return f.connected }, func(cfg *jetstream.KeyValueConfig) {
			republished(cfg)
			cfg.LimitMarkerTTL = time.Second
		}},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				candidate := setting.candidate(f)
				a := candidate("a").start()
				after(interval)
				b := candidate("b", election.WithStandDown(time.Second)).start()
				after(3*interval + time.Second)
				a.link.Cut()
				if name == "republished" { // so that the marker is gone before b learns of the expiry
					b.link.Cut()
					after(ttl + 2*time.Second)
					b.link.Heal()
				}
				f.Expect(b.standsDown()).To(BeNumerically("<=", time.Second+20*time.Millisecond))
			}, setting.change)
		})
	}
}
