package admin_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestPermissionToMoveOneElectionIsNotPermissionToMoveAnother(t *testing.T) {
	fleettest.RunGuarded(t, `authorization: { users: [
		{user: candidate, password: x},
		{user: mover, password: x, permissions: {
			publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$JS.API.DIRECT.GET.KV_ELECTIONS.>", "election-control.ELECTIONS.resign.a.b"]
			subscribe: ["_INBOX.>", "election-answers.ELECTIONS.*.a.b"]
		}}
	] }, no_auth_user: candidate`, func(f *fleet) {
		bucket := f.Open(f.Server.Connect(f.T))
		leaders := map[string]*election.Election{}
		for _, key := range []string{"a.b", "a"} {
			e, err := election.NewElection("web-1", key, bucket, election.WithSplay(0))
			f.Expect(err).NotTo(HaveOccurred())
			go func() { _ = e.Start(ctx) }()
			f.Cleanup(func() { _ = e.Shutdown(ctx) })
			leaders[key] = e
		}
		after(interval)
		o := operator(f, nats.UserInfo("mover", "x"))
		f.Expect(o.Resign(ctx, "a.b")).To(Succeed())
		f.Expect(o.Resign(ctx, "a")).NotTo(Succeed())
		f.Expect(leaders["a.b"].IsLeader()).To(BeFalse())
		f.Expect(leaders["a"].IsLeader()).To(BeTrue())
	})
}

func TestOperatorIsAnsweredWhateverItsInboxPrefix(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, prefix := range []string{"_INBOX_ops", "ops.inbox", "election.ops"} {
		t.Run(prefix, func(t *testing.T) {
			fleettest.Run(t, func(f *fleettest.Fleet) {
				a, others := f.LeaderWith("b")
				o := operator(f, nats.CustomInboxPrefix(prefix))
				f.Expect(o.Candidates(ctx, key)).To(HaveLen(2))
				f.Expect(o.Transfer(ctx, key, "b")).To(Succeed())
				f.Expect(others["b"].IsLeader()).To(BeTrue())
				f.Expect(o.Resign(ctx, key)).To(Succeed())
				after(time.Second)
				f.Expect(a.IsLeader()).To(BeTrue())
			}, republished)
		})
	}
}

func TestOperatorThatMayNotReceiveAnswersLearnsWhatToPermit(t *testing.T) {
	fleettest.RunGuarded(t, `authorization: { users: [
		{user: candidate, password: x},
		{user: deaf, password: x, permissions: {publish: ["$JS.API.>", "election-control.>"], subscribe: ["_INBOX.>"]}}
	] }, no_auth_user: candidate`, func(f *fleet) {
		f.LeaderWith("b")
		o := operator(f, nats.UserInfo("deaf", "x"))
		for _, ask := range []func() error{
			func() error { _, err := o.Candidates(ctx, key); return err },
			func() error { return o.Resign(ctx, key) },
			func() error { return o.Transfer(ctx, key, "a") },
		} {
			began := time.Now()
			f.Expect(ask()).To(And(MatchError(nats.ErrPermissionViolation), MatchError(ContainSubstring("permit to subscribe to election-answers.ELECTIONS.*.scheduler"))))
			f.Expect(time.Since(began)).To(BeNumerically("<", 100*time.Millisecond))
			after(2 * interval)
		}
	})
}

