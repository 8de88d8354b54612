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
)

// refusalNaming is how a server that keeps a bucket alone refuses a write: its answer names the last revision of the key.
func refusalNaming(last uint64) error {
	err := &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence, Description: fmt.Sprintf("wrong last sequence: %d", last)}
	return fmt.Errorf("%w: %w", err, jetstream.ErrKeyRevisionMismatch)
}

func TestStaleReadEndsNoTerm(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, stale := range map[string]func() (jetstream.KeyValueEntry, error){
		"an older record of another": func() (jetstream.KeyValueEntry, error) { return entry{value: []byte("before"), revision: 1}, nil },
		"no key yet":                 func() (jetstream.KeyValueEntry, error) { return nil, jetstream.ErrKeyNotFound },
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				f.Write("before")
				f.Expect(f.Bucket.Purge(context.Background(), key)).To(Succeed())
				c, bucket := f.faultyCandidate("a")
				c.start()
				after(ttl) // the stand-down after a removal
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

func TestForeignRecordEndsTheTermOfAnUnnotifiedLeader(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.unnotified("a").start()
		after(interval)
		term, _ := a.Term()
		f.Write("stranger")
		after(interval - instant)
		f.Expect(a.IsLeader()).To(BeTrue())
		after(instant)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(term.Deadline()).To(BeTemporally("<=", time.Now()), "the lease ended with the term")
		f.Expect(a.seen()).To(Equal([]string{"won 7.5s", "lost 15s"}))
		f.Expect(f.record()).To(Equal("stranger"))
	})
}

func TestDeletedKeyEndsTheTermOfAnUnnotifiedLeader(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.unnotified("a").start()
		after(interval)
		f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed())
		after(interval + time.Second)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(f.record()).To(BeEmpty(), "the candidate does not take the key back at once")
		after(3 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestRewoundHistoryEndsTheTerm(t *testing.T) {
	natstest.SkipIfShort(t)
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
		"a refusal names an earlier sequence": {func(last uint64) error { return refusalNaming(last - 1) }, nil, true},
		"a refusal names no sequence, and a read finds nothing": {func(uint64) error { return refusalNaming(0) },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) {
				return func() (jetstream.KeyValueEntry, error) { return nil, jetstream.ErrKeyNotFound }
			}, true},
		"a foreign record lies between": {func(uint64) error { return errConflict },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) { return foreign(last - 1) }, true},
		"a foreign record has the revision of the win": {func(uint64) error { return errConflict },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) { return foreign(won) }, true},
		"a read may be stale": {func(uint64) error { return errConflict },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) { return foreign(won - 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				f.Write("before")
				f.Expect(f.Bucket.Purge(context.Background(), key)).To(Succeed())
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

// After a time without answers to its reads a candidate assumes that it may not read. Where the server's refusal names no sequence only a
// read can prove the loss, and reads may succeed again.
func TestLeaderThatCouldNotReadReadsAfterARefusal(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return nil, context.DeadlineExceeded
		})
		refusals := 0
		bucket.onUpdate(func(_ context.Context, _ []byte, rev uint64, update func() (uint64, error)) (uint64, error) {
			if refusals++; rev > 0 && refusals <= 4 { // each refusal causes a read, which is not answered
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

// A creation of unknown outcome may be applied at any time, so also once this candidate has won by another write and the key has expired. The server
// refuses the next renewal then, and to a candidate that cannot read the refusal is no proof of a foreign write.
func TestRefusalByAnOwnLateWriteEndsNoTerm(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return nil, context.DeadlineExceeded
		})
		bucket.onUpdate(func(_ context.Context, _ []byte, revision uint64, update func() (uint64, error)) (uint64, error) {
			if revision == 0 { // it creates the key without having read it
				return 0, context.DeadlineExceeded
			}
			return update()
		})
		a.start()
		after(interval)
		bucket.onUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			return update()
		})
		for began := time.Now(); !a.IsLeader() && time.Since(began) < 5*ttl; {
			after(ttl / 10)
		}
		term, leads := a.Term()
		f.Expect(leads).To(BeTrue())

		bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
			return 0, refusalNaming(term.Number + 100)
		})
		after(interval + 100*time.Millisecond)
		f.Expect(term.Valid()).To(BeTrue(), "until its deadline")
	})
}

func TestDeletionEndsTheTermAsDeleted(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range map[string]func(jetstream.KeyValue) error{
		"deleted": func(kv jetstream.KeyValue) error { return kv.Delete(context.Background(), key) },
		"purged":  func(kv jetstream.KeyValue) error { return kv.Purge(context.Background(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				var log logged
				a := candidate("a", election.WithLogger(log.logger())).start()
				after(interval + time.Second)
				f.Expect(remove(f.Bucket)).To(Succeed())
				after(100 * time.Millisecond)
				f.Expect(a.IsLeader()).To(BeFalse(), "a notified removal ends the term at once")
				f.Expect(log.count(`state=candidate reason=deleted`)).To(Equal(1))
			})
		})
	}
}

func TestReadsOfALaggingReplicaEndNoTerm(t *testing.T) {
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

func TestNotifiedLeaderNoticesAForeignWriteAtOnce(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, write := range map[string]func(*fleet){
		"overwritten": func(f *fleet) { f.Write("stranger") },
		"deleted":     func(f *fleet) { f.Expect(f.Bucket.Delete(context.Background(), key)).To(Succeed()) },
	} {
		t.Run(name, func(t *testing.T) {
			forEachSource(t, func(f *fleet, candidate newCandidate) {
				a := candidate("a").start()
				after(interval + time.Second)
				f.Expect(a.IsLeader()).To(BeTrue())
				write(f)
				after(500 * time.Millisecond)
				f.Expect(a.IsLeader()).To(BeFalse())
			})
		})
	}
}

// Where the history was rewound, a late release of an earlier term may be applied over the record of a new one. Anybody may then take the
// key without a stand-down. The simulator found it.
func TestOwnLateReleaseEndsTheTerm(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, bucket := f.faultyCandidate("a")
		a.start()
		after(2 * interval)
		term, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		released := strings.Replace(f.record(), `"attempt"`, `"released":"2000-01-01T00:00:00Z","attempt"`, 1)
		bucket.onUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) { return 0, errConflict })
		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return entry{value: []byte(released), revision: f.revision() + 1}, nil
		})
		after(interval + instant)
		f.Expect(term.Valid()).To(BeFalse())
	})
}
