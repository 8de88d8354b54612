package election_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

// lapse is how long after a renewal a follower that was notified of it takes the key over.
const lapse = lease + lease*1012/11_000

// pause is for how long the winner then lets the others read what it took over.
const pause = 54 * time.Millisecond

func TestLapsedLeaseIsTakenOverBeforeTheKeyExpires(t *testing.T) {
	for _, source := range []string{"watch", "republish"} {
		t.Run(source, func(t *testing.T) {
			test := func(f *fleet) {
				a := f.connected("a").start()
				after(interval)
				b := f.connected("b").start()
				after(3*interval + time.Second) // one second after a renewal
				a.link.Cut()
				after(lease - time.Second - instant)
				f.Expect(a.IsLeader()).To(BeTrue())
				after(lapse - lease + 2*instant)
				f.Expect(a.IsLeader()).To(BeFalse())
				for b.State() == election.CandidateState {
					after(time.Millisecond)
				}
				f.Expect(time.Since(b.begun)).To(BeNumerically("<", 3*interval+ttl), "before the key expires")
				after(pause + instant)
				f.Expect(b.IsLeader()).To(BeTrue())
				f.Expect(f.record()).To(ContainSubstring(`"won":"lapsed"`))
			}
			if source == "watch" {
				onVirtualTime(t, test)
			} else {
				onVirtualTime(t, test, republished)
			}
		})
	}
}

// A pause between the read and the write is covered by the revision that the write demands.
func TestFollowerThatIsPausedBeforeItTakesOverDoesNoHarm(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b").start()
		after(3*interval + time.Second)
		a.link.Stall() // what a sends arrives later
		b.link.DelayReplies(500 * time.Millisecond)
		after(lapse - time.Second + 200*time.Millisecond) // b has asked for the key
		f.Expect(f.Bucket.Put(context.Background(), key, []byte("stranger"))).To(BeNumerically(">", 0))
		b.link.DelayReplies(0)
		for range 500 {
			after(time.Millisecond)
			f.Expect(f.record()).To(Equal("stranger"))
		}
	})
}

// A holder that is stopped for a while learns by its clocks that its lease is over before it does anything.
func TestHolderThatWasSuspendedDoesNotLeadBesideItsSuccessor(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(interval)
		b := f.connected("b").start()
		after(3*interval + time.Second)
		a.link.Stall()
		for range int(ttl / (10 * time.Millisecond)) {
			after(10 * time.Millisecond)
			f.Expect(a.IsLeader() && b.IsLeader()).To(BeFalse())
		}
		f.Expect(b.IsLeader()).To(BeTrue())
		a.link.Heal()
		after(instant)
		f.Expect(a.IsLeader()).To(BeFalse())
	})
}

func TestLeaseIsNotTakenOverWithoutWhatItTakes(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, test := range map[string]struct {
		leader, follower []election.Option
		candidate        func(f *fleet, name string, opts ...election.Option) *candidate
		disturb          func(f *fleet, a, b *candidate)
	}{
		"the record states no lease": {leader: []election.Option{election.WithPlainValue()}},
		"bare names are the rule":    {follower: []election.Option{election.WithPlainValue()}},
		"no notifications":           {candidate: (*fleet).unnotified},
		"no known connection":        {candidate: (*fleet).candidate},
		"a gap in the notifications": {disturb: func(_ *fleet, _, b *candidate) {
			b.link.Cut()
			after(100 * time.Millisecond)
			b.link.Heal()
		}},
		"the lease of a record that somebody wrote over that of the leader": {disturb: func(f *fleet, _, _ *candidate) {
			record := strings.Replace(f.record(), `"lease_ms":9000`, `"lease_ms":1000`, 1)
			_, err := f.Bucket.Put(context.Background(), key, []byte(record))
			f.Expect(err).NotTo(HaveOccurred())
		}},
	} {
		if test.candidate == nil {
			test.candidate = (*fleet).connected
		}
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a", test.leader...).start()
				after(interval)
				b := test.candidate(f, "b", test.follower...).start()
				after(3*interval + time.Second)
				expiry := time.Now().Add(ttl - time.Second)
				a.link.Cut()
				if test.disturb != nil {
					test.disturb(f, a, b)
				}
				synctest.Wait()
				after(time.Until(expiry) - 10*time.Millisecond)
				f.Expect(b.State()).To(Equal(election.CandidateState))
				f.Expect(f.record()).NotTo(ContainSubstring("lapsed"))
			})
		})
	}
}

// A follower that reads the takeover itself knows that the lease before it is over, as the new leader does.
func TestHandoverSoonAfterATakeoverTakesMilliseconds(t *testing.T) {
	for _, led := range []time.Duration{0, time.Second, 2 * time.Second} {
		t.Run(led.String(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(interval)
				followers := []*candidate{f.connected("b").start(), f.connected("c").start(), f.connected("d").start()}
				after(3 * interval)
				a.link.Cut()
				leader := func() *candidate {
					for _, c := range followers {
						if c.IsLeader() {
							return c
						}
					}
					return nil
				}
				for leader() == nil {
					after(time.Millisecond)
				}
				f.Expect(f.record()).To(ContainSubstring(`"won":"lapsed"`))
				after(led)
				f.Expect(leader().Resign(context.Background())).To(Succeed())
				resigned := time.Now()
				for leader() == nil {
					after(time.Millisecond)
				}
				f.Expect(time.Since(resigned)).To(BeNumerically("<", 50*time.Millisecond))
			})
		})
	}
}

// A leader-elect waits for somebody else to stand down. Who takes over from it waits for as long as it said.
func TestTakeoverFromALeaderElectPassesItsStandDownOn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a", election.WithStandDown(ttl)).start()
		after(instant) // it has won
		b := f.connected("b", election.WithStandDown(0)).start()
		after(interval) // its first renewal: 2.5 s of its stand-down are left
		a.link.Cut()
		after(lapse + 100*time.Millisecond)
		f.Expect(b.State()).To(Equal(election.LeaderElectState))
		f.Expect(b.standsDown()).To(BeNumerically("~", ttl-interval, 100*time.Millisecond))
	})
}

// A candidate that has seen no renewal since its start can time no lease, so the leader renews for it.
func TestLeaderThatCrashesSoonAfterACandidateStartedIsReplacedBeforeItsKeyExpires(t *testing.T) {
	for _, age := range []time.Duration{ttl / 16, ttl / 8, ttl / 4, ttl / 2} {
		t.Run(age.String(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.connected("a").start()
				after(2*interval + time.Second) // it leads, and has renewed a second ago
				b := f.connected("b").start()
				after(age + instant)
				crashed := time.Now()
				a.link.Cut()
				for !b.IsLeader() {
					after(time.Millisecond)
				}
				f.Expect(f.record()).To(ContainSubstring(`"won":"lapsed"`))
				f.Expect(time.Since(crashed)).To(BeNumerically("<", ttl))
			})
		})
	}
}

// The times of a leader's renewals do not depend on who starts meanwhile, and many that start cost it no more than one in a sixteenth of a TTL.
func TestCandidatesThatStartDelayNoRenewal(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a").start()
		after(2*interval + time.Second)
		before := f.revision()
		for i := range 100 {
			f.connected(fmt.Sprint("b", i)).start()
			after(10 * time.Millisecond)
		}
		f.Expect(f.revision() - before).To(BeNumerically("<=", 3))
		after(interval - 2*time.Second - instant)
		before = f.revision()
		after(2 * instant)
		f.Expect(f.revision()).To(Equal(before+1), "when it was due")
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}
