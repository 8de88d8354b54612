package election_test

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
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestWinWithALostReplyIsAdoptedByAFreshWrite(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		a.link.LoseReplies(once(toKeyReply))
		a.start()
		after(3 * time.Second)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		f.Expect(f.revision()).To(BeEquivalentTo(2), "a fresh write")
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		term, _ := a.Term()
		f.Expect(term.Number).To(BeEquivalentTo(2))
	})
}

func TestCandidateThatHearsNoRepliesDoesNotCreateTheKey(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, opts := range map[string][]election.Option{"by default": nil, "as Choria does": {election.WithPlainValue()}} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.leading("a", opts...)
				a.link.LoseReplies(nil)
				after(2 * ttl) // its leadership is over, and the key has expired
				for range 40 {
					after(ttl / 4)
					f.Expect(f.revision()).To(BeZero(), "it holds the key without knowing")
				}
				b := f.candidate("b", opts...).start()
				after(interval)
				f.Expect(b.IsLeader()).To(BeTrue())
				b.Stop()
				f.Expect(<-b.result).To(Succeed())

				a.link.Heal()
				after(2*interval + ttl)
				f.Expect(a.IsLeader()).To(BeTrue(), "replies arrive again")
			})
		})
	}
}

func TestLateCreateIsAdoptedByAFreshWrite(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		a.link.OnRequest(func(m faultproxy.Message) {
			if toKey(m) {
				a.link.Stall() // which delays messages and loses none
			}
		})
		a.start()
		after(5 * time.Second) // the candidate has given up the campaign
		f.Expect(a.State()).To(Equal(election.CandidateState))
		a.link.OnRequest(nil)
		a.link.Heal()
		synctest.Wait()
		f.Expect(f.revision()).To(BeEquivalentTo(1), "the late write was applied")
		f.Expect(a.State()).To(Equal(election.CandidateState), "nobody leads on a late write")
		after(interval - 5*time.Second)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		f.Expect(f.revision()).To(BeEquivalentTo(2))
		after(interval - time.Second)
		f.Expect(a.IsLeader()).To(BeFalse())
		after(time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestLateRenewalIsAdoptedByAFreshWrite(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		before, _ := a.Term()
		after(interval - instant)
		a.link.Stall()
		after(lease - interval + time.Second/10)
		f.Expect(a.IsLeader()).To(BeFalse())
		a.link.Heal() // 100 ms before the key expires
		synctest.Wait()
		for a.State() == election.CandidateState {
			after(time.Millisecond)
		}
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		after(interval - time.Millisecond)
		f.Expect(a.IsLeader()).To(BeFalse())
		after(time.Millisecond)
		now, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(now.Compare(before)).To(Equal(1))
		f.Expect(before.Valid()).To(BeFalse())
	})
}

func TestStopDuringACampaignReleasesTheKey(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, fault := range map[string]func(*candidate){
		"the reply is late": func(c *candidate) { c.link.DelayReplies(time.Second) },
		"the reply is lost": func(c *candidate) { c.link.LoseReplies(once(toKeyReply)) },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.candidate("a")
				ctx, cancel := context.WithCancel(context.Background())
				a.link.OnRequest(func(m faultproxy.Message) {
					if toKey(m) {
						a.link.OnRequest(nil)
						fault(a)
						cancel()
					}
				})
				a.startWith(ctx)
				f.Expect(<-a.result).To(Succeed())
				f.Expect(f.record()).To(ContainSubstring(`"released"`))
				f.Expect(a.seen()).To(BeEmpty())

				// Candidate a never led, so its successor waits for the whole stand-down.
				b := f.candidate("b").start()
				f.Expect(b.State()).To(Equal(election.LeaderElectState))
				after(interval)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

// loseBucketInfo has the bucket's info be lost once the candidate has started.
func (c *candidate) loseBucketInfo(f *fleet) {
	loads, needed := 0, 1 // one request to start, and with a connection one more to read
	if strings.HasSuffix(f.Name(), "republish") {
		needed = 2
	}
	c.link.LoseRequests(func(m faultproxy.Message) bool {
		if !strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") {
			return false
		}
		loads++
		return loads > needed
	})
}

// The API of JetStream may be busy for as long as somebody keeps it busy; renewals do not need it.
func TestWinnerKeepsTheKeyWhileTheAPIDoesNotAnswer(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a")
		a.loseBucketInfo(f)
		a.start()
		after(time.Second)
		b := candidate("b").start()
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		after(20 * ttl)
		f.Expect(a.seen()).To(HaveLen(1))
		f.Expect(b.seen()).To(BeEmpty())
		a.shutdown()
		after(spread)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

// Its renewals ask again, so that it learns what speaks against its win.
func TestWinnerThatDidNotLearnOfTheBucketLearnsOfItLater(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a")
		a.loseBucketInfo(f)
		a.start()
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.configure(func(cfg *jetstream.StreamConfig) { cfg.MaxAge = 2 * ttl })
		a.link.Heal()
		after(ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().TTL).To(Equal(2 * ttl))
	})
}

func TestBucketInfoIsNotLoadedForEachCampaign(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.connected("a")
		isLoad := func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") }
		loads := 0
		a.link.LoseRequests(func(m faultproxy.Message) bool {
			if !isLoad(m) {
				return false
			}
			loads++
			return loads > 2 // one to start, one to read
		})
		a.start()
		after(time.Second)
		f.connected("b").start()
		after(2 * ttl)
		a.link.Heal()
		after(3 * ttl)
		var again atomic.Int64
		a.link.OnRequest(func(m faultproxy.Message) {
			if isLoad(m) {
				again.Add(1)
			}
		})
		f.forger().publish(f.revision()+1, "", "KV-Operation", "DEL")
		after(time.Second)
		f.Expect(again.Load()).To(BeZero())
	}, republished)
}
