package election_test

import (
	"context"
	"fmt"
	"sync"
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

// stored returns the state of the stream behind the bucket.
func (f *fleet) stored() jetstream.StreamState {
	f.Helper()
	status, err := f.bucket.Status(context.Background())
	f.Expect(err).NotTo(HaveOccurred())
	return status.(*jetstream.KeyValueBucketStatus).StreamInfo().State
}

func TestNoAnswerChangesTheBucket(t *testing.T) {
	// The candidates reach JetStream below "ops", as over an import from another account. Whoever publishes as "asker" may ask
	// and nothing else.
	const config = `
		mappings: {
			"ops.STREAM.>": "$JS.API.STREAM.>", "ops.DIRECT.>": "$JS.API.DIRECT.>", "ops.CONSUMER.>": "$JS.API.CONSUMER.>",
			"ops.$KV.>": "$KV.>", "ops.INFO": "$JS.API.INFO"
		}
		authorization: { users: [
			{user: candidate, password: x},
			{user: asker, password: x, permissions: {publish: ["election-control.>", "$SRV.>"], subscribe: ["_INBOX.>"]}}
		] }
		no_auth_user: candidate`
	replies := [][2]string{ // with the inbox prefix that the request names
		{"$KV.ELECTIONS.scheduler", ""},
		{"$JS.API.STREAM.PURGE.KV_ELECTIONS", "$JS.API.STREAM.PURGE"},
		{"$JS.API.STREAM.DELETE.KV_ELECTIONS", "$JS.API.STREAM"},
		{"ops.STREAM.PURGE.KV_ELECTIONS", "ops.STREAM.PURGE"},
		{"ops.STREAM.DELETE.KV_ELECTIONS", ""},
		{"ops.STREAM.DELETE.ABCDEFGHIJKLMNOPQRSTUV", "ops.STREAM.DELETE"},
		{"ops.$KV.ELECTIONS.scheduler", "ops.$KV.ELECTIONS"},
		{"ops.$KV.ELECTIONS.ABCDEFGHIJKLMNOPQRSTUV", "ops.$KV.ELECTIONS"},
		{"election.ELECTIONS.$KV.ELECTIONS.scheduler", "election"},
		{"election-control.ELECTIONS.resign.scheduler", "election-control"},
		{"election-control.ELECTIONS.ABCDEFGHIJKLMNOPQRSTUV.xy", "election-control.ELECTIONS"},
	}
	onGuardedServer(t, config, func(f *fleet) {
		js, err := jetstream.NewWithAPIPrefix(f.server.Connect(f.T), "ops")
		f.Expect(err).NotTo(HaveOccurred())
		bucket, err := js.KeyValue(context.Background(), natstest.BucketName)
		f.Expect(err).NotTo(HaveOccurred())
		a := f.candidateOn("a", nil, bucket, election.WithJetStream(js)).start()
		after(2 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		inboxLike, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "ABCDEFGHIJKLMNOPQRSTUV", Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		nc := f.server.Connect(f.T, nats.UserInfo("asker", "x"))
		before := f.stored()
		for _, c := range replies {
			body := fmt.Appendf(nil, `{"inbox_prefix":%q}`, c[1])
			for _, request := range []*nats.Msg{
				{Subject: control("candidates", key), Data: body},
				{Subject: control("candidates", key), Data: []byte("malformed")},
				{Subject: control("look", key), Data: body},
				{Subject: control("transfer", key), Data: body}, // to nobody
				{Subject: "$SRV.PING"}, {Subject: "$SRV.INFO.election"}, {Subject: "$SRV.STATS"},
			} {
				request.Reply = c[0]
				f.Expect(nc.PublishMsg(request)).To(Succeed())
				f.Expect(nc.Flush()).To(Succeed())
				after(instant)
				f.Expect(f.stored()).To(Equal(before), "%s, to be answered at %s", request.Subject, c[0])
			}
		}
		_, err = inboxLike.Info(context.Background())
		f.Expect(err).NotTo(HaveOccurred(), "it stands")
		after(2 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.seen()).To(HaveLen(1))
	})
}

func TestAskerWithAnInboxPrefixOfItsOwnIsAnswered(t *testing.T) {
	for _, prefix := range []string{"_INBOX_ops", "ops.inbox"} {
		t.Run(prefix, func(t *testing.T) {
			onVirtualTime(t, func(f *fleet) {
				a, others := f.transferring("b")
				o := f.observerOn(nats.CustomInboxPrefix(prefix))
				f.Expect(o.Candidates(context.Background(), key)).To(HaveLen(2))
				f.Expect(o.Transfer(context.Background(), key, "b")).To(Succeed())
				f.Expect(others["b"].IsLeader()).To(BeTrue())
				f.Expect(o.Resign(context.Background(), key)).To(Succeed())
				after(time.Second)
				f.Expect(a.IsLeader()).To(BeTrue())
			}, republished)
		})
	}
}

func TestAskerWhoseInboxPrefixIsNotAnsweredIsToldSo(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		f.transferring("b")
		_, err := f.observerOn(nats.CustomInboxPrefix("election.ops")).Candidates(context.Background(), key)
		f.Expect(err).To(And(MatchError(election.ErrInvalidOption), MatchError(ContainSubstring(`"election.ops"`))))
	}, republished)
}

