package semaphore_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/session/sessiontest"
	"github.com/natscampaign/election/semaphore"
)

func TestBucketWithoutItsConnectionServesToo(t *testing.T) {
	sessiontest.OnVirtualTime(t, func(e *sessiontest.Env) {
		bucket, _ := e.Connect()
		for name, opts := range map[string][]election.Option{"alone": nil, "with JetStream": {election.WithJetStream(bucket.JetStream())}} {
			s, err := semaphore.New(name, key+name[:1], 1, bucket.KeyValue, opts...)
			e.Expect(err).NotTo(HaveOccurred())
			slot, err := s.Acquire(context.Background())
			e.Expect(err).NotTo(HaveOccurred())
			_, err = s.TryAcquire(context.Background())
			e.Expect(err).To(MatchError(semaphore.ErrFull), name)
			e.Expect(slot.Release()).To(Succeed())
			began := time.Now()
			slot, err = s.Acquire(context.Background())
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(time.Since(began)).To(BeNumerically("<", time.Second), name)
			e.Expect(slot.Release()).To(Succeed())
		}
	})
}
