package mutex_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
	"github.com/natscampaign/election/mutex"
)

func TestLocksOfAProcessCostItsOtherElectionsNothing(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.Run(t, func(f *fleettest.Fleet) {
		const other = "service"
		connect := func(name string) (*mutex.Mutex, *faultproxy.Link) {
			bucket, l := f.Connect()
			candidate, err := election.NewElection(name, other, bucket, election.WithSplay(0))
			f.Expect(err).NotTo(HaveOccurred())
			go func() { _ = candidate.Start(context.Background()) }()
			f.Cleanup(candidate.Stop)
			time.Sleep(standDown)
			m, err := mutex.New(name, key, bucket)
			f.Expect(err).NotTo(HaveOccurred())
			return m, l
		}
		connect("leader")
		m, l := connect("follower")
		lockAndUnlock := func(times int) {
			for range times {
				f.Expect(m.Lock(context.Background())).To(Succeed())
				time.Sleep(time.Second)
				f.Expect(m.Unlock()).To(Succeed())
				time.Sleep(time.Second)
			}
			time.Sleep(ttl)
			synctest.Wait()
		}
		lockAndUnlock(10) // the first of them makes the process watch all keys
		var campaigns atomic.Int64
		toOther := natstest.ToKey(other)
		l.OnRequest(func(m faultproxy.Message) {
			if toOther(m) {
				campaigns.Add(1)
			}
		})
		lockAndUnlock(1000)
		f.Expect(campaigns.Load()).To(BeNumerically("<=", 12), "in half an hour a follower campaigns once in 400 s at most, and again if that fails")
	})
}
