package election_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
)

// What follows is about writes of which a candidate does not know what became of them.

func TestRenewalWhoseReplyWasLostIsRecognisedByItsAttempt(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		term, _ := a.Term()
		a.link.LoseReplies(once(toKeyReply))
		sent := time.Now().Add(interval)
		after(lease - instant) // the first try takes half of what is left, then the record is read
		f.Expect(term.Deadline()).To(BeTemporally("==", sent.Add(lease)), "the lease counts from the sending of that attempt")
		after(10 * ttl)
		now, _ := a.Term()
		f.Expect(now).To(Equal(term))
		f.Expect(a.seen()).To(HaveLen(1))
	})
}

func TestLeaderSurvivesLossOfManyRepliesAndRequests(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		var n atomic.Int64
		// But for the replies to the making of a watcher: nats.go waits for them with a mutex held that the watcher's first
		// message needs, and virtual time does not pass while a goroutine waits for a mutex.
		everyThird := func(m link.Message) bool {
			return n.Add(1)%3 == 0 && !strings.HasPrefix(m.Request, "$JS.API.CONSUMER.")
		}
		a.link.LoseReplies(everyThird)
		after(50 * ttl)
		a.link.LoseReplies(func(link.Message) bool { return false })
		a.link.LoseRequests(everyThird)
		after(50 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(1))
	})
}

func TestStallThatEndsBeforeTheDeadlineCostsNoTerm(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b := f.candidate("b").start()
		for range 10 {
			after(interval - time.Millisecond)
			a.link.Stall()
			after(lease - interval - 100*time.Millisecond)
			a.link.Heal()
			after(time.Second)
			f.Expect(a.IsLeader()).To(BeTrue())
		}
		f.Expect(a.seen()).To(HaveLen(1))
		f.Expect(b.seen()).To(BeEmpty())
	})
}

func TestPassingConflictCostsNoTerm(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c, bucket := f.faultyCandidate("a")
		c.start()
		after(interval)
		refusals := 0
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			if refusals++; refusals%4 != 0 {
				return 0, errConflict
			}
			return update()
		})
		after(20 * ttl)
		f.Expect(c.IsLeader()).To(BeTrue())
		f.Expect(c.seen()).To(HaveLen(1))
	})
}

func TestErrorOfAnyKindIsRetriedUntilTheDeadline(t *testing.T) {
	for _, err := range []error{
		jetstream.ErrNoStreamResponse, context.DeadlineExceeded, context.Canceled, errors.New("something new"),
		jetstream.ErrStreamNotFound, &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "system unavailable"},
	} {
		t.Run(err.Error(), func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				c, bucket := f.faultyCandidate("a")
				c.start()
				after(interval)
				fails := time.Now().Add(lease - 200*time.Millisecond)
				bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
					if time.Now().Before(fails) {
						return 0, err
					}
					return update()
				})
				after(10 * ttl)
				f.Expect(c.seen()).To(HaveLen(1), "the last try before the deadline saved the term")
			})
		})
	}
}

func TestStaleReadEndsNoTerm(t *testing.T) {
	for name, stale := range map[string]func() (jetstream.KeyValueEntry, error){
		"an older record of another": func() (jetstream.KeyValueEntry, error) { return entry{value: []byte("before"), revision: 1}, nil },
		"no key yet":                 func() (jetstream.KeyValueEntry, error) { return nil, jetstream.ErrKeyNotFound },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				f.write("before")
				f.Expect(f.bucket.Purge(context.Background(), key)).To(Succeed())
				c, bucket := f.faultyCandidate("a")
				c.start()
				after(ttl) // as after any removal
				f.Expect(c.IsLeader()).To(BeTrue())
				var refused, read bool
				bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
					if !refused {
						refused = true
						return 0, errConflict
					}
					return update()
				})
				bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
					if !read {
						read = true
						return stale()
					}
					return get()
				})
				after(5 * ttl)
				f.Expect(read).To(BeTrue())
				f.Expect(c.seen()).To(HaveLen(1))
			})
		})
	}
}

