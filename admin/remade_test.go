package admin_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/fleettest"
	"github.com/natscampaign/election/internal/natstest"
)

func TestAllCandidatesAnswerAtOnceAfterTheBucketWasMadeAgain(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		js, err := jetstream.New(f.Server.Connect(f.T))
		f.Expect(err).NotTo(HaveOccurred())
		remake := func() *election.Bucket {
			f.Expect(js.DeleteKeyValue(ctx, natstest.BucketName)).To(Succeed())
			bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: natstest.BucketName, TTL: ttl, Storage: jetstream.MemoryStorage})
			f.Expect(err).NotTo(HaveOccurred())
			return bucket
		}
		remake()
		_, others := candidates(f, "b", "c")
		after(time.Second)
		bucket := remake() // which republishes on another subject
		f.Expect(operator(f).Candidates(ctx, key)).To(HaveLen(3))
		after(time.Second)
		f.Expect(operator(f).Candidates(ctx, key)).To(HaveLen(3), "each of them once")
		_, err = bucket.PutString(ctx, key, "stranger")
		f.Expect(err).NotTo(HaveOccurred())
		after(time.Second)
		f.Expect(others["c"].Status().Leader.Name).To(Equal("stranger"), "it is notified of what happens in the new bucket")
	}, republished)
}
