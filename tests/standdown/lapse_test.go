package standdown_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// lapse is how long after a renewal a follower that was notified of it takes the key over.
const lapse = Lease + Lease*1012/11_000

// pause is for how long the winner then lets the others read what it took over.
const pause = 54 * time.Millisecond

func TestLapsedLeaseIsTakenOverBeforeTheKeyExpires(t *testing.T) {
	for _, source := range []string{"watch", "republish"} {
		t.Run(source, func(t *testing.T) {
			test := func(f *Fleet) {
				a, b := f.LeaderAndFollower(f.Connected)
				After(time.Second) // one second after a renewal
				a.Link.Cut()
				After(Lease - time.Second - Instant)
				f.Expect(a.IsLeader()).To(BeTrue())
				After(lapse - Lease + 2*Instant)
				f.Expect(a.IsLeader()).To(BeFalse())
				for b.State() == election.CandidateState {
					After(time.Millisecond)
				}
				f.Expect(time.Since(b.Begun)).To(BeNumerically("<", 3*Interval+TTL), "before the key expires")
				After(pause + Instant)
				f.Expect(b.IsLeader()).To(BeTrue())
				f.Expect(f.Record()).To(ContainSubstring(`"won":"lapsed"`))
			}
			if source == "watch" {
				Run(t, test)
			} else {
				Run(t, test, Republished)
			}
		})
	}
}

// A pause between the read and the write is covered by the revision that the write demands.
func TestFollowerThatIsPausedBeforeItTakesOverDoesNoHarm(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		After(time.Second)
		a.Link.Stall() // what a sends arrives later
		b.Link.DelayReplies(500 * time.Millisecond)
		After(lapse - time.Second + 200*time.Millisecond) // b has asked for the key
		f.Expect(f.Bucket.Put(context.Background(), Key, []byte("stranger"))).To(BeNumerically(">", 0))
		b.Link.DelayReplies(0)
		for range 500 {
			After(time.Millisecond)
			f.Expect(f.Record()).To(Equal("stranger"))
		}
	})
}

// A holder that is stopped for a while learns by its clocks that its lease is over before it does anything.
func TestHolderThatWasSuspendedDoesNotLeadBesideItsSuccessor(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.LeaderAndFollower(f.Connected)
		After(time.Second)
		a.Link.Stall()
		for range int(TTL / (10 * time.Millisecond)) {
			After(10 * time.Millisecond)
			f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
		}
		f.Expect(b.IsLeader()).To(BeTrue())
		a.Link.Heal()
		After(Instant)
		f.Expect(a.IsLeader()).To(BeFalse())
	})
}

func TestLeaseIsNotTakenOverWithoutWhatItTakes(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, test := range map[string]struct {
		leader, follower []election.Option
		candidate        func(f *Fleet, name string, opts ...election.Option) *Candidate
		disturb          func(f *Fleet, a, b *Candidate)
	}{
		"the record states no lease": {leader: []election.Option{election.WithPlainValue()}},
		"bare names are the rule":    {follower: []election.Option{election.WithPlainValue()}},
		"no notifications":           {candidate: (*Fleet).Unnotified},
		"no known connection":        {candidate: (*Fleet).Candidate},
		"a gap in the notifications": {disturb: func(_ *Fleet, _, b *Candidate) {
			b.Link.Cut()
			After(100 * time.Millisecond)
			b.Link.Heal()
		}},
		"the lease of a record that somebody wrote over that of the leader": {disturb: func(f *Fleet, _, _ *Candidate) {
			record := strings.Replace(f.Record(), `"lease_ms":9000`, `"lease_ms":1000`, 1)
			_, err := f.Bucket.Put(context.Background(), Key, []byte(record))
			f.Expect(err).NotTo(HaveOccurred())
		}},
	} {
		if test.candidate == nil {
			test.candidate = (*Fleet).Connected
		}
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a", test.leader...).Begin()
				After(Interval)
				b := test.candidate(f, "b", test.follower...).Begin()
				After(3*Interval + time.Second)
				expiry := time.Now().Add(TTL - time.Second)
				a.Link.Cut()
				if test.disturb != nil {
					test.disturb(f, a, b)
				}
				synctest.Wait()
				After(time.Until(expiry) - 10*time.Millisecond)
				f.Expect(b.State()).To(Equal(election.CandidateState))
				f.Expect(f.Record()).NotTo(ContainSubstring("lapsed"))
			})
		})
	}
}

// A follower that reads the takeover itself knows that the lease before it is over, as the new leader does.
func TestHandoverSoonAfterATakeoverTakesMilliseconds(t *testing.T) {
	for _, led := range []time.Duration{0, time.Second, 2 * time.Second} {
		t.Run(led.String(), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(Interval)
				followers := []*Candidate{f.Connected("b").Begin(), f.Connected("c").Begin(), f.Connected("d").Begin()}
				After(3 * Interval)
				a.Link.Cut()
				leader := func() *Candidate {
					for _, c := range followers {
						if c.IsLeader() {
							return c
						}
					}
					return nil
				}
				for leader() == nil {
					After(time.Millisecond)
				}
				f.Expect(f.Record()).To(ContainSubstring(`"won":"lapsed"`))
				After(led)
				f.Expect(leader().Resign(context.Background())).To(Succeed())
				resigned := time.Now()
				for leader() == nil {
					After(time.Millisecond)
				}
				f.Expect(time.Since(resigned)).To(BeNumerically("<", 50*time.Millisecond))
			})
		})
	}
}

// A leader-elect waits for somebody else to stand down. Who takes over from it waits for as long as it said.
func TestTakeoverFromALeaderElectPassesItsStandDownOn(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a", election.WithStandDown(TTL)).Begin()
		After(Instant) // it has won
		b := f.Connected("b", election.WithStandDown(0)).Begin()
		After(Interval) // its first renewal: 2.5 s of its stand-down are left
		a.Link.Cut()
		After(lapse + 100*time.Millisecond)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		f.Expect(b.StandsDown()).To(BeNumerically("~", TTL-Interval, 100*time.Millisecond))
	})
}

// A candidate that has seen no renewal since its start can time no lease, so the leader renews for it.
func TestLeaderThatCrashesSoonAfterACandidateStartedIsReplacedBeforeItsKeyExpires(t *testing.T) {
	for _, age := range []time.Duration{TTL / 16, TTL / 8, TTL / 4, TTL / 2} {
		t.Run(age.String(), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Connected("a").Begin()
				After(2*Interval + time.Second) // it leads, and has renewed a second ago
				b := f.Connected("b").Begin()
				After(age + Instant)
				crashed := time.Now()
				a.Link.Cut()
				for !b.IsLeader() {
					After(time.Millisecond)
				}
				f.Expect(f.Record()).To(ContainSubstring(`"won":"lapsed"`))
				f.Expect(time.Since(crashed)).To(BeNumerically("<", TTL))
			})
		})
	}
}

// The times of a leader's renewals do not depend on who starts meanwhile, and many that start cost it no more than one in a sixteenth of a TTL.
func TestCandidatesThatStartDelayNoRenewal(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Connected("a").Begin()
		After(2*Interval + time.Second)
		before := f.Revision()
		for i := range 100 {
			f.Connected(fmt.Sprint("b", i)).Begin()
			After(10 * time.Millisecond)
		}
		f.Expect(f.Revision() - before).To(BeNumerically("<=", 3))
		After(Interval - 2*time.Second - Instant)
		before = f.Revision()
		After(2 * Instant)
		f.Expect(f.Revision()).To(Equal(before+1), "when it was due")
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}
