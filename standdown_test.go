package election_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
)

// eager are options of a candidate that leads as soon as it may, and reads its own late writes soon.
var eager = []election.Option{election.WithStandDown(0), election.WithCampaignInterval(ttl / 5)}

// expectNoOverlap expects that two candidates never lead together, and that the second leads in the end.
func (f *fleet) expectNoOverlap(a, b *candidate) {
	f.Helper()
	for range 3 * ttl / (5 * time.Millisecond) {
		after(5 * time.Millisecond)
		f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
	}
	f.Expect(b.IsLeader()).To(BeTrue())
}

func TestWinnerAfterACrashWaitsForTheStandDown(t *testing.T) {
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
		f.Expect(time.Since(b.begun)).To(BeNumerically("<=", ttl+400*time.Millisecond+interval+interval), "by polling")
	})
}

func TestWinnerWaitsForAStandDownOfAnyLength(t *testing.T) {
	natstest.SkipIfShort(t)
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
		// The win was acknowledged one delay ago: since then the candidate has loaded the bucket's info. It sends the renewal after the
		// stand-down.
		after(interval - 2*time.Millisecond)
		f.Expect(c.IsLeader()).To(BeFalse())
		after(2 * time.Millisecond)
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}

func TestPollingCandidateTakesAReleaseWithoutAStandDown(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.unnotified("b").start()
		after(time.Second)
		a.shutdown()
		revision := f.revision()
		after(interval - time.Second - instant)
		f.Expect(b.State()).To(Equal(election.CandidateState))
		after(instant) // its campaign is due
		f.Expect(b.IsLeader()).To(BeTrue())
		term, _ := b.Term()
		f.Expect(term.Number).To(Equal(revision+1), "by an update of the release")
	})
}

func TestRestartedServiceLeadsAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("a").shutdown()
		b := f.candidate("a").start()
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

// Another leader may have followed a release to which the history goes back, also where this candidate knows of later revisions only by a
// win that it could not keep.
func TestReleaseBeforeAnAbandonedWinProvesNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.leading("b").shutdown()
		release, err := f.Bucket.Get(context.Background(), key)
		f.Expect(err).NotTo(HaveOccurred())
		a, bucket := f.faultyCandidate("a")
		bucket.onStatus(func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error) {
			if f.revision() > release.Revision() {
				return nil, jetstream.ErrBucketNotFound // with any other error the key would be kept
			}
			return status()
		})
		bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			after(300 * time.Millisecond) // so that the win has the bucket's info loaded
			return get()
		})
		a.start()
		after(interval)
		f.Expect(f.record()).To(And(ContainSubstring(`"name":"a"`), ContainSubstring(`"released"`)), "a win was abandoned")

		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return release, nil // as after a restart that lost the last writes
		})
		var won string
		bucket.onUpdate(func(_ context.Context, value []byte, over uint64, _ func() (uint64, error)) (uint64, error) {
			f.Expect(over).To(Equal(release.Revision()))
			won = string(value)
			return 0, errConflict
		})
		bucket.onStatus(func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error) {
			return status()
		})
		after(2 * ttl)
		f.Expect(won).To(ContainSubstring(fmt.Sprintf(`"stand_down_ms":%d`, ttl.Milliseconds())))
	})
}

func TestReleaseOfALeaderElectPassesOnItsStandDown(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a").start()
		after(2 * time.Second)
		a.shutdown()
		b := f.candidate("b").start()
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		after(interval - 2*time.Second - instant)
		f.Expect(b.IsLeader()).To(BeFalse())
		after(instant)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestMalformedReleaseMustExpire(t *testing.T) {
	natstest.SkipIfShort(t)
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
				f.Write(value)
				c := f.candidate("a").start()
				after(ttl - instant)
				f.Expect(c.State()).To(Equal(election.CandidateState))
				after(400*time.Millisecond + expirySpread)
				f.Expect(c.State()).To(Equal(election.LeaderElectState))
			})
		})
	}
}

func TestInheritedStandDownIsAtMostOneTTL(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithStandDown(time.Hour)).start()
		after(time.Second)
		a.shutdown()
		b := f.candidate("b").start()
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		after(ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestReclaimedWinKeepsTheStandDownOfADeletion(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, disturb := range map[string]func(*candidate){
		"its reply was lost": func(b *candidate) { b.link.LoseReplies(once(toKeyReply)) },
		"its reply was lost, and the first read": func(b *candidate) {
			b.link.LoseReplies(once(toKeyReply))
			b.link.LoseRequests(once(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") }))
		},
		"its reply was lost, and that of the next write": func(b *candidate) {
			first, second := once(toKeyReply), once(toKeyReply)
			b.link.LoseReplies(func(m faultproxy.Message) bool { return first(m) || second(m) })
		},
		"the bucket's info was lost": func(b *candidate) {
			b.link.LoseRequests(once(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") }))
		},
		"its release was lost": func(b *candidate) {
			time.AfterFunc(time.Second, func() {
				b.link.LoseRequests(toKey)
				go func() { _ = b.Resign(context.Background()) }()
			})
			time.AfterFunc(4*time.Second, b.link.Heal)
		},
		"its release was lost after a renewal": func(b *candidate) {
			time.AfterFunc(2500*time.Millisecond, func() {
				b.link.LoseRequests(toKey)
				go func() { _ = b.Resign(context.Background()) }()
			})
			time.AfterFunc(5500*time.Millisecond, b.link.Heal)
		},
	} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := candidate("a").start()
				b := candidate("b", eager...).start()
				after(3*interval + instant) // just after a renewal
				f.Expect(a.IsLeader()).To(BeTrue())
				a.link.LoseRequests(nil)
				disturb(b)
				f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
				f.expectNoOverlap(a, b)
			})
		})
	}
}

func TestReclaimedWinKeepsAnInheritedStandDown(t *testing.T) {
	natstest.SkipIfShort(t)
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(2*interval + instant) // just after a renewal
		a.link.LoseRequests(nil)
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		after(time.Second)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		c := candidate("c", eager...).start()
		after(time.Second)
		c.link.LoseReplies(once(toKeyReply))
		b.shutdown() // it passes on what is left of its stand-down
		f.expectNoOverlap(a, c)
	})
}

func TestStandDownCoversALongerIntervalOfThePredecessor(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithCampaignInterval(interval)).start()
		after(interval)
		b := f.candidate("b", election.WithCampaignInterval(ttl/5)).start()
		after(3 * interval)
		a.link.Cut()
		for b.State() == election.CandidateState {
			after(time.Millisecond)
		}
		after(interval - time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
		after(ttl / 5)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestStandDownCoversAnUnreadIntervalOfThePredecessor(t *testing.T) {
	natstest.SkipIfShort(t)
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a", election.WithCampaignInterval(interval)).start()
		after(interval)
		b := candidate("b", election.WithCampaignInterval(ttl/5)).start()
		after(3 * interval)
		b.link.LoseRequests(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") })
		a.link.Cut()
		for b.State() == election.CandidateState {
			after(time.Millisecond)
		}
		after(interval - time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
		after(2 * ttl / 5)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}
