package standdown_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// eager are options of a candidate that leads as soon as it may, and reads its own late writes soon.
var eager = []election.Option{election.WithStandDown(0), election.WithCampaignInterval(TTL / 5)}

// expectNoOverlap expects that two candidates never lead together, and that the second leads in the end.
func expectNoOverlap(f *Fleet, a, b *Candidate) {
	f.Helper()
	for range 3 * TTL / (5 * time.Millisecond) {
		After(5 * time.Millisecond)
		f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
	}
	f.Expect(b.IsLeader()).To(BeTrue())
}

func TestWinnerAfterACrashWaitsForTheStandDown(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b := f.Candidate("b").Begin()
		a.Link.Cut()
		for b.State() != election.LeaderElectState {
			After(time.Millisecond)
		}
		f.Expect(time.Since(b.Begun)).To(BeNumerically(">=", TTL))
		After(Interval - 2*time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
		After(2 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(time.Since(b.Begun)).To(BeNumerically("<=", TTL+400*time.Millisecond+Interval+Interval), "by polling")
	})
}

func TestWinnerWaitsForAStandDownOfAnyLength(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, d := range []time.Duration{0, time.Millisecond, time.Second, Interval - time.Millisecond, Interval + time.Second, 2 * TTL} {
		t.Run(d.String(), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				c := f.Candidate("a", election.WithStandDown(d))
				c.Begin()
				if d > 0 {
					After(d - Instant)
					f.Expect(c.State()).To(Equal(election.LeaderElectState))
					After(Instant)
				}
				f.Expect(c.State()).To(Equal(election.LeaderState))
			})
		})
	}
}

func TestStandDownCountsFromTheAcknowledgementOfTheWin(t *testing.T) {
	Run(t, func(f *Fleet) {
		c := f.Candidate("a")
		const delay = 50 * time.Millisecond
		c.Link.DelayReplies(delay)
		c.Begin()
		for c.State() != election.LeaderElectState {
			After(time.Millisecond)
		}
		// The win was acknowledged one delay ago: since then the candidate has loaded the bucket's info. It sends the renewal after the
		// stand-down.
		After(Interval - 2*time.Millisecond)
		f.Expect(c.IsLeader()).To(BeFalse())
		After(2 * time.Millisecond)
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}

func TestPollingCandidateTakesAReleaseWithoutAStandDown(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b := f.Unnotified("b").Begin()
		After(time.Second)
		a.End()
		revision := f.Revision()
		After(Interval - time.Second - Instant)
		f.Expect(b.State()).To(Equal(election.CandidateState))
		After(Instant) // its campaign is due
		f.Expect(b.IsLeader()).To(BeTrue())
		term, _ := b.Term()
		f.Expect(term.Number).To(Equal(revision+1), "by an update of the release")
	})
}

func TestRestartedServiceLeadsAtOnce(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Leading("a").End()
		b := f.Candidate("a").Begin()
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

// Another leader may have followed a release to which the history goes back, also where this candidate knows of later revisions only by a
// win that it could not keep.
func TestReleaseBeforeAnAbandonedWinProvesNothing(t *testing.T) {
	Run(t, func(f *Fleet) {
		f.Leading("b").End()
		release, err := f.Bucket.Get(context.Background(), Key)
		f.Expect(err).NotTo(HaveOccurred())
		a, bucket := f.FaultyCandidate("a")
		bucket.OnStatus(func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error) {
			if f.Revision() > release.Revision() {
				return nil, jetstream.ErrBucketNotFound // with any other error the key would be kept
			}
			return status()
		})
		bucket.OnGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			After(300 * time.Millisecond) // so that the win has the bucket's info loaded
			return get()
		})
		a.Begin()
		After(Interval)
		f.Expect(f.Record()).To(And(ContainSubstring(`"name":"a"`), ContainSubstring(`"released"`)), "a win was abandoned")

		bucket.OnGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return release, nil // as after a restart that lost the last writes
		})
		var won string
		bucket.OnUpdate(func(_ context.Context, value []byte, over uint64, _ func() (uint64, error)) (uint64, error) {
			f.Expect(over).To(Equal(release.Revision()))
			won = string(value)
			return 0, ErrConflict
		})
		bucket.OnStatus(func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error) {
			return status()
		})
		After(2 * TTL)
		f.Expect(won).To(ContainSubstring(fmt.Sprintf(`"stand_down_ms":%d`, TTL.Milliseconds())))
	})
}

