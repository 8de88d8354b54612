package lease_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestRenewalWithALostReplyIsRecognised(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		term, _ := a.Term()
		a.Link.LoseReplies(faultproxy.Once(ToKeyReply))
		sent := time.Now().Add(Interval)
		After(Lease - Instant) // the first try takes half of what is left of the lease, then the leader reads the key
		f.Expect(term.Deadline()).To(BeTemporally("==", sent.Add(Lease)), "the lease counts from the sending of the first try")
		After(10 * TTL)
		now, _ := a.Term()
		f.Expect(now).To(Equal(term))
		f.Expect(a.Seen()).To(HaveLen(1))
	})
}

func TestLeaderSurvivesLostRequestsAndReplies(t *testing.T) {
	natstest.SkipIfShort(t)
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		var n atomic.Int64
		// Replies to the start of a watcher are spared: nats.go waits for them with a mutex locked that the watcher's first message needs,
		// and virtual time does not pass while a goroutine waits for a mutex.
		everyThird := func(m faultproxy.Message) bool {
			return n.Add(1)%3 == 0 && !strings.HasPrefix(m.Request, "$JS.API.CONSUMER.")
		}
		a.Link.LoseReplies(everyThird)
		After(50 * TTL)
		a.Link.LoseReplies(func(faultproxy.Message) bool { return false })
		a.Link.LoseRequests(everyThird)
		After(50 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Seen()).To(HaveLen(1))
	})
}

func TestStallBeforeTheDeadlineCostsNoTerm(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b := f.Candidate("b").Begin()
		for range 10 {
			After(Interval - time.Millisecond)
			a.Link.Stall()
			After(Lease - Interval - 100*time.Millisecond)
			a.Link.Heal()
			After(time.Second)
			f.Expect(a.IsLeader()).To(BeTrue())
		}
		f.Expect(a.Seen()).To(HaveLen(1))
		f.Expect(b.Seen()).To(BeEmpty())
	})
}

func TestPassingConflictCostsNoTerm(t *testing.T) {
	Run(t, func(f *Fleet) {
		c, bucket := f.FaultyCandidate("a")
		c.Begin()
		After(Interval)
		refusals := 0
		bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
			if refusals++; refusals%4 != 0 {
				return 0, ErrConflict
			}
			return update()
		})
		After(20 * TTL)
		f.Expect(c.IsLeader()).To(BeTrue())
		f.Expect(c.Seen()).To(HaveLen(1))
	})
}

func TestRenewalIsRetriedUntilTheDeadline(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, err := range []error{
		jetstream.ErrNoStreamResponse, context.DeadlineExceeded, context.Canceled, errors.New("something new"),
		jetstream.ErrStreamNotFound, &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "system unavailable"},
	} {
		t.Run(err.Error(), func(t *testing.T) {
			Run(t, func(f *Fleet) {
				c, bucket := f.FaultyCandidate("a")
				c.Begin()
				After(Interval)
				fails := time.Now().Add(Lease - 200*time.Millisecond)
				bucket.OnUpdate(func(_ context.Context, _ []byte, _ uint64, update func() (uint64, error)) (uint64, error) {
					if time.Now().Before(fails) {
						return 0, err
					}
					return update()
				})
				After(10 * TTL)
				f.Expect(c.Seen()).To(HaveLen(1), "the last try before the deadline saved the term")
			})
		})
	}
}

func TestPlainLeaderLeadsToItsDeadlineAfterALostReply(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a", election.WithPlainValue())
		a.Link.LoseReplies(faultproxy.Once(ToKeyReply))
		After(Lease - Instant)
		f.Expect(a.IsLeader()).To(BeTrue())
		After(Instant)
		f.Expect(a.IsLeader()).To(BeFalse())
		After(3 * TTL)
		f.Expect(a.IsLeader()).To(BeTrue(), "a new term, once the key had expired")
	}, WithoutMarkers)
}

func TestEveryWriteHasItsOwnAttempt(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a")
		attempts := map[string]int{}
		a.Link.OnRequest(func(m faultproxy.Message) {
			if _, after, ok := bytes.Cut(m.Payload, []byte(`"attempt":"`)); ok {
				id, _, _ := bytes.Cut(after, []byte(`"`))
				attempts[string(id)]++
			}
		})
		a.Begin()
		After(10 * Interval)
		a.End()
		f.Expect(attempts).To(HaveLen(12))
		f.Expect(attempts).To(HaveEach(1))
	})
}

func TestSlowLinkCostsOneRequestPerRenewal(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a")
		a.Link.DelayReplies(300 * time.Millisecond)
		a.Begin()
		After(2 * Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		requests := 0
		a.Link.OnRequest(func(faultproxy.Message) { requests++ })
		After(10 * Interval)
		f.Expect(requests).To(Equal(10))
	})
}

func TestRenewalIsOneRequestPerInterval(t *testing.T) {
	Run(t, func(f *Fleet) {
		c := f.Leading("a", election.WithBackoff(election.ConstantBackoff(time.Second)))
		var requests []time.Duration
		began := time.Now()
		c.Link.OnRequest(func(faultproxy.Message) { requests = append(requests, time.Since(began)) })
		After(10 * Interval)
		want := make([]time.Duration, 10)
		for i := range want {
			want[i] = time.Duration(i+1) * Interval
		}
		f.Expect(requests).To(Equal(want))
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}
