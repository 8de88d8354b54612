package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

// gated is a bucket whose watchers of single keys are made when the gate is opened.
type gated struct {
	jetstream.KeyValue
	gate chan struct{}
}

func (b *gated) Watch(ctx context.Context, keys string, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	<-b.gate
	return b.KeyValue.Watch(ctx, keys, opts...)
}

func TestElectionThatJoinsWhileTheWatcherOfTheFirstIsMadeHearsToo(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		stand := func(name, key string, bucket jetstream.KeyValue) *election.Election {
			e, err := election.NewElection(name, key, bucket, election.WithSplay(0))
			f.Expect(err).NotTo(HaveOccurred())
			go func() { _ = e.Start(context.Background()) }()
			f.Cleanup(e.Stop)
			synctest.Wait()
			return e
		}
		leader := stand("leader", "second", f.bucket)
		after(interval)
		f.Expect(leader.IsLeader()).To(BeTrue())

		b := &gated{KeyValue: f.server.Bucket(f.T, f.server.Connect(f.T), ttl, f.options...), gate: make(chan struct{})}
		stand("a", "first", b)
		late := stand("b", "second", b)
		close(b.gate)
		after(interval / 2)
		leader.Stop()
		after(100 * time.Millisecond)
		f.Expect(late.IsLeader()).To(BeTrue())
	})
}
