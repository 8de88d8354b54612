package admin_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/natstest"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/fleettest"
)

func TestEvictDeletesTheKeyOfTheLeaderThatItReturns(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		o := operator(f)
		_, err := o.Evict(ctx, key)
		f.Expect(err).To(MatchError(election.ErrNoLeader))
		_, err = o.Evict(ctx, "a b")
		f.Expect(err).To(MatchError(election.ErrInvalidOption))

		a, others := candidates(f, "b")
		evicted, err := o.Evict(ctx, key)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(evicted.Instance).To(Equal(a.Status().Instance))
		f.Expect(evicted.Term).NotTo(BeZero())
		after(time.Second)
		f.Expect(a.IsLeader()).To(BeFalse(), "it was notified")
		f.Expect(others["b"].State()).To(Equal(election.LeaderElectState))
		after(ttl)
		f.Expect(others["b"].IsLeader()).To(BeTrue())

		others["b"].Stop()
		after(instant)
		a.Stop()
		after(time.Second)
		_, err = o.Evict(ctx, key)
		f.Expect(err).To(MatchError(election.ErrNoLeader), "the key is released")
	}, republished)
}

// overtaken is a bucket in which something happens between the read of a key and its deletion.
type overtaken struct {
	jetstream.KeyValue
	between func()
}

func (b overtaken) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	entry, err := b.KeyValue.Get(ctx, key)
	b.between()
	return entry, err
}

func TestEvictDeletesARenewalOfTheSameTermAndNothingElse(t *testing.T) {
	natstest.SkipIfShort(t)
	const leader = `{"name":"a","instance":"a1","attempt":"a1.1","term":7,"since":"2026-01-01T00:00:00Z"}`
	for name, c := range map[string]struct {
		writes  int // before the first deletions, one each
		write   string
		message string // of the error; empty if the leader is evicted
	}{
		"renewed":                {3, leader, ""},
		"renewed all the time":   {100, leader, "renewed"},
		"overwritten":            {1, "b", `changed meanwhile from "a" to "b"`},
		"won again by the same":  {1, strings.Replace(leader, "2026", "2027", 1), "changed meanwhile"},
		"released":               {1, strings.Replace(leader, "{", `{"released":"2026-01-01T00:00:00Z",`, 1), election.ErrNoLeader.Error()},
		"nothing happens at all": {0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				f.Write(leader)
				js, err := jetstream.New(f.Server.Connect(f.T))
				f.Expect(err).NotTo(HaveOccurred())
				o, err := admin.New(overtaken{f.Bucket, func() {
					if c.writes--; c.writes >= 0 {
						f.Write(c.write)
					}
				}}, election.WithJetStream(js))
				f.Expect(err).NotTo(HaveOccurred())
				evicted, err := o.Evict(ctx, key)
				_, left := f.Bucket.Get(ctx, key)
				if c.message == "" {
					f.Expect(err).NotTo(HaveOccurred())
					f.Expect(evicted.Instance).To(Equal("a1"))
					f.Expect(left).To(MatchError(jetstream.ErrKeyNotFound))
					return
				}
				f.Expect(err).To(MatchError(ContainSubstring(c.message)))
				f.Expect(evicted).To(Equal(election.Leader{}))
				f.Expect(left).NotTo(HaveOccurred(), "the key is as it was")
			})
		})
	}
}
