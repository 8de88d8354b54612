package election_test

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
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestRenewalWithALostReplyIsRecognised(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		term, _ := a.Term()
		a.link.LoseReplies(once(toKeyReply))
		sent := time.Now().Add(interval)
		after(lease - instant) // the first try takes half of what is left of the lease, then the leader reads the key
		f.Expect(term.Deadline()).To(BeTemporally("==", sent.Add(lease)), "the lease counts from the sending of the first try")
		after(10 * ttl)
		now, _ := a.Term()
		f.Expect(now).To(Equal(term))
		f.Expect(a.seen()).To(HaveLen(1))
	})
}

func TestLeaderSurvivesLostRequestsAndReplies(t *testing.T) {
	natstest.SkipIfShort(t)
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		var n atomic.Int64
		// Replies to the start of a watcher are spared: nats.go waits for them with a mutex locked that the watcher's first message needs,
		// and virtual time does not pass while a goroutine waits for a mutex.
		everyThird := func(m faultproxy.Message) bool {
			return n.Add(1)%3 == 0 && !strings.HasPrefix(m.Request, "$JS.API.CONSUMER.")
		}
		a.link.LoseReplies(everyThird)
		after(50 * ttl)
		a.link.LoseReplies(func(faultproxy.Message) bool { return false })
		a.link.LoseRequests(everyThird)
		after(50 * ttl)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(1))
	})
}

func TestStallBeforeTheDeadlineCostsNoTerm(t *testing.T) {
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

func TestRenewalIsRetriedUntilTheDeadline(t *testing.T) {
	natstest.SkipIfShort(t)
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

func TestPlainLeaderLeadsToItsDeadlineAfterALostReply(t *testing.T) {
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

func TestEveryWriteHasItsOwnAttempt(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		attempts := map[string]int{}
		a.link.OnRequest(func(m faultproxy.Message) {
			if _, after, ok := bytes.Cut(m.Payload, []byte(`"attempt":"`)); ok {
				id, _, _ := bytes.Cut(after, []byte(`"`))
				attempts[string(id)]++
			}
		})
		a.start()
		after(10 * interval)
		a.shutdown()
		f.Expect(attempts).To(HaveLen(12))
		f.Expect(attempts).To(HaveEach(1))
	})
}

func TestSlowLinkCostsOneRequestPerRenewal(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a")
		a.link.DelayReplies(300 * time.Millisecond)
		a.start()
		after(2 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		requests := 0
		a.link.OnRequest(func(faultproxy.Message) { requests++ })
		after(10 * interval)
		f.Expect(requests).To(Equal(10))
	})
}

func TestRenewalIsOneRequestPerInterval(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		c := f.leading("a", election.WithBackoff(election.ConstantBackoff(time.Second)))
		var requests []time.Duration
		began := time.Now()
		c.link.OnRequest(func(faultproxy.Message) { requests = append(requests, time.Since(began)) })
		after(10 * interval)
		want := make([]time.Duration, 10)
		for i := range want {
			want[i] = time.Duration(i+1) * interval
		}
		f.Expect(requests).To(Equal(want))
		f.Expect(c.IsLeader()).To(BeTrue())
	})
}
