package lease_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestStaleReadEndsNoTerm(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, stale := range map[string]func() (jetstream.KeyValueEntry, error){
		"an older record of another": func() (jetstream.KeyValueEntry, error) { return Entry{Text: []byte("before"), Number: 1}, nil },
		"no key yet":                 func() (jetstream.KeyValueEntry, error) { return nil, jetstream.ErrKeyNotFound },
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Write("before")
				f.Expect(f.Bucket.Purge(context.Background(), Key)).To(Succeed())
				c, bucket := f.FaultyCandidate("a")
				c.Begin()
				After(TTL) // the stand-down after a removal
				f.Expect(c.IsLeader()).To(BeTrue())
				var refused, read bool
				bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
					if !refused {
						refused = true
						return 0, ErrConflict
					}
					return update()
				})
				bucket.OnGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
					if !read {
						read = true
						return stale()
					}
					return get()
				})
				After(5 * TTL)
				f.Expect(read).To(BeTrue())
				f.Expect(c.Seen()).To(HaveLen(1))
			})
		})
	}
}

func TestForeignRecordEndsTheTermOfAnUnnotifiedLeader(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Unnotified("a").Begin()
		After(Interval)
		term, _ := a.Term()
		f.Write("stranger")
		After(Interval - Instant)
		f.Expect(a.IsLeader()).To(BeTrue())
		After(Instant)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(term.Deadline()).To(BeTemporally("<=", time.Now()), "the lease ended with the term")
		f.Expect(a.Seen()).To(Equal([]string{"won 7.5s", "lost 15s"}))
		f.Expect(f.Record()).To(Equal("stranger"))
	})
}

func TestDeletedKeyEndsTheTermOfAnUnnotifiedLeader(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Unnotified("a").Begin()
		After(Interval)
		f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed())
		After(Interval + time.Second)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(f.Record()).To(BeEmpty(), "the candidate does not take the key back at once")
		After(3 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestRewoundHistoryEndsTheTerm(t *testing.T) {
	natstest.SkipIfShort(t)
	foreign := func(revision uint64) func() (jetstream.KeyValueEntry, error) {
		return func() (jetstream.KeyValueEntry, error) {
			return Entry{Text: []byte(`{"name":"b","instance":"b1","attempt":"b1.1","term":1}`), Number: revision}, nil
		}
	}
	for name, c := range map[string]struct {
		refusal func(last uint64) error
		read    func(won, last uint64) func() (jetstream.KeyValueEntry, error)
		lost    bool
	}{
		"a refusal names an earlier sequence": {func(last uint64) error { return RefusalNaming(last - 1) }, nil, true},
		"a refusal names no sequence, and a read finds nothing": {func(uint64) error { return RefusalNaming(0) },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) {
				return func() (jetstream.KeyValueEntry, error) { return nil, jetstream.ErrKeyNotFound }
			}, true},
		"a foreign record lies between": {func(uint64) error { return ErrConflict },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) { return foreign(last - 1) }, true},
		"a foreign record has the revision of the win": {func(uint64) error { return ErrConflict },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) { return foreign(won) }, true},
		"a read may be stale": {func(uint64) error { return ErrConflict },
			func(won, last uint64) func() (jetstream.KeyValueEntry, error) { return foreign(won - 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Write("before")
				f.Expect(f.Bucket.Purge(context.Background(), Key)).To(Succeed())
				a, bucket := f.FaultyCandidate("a")
				a.Begin()
				After(TTL + 3*Interval)
				term, leads := a.Term()
				f.Expect(leads).To(BeTrue())
				last := f.Revision()
				f.Expect(last).To(BeNumerically(">=", term.Number+2))
				bucket.OnUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
					return 0, c.refusal(last)
				})
				if c.read != nil {
					read := c.read(term.Number, last)
					bucket.OnGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
						return read()
					})
				}
				for tried := time.Now(); a.IsLeader() && time.Since(tried) < Interval+time.Millisecond; {
					After(time.Millisecond)
				}
				f.Expect(a.IsLeader()).To(Equal(!c.lost), "by its next renewal")
			})
		})
	}
}