func TestForeignRecordEndsTheTermAtTheNextRenewalOfALeaderThatDoesNotHear(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.deafCandidate("a").start()
		after(interval)
		term, _ := a.Term()
		f.write("intruder")
		after(interval - instant)
		f.Expect(a.IsLeader()).To(BeTrue())
		after(instant)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(term.Deadline()).To(BeTemporally("<=", time.Now()), "the lease went with the key")
		f.Expect(a.seen()).To(Equal([]string{"won 7.5s", "lost 15s"}))
		f.Expect(f.record()).To(Equal("intruder"))
	})
}

func TestDeletedKeyEndsTheTermAtTheNextRenewalOfALeaderThatDoesNotHear(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.deafCandidate("a").start()
		after(interval)
		f.Expect(f.bucket.Delete(context.Background(), key)).To(Succeed())
		after(interval + time.Second)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(f.record()).To(BeEmpty(), "and the candidate does not take it right back")
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestLeaderOfABucketThatWasMadeAgainDoesNotOverrunItsSuccessor(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		// a leads with the bucket's revision 2, and is cut off when the bucket is deleted and made again.
		a := f.leading("a")
		f.Expect(f.revision()).To(BeEquivalentTo(2))
		a.link.Stall()
		f.remake()
		b := f.candidate("b").start()
		after(interval)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(f.revision()).To(BeEquivalentTo(2))
		after(time.Second)
		// Its renewal now hits b's record, which has the very revision that a expects.
		a.link.Heal()
		for range 5_000 {
			after(time.Millisecond)
			f.Expect(a.seen()).To(Or(HaveLen(1), HaveLen(2)))
		}
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.seen()).To(HaveLen(2))
	})
}

func TestWinWhoseReplyWasLostIsTakenOverByAFreshWrite(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		a.link.LoseReplies(once(toKeyReply))
		a.start()
		after(3 * time.Second)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		f.Expect(f.revision()).To(BeEquivalentTo(2), "not the write whose reply was lost")
		after(interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		term, _ := a.Term()
		f.Expect(term.Number).To(BeEquivalentTo(2))
	})
}

func TestLateCreateOfACandidateThatGaveUpIsTakenOverProperly(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		a.link.OnRequest(func(m link.Message) {
			if toKey(m) {
				a.link.Stall() // nothing passes any more, nothing is lost
			}
		})
		a.start()
		after(5 * time.Second) // the campaign has been given up
		f.Expect(a.State()).To(Equal(election.CandidateState))
		a.link.OnRequest(nil)
		a.link.Heal()
		synctest.Wait()
		f.Expect(f.revision()).To(BeEquivalentTo(1), "there it is")
		f.Expect(a.State()).To(Equal(election.CandidateState), "on which nobody leads")
		after(interval - 5*time.Second)
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
		f.Expect(f.revision()).To(BeEquivalentTo(2))
		after(interval - time.Second)
		f.Expect(a.IsLeader()).To(BeFalse())
		after(time.Second)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestLateRenewalOfALeaderThatGaveUpIsTakenOverProperly(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		before, _ := a.Term()
		after(interval - instant)
		a.link.Stall()
		after(lease - interval + time.Second/10)
		f.Expect(a.IsLeader()).To(BeFalse())
		a.link.Heal() // 100 ms before the key would have expired
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

func TestStopDuringACampaignReleasesWhatItWon(t *testing.T) {
	for name, fault := range map[string]func(*candidate){
		"the reply is late": func(c *candidate) { c.link.DelayReplies(time.Second) },
		"the reply is lost": func(c *candidate) { c.link.LoseReplies(once(toKeyReply)) },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.candidate("a")
				ctx, cancel := context.WithCancel(context.Background())
				a.link.OnRequest(func(m link.Message) {
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

				// It never led, so its successor waits as it would have had to.
				b := f.candidate("b").start()
				f.Expect(b.State()).To(Equal(election.LeaderElectState))
				after(interval)
				f.Expect(b.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestStopDuringARenewalEndsLeadershipAtOnceAndReleases(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		a.link.DelayReplies(500 * time.Millisecond)
		after(interval)
		began := time.Now()
		go a.Stop()
		synctest.Wait()
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(a.seen()).To(Equal([]string{"won 7.5s", "lost 15s"}))
		f.Expect(<-a.result).To(Succeed())
		f.Expect(time.Since(began)).To(BeNumerically("<=", 1500*time.Millisecond), "three round trips: the renewal, a look at the bucket, the release")
		f.Expect(f.record()).To(ContainSubstring(`"released"`))
	})
}

func TestPlainLeaderThatCannotTellItsOwnWriteLeadsOnToItsDeadlineOnly(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a", election.WithPlainValue())
		a.link.LoseReplies(once(toKeyReply))
		after(lease - instant)
		f.Expect(a.IsLeader()).To(BeTrue())
		after(instant)
		f.Expect(a.IsLeader()).To(BeFalse())
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue(), "a new term, once the key had expired")
	}, withoutMarkers)
}

func TestEveryWriteHasAnAttemptOfItsOwn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		attempts := map[string]int{}
		a.link.OnRequest(func(m link.Message) {
			if _, after, ok := bytes.Cut(m.Payload, []byte(`"attempt":"`)); ok {
				id, _, _ := bytes.Cut(after, []byte(`"`))
				attempts[string(id)]++
			}
		})
		a.start()
		after(10 * interval)
		a.Stop()
		f.Expect(attempts).To(HaveLen(12))
		f.Expect(attempts).To(HaveEach(1))
	})
}

