package admin_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/fleettest"
)

func TestEvictDeletesTheKeyOfTheLeaderThatItReturns(t *testing.T) {
	fleettest.Run(t, func(f *fleet) {
		o := operator(f)
		_, err := o.Evict(ctx, key)
		f.Expect(err).To(MatchError(election.ErrNoLeader))
		_, err = o.Evict(ctx, "a b")
		f.Expect(err).To(MatchError(election.ErrInvalidOption))

		a, others := f.LeaderWith("b")
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

func TestEvictDeletesWhateverIsStored(t *testing.T) {
	const bare, object = "x", `{"number":1,"by":"a"}`
	for name, store := range map[string]func(f *fleet){
		"a bare name":        func(f *fleet) { publish(f, nil, bare) },
		"a record":           func(f *fleet) { publish(f, nil, `{"name":"evil","instance":"evil","attempt":"evil.1"}`) },
		"other data":         func(f *fleet) { publish(f, nil, object) },
		"nothing":            func(f *fleet) { publish(f, nil, "") },
		"another's sequence": func(f *fleet) { publish(f, nats.Header{"Nats-Sequence": {"1000000"}}, bare) },
		"no sequence":        func(f *fleet) { publish(f, nats.Header{"Nats-Sequence": {"x"}}, bare) },
		"a status":           func(f *fleet) { publish(f, nats.Header{"Status": {"404"}}, "") },
		"the answer to a read": func(f *fleet) {
			_, err := f.Bucket.PutString(ctx, "theirs", bare)
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(f.Server.Connect(f.T).PublishRequest("$JS.API.DIRECT.GET.KV_"+f.Bucket.Bucket()+".$KV."+f.Bucket.Bucket()+".theirs", "$KV."+f.Bucket.Bucket()+"."+key, nil)).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleet) {
				store(f)
				after(instant)
				evicted, err := operator(f).Evict(ctx, key)
				f.Expect(err).NotTo(HaveOccurred())
				f.Expect(evicted.Key).To(Equal(key))
				_, err = f.Bucket.Get(ctx, key)
				f.Expect(err).To(MatchError(jetstream.ErrKeyNotFound))
			}, republished)
		})
	}
}

// publish stores a message under the key that never expires, with further headers.
func publish(f *fleet, header nats.Header, value string) {
	m := &nats.Msg{Subject: "$KV." + f.Bucket.Bucket() + "." + key, Header: nats.Header{"Nats-TTL": {"never"}}, Data: []byte(value)}
	maps.Copy(m.Header, header)
	js := f.JetStream()
	_, err := js.PublishMsg(ctx, m)
	f.Expect(err).NotTo(HaveOccurred())
}

// overtaken is a connection on which something happens between the read of a key and its deletion.
type overtaken struct {
	jetstream.JetStream
	between func()
}

func (o overtaken) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	o.between()
	return o.JetStream.PublishMsg(ctx, m, opts...)
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
				js := f.JetStream()
				o, err := admin.New(f.Bucket, election.WithJetStream(overtaken{js, func() {
					if c.writes--; c.writes >= 0 {
						f.Write(c.write)
					}
				}}))
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
