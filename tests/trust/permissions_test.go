package trust_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
	. "github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// beyondChoria matches requests beyond what Choria grants a candidate: to publish to the key, and to ask for the state of the stream.
func beyondChoria(m faultproxy.Message) bool {
	return !ToKey(m) && m.Subject != "$JS.API.STREAM.INFO.KV_"+natstest.BucketName
}

func TestWriteOnlyCandidatesElectALeader(t *testing.T) {
	Run(t, func(f *Fleet) {
		a, b := f.Candidate("a"), f.Candidate("b")
		a.Link.LoseRequests(beyondChoria)
		b.Link.LoseRequests(beyondChoria)
		a.Begin()
		After(ReadyTimeout)
		b.Begin()
		After(Interval + TTL/20) // which is how long it waits for an answer to its first read
		f.Expect(a.IsLeader()).To(BeTrue())
		a.Link.Cut()
		After(TTL + 400*time.Millisecond + Interval + Interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, WithoutMarkers)
}

func TestWriteOnlyCandidateTakesAnExpiredKeySoon(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Candidate("a", election.WithBackoff(election.ConstantBackoff(100*time.Millisecond)))
		a.Link.LoseRequests(beyondChoria)
		f.Write("stranger")
		a.Begin()
		After(TTL)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		After(TTL / 2) // a refused campaign takes 4 s, for two reads without an answer
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
	}, func(cfg *jetstream.KeyValueConfig) { cfg.LimitMarkerTTL = time.Second }) // as CreateBucket sets it
}

// leastPermissions is the configuration of a server that permits the user "least" what Choria grants a candidate, and everything to a
// connection without a user name.
const leastPermissions = `authorization: { users: [
	{user: admin, password: x},
	{user: least, password: x, permissions: {publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$KV.ELECTIONS.scheduler"], subscribe: ["_INBOX.>"]}}
] }, no_auth_user: admin`

func TestWriteOnlyCandidateTriesToReadOnce(t *testing.T) {
	natstest.SkipIfShort(t)
	for withJetStream, most := range map[bool]int{true: 2, false: 3} {
		t.Run(fmt.Sprintf("WithJetStream %v", withJetStream), func(t *testing.T) {
			RunGuarded(t, leastPermissions, func(f *Fleet) {
				a, _ := f.Restricted("least", "a", withJetStream)
				a.Begin()
				var campaigns atomic.Int64
				b, v := f.Restricted("least", "b", withJetStream, election.OnCampaign(func(election.State) { campaigns.Add(1) }))
				After(Instant)
				b.Begin()
				After(2 * Interval)
				f.Expect(a.IsLeader()).To(BeTrue())
				for campaigns.Load() < 10 {
					After(Interval)
				}
				f.Expect(campaigns.Load()).To(BeEquivalentTo(10))
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Expect(v.Of("GET")).To(And(BeNumerically(">", 0), BeNumerically("<=", most)), v.String())
			})
		})
	}
}

// Where releases never expire, a candidate that may not read says at its start what it lacks.
func TestCandidateThatMayNotReadNamesThePermissionWhereReleasesAreRemembered(t *testing.T) {
	RunGuarded(t, leastPermissions, func(f *Fleet) {
		f.Configure(func(c *jetstream.StreamConfig) {
			c.AllowMsgTTL, c.Metadata = true, map[string]string{kv.RemembersMetadata: "true"}
		})
		var log Log
		a, _ := f.Restricted("least", "a", true, election.WithLogger(log.Logger()))
		a.Begin()
		After(time.Second)
		f.Expect(log.String()).To(And(ContainSubstring("each release costs a TTL and a whole lease"), ContainSubstring("permit to publish to $JS.API.DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.scheduler")))
		After(Interval)
		f.Expect(a.IsLeader()).To(BeTrue())
	})
}

// The client learns of a refusal apart from the request, which has no answer.
func TestLastErrorNamesTheRefusedSubject(t *testing.T) {
	const permissions = `authorization: { users: [
		{user: admin, password: x},
		{user: reader, password: x, permissions: {publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$JS.API.DIRECT.GET.KV_ELECTIONS.>"], subscribe: [">"]}}
		{user: writer, password: x, permissions: {publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$KV.ELECTIONS.scheduler"], subscribe: [">"]}}
	] }, no_auth_user: admin`
	for user, subject := range map[string]string{"reader": "$KV.ELECTIONS.scheduler", "writer": "$JS.API.DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.scheduler"} {
		t.Run(user, func(t *testing.T) {
			RunGuarded(t, permissions, func(f *Fleet) {
				c, _ := f.Restricted(user, "a", true)
				c.Begin()
				After(Interval)
				f.Expect(c.Status().LastError).To(And(ContainSubstring("Permissions Violation"), ContainSubstring(subject)))
			})
		})
	}
}

// The client subscribes to its inboxes once, and so learns only once that it may not.
func TestLastErrorStaysThatAnswersAreRefused(t *testing.T) {
	const before = `authorization: { users: [ {user: admin, password: x}, {user: deaf, password: x} ] }, no_auth_user: admin`
	RunGuarded(t, before, func(f *Fleet) {
		c, _ := f.Restricted("deaf", "a", true)
		c.Begin()
		After(Interval)
		f.Expect(c.IsLeader()).To(BeTrue())
		permit(f, strings.Replace(before, "user: deaf, password: x", `user: deaf, password: x, permissions: {subscribe: {deny: ["_INBOX.>"]}}`, 1))
		After(2 * TTL)
		for range 100 {
			f.Expect(c.Status().LastError).To(ContainSubstring("may not receive answers below _INBOX"))
			After(Interval / 10)
		}
	})
}

