package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
	"github.com/natscampaign/election/internal/test/natstest"
)

// beyondChoria matches requests beyond what Choria grants a candidate: to publish to the key, and to ask for the state of the stream.
func beyondChoria(m faultproxy.Message) bool {
	return !toKey(m) && m.Subject != "$JS.API.STREAM.INFO.KV_"+natstest.BucketName
}

func TestWriteOnlyCandidatesElectALeader(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a, b := f.candidate("a"), f.candidate("b")
		a.link.LoseRequests(beyondChoria)
		b.link.LoseRequests(beyondChoria)
		a.start()
		after(readyTimeout)
		b.start()
		after(interval + ttl/20) // which is how long it waits for an answer to its first read
		f.Expect(a.IsLeader()).To(BeTrue())
		a.link.Cut()
		after(ttl + 400*time.Millisecond + interval + interval)
		f.Expect(a.IsLeader()).To(BeFalse())
		f.Expect(b.IsLeader()).To(BeTrue())
	}, withoutMarkers)
}

func TestWriteOnlyCandidateTakesAnExpiredKeySoon(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.candidate("a", election.WithBackoff(election.ConstantBackoff(100*time.Millisecond)))
		a.link.LoseRequests(beyondChoria)
		f.Write("stranger")
		a.start()
		after(ttl)
		f.Expect(a.State()).To(Equal(election.CandidateState))
		after(ttl / 2) // a refused campaign takes 4 s, for two reads without an answer
		f.Expect(a.State()).To(Equal(election.LeaderElectState))
	}, func(cfg *jetstream.KeyValueConfig) { cfg.LimitMarkerTTL = time.Second }) // as CreateBucket sets it
}

// leastPermissions is the configuration of a server that permits the user "least" what Choria grants a candidate, and everything to a
// connection without a user name.
const leastPermissions = `authorization: { users: [
	{user: admin, password: x},
	{user: least, password: x, permissions: {publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$KV.ELECTIONS.scheduler"], subscribe: ["_INBOX.>"]}}
] }, no_auth_user: admin`

// violations are the permission violations that the server reported to a connection.
type violations struct {
	mu   sync.Mutex
	each []string
}

func (v *violations) handler(_ *nats.Conn, _ *nats.Subscription, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.each = append(v.each, err.Error())
}

// of returns how many violations mention a part of a subject.
func (v *violations) of(part string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, each := range v.each {
		if strings.Contains(each, part) {
			n++
		}
	}
	return n
}

// restricted returns a candidate with the permissions of a user, and the violations that are reported to its connection.
func (f *fleet) restricted(user, name string, withJetStream bool, opts ...election.Option) (*candidate, *violations) {
	f.Helper()
	v, l := &violations{}, f.Server.Link(f.T)
	js, err := jetstream.New(natstest.Connect(f.T, l, nats.UserInfo(user, "x"), nats.ErrorHandler(v.handler)))
	f.Expect(err).NotTo(HaveOccurred())
	bucket, err := js.KeyValue(context.Background(), natstest.BucketName)
	f.Expect(err).NotTo(HaveOccurred())
	if withJetStream {
		opts = append(opts, election.WithJetStream(js))
	}
	return f.candidateOn(name, l, bucket, opts...), v
}

func TestWriteOnlyCandidateTriesToReadOnce(t *testing.T) {
	natstest.SkipIfShort(t)
	for withJetStream, most := range map[bool]int{true: 2, false: 3} {
		t.Run(fmt.Sprintf("WithJetStream %v", withJetStream), func(t *testing.T) {
			onGuardedServer(t, leastPermissions, func(f *fleet) {
				a, _ := f.restricted("least", "a", withJetStream)
				a.start()
				var campaigns atomic.Int64
				b, v := f.restricted("least", "b", withJetStream, election.OnCampaign(func(election.State) { campaigns.Add(1) }))
				after(instant)
				b.start()
				after(2 * interval)
				f.Expect(a.IsLeader()).To(BeTrue())
				for campaigns.Load() < 10 {
					after(interval)
				}
				f.Expect(campaigns.Load()).To(BeEquivalentTo(10))
				f.Expect(a.IsLeader()).To(BeTrue())
				f.Expect(v.of("GET")).To(And(BeNumerically(">", 0), BeNumerically("<=", most)), strings.Join(v.each, "\n"))
			})
		})
	}
}

// Where releases never expire, a candidate that may not read says at its start what it lacks.
func TestCandidateThatMayNotReadNamesThePermissionWhereReleasesAreRemembered(t *testing.T) {
	onGuardedServer(t, leastPermissions, func(f *fleet) {
		f.configure(func(c *jetstream.StreamConfig) {
			c.AllowMsgTTL, c.Metadata = true, map[string]string{kv.RemembersMetadata: "true"}
		})
		var log logged
		a, _ := f.restricted("least", "a", true, election.WithLogger(log.logger()))
		a.start()
		after(time.Second)
		f.Expect(log.String()).To(And(ContainSubstring("each release costs a TTL and a whole lease"), ContainSubstring("permit to publish to $JS.API.DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.scheduler")))
		after(interval)
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
			onGuardedServer(t, permissions, func(f *fleet) {
				c, _ := f.restricted(user, "a", true)
				c.start()
				after(interval)
				f.Expect(c.Status().LastError).To(And(ContainSubstring("Permissions Violation"), ContainSubstring(subject)))
			})
		})
	}
}

