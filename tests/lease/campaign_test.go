package lease_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestWinWithALostReplyIsAdoptedByAFreshWrite(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a")
		a.Link.LoseReplies(faultproxy.Once(ToKeyReply))
		a.Begin()
		After(3 * time.Second)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		f.Expect(f.Revision()).To(BeEquivalentTo(2), "a fresh write")
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		term, _ := a.Term()
		f.Expect(term.Number).To(BeEquivalentTo(2))
	})
}

func TestCandidateThatHearsNoRepliesDoesNotCreateTheKey(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, opts := range map[string][]election.Option{"by default": nil, "as Choria does": {election.WithPlainValue()}} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Leading("a", opts...)
				a.Link.LoseReplies(nil)
				After(2 * TTL) // its leadership is over, and the key has expired
				for range 40 {
					After(TTL / 4)
					f.Expect(f.Revision()).To(BeZero(), "it holds the key without knowing")
				}
				b := f.Candidate("b", opts...).Begin()
				After(Interval)
				f.Expect(b.IsLeader()).To(BeTrue())
				b.Stop()
				f.Expect(<-b.Result).To(Succeed())

				a.Link.Heal()
				After(2*Interval + TTL)
				f.Expect(a.IsLeader()).To(BeTrue(), "replies arrive again")
			})
		})
	}
}

func TestLateCreateIsAdoptedByAFreshWrite(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a")
		a.Link.OnRequest(func(m faultproxy.Message) {
			if ToKey(m) {
				a.Link.Stall() // which delays messages and loses none
			}
		})
		a.Begin()
		After(5 * time.Second) // the candidate has given up the campaign
		f.Expect(a.State()).To(Equal(election.CandidateState))
		a.Link.OnRequest(nil)
		a.Link.Heal()
		synctest.Wait()
		f.Expect(f.Revision()).To(BeEquivalentTo(1), "the late write was applied")
		f.Expect(a.State()).To(Equal(election.CandidateState), "nobody leads on a late write")
		After(Interval - 5*time.Second)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		f.Expect(f.Revision()).To(BeEquivalentTo(2))
		After(Interval - time.Second)
		f.Expect(a.IsLeader()).To(BeFalse())
		After(time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestLateRenewalIsAdoptedByAFreshWrite(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		before, _ := a.Term()
		After(Interval - Instant)
		a.Link.Stall()
		After(Lease - Interval + time.Second/10)
		f.Expect(a.IsLeader()).To(BeFalse())
		a.Link.Heal() // 100 ms before the key expires
		synctest.Wait()
		for a.State() == election.CandidateState {
			After(time.Millisecond)
		}
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		After(Interval - time.Millisecond)
		f.Expect(a.IsLeader()).To(BeFalse())
		After(time.Millisecond)
		now, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(now.Compare(before)).To(Equal(1))
		f.Expect(before.Valid()).To(BeFalse())
	})
}

func TestStopDuringACampaignReleasesTheKey(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, fault := range map[string]func(*Candidate){
		"the reply is late": func(c *Candidate) { c.Link.DelayReplies(time.Second) },
		"the reply is lost": func(c *Candidate) { c.Link.LoseReplies(faultproxy.Once(ToKeyReply)) },
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				a := f.Candidate("a")
				ctx, cancel := context.WithCancel(context.Background())
				a.Link.OnRequest(func(m faultproxy.Message) {
					if ToKey(m) {
						a.Link.OnRequest(nil)
						fault(a)
						cancel()
					}
				})
				a.BeginWith(ctx)
				f.Expect(<-a.Result).To(Succeed())
				f.Expect(f.Record()).To(ContainSubstring(`"released"`))
				f.Expect(a.Seen()).To(BeEmpty())

				// Candidate a never led, so its successor waits for the whole stand-down.
				b := f.Candidate("b").Begin()
				f.Expect(b.State()).To(Equal(election.LeaderElectState))
				After(Interval)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

// loseBucketInfo has the bucket's info be lost once the candidate has started.
func loseBucketInfo(c *Candidate, f *Fleet) {
	loads, needed := 0, 1 // one request to start, and with a connection one more to read
	if strings.HasSuffix(f.Name(), "republish") {
		needed = 2
	}
	c.Link.LoseRequests(func(m faultproxy.Message) bool {
		if !strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") {
			return false
		}
		loads++
		return loads > needed
	})
}

// The API of JetStream may be busy for as long as somebody keeps it busy; renewals do not need it.
func TestWinnerKeepsTheKeyWhileTheAPIDoesNotAnswer(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a")
		loseBucketInfo(a, f)
		a.Begin()
		After(time.Second)
		b := candidate("b").Begin()
		After(3 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		After(20 * TTL)
		f.Expect(a.Seen()).To(HaveLen(1))
		f.Expect(b.Seen()).To(BeEmpty())
		a.End()
		After(Spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

// Its renewals ask again, so that it learns what speaks against its win.
func TestWinnerThatDidNotLearnOfTheBucketLearnsOfItLater(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a := candidate("a")
		loseBucketInfo(a, f)
		a.Begin()
		After(3 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 2 * TTL })
		a.Link.Heal()
		After(TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().TTL).To(Equal(2 * TTL))
	})
}

func TestBucketInfoIsNotLoadedForEachCampaign(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Connected("a")
		isLoad := func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") }
		loads := 0
		a.Link.LoseRequests(func(m faultproxy.Message) bool {
			if !isLoad(m) {
				return false
			}
			loads++
			return loads > 2 // one to start, one to read
		})
		a.Begin()
		After(time.Second)
		f.Connected("b").Begin()
		After(2 * TTL)
		a.Link.Heal()
		After(3 * TTL)
		var again atomic.Int64
		a.Link.OnRequest(func(m faultproxy.Message) {
			if isLoad(m) {
				again.Add(1)
			}
		})
		f.Forger().Publish(f.Revision()+1, "", "KV-Operation", "DEL")
		After(time.Second)
		f.Expect(again.Load()).To(BeZero())
	}, Republished)
}
