package mutex_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/hold/holdtest"
	"github.com/natscampaign/election/internal/link"
	"github.com/natscampaign/election/internal/natstest"
	"github.com/natscampaign/election/mutex"
)

func TestLocksOfAProcessCostItsOtherElectionsNothing(t *testing.T) {
	holdtest.OnVirtualTime(t, func(b *holdtest.Bench) {
		const other = "service"
		connect := func(name string) (*mutex.Mutex, *link.Link) {
			bucket, js, l := b.Connect()
			e, err := election.NewElection(name, other, bucket, election.WithSplay(0), election.WithJetStream(js))
			b.Expect(err).NotTo(HaveOccurred())
			go func() { _ = e.Start(context.Background()) }()
			b.Cleanup(e.Stop)
			time.Sleep(standDown)
			m, err := mutex.New(name, key, bucket, election.WithJetStream(js))
			b.Expect(err).NotTo(HaveOccurred())
			return m, l
		}
		connect("leader")
		m, l := connect("follower")
		lockAndUnlock := func(times int) {
			for range times {
				b.Expect(m.Lock(context.Background())).To(Succeed())
				time.Sleep(time.Second)
				b.Expect(m.Unlock()).To(Succeed())
				time.Sleep(time.Second)
			}
			time.Sleep(ttl)
			synctest.Wait()
		}
		lockAndUnlock(10) // the first of which needs a wider watcher
		var campaigns atomic.Int64
		l.OnRequest(func(m link.Message) {
			if m.Subject == "$KV."+natstest.BucketName+"."+other {
				campaigns.Add(1)
			}
		})
		lockAndUnlock(1000)
		b.Expect(campaigns.Load()).To(BeNumerically("<=", 12), "in half an hour of following: one in 400 s at most, and again if it fails")
	})
}
