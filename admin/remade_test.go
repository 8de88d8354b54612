package admin_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestAllCandidatesAnswerAtOnceAfterTheBucketWasMadeAgain(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		js := f.JetStream()
		remake := func() *election.Bucket {
			f.Expect(js.DeleteKeyValue(ctx, natstest.BucketName)).To(Succeed())
			bucket, err := election.CreateBucket(ctx, js, election.BucketConfig{Name: natstest.BucketName, TTL: ttl, Storage: jetstream.MemoryStorage})
			f.Expect(err).NotTo(HaveOccurred())
			return bucket
		}
		remake()
		_, others := f.LeaderWith("b", "c")
		after(time.Second)
		bucket := remake() // which republishes on another subject
		f.Expect(operator(f).Candidates(ctx, key)).To(HaveLen(3))
		after(time.Second)
		f.Expect(operator(f).Candidates(ctx, key)).To(HaveLen(3), "each of them once")
		_, err := bucket.PutString(ctx, key, "stranger")
		f.Expect(err).NotTo(HaveOccurred())
		after(time.Second)
		f.Expect(others["c"].Status().Leader.Name).To(Equal("stranger"), "it is notified of what happens in the new bucket")
	}, republished)
}

func TestRequestsThatNameABucketOfTheFutureKeepNoCandidateBusy(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		a, _ := f.LeaderWith("b")
		var loads atomic.Int64
		a.Link.OnRequest(func(m faultproxy.Message) {
			if strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") {
				loads.Add(1)
			}
		})
		nc := f.Server.Connect(f.T)
		inbox := nc.NewInbox()
		for range 500 {
			f.Expect(nc.PublishRequest("election-control."+natstest.BucketName+".candidates."+key, inbox, []byte(`{"bucket":"2100-01-01T00:00:00Z"}`))).To(Succeed())
			after(10 * time.Millisecond)
		}
		f.Expect(loads.Load()).To(And(BeNumerically(">=", 4), BeNumerically("<=", 6)), "one per second")
	}, republished)
}
