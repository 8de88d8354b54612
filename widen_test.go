package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/natstest"
)

func TestSecondElectionOfAProcessHearsFromTheBeginningAndSoDoesTheFirst(t *testing.T) {
	for name, change := range map[string]func(*jetstream.KeyValueConfig){"watch": natstest.WithMarkers, "republish": republished} {
		t.Run(name, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				process := func(name string, keys ...string) (all []*election.Election) {
					nc := f.server.Connect(f.T)
					js, err := jetstream.New(nc)
					f.Expect(err).NotTo(HaveOccurred())
					bucket := f.server.Bucket(f.T, nc, ttl, f.options...)
					for _, key := range keys {
						e, err := election.NewElection(name, key, bucket, election.WithSplay(0), election.WithJetStream(js))
						f.Expect(err).NotTo(HaveOccurred())
						go func() { f.Expect(e.Start(context.Background())).To(Succeed()) }()
						f.Cleanup(e.Stop)
						after(instant) // so that the source was made for the first alone
						all = append(all, e)
					}
					return all
				}
				leaders := process("a", "one", "two")
				after(interval)
				others := process("b", "one", "two")
				for i := range leaders {
					f.Expect(leaders[i].Transfer(context.Background(), "b")).To(Succeed())
					after(instant)
					f.Expect(others[i].IsLeader()).To(BeTrue())
				}
				after(time.Second)
				f.Expect(others[0].IsLeader() && others[1].IsLeader()).To(BeTrue())
			}, change)
		})
	}
}