// After a time without answers to its reads a candidate assumes that it may not read. Where the server's refusal names no sequence only a
// read can prove the loss, and reads may succeed again.
func TestLeaderThatCouldNotReadReadsAfterARefusal(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, bucket := f.FaultyCandidate("a")
		bucket.OnGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return nil, context.DeadlineExceeded
		})
		refusals := 0
		bucket.OnUpdate(func(_ context.Context, _ []byte, rev uint64, update func() (uint64, error)) (uint64, error) {
			if refusals++; rev > 0 && refusals <= 4 { // each refusal causes a read, which is not answered
				return 0, ErrConflict
			}
			return update()
		})
		a.Begin()
		After(TTL + 3*Interval)
		term, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(f.Revision()).To(BeNumerically(">", term.Number))

		bucket.OnUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) { return 0, ErrConflict })
		bucket.OnGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return Entry{Text: []byte(`{"name":"b","instance":"b1","attempt":"b1.1","term":1}`), Number: term.Number}, nil
		})
		After(Interval + 100*time.Millisecond)
		f.Expect(a.IsLeader()).To(BeFalse(), "by its next renewal")
	})
}

// A creation of unknown outcome may be applied at any time, so also once this candidate has won by another write and the key has expired. The server
// refuses the next renewal then, and to a candidate that cannot read the refusal is no proof of a foreign write.
func TestRefusalByAnOwnLateWriteEndsNoTerm(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, bucket := f.FaultyCandidate("a")
		bucket.OnGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return nil, context.DeadlineExceeded
		})
		bucket.OnUpdate(func(_ context.Context, _ []byte, revision uint64, update func() (uint64, error)) (uint64, error) {
			if revision == 0 { // it creates the key without having read it
				return 0, context.DeadlineExceeded
			}
			return update()
		})
		a.Begin()
		After(Interval)
		bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			return update()
		})
		for began := time.Now(); !a.IsLeader() && time.Since(began) < 5*TTL; {
			After(TTL / 10)
		}
		term, leads := a.Term()
		f.Expect(leads).To(BeTrue())

		bucket.OnUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) {
			return 0, RefusalNaming(term.Number + 100)
		})
		After(Interval + 100*time.Millisecond)
		f.Expect(term.Valid()).To(BeTrue(), "until its deadline")
	})
}

func TestDeletionEndsTheTermAsDeleted(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, remove := range Removals {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				var log Log
				a := candidate("a", election.WithLogger(log.Logger())).Begin()
				After(Interval + time.Second)
				f.Expect(remove(f)).To(Succeed())
				After(100 * time.Millisecond)
				f.Expect(a.IsLeader()).To(BeFalse(), "a notified removal ends the term at once")
				f.Expect(log.Count(`state=candidate reason=deleted`)).To(Equal(1))
			})
		})
	}
}

func TestReadsOfALaggingReplicaEndNoTerm(t *testing.T) {
	Run(t, func(f *Fleet) {
		c, bucket := f.FaultyCandidate("a")
		c.Begin()
		After(Interval)
		refusals, reads := 0, 0
		bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			if refusals++; refusals <= 4 {
				return 0, ErrConflict
			}
			return update()
		})
		bucket.OnGet(func(_ context.Context, get func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			if reads++; reads <= 4 {
				return nil, jetstream.ErrKeyNotFound
			}
			return get()
		})
		After(3 * TTL)
		f.Expect(reads).To(BeNumerically(">=", 2))
		f.Expect(c.Seen()).To(HaveLen(1))
	})
}

func TestNotifiedLeaderNoticesAForeignWriteAtOnce(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, write := range map[string]func(*Fleet){
		"overwritten": func(f *Fleet) { f.Write("stranger") },
		"deleted":     func(f *Fleet) { f.Expect(f.Bucket.Delete(context.Background(), Key)).To(Succeed()) },
	} {
		t.Run(name, func(t *testing.T) {
			ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
				a := candidate("a").Begin()
				After(Interval + time.Second)
				f.Expect(a.IsLeader()).To(BeTrue())
				write(f)
				After(500 * time.Millisecond)
				f.Expect(a.IsLeader()).To(BeFalse())
			})
		})
	}
}

// Where the history was rewound, a late release of an earlier term may be applied over the record of a new one. Anybody may then take the
// key without a stand-down. The simulator found it.
func TestOwnLateReleaseEndsTheTerm(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, bucket := f.FaultyCandidate("a")
		a.Begin()
		After(2 * Interval)
		term, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		released := strings.Replace(f.Record(), `"attempt"`, `"released":"2000-01-01T00:00:00Z","attempt"`, 1)
		bucket.OnUpdate(func(context.Context, []byte, uint64, func() (uint64, error)) (uint64, error) { return 0, ErrConflict })
		bucket.OnGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return Entry{Text: []byte(released), Number: f.Revision() + 1}, nil
		})
		After(Interval + Instant)
		f.Expect(term.Valid()).To(BeFalse())
	})
}