// The client subscribes to its inboxes once, and so learns only once that it may not.
func TestLastErrorStaysThatAnswersAreRefused(t *testing.T) {
	const before = `authorization: { users: [ {user: admin, password: x}, {user: deaf, password: x} ] }, no_auth_user: admin`
	onGuardedServer(t, before, func(f *fleet) {
		c, _ := f.restricted("deaf", "a", true)
		c.start()
		after(interval)
		f.Expect(c.IsLeader()).To(BeTrue())
		f.permit(strings.Replace(before, "user: deaf, password: x", `user: deaf, password: x, permissions: {subscribe: {deny: ["_INBOX.>"]}}`, 1))
		after(2 * ttl)
		for range 100 {
			f.Expect(c.Status().LastError).To(ContainSubstring("may not receive answers below _INBOX"))
			after(interval / 10)
		}
	})
}

// permit changes the configuration of the users while the server runs.
func (f *fleet) permit(config string) {
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
				onGuardedServer(t, before, func(f *fleet) { f.refuseSourceTwice(before) })
			}
		})
	}
}

// refuseSourceTwice has a candidate learn twice, at a reconnection, that it may not subscribe to its source.
func (f *fleet) refuseSourceTwice(before string) {
	a, v := f.restricted("least", "a", true)
	const trip = 10 * time.Millisecond
	a.link.DelayReplies(trip)
	a.start()
	const subscription = `Subscription to "election.`
	refusedFor := func(d time.Duration) {
		f.Helper()
		known := v.of(subscription)
		var refused time.Time
		for end := time.Now().Add(d); time.Now().Before(end); after(time.Millisecond) {
			if refused.IsZero() && v.of(subscription) > known {
				refused = time.Now()
			}
			if !refused.IsZero() && a.Status().Notifications == "republish" {
				f.Expect(time.Since(refused)).To(BeNumerically("<=", 10*trip), "a few round trips after the refusal")
			}
		}
		f.Expect(refused).NotTo(BeZero())
	}
	if before == leastPermissions {
		refusedFor(2 * ttl)
	} else {
		after(2 * ttl)
		f.Expect(a.Status().Notifications).To(Equal("republish"))
	}
	for range 2 {
		a.link.Cut()
		f.permit(leastPermissions)
		after(time.Second)
		a.link.Heal()
		refusedFor(2 * time.Second)
		f.permit(before)
		after(4 * ttl)
	}
}

func TestCandidateReadsAfterDirectReadsAreSwitchedOff(t *testing.T) {
	forEachSource(t, func(f *fleet, candidate newCandidate) {
		a := candidate("a").start()
		after(interval)
		b := candidate("b").start()
		after(3 * interval)
		f.configure(func(cfg *jetstream.StreamConfig) { cfg.AllowDirect = false })
		a.link.Cut()
		after(3 * ttl)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestCandidateCampaignsThoughReadsFail(t *testing.T) {
	onVirtualTime(t, func(f *fleet) {
		a := f.leading("a")
		b, bucket := f.faultyCandidate("b")
		bucket.onGet(func(context.Context, func() (jetstream.KeyValueEntry, error)) (jetstream.KeyValueEntry, error) {
			return nil, errors.New("not supported")
		})
		b.start()
		after(interval)
		a.link.Cut()
		after(3*ttl + interval)
		f.Expect(b.IsLeader()).To(BeTrue())
	})
}

func TestOnlyARefusedReadOfTheKeyShowsMissingPermission(t *testing.T) {
	natstest.SkipIfShort(t)
	const get = "$JS.API.DIRECT.GET.KV_" + natstest.BucketName
	for denied, source := range map[string]string{
		get + ".$KV." + natstest.BucketName + "." + key:     "none",
		get + ".$KV." + natstest.BucketName + "." + key[1:]: "republish",
		get + "2.$KV." + natstest.BucketName + "2." + key:   "republish",
	} {
		t.Run(denied, func(t *testing.T) {
			config := fmt.Sprintf(`authorization: {users: [{user: u, password: u, permissions: {publish: {deny: [%q]}}}]}, no_auth_user: u`, denied)
			onGuardedServer(t, config, func(f *fleet) {
				l := f.Server.Link(f.T)
				nc := natstest.Connect(f.T, l)
				c := f.candidateOn("c", l, f.Open(nc)).start()
				after(interval + time.Second)
				f.Expect(c.IsLeader()).To(BeTrue())
				f.Expect(nc.Publish(denied, nil)).To(Succeed()) // as another part of the process may do on this connection
				after(time.Second)
				f.Expect(nc.LastError()).To(MatchError(nats.ErrPermissionViolation))
				l.LoseRequests(once(func(m faultproxy.Message) bool { return strings.HasPrefix(m.Subject, get) }))
				f.forger().publish(1000, "", "KV-Operation", "DEL")
				after(3 * time.Second)
				f.Expect(c.Status().Notifications).To(Equal(source))
			})
		})
	}
}

func TestOpenBucketSaysAtOnceThatAnswersCannotBeReceived(t *testing.T) {
	onGuardedServer(t, `authorization: { users: [
		{user: all, password: x}
		{user: web, password: x, permissions: {publish: ["$JS.API.>"], subscribe: ["_INBOX_web.>"]}}
	] }, no_auth_user: all`, func(f *fleet) {
		open := func(opts ...nats.Option) func() error {
			js, err := jetstream.New(f.Server.Connect(f.T, append(opts, nats.UserInfo("web", "x"))...))
			f.Expect(err).NotTo(HaveOccurred())
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
