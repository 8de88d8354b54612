package semaphore_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/semaphore"
)

func TestBucketWithoutItsConnectionServesToo(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		bucket, _ := f.Connect()
		for name, opts := range map[string][]election.Option{"alone": nil, "with JetStream": {election.WithJetStream(bucket.JetStream())}} {
			s, err := semaphore.New(name, key+name[:1], 1, bucket.KeyValue, opts...)
			f.Expect(err).NotTo(HaveOccurred())
			slot, err := s.Acquire(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			_, err = s.TryAcquire(context.Background())
			f.Expect(err).To(MatchError(semaphore.ErrFull), name)
			f.Expect(slot.Release()).To(Succeed())
			began := time.Now()
			slot, err = s.Acquire(context.Background())
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(time.Since(began)).To(BeNumerically("<", time.Second), name)
			f.Expect(slot.Release()).To(Succeed())
		}
	})
}