func TestOperatorWithoutPermissionLearnsWhatToPermit(t *testing.T) {
	fleettest.RunGuarded(t, `authorization: { users: [
		{user: candidate, password: x},
		{user: reader, password: x, permissions: {publish: ["$JS.API.>"], subscribe: ["_INBOX.>"]}}
	] }, no_auth_user: candidate`, func(f *fleet) {
		a, _ := f.LeaderWith("b")
		o := operator(f, nats.UserInfo("reader", "x"))
		for verb, ask := range map[string]func() error{
			"candidates": func() error {
				found, err := o.Candidates(ctx, key)
				f.Expect(found).To(BeEmpty())
				return err
			},
			"resign":   func() error { return o.Resign(ctx, key) },
			"transfer": func() error { return o.Transfer(ctx, key, "b") },
			"refresh":  func() error { return o.Pause(ctx, key) },
		} {
			for range 2 {
				err := ask()
				f.Expect(err).To(MatchError(nats.ErrPermissionViolation), verb)
				f.Expect(err).To(MatchError(ContainSubstring("not permitted: permit to publish to election-control."+natstest.BucketName+"."+verb+"."+key)), verb)
				f.Expect(err).NotTo(MatchError(ContainSubstring("does not answer")), verb)
				_ = o.Resume(ctx, key)
			}
		}
		f.Expect(o.Pause(ctx, key)).To(MatchError(ContainSubstring("is changed, but")))
		f.Expect(o.Paused(ctx)).To(Equal([]string{key}), "the election is paused")
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

func TestAllRequestsAtOnceLearnThatTheyAreNotPermitted(t *testing.T) {
	fleettest.RunGuarded(t, `authorization: { users: [
		{user: candidate, password: x},
		{user: reader, password: x, permissions: {publish: ["$JS.API.>", "election-control.*.candidates.scheduler"], subscribe: ["_INBOX.>", "election-answers.>"]}}
	] }, no_auth_user: candidate`, func(f *fleet) {
		f.LeaderWith("b")
		o := operator(f, nats.UserInfo("reader", "x"))
		var asking sync.WaitGroup
		for i := range 32 {
			asking.Go(func() {
				if i == 0 {
					f.Expect(o.Candidates(ctx, key)).To(HaveLen(2))
					return
				}
				_, err := o.Candidates(ctx, fmt.Sprint("key-", i))
				f.Expect(err).To(MatchError(nats.ErrPermissionViolation))
			})
		}
		asking.Wait()
	})
}

// leastPermissions is a server on which "least" has what Choria grants to a candidate, and a connection without a user name everything.
const leastPermissions = `authorization: { users: [
	{user: admin, password: x},
	{user: least, password: x, permissions: {publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$KV.ELECTIONS.scheduler"], subscribe: ["_INBOX.>"]}}
] }, no_auth_user: admin`

func TestCandidatesThatMayNotReadTakeOverWithinWhatCheckForecasts(t *testing.T) {
	natstest.SkipIfShort(t)
	const short = 2 * time.Second
	for _, c := range []struct{ connected, compatible bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			fleettest.RunGuarded(t, leastPermissions, func(f *fleet) {
				all, err := jetstream.New(f.Server.Connect(f.T))
				f.Expect(err).NotTo(HaveOccurred())
				f.Expect(all.DeleteKeyValue(ctx, natstest.BucketName)).To(Succeed())
				_, err = election.CreateBucket(ctx, all, election.BucketConfig{Name: natstest.BucketName, TTL: short, Storage: jetstream.MemoryStorage, ChoriaCompatible: c.compatible})
				f.Expect(err).NotTo(HaveOccurred())
				open := func() (*faultproxy.Link, jetstream.KeyValue) {
					l := f.Server.Link(f.T)
					bucket := f.Open(natstest.Connect(f.T, l, nats.UserInfo("least", "x")))
					if !c.connected {
						return l, bucket.KeyValue
					}
					return l, bucket
				}
				_, bucket := open()
				expected := check(f, bucket)
				leads := func(c *candidate) (wait time.Duration) {
					for began := time.Now(); !c.IsLeader(); after(5 * time.Millisecond) {
						f.Expect(time.Since(began)).To(BeNumerically("<", time.Minute))
						wait = time.Since(began)
					}
					return wait
				}
				start := func(i int) *candidate {
					l, bucket := open()
					return f.CandidateOn(fmt.Sprint(i), l, bucket).Begin()
				}
				longest := map[string]time.Duration{}
				leader := start(0)
				leads(leader)
				for i := range 20 {
					next := start(i + 1)
					after(rand.N(10 * short))
					f.Expect(leader.IsLeader()).To(BeTrue())
					code := "expect-release"
					if i%2 == 0 {
						f.Expect(leader.Shutdown(ctx)).To(Succeed())
					} else {
						code = "expect-crash"
						leader.Link.Cut()
					}
					longest[code] = max(longest[code], leads(next))
					leader.Link.Cut()
					leader = next
				}
				for code, wait := range longest {
					f.Expect(wait).To(BeNumerically("<=", atWorst(f.WithT, expected[code])[0]), code)
				}
			})
		})
	}
}
