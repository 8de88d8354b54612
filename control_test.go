package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/natstest"
)

// control returns the subject of a request about an election of the tests' bucket.
func control(verb, key string) string {
	return "election-control." + natstest.BucketName + "." + verb + "." + key
}

// onGuardedServer is onVirtualTime on a server with the users and the subject mappings of a configuration. A connection
// without a user name has the permissions of the user that the configuration names in no_auth_user.
func onGuardedServer(t *testing.T, config string, f func(f *fleet)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t, func(o *server.Options) { g.Expect(o.ProcessConfigString(config)).To(Succeed()) })
		options := []func(*jetstream.KeyValueConfig){republished}
		f(&fleet{T: t, WithT: g, server: s, bucket: s.Bucket(t, s.Connect(t), ttl, options...), options: options})
	})
}

// observerOn returns an observer on a connection of its own with the given options.
func (f *fleet) observerOn(opts ...nats.Option) *election.Observer {
	f.Helper()
	js, err := jetstream.New(f.server.Connect(f.T, opts...))
	f.Expect(err).NotTo(HaveOccurred())
	bucket, err := js.KeyValue(context.Background(), natstest.BucketName)
	f.Expect(err).NotTo(HaveOccurred())
	o, err := election.NewObserver(bucket, election.WithJetStream(js))
	f.Expect(err).NotTo(HaveOccurred())
	return o
}

func TestPermissionToMoveOneElectionIsNotPermissionToMoveAnother(t *testing.T) {
	onGuardedServer(t, `authorization: { users: [
		{user: candidate, password: x},
		{user: mover, password: x, permissions: {
			publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$JS.API.DIRECT.GET.KV_ELECTIONS.>", "election-control.ELECTIONS.resign.a.b"]
			subscribe: ["_INBOX.>"]
		}}
	] }, no_auth_user: candidate`, func(f *fleet) {
		nc := f.server.Connect(f.T)
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		leaders := map[string]*election.Election{}
		for _, key := range []string{"a.b", "a"} {
			e, err := election.NewElection("web-1", key, f.server.Bucket(f.T, nc, ttl, f.options...), election.WithJetStream(js), election.WithSplay(0))
			f.Expect(err).NotTo(HaveOccurred())
			go func() { _ = e.Start(context.Background()) }()
			f.Cleanup(e.Stop)
			leaders[key] = e
		}
		after(interval)
		o := f.observerOn(nats.UserInfo("mover", "x"))
		f.Expect(o.Resign(context.Background(), "a.b")).To(Succeed())
		f.Expect(o.Resign(context.Background(), "a")).NotTo(Succeed())
		f.Expect(leaders["a.b"].IsLeader()).To(BeFalse())
		f.Expect(leaders["a"].IsLeader()).To(BeTrue())
	})
}

func TestRequestWithoutABodyIsAnswered(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, _ := f.transferring("b")
		nc := f.server.Connect(f.T)
		for _, verb := range []string{"candidates", "look", "resign"} {
			m, err := nc.Request(control(verb, key), nil, time.Second)
			f.Expect(err).NotTo(HaveOccurred(), verb)
			f.Expect(m.Header.Get("Nats-Service-Error")).To(BeEmpty(), verb)
			m, err = nc.Request(control(verb, key), []byte("{"), time.Second)
			f.Expect(err).NotTo(HaveOccurred(), verb)
			f.Expect(m.Header.Get("Nats-Service-Error-Code")).To(Equal("400"), verb)
		}
		f.Expect(a.IsLeader()).To(BeFalse(), "it resigned")
	}, republished)
}