// entry is one that a bucket might return.
type entry struct {
	jetstream.KeyValueEntry
	value    []byte
	revision uint64
}

func (e entry) Value() []byte      { return e.value }
func (e entry) Revision() uint64   { return e.revision }
func (e entry) Created() time.Time { return time.Now() }

func TestStandDownIsThatOfTheBucketTheKeyWasWonIn(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.write("somebody")
		a := f.candidate("a").start() // has seen a TTL of 10 s
		after(time.Second)
		f.remakeWith(6 * ttl)
		for a.State() != election.LeaderElectState {
			after(time.Millisecond)
		}
		won := time.Now()
		for !a.IsLeader() {
			after(time.Millisecond)
		}
		f.Expect(a.Status().TTL).To(Equal(6 * ttl))
		f.Expect(time.Since(won)).To(BeNumerically(">=", 6*interval-2*time.Millisecond))
	})
}

func TestTermsAreOrderedThoughTheWinInANewBucketWasReclaimed(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		for range 5 {
			f.write("intruder")
		}
		after(5 * ttl)
		before, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		a.link.OnRequest(func(m link.Message) {
			if toKey(m) && !bytes.Contains(m.Payload, []byte(`"term"`)) { // its Create in the new bucket
				a.link.OnRequest(nil)
				a.link.LoseReplies(once(toKeyReply))
			}
		})
		f.remake()
		after(6 * ttl)
		now, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(now.Compare(before)).To(Equal(1), "before %s, now %s", before.Token(), now.Token())
	})
}

func TestReleaseByALeaderOfAnEarlierBucketProvesNothing(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a") // by revision 2
		a.link.LoseRequests(func(link.Message) bool { return true })
		f.remake()
		b := f.candidate("b").start()
		c := f.candidate("c", election.WithBackoff(election.ConstantBackoff(10*time.Millisecond))).start()
		after(interval + 500*time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
		a.link.Heal()
		_ = a.Resign(context.Background()) // writes a release over the record of b, which has the same revision
		for range 10_000 {
			after(time.Millisecond)
			f.Expect(b.IsLeader() && c.IsLeader()).To(BeFalse())
		}
	})
}

func TestBucketThatIsGoneForAMomentWhileItRunsIsWaitedFor(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		looks := 0
		b := &unsteady{KeyValue: f.bucket, status: func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error) {
			if looks++; looks == 2 {
				return nil, jetstream.ErrStreamNotFound
			}
			return status()
		}}
		c := f.candidateOn("a", nil, b).start()
		after(5 * ttl)
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}

func TestSlowButSteadyLinkCostsOneRequestPerRenewal(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		a.link.DelayReplies(300 * time.Millisecond)
		a.start()
		after(2 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		requests := 0
		a.link.OnRequest(func(link.Message) { requests++ })
		after(10 * interval)
		f.Expect(requests).To(Equal(10))
	})
}

// unsteady is a bucket whose state a test can make up.
type unsteady struct {
	jetstream.KeyValue
	status func(status func() (jetstream.KeyValueStatus, error)) (jetstream.KeyValueStatus, error)
}

func (b *unsteady) Status(ctx context.Context) (jetstream.KeyValueStatus, error) {
	return b.status(func() (jetstream.KeyValueStatus, error) { return b.KeyValue.Status(ctx) })
}