// permit changes the configuration of the users while the server runs.
func permit(f *Fleet, config string) {
	f.Helper()
	f.Server.Reload(f.T, func(o *server.Options) {
		o.Users = nil
		f.Expect(o.ProcessConfigString(config)).To(Succeed())
	})
}

func TestStatusNamesNoRefusedSource(t *testing.T) {
	natstest.SkipIfShort(t)
	const all = `authorization: { users: [ {user: admin, password: x}, {user: least, password: x} ] }, no_auth_user: admin`
	for name, before := range map[string]string{"ever": leastPermissions, "when the connection was down": all} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				// A server lives for less than two minutes here: then it looks for old requests, and does not expect that accounts are
				// reloaded meanwhile, which is a data race of its own (2.15.2).
				RunGuarded(t, before, func(f *Fleet) { refuseSourceTwice(f, before) })
			}
		})
	}
}

// refuseSourceTwice has a candidate learn twice, at a reconnection, that it may not subscribe to its source.
func refuseSourceTwice(f *Fleet, before string) {
	a, v := f.Restricted("least", "a", true)
	const trip = 10 * time.Millisecond
	a.Link.DelayReplies(trip)
	a.Begin()
	const subscription = `Subscription to "election.`
	refusedFor := func(d time.Duration) {
		f.Helper()
		known := v.Of(subscription)
		var refused time.Time
		for end := time.Now().Add(d); time.Now().Before(end); After(time.Millisecond) {
			if refused.IsZero() && v.Of(subscription) > known {
				refused = time.Now()
			}
			if !refused.IsZero() && a.Status().Notifications == "republish" {
				f.Expect(time.Since(refused)).To(BeNumerically("<=", 10*trip), "a few round trips after the refusal")
			}
		}
		f.Expect(refused).NotTo(BeZero())
	}
	if before == leastPermissions {
		refusedFor(2 * TTL)
	} else {
		After(2 * TTL)
		f.Expect(a.Status().Notifications).To(Equal("republish"))
	}
	for range 2 {
		a.Link.Cut()
		permit(f, leastPermissions)
		After(time.Second)
		a.Link.Heal()
		refusedFor(2 * time.Second)
		permit(f, before)
		After(4 * TTL)
	}
}

func TestCandidateReadsAfterDirectReadsAreSwitchedOff(t *testing.T) {
	ForEachSource(t, func(f *Fleet, candidate NewCandidate) {
		a, b := f.LeaderAndFollower(candidate)
		f.Configure(func(cfg *jetstream.StreamConfig) { cfg.AllowDirect = false })
		a.Link.Cut()
		After(3 * TTL)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestCandidateCampaignsThoughReadsFail(t *testing.T) {
	Run(t, func(f *Fleet) {
		a := f.Leading("a")
		b, bucket := f.FaultyCandidate("b")
		bucket.OnGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return nil, errors.New("not supported")
		})
		b.Begin()
		After(Interval)
		a.Link.Cut()
		After(3*TTL + Interval)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestOnlyARefusedReadOfTheKeyShowsMissingPermission(t *testing.T) {
	natstest.SkipIfShort(t)
	const get = "$JS.API.DIRECT.GET.KV_" + natstest.BucketName
	for denied, source := range map[string]string{
		get + ".$KV." + natstest.BucketName + "." + Key:     "none",
		get + ".$KV." + natstest.BucketName + "." + Key[1:]: "republish",
		get + "2.$KV." + natstest.BucketName + "2." + Key:   "republish",
	} {
		t.Run(denied, func(t *testing.T) {
			config := fmt.Sprintf(`authorization: {users: [{user: u, password: u, permissions: {publish: {deny: [%q]}}}]}, no_auth_user: u`, denied)
			RunGuarded(t, config, func(f *Fleet) {
				l := f.Server.Link(f.T)
				nc := natstest.Connect(f.T, l)
				c := f.CandidateOn("c", l, f.Open(nc)).Begin()
				After(Interval + time.Second)
				f.Expect(c.IsLeader()).To(BeTrue())
				f.Expect(nc.Publish(denied, nil)).To(Succeed()) // as another part of the process may do on this connection
				After(time.Second)
				f.Expect(nc.LastError()).To(MatchError(nats.ErrPermissionViolation))
				l.LoseRequests(faultproxy.Once(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, get) }))
				f.Forger().Publish(1000, "", "KV-Operation", "DEL")
				After(3 * time.Second)
				f.Expect(c.Status().Notifications).To(Equal(source))
			})
		})
	}
}

func TestOpenBucketSaysAtOnceThatAnswersCannotBeReceived(t *testing.T) {
	RunGuarded(t, `authorization: { users: [
		{user: all, password: x}
		{user: web, password: x, permissions: {publish: ["$JS.API.>"], subscribe: ["_INBOX_web.>"]}}
	] }, no_auth_user: all`, func(f *Fleet) {
		open := func(opts ...nats.Option) func() error {
			js := f.JetStream(append(opts, nats.UserInfo("web", "x"))...)
			return func() error {
				_, err := election.OpenBucket(context.Background(), js, natstest.BucketName)
				return err
			}
		}
		for prefix, opts := range map[string][]nats.Option{"_INBOX": nil, "_INBOX_ops": {nats.CustomInboxPrefix("_INBOX_ops")}} {
			try, began := open(opts...), time.Now()
			what := ContainSubstring("may not receive answers below " + prefix + ": connect with the inbox prefix")
			f.Expect(try()).To(And(MatchError(nats.ErrPermissionViolation), MatchError(what)))
			f.Expect(time.Since(began)).To(BeNumerically("<", 100*time.Millisecond))
			f.Expect(try()).To(MatchError(what), "though the client subscribes, and is refused, once")
		}
		f.Expect(open(nats.CustomInboxPrefix("_INBOX_web"))()).To(Succeed())
	})
}