func TestCandidatesWithAnInboxPrefixOfTheirOwnFindEachOther(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.sharing(f.server.Connect(f.T, nats.CustomInboxPrefix("app.a")), "a").start()
		after(interval)
		b := f.sharing(f.server.Connect(f.T, nats.CustomInboxPrefix("app.b")), "b").start()
		after(3 * interval)
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		f.Expect(b.IsLeader()).To(BeTrue())

		nc := f.server.Connect(f.T, nats.CustomInboxPrefix("app.b"))
		m, err := nc.Request("$SRV.PING.election", nil, time.Second)
		f.Expect(err).NotTo(HaveOccurred(), "the process of b uses this prefix too")
		f.Expect(m.Data).NotTo(BeEmpty())
		_, err = f.server.Connect(f.T, nats.CustomInboxPrefix("app.c")).Request("$SRV.PING.election", nil, time.Second)
		f.Expect(err).To(MatchError(nats.ErrTimeout), "a ping names no prefix")
	}, republished)
}

func TestObserverThatMayNotAskSaysSo(t *testing.T) {
	onGuardedServer(t, `authorization: { users: [
		{user: candidate, password: x},
		{user: reader, password: x, permissions: {publish: ["$JS.API.>"], subscribe: ["_INBOX.>"]}}
	] }, no_auth_user: candidate`, func(f *fleet) {
		a, _ := f.transferring("b")
		o, ctx := f.observerOn(nats.UserInfo("reader", "x")), context.Background()
		for verb, ask := range map[string]func() error{
			"candidates": func() error {
				found, err := o.Candidates(ctx, key)
				f.Expect(found).To(BeEmpty())
				return err
			},
			"resign":   func() error { return o.Resign(ctx, key) },
			"transfer": func() error { return o.Transfer(ctx, key, "b") },
			"look":     func() error { return o.Pause(ctx, key) },
		} {
			for range 2 {
				err := ask()
				f.Expect(err).To(MatchError(nats.ErrPermissionViolation), verb)
				f.Expect(err).To(MatchError(ContainSubstring("not permitted: permit to publish to "+control(verb, key))), verb)
				f.Expect(err).NotTo(MatchError(ContainSubstring("does not answer")), verb)
				_ = o.Resume(ctx, key)
			}
		}
		f.Expect(o.Pause(ctx, key)).To(MatchError(ContainSubstring("is changed, but")))
		f.Expect(o.Paused(ctx)).To(Equal([]string{key}), "the mark stands")
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestAllThatAskAtOnceWithoutPermissionSaySo(t *testing.T) {
	onGuardedServer(t, `authorization: { users: [
		{user: candidate, password: x},
		{user: reader, password: x, permissions: {publish: ["$JS.API.>", "election-control.*.candidates.scheduler"], subscribe: ["_INBOX.>"]}}
	] }, no_auth_user: candidate`, func(f *fleet) {
		f.transferring("b")
		o := f.observerOn(nats.UserInfo("reader", "x"))
		var asking sync.WaitGroup
		for i := range 32 {
			asking.Go(func() {
				if i == 0 {
					f.Expect(o.Candidates(context.Background(), key)).To(HaveLen(2))
					return
				}
				_, err := o.Candidates(context.Background(), fmt.Sprint("key-", i))
				f.Expect(err).To(MatchError(nats.ErrPermissionViolation))
			})
		}
		asking.Wait()
	})
}
