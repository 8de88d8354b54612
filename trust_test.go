package election_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
)

// What follows is about messages that anybody may forge who may publish where a bucket republishes: they may cost a read, never a leader.

// forger publishes what the server would republish.
type forger struct {
	*fleet
	nc *nats.Conn
}

func (f *fleet) forger() *forger { return &forger{f, f.server.Connect(f.T)} }

// say publishes a change of the key with all headers that the server would set.
func (f *forger) say(revision uint64, value string, headers ...string) {
	m := nats.NewMsg("election." + natstest.BucketName + "." + key)
	m.Header.Set("Nats-Stream", "KV_"+natstest.BucketName)
	m.Header.Set("Nats-Subject", "$KV."+natstest.BucketName+"."+key)
	m.Header.Set("Nats-Sequence", strconv.FormatUint(revision, 10))
	m.Header.Set("Nats-Time-Stamp", time.Now().UTC().Format(time.RFC3339Nano))
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	m.Data = []byte(value)
	f.Expect(f.nc.PublishMsg(m)).To(Succeed())
}

// released returns the record under the key as its writer would release it.
func (f *forger) released() string {
	var r map[string]any
	f.Expect(json.Unmarshal([]byte(f.record()), &r)).To(Succeed())
	r["released"] = time.Now().UTC().Format(time.RFC3339Nano)
	text, err := json.Marshal(r)
	f.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// forgeries are messages about a key at the given revision, on which nobody may act.
var forgeries = map[string]func(f *forger, revision uint64){
	"a release at the live revision": func(f *forger, revision uint64) { f.say(revision, f.released()) },
	"a release at the next revision": func(f *forger, revision uint64) { f.say(revision+1, f.released()) },
	"an expiry":                      func(f *forger, revision uint64) { f.say(revision+1, "", "Nats-Marker-Reason", "MaxAge") },
	"an expiry at the live revision": func(f *forger, revision uint64) { f.say(revision, "", "Nats-Marker-Reason", "MaxAge") },
	"a deletion":                     func(f *forger, revision uint64) { f.say(revision+1, "", "KV-Operation", "DEL") },
	"another leader": func(f *forger, revision uint64) {
		f.say(revision+1, `{"name":"evil","instance":"evil","attempt":"evil.1","term":99,"metadata":{"address":"10.6.6.6"}}`)
	},
	"a record of a later bucket": func(f *forger, revision uint64) {
		f.say(1, fmt.Sprintf(`{"name":"evil","instance":"evil","attempt":"evil.1","term":1,"bucket":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339Nano)))
	},
}

func TestNoForgedNotificationMovesLeadership(t *testing.T) {
	for name, forge := range forgeries {
		for state, disturb := range map[string]func(*candidate){
			"connected": func(*candidate) {},
			"cut off":   func(c *candidate) { c.link.LoseRequests(func(link.Message) bool { return true }) },
		} {
			t.Run(name+", the leader "+state, func(t *testing.T) {
				onVirtualTime(t, func(f *fleet) {
					a := f.hearing("a").start()
					after(interval)
					b := f.hearing("b").start()
					after(3 * interval)
					evil := f.forger()
					disturb(a)
					for until := time.Now().Add(time.Second); time.Now().Before(until); {
						forge(evil, f.revision())
						after(10 * time.Millisecond)
						f.Expect(a.IsLeader()).To(BeTrue())
						f.Expect(b.State()).To(Equal(election.CandidateState))
					}
					f.Expect(a.seen()).To(HaveLen(1))
				}, republished)
			})
		}
	}
}

func TestForgedNotificationsCostThreeReadsAndThenOnePerTTL(t *testing.T) {
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a := f.hearing("a").start()
				after(interval)
				b := f.hearing("b").start()
				after(3*interval + time.Second)
				evil := f.forger()
				var byLeader, byFollower, writes atomic.Int64
				a.link.OnRequest(func(m link.Message) {
					if !strings.Contains(string(m.Payload), `"term"`) {
						byLeader.Add(1) // but for its renewals
					}
				})
				b.link.OnRequest(func(m link.Message) {
					byFollower.Add(1)
					if toKey(m) {
						writes.Add(1)
					}
				})
				const ttls = 6
				for range ttls * int(ttl/(10*time.Millisecond)) {
					forge(evil, f.revision())
					after(10 * time.Millisecond)
				}
				f.Expect(byLeader.Load()).To(BeNumerically("<=", 3+ttls))
				f.Expect(byFollower.Load()).To(BeNumerically("<=", 3+ttls))
				f.Expect(writes.Load()).To(BeZero())

				go a.Stop() // a true one is found among them
				after(ttl + 500*time.Millisecond)
				f.Expect(b.IsLeader()).To(BeTrue())
			}, republished)
		})
	}
}

func TestForgedDeletionsOfAFreeKeyCostThreeReadsAndThenOnePerTTL(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		b := f.hearing("b").start()
		after(interval)
		b.Pause()
		a.Stop()
		after(3 * ttl)
		f.Expect(f.revision()).To(BeZero())
		evil := f.forger()
		var requests atomic.Int64
		b.link.OnRequest(func(link.Message) { requests.Add(1) })
		const ttls = 6
		for i := range ttls * int(ttl/(10*time.Millisecond)) {
			evil.say(uint64(100+i), "", "KV-Operation", "DEL")
			after(10 * time.Millisecond)
		}
		f.Expect(requests.Load()).To(BeNumerically("<=", 3+ttls))
	}, republished)
}

func TestForgedVacancyDoesNotHaveAllAnswerTheNextTrueOneAtOnce(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		_, attempts := f.crowd(100, f.hearing)
		after(5*interval + time.Second)
		f.forger().say(f.revision()+2, "", "Nats-Marker-Reason", "MaxAge") // as the release will be, after one more renewal
		after(ttl + 2*time.Second)
		attempts.Store(0)
		a.Stop()
		after(ttl)
		f.Expect(attempts.Load()).To(And(BeNumerically(">=", 1), BeNumerically("<=", 30)))
	}, republished)
}

func TestForgedNotificationCausesNoWriteThoughTheReadFails(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(3*interval + time.Second)
		a.link.LoseRequests(func(m link.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") })
		before := f.revision()
		f.forger().say(before+1, "", "KV-Operation", "DEL")
		after(interval - 2*time.Second)
		f.Expect(f.revision()).To(Equal(before))
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestWhoLeadsIsToldAsItWasRead(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		var told []string
		b := f.hearing("b", election.OnLeaderChange(func(l election.Leader) { told = append(told, l.Name) })).start()
		after(3 * interval)
		evil := f.forger()
		for _, forge := range forgeries {
			forge(evil, f.revision())
			after(100 * time.Millisecond)
			f.Expect(b.Status().Leader.Name).To(Equal("a"))
			f.Expect(b.Status().Leader.Metadata).To(BeEmpty())
		}
		f.Expect(told).To(Equal([]string{"a"}))
		f.Expect(a.IsLeader()).To(BeTrue())
	}, republished)
}

func TestForgedRenewalsDoNotHideThatTheLeaderIsGone(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a").start()
		after(interval)
		b := f.hearing("b").start()
		after(3 * interval)
		evil, record := f.forger(), f.record()
		a.link.Cut()
		for revision := f.revision() + 1; !b.IsLeader(); revision++ {
			evil.say(revision, record)
			after(100 * time.Millisecond)
			f.Expect(revision).To(BeNumerically("<", 300), "half a minute")
		}
	}, republished)
}

func TestReadThatLagsBehindANotificationIsRepeated(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b")
		b.start()
		after(3*interval + time.Second)
		before, err := f.bucket.Get(context.Background(), key)
		f.Expect(err).NotTo(HaveOccurred())
		caughtUp := time.Now().Add(150 * time.Millisecond)
		bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			if time.Now().Before(caughtUp) {
				return before, nil
			}
			return get()
		})
		a.Stop()
		after(300 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

// What follows is about proof that the key was lost.

// refusedOver is what a server that keeps a bucket alone answers to a write over another revision than the one that it names.
func refusedOver(last uint64) error {
	err := &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence, Description: fmt.Sprintf("wrong last sequence: %d", last)}
	return fmt.Errorf("%w: %w", err, jetstream.ErrKeyRevisionMismatch)
}

func TestLeaderStandsDownAtOnceWhenTheHistoryWasRewound(t *testing.T) {
	foreign := func(revision uint64) func() (jetstream.KeyValueEntry, error) {
		return func() (jetstream.KeyValueEntry, error) {
			return entry{value: []byte(`{"name":"b","instance":"b1","attempt":"b1.1","term":1}`), revision: revision}, nil
		}
	}
	for name, c := range map[string]struct {
		refusal func(last uint64) error
		read    func(won, last uint64) func() (jetstream.KeyValueEntry, error)
		lost    bool
	}{
		"a refusal names an earlier sequence": {func(last uint64) error { return refusedOver(last - 1) }, nil, true},
		"a refusal names no sequence, and a read finds nothing": {func(uint64) error { return refusedOver(0) },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) {
				return func() (jetstream.KeyValueEntry, error) { return nil, jetstream.ErrKeyNotFound }
			}, true},
		"another's record stands between": {func(uint64) error { return errConflict },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) { return foreign(last - 1) }, true},
		"another's record stands where it won": {func(uint64) error { return errConflict },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) { return foreign(won) }, true},
		"a read may be stale": {func(uint64) error { return errConflict },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) { return foreign(won - 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				f.write("before")
				f.Expect(f.bucket.Purge(context.Background(), key)).To(Succeed())
				a, bucket := f.faultyCandidate("a")
				a.start()
				after(ttl + 3*interval)
				term, leads := a.Term()
				f.Expect(leads).To(BeTrue())
				last := f.revision()
				f.Expect(last).To(BeNumerically(">=", term.Number+2))
				bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
					return 0, c.refusal(last)
				})
				if c.read != nil {
					read := c.read(term.Number, last)
					bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
						return read()
					})
				}
				for tried := time.Now(); a.IsLeader() && time.Since(tried) < interval+time.Millisecond; {
					after(time.Millisecond)
				}
				f.Expect(a.IsLeader()).To(Equal(!c.lost), "by its next renewal")
			})
		})
	}
}

// A candidate whose reads were not answered for a while takes reading for forbidden. Only a read can prove the loss where the server
// names no sequence, and reading may work again.
func TestLeaderThatCouldNotReadForAWhileReadsWhenARenewalIsRefused(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return nil, context.DeadlineExceeded
		})
		refusals := 0
		bucket.onUpdate(func(_ context.Context, _ []byte, rev uint64, update func() (uint64, error)) (uint64, error) {
			if refusals++; rev > 0 && refusals <= 4 { // each is reason to read, in vain
				return 0, errConflict
			}
			return update()
		})
		a.start()
		after(ttl + 3*interval)
		term, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(f.revision()).To(BeNumerically(">", term.Number))

		bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) { return 0, errConflict })
		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return entry{value: []byte(`{"name":"b","instance":"b1","attempt":"b1.1","term":1}`), revision: term.Number}, nil
		})
		after(interval + 100*time.Millisecond)
		f.Expect(a.IsLeader()).To(BeFalse(), "by its next renewal")
	})
}

// Where the history was rewound, a write that this candidate gave up long ago may be applied over its new win. A candidate that cannot
// read does not take the refusal that follows for proof that somebody else has the key.
func TestRefusalThatMayComeFromAnOwnLateWriteEndsNoTerm(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return nil, context.DeadlineExceeded
		})
		a.start()
		after(ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
			return 0, context.DeadlineExceeded // it may be applied at any time
		})
		after(ttl)
		f.Expect(a.IsLeader()).To(BeFalse())
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			return update()
		})
		for began := time.Now(); !a.IsLeader() && time.Since(began) < 5*ttl; {
			after(ttl / 10)
		}
		term, leads := a.Term()
		f.Expect(leads).To(BeTrue())

		bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
			return 0, refusedOver(term.Number + 100)
		})
		after(interval + 100*time.Millisecond)
		f.Expect(term.Valid()).To(BeTrue(), "until its deadline")
	})
}

// A read that fails does not prove wrong the notification that caused it. The simulator found a follower that read no more for a TTL.
func TestReadsThatFailedDoNotDelayTheAnswerToALaterRelease(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b")
		b.start()
		after(2 * interval)
		reads := 0
		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			reads++
			return nil, nats.ErrNoResponders
		})
		for i := range 5 {
			f.Expect(a.SetMetadata(map[string]string{"i": strconv.Itoa(i)})).To(Succeed())
			after(time.Second)
		}
		f.Expect(reads).To(And(BeNumerically(">=", 3), BeNumerically("<=", 7)))
		bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return get()
		})
		after(ttl / 4)
		f.Expect(a.Resign(context.Background())).To(Succeed())
		after(100 * time.Millisecond)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestDeletionIsCalledOne(t *testing.T) {
	for name, remove := range map[string]func(jetstream.KeyValue) error{
		"deleted": func(kv jetstream.KeyValue) error { return kv.Delete(context.Background(), key) },
		"purged":  func(kv jetstream.KeyValue) error { return kv.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
				var log logged
				a := candidate("a", election.WithLogger(log.logger())).start()
				after(interval + time.Second)
				f.Expect(remove(f.bucket)).To(Succeed())
				after(100 * time.Millisecond)
				f.Expect(a.IsLeader()).To(BeFalse(), "an eviction that it is notified of ends the term at once")
				f.Expect(log.count(`state=candidate reason=deleted`)).To(Equal(1))
			})
		})
	}
}

func TestTwoReadsOfALaggingReplicaEndNoTerm(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c, bucket := f.faultyCandidate("a")
		c.start()
		after(interval)
		refusals, reads := 0, 0
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			if refusals++; refusals <= 4 {
				return 0, errConflict
			}
			return update()
		})
		bucket.onGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			if reads++; reads <= 4 {
				return nil, jetstream.ErrKeyNotFound
			}
			return get()
		})
		after(3 * ttl)
		f.Expect(reads).To(BeNumerically(">=", 2))
		f.Expect(c.seen()).To(HaveLen(1))
	})
}

// What follows is about a candidate that cannot look at the bucket.

func TestWinnerThatCannotLookAtTheBucketLeavesTheKeyToOthers(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a")
		looks, needed := 0, 1 // to begin, and with a JetStream context to read
		if strings.HasSuffix(f.Name(), "republish") {
			needed = 2
		}
		a.link.LoseRequests(func(m link.Message) bool {
			if !strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") {
				return false
			}
			looks++
			return looks > needed
		})
		a.start()
		after(time.Second)
		b := candidate("b").start()
		after(3 * ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(BeEmpty())
		after(20 * ttl)
		f.Expect(b.seen()).To(HaveLen(1))
	})
}

func TestCandidateThatCouldLookAtTheBucketAgainDoesNotLookEachTime(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.hearing("a")
		look := func(m link.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") }
		looks := 0
		a.link.LoseRequests(func(m link.Message) bool {
			if !look(m) {
				return false
			}
			looks++
			return looks > 2 // to begin, and to read
		})
		a.start()
		after(time.Second)
		f.hearing("b").start()
		after(2 * ttl)
		a.link.Heal()
		after(3 * ttl)
		var again atomic.Int64
		a.link.OnRequest(func(m link.Message) {
			if look(m) {
				again.Add(1)
			}
		})
		f.forger().say(f.revision()+1, "", "KV-Operation", "DEL")
		after(time.Second)
		f.Expect(again.Load()).To(BeZero())
	}, republished)
}

func TestStandDownCoversALongerIntervalOfThePredecessor(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a", election.WithCampaignInterval(interval)).start()
		after(interval)
		b := candidate("b", election.WithCampaignInterval(ttl/5)).start()
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

func TestStandDownCoversALongerIntervalOfThePredecessorThoughTheKeyIsNotRead(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		a := candidate("a", election.WithCampaignInterval(interval)).start()
		after(interval)
		b := candidate("b", election.WithCampaignInterval(ttl/5)).start()
		after(3 * interval)
		b.link.LoseRequests(func(m link.Message) bool { return strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.") })
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

// What follows is about connections.

func TestClosedConnectionEndsTheRun(t *testing.T) {
	for name, given := range map[string]bool{"with its JetStream context": true, "with a bare bucket": false} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				nc := f.server.Connect(f.T)
				var opts []election.Option
				if given {
					js, err := jetstream.New(nc)
					f.Expect(err).NotTo(HaveOccurred())
					opts = append(opts, election.WithJetStream(js))
				}
				for _, leads := range []bool{true, false} {
					c := f.candidateOn(fmt.Sprint(leads), nil, f.server.Bucket(f.T, nc, ttl, f.options...), opts...).start()
					after(interval)
					f.Expect(c.IsLeader()).To(Equal(leads))
					defer func() {
						closed := time.Now()
						err := <-c.result
						f.Expect(errors.Is(err, nats.ErrConnectionClosed)).To(BeTrue(), "%v", err)
						f.Expect(c.IsLeader()).To(BeFalse())
						f.Expect(time.Since(closed)).To(BeNumerically("<=", ttl+time.Second))
						if given {
							f.Expect(time.Since(closed)).To(BeNumerically("<=", 100*time.Millisecond))
						}
						f.Expect(ask(c.Handler(), "GET", "/healthz").Code).To(Equal(503))
						f.Expect(c.Start(context.Background())).To(MatchError(nats.ErrConnectionClosed))
					}()
				}
				nc.Close()
			}, republished)
		})
	}
}

func TestClosedConnectionEndsTheRunOfACandidateThatDoesNotCampaign(t *testing.T) {
	for name, c := range map[string]struct {
		opts []election.Option
		then func(*candidate)
	}{
		"paused":    {nil, func(c *candidate) { c.Pause() }},
		"unhealthy": {[]election.Option{election.WithHealthCheck(func(context.Context) error { return errors.New("ill") })}, func(*candidate) {}},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				nc := f.server.Connect(f.T)
				a := f.candidateOn("a", nil, f.server.Bucket(f.T, nc, ttl, f.options...), c.opts...)
				c.then(a)
				a.start()
				after(3 * interval)
				nc.Close()
				after(ttl + time.Second)
				var err error
				select {
				case err = <-a.result:
				default:
				}
				f.Expect(err).To(MatchError(nats.ErrConnectionClosed))
			})
		})
	}
}

func TestReconnectionOfAllIsNoHerd(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		const n = 200
		f.hearing("leader").start()
		after(interval)
		var all []*candidate
		for i := range n {
			all = append(all, f.hearing(fmt.Sprint("c", i), election.WithSplay(5*time.Second)).start())
		}
		after(4 * interval)
		var writes atomic.Int64
		reads := make(chan time.Time, 100*n)
		for _, c := range all {
			c.link.OnRequest(func(m link.Message) {
				if toKey(m) {
					writes.Add(1)
				} else {
					reads <- time.Now()
				}
			})
			c.link.Disconnect()
		}
		after(ttl)
		f.Expect(writes.Load()).To(BeZero(), "the key was held all along")
		close(reads)
		var at []time.Time
		for t := range reads {
			at = append(at, t)
		}
		f.Expect(len(at)).To(And(BeNumerically(">=", n), BeNumerically("<=", 3*n)), "each has read the key, and whether its election is paused")
		most := 0
		for i := range at {
			within := 0
			for _, other := range at[i:] {
				if other.Sub(at[i]) < 500*time.Millisecond {
					within++
				}
			}
			most = max(most, within)
		}
		f.Expect(most).To(BeNumerically("<=", n), "in any half second")
	}, republished)
}

func TestFollowerOfABucketThatWasMadeAgainIsQuietAndIsNotified(t *testing.T) {
	bySource(t, func(f *fleet, candidate func(string, ...election.Option) *candidate) {
		leader, follower := candidate("a").start(), candidate("b")
		after(interval)
		follower.start()
		after(5 * interval)
		f.remake()
		after(6 * ttl)
		if follower.IsLeader() {
			leader, follower = follower, leader
		}
		f.Expect(leader.IsLeader()).To(BeTrue())
		var requests atomic.Int64
		follower.link.OnRequest(func(m link.Message) {
			if !strings.HasPrefix(m.Subject, "$JS.FC") {
				requests.Add(1)
			}
		})
		after(30 * ttl)
		f.Expect(requests.Load()).To(BeNumerically("<=", 12), "a few campaigns")
		leader.Stop()
		after(spread)
		f.Expect(follower.IsLeader()).To(BeTrue())
	})
}