func TestReleaseOfALeaderElectPassesOnItsStandDown(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a").Begin()
		After(2 * time.Second)
		a.End()
		b := f.Candidate("b").Begin()
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		After(Interval - 2*time.Second - Instant)
		f.Expect(b.IsLeader()).To(BeFalse())
		After(Instant)
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
			Run(t, func(f *Fleet) {
				f.Write(value)
				c := f.Candidate("a").Begin()
				After(TTL - Instant)
				f.Expect(c.State()).To(Equal(election.CandidateState))
				After(400*time.Millisecond + ExpirySpread)
				f.Expect(c.State()).To(Equal(election.LeaderElectState))
			})
		})
	}
}

func TestInheritedStandDownIsAtMostOneTTL(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a", election.WithStandDown(time.Hour)).Begin()
		After(time.Second)
		a.End()
		b := f.Candidate("b").Begin()
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		After(TTL)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestReclaimedWinKeepsTheStandDownOfADeletion(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, disturb := range map[string]func(*Candidate){
		"its reply was lost": func(b *Candidate) { b.Link.LoseReplies(faultproxy.Once(ToKeyReply)) },
		"its reply was lost, and the first read": func(b *Candidate) {
			b.Link.LoseReplies(faultproxy.Once(ToKeyReply))
			b.Link.LoseRequests(faultproxy.Once(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") }))
		},
		"its reply was lost, and that of the next write": func(b *Candidate) {
			first, second := faultproxy.Once(ToKeyReply), faultproxy.Once(ToKeyReply)
			b.Link.LoseReplies(func(m faultproxy.Message) bool { return first(m) || second(m) })
		},
		"the bucket's info was lost": func(b *Candidate) {
			b.Link.LoseRequests(faultproxy.Once(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") }))
		},
		"its release was lost": func(b *Candidate) {
			time.AfterFunc(time.Second, func() {
				b.Link.LoseRequests(ToKey)
				go func() { _ = b.Resign(context.Background()) }()
			})
			time.AfterFunc(4*time.Second, b.Link.Heal)
		},
		"its release was lost after a renewal": func(b *Candidate) {
			time.AfterFunc(2500*time.Millisecond, func() {
				b.Link.LoseRequests(ToKey)
				go func() { _ = b.Resign(context.Background()) }()
			})
			time.AfterFunc(5500*time.Millisecond, b.Link.Heal)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				a := candidate("a").Begin()
				b := candidate("b", eager...).Begin()
				After(3*Interval + Instant) // just after a renewal
				f.Expect(a.IsLeader()).To(BeTrue())
				a.Link.LoseRequests(nil)
				disturb(b)
				f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
				expectNoOverlap(f, a, b)
			})
		})
	}
}

func TestReclaimedWinKeepsAnInheritedStandDown(t *testing.T) {
	natstest.SkipIfShort(t)
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a").Begin()
		After(Interval)
		b := candidate("b").Begin()
		After(2*Interval + Instant) // just after a renewal
		a.Link.LoseRequests(nil)
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
		After(time.Second)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		c := candidate("c", eager...).Begin()
		After(time.Second)
		c.Link.LoseReplies(faultproxy.Once(ToKeyReply))
		b.End() // it passes on what is left of its stand-down
		expectNoOverlap(f, a, c)
	})
}

func TestStandDownCoversALongerIntervalOfThePredecessor(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Candidate("a", election.WithCampaignInterval(Interval)).Begin()
		After(Interval)
		b := f.Candidate("b", election.WithCampaignInterval(TTL/5)).Begin()
		After(3 * Interval)
		a.Link.Cut()
		for b.State() == election.CandidateState {
			After(time.Millisecond)
		}
		After(Interval - time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
		After(TTL / 5)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestStandDownCoversAnUnreadIntervalOfThePredecessor(t *testing.T) {
	natstest.SkipIfShort(t)
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a", election.WithCampaignInterval(Interval)).Begin()
		After(Interval)
		b := candidate("b", election.WithCampaignInterval(TTL/5)).Begin()
		After(3 * Interval)
		b.Link.LoseRequests(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") })
		a.Link.Cut()
		for b.State() == election.CandidateState {
			After(time.Millisecond)
		}
		After(Interval - time.Millisecond)
		f.Expect(b.IsLeader()).To(BeFalse())
		After(2 * TTL / 5)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}
