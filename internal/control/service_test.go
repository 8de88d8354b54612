package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) {
	natstest.VerifyTestMain(m)
}

const (
	interval = fleettest.Interval
	key      = fleettest.Key
)

var after = fleettest.After

// subject returns the subject of a request about the election of the tests.
func subject(verb, key string) string {
	return "election-control." + natstest.BucketName + "." + verb + "." + key
}

// withFollower runs a test with a leader and a candidate that know their connections.
func withFollower(t *testing.T, test func(f *fleettest.Fleet, leader, follower *fleettest.Candidate)) {
	t.Helper()
	fleettest.Run(t, func(f *fleettest.Fleet) {
		leader := f.Connected("a").Begin()
		after(interval)
		follower := f.Connected("b").Begin()
		after(interval)
		f.Expect(leader.IsLeader()).To(BeTrue())
		test(f, leader, follower)
	}, fleettest.Republished)
}

func TestRequestWithoutABodyIsAnswered(t *testing.T) {
	withFollower(t, func(f *fleettest.Fleet, leader, _ *fleettest.Candidate) {
		nc := f.Server.Connect(f.T)
		for _, verb := range []string{"candidates", "refresh", "resign", "transfer"} {
			for _, body := range []string{"", "{}"} {
				m, err := nc.Request(subject(verb, key), []byte(body), time.Second)
				f.Expect(err).NotTo(HaveOccurred(), verb)
				if verb == "resign" || verb == "transfer" {
					f.Expect(m.Header.Get("Nats-Service-Error-Code")).To(Equal("400"), verb)
					f.Expect(m.Header.Get("Nats-Service-Error")).To(ContainSubstring("which leader"), verb)
				} else {
					f.Expect(m.Header.Get("Nats-Service-Error")).To(BeEmpty(), verb)
				}
			}
			m, err := nc.Request(subject(verb, key), []byte("{"), time.Second)
			f.Expect(err).NotTo(HaveOccurred(), verb)
			f.Expect(m.Header.Get("Nats-Service-Error-Code")).To(Equal("400"), verb)
		}
		f.Expect(leader.IsLeader()).To(BeTrue(), "nobody named it")
		m, err := nc.Request(subject("resign", key), naming(leader), time.Second)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(m.Header.Get("Nats-Service-Error")).To(BeEmpty())
		after(0)
		f.Expect(leader.IsLeader()).To(BeFalse(), "it resigned")
	})
}

// naming returns the body of a request to the leader to hand over.
func naming(leader *fleettest.Candidate) []byte {
	return fmt.Appendf(nil, `{"instance":%q}`, leader.Status().Instance)
}

func TestRequestWithoutATimeoutIsGivenOne(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, wait := range []int64{0, -5, 1 << 62} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			withFollower(t, func(f *fleettest.Fleet, leader, follower *fleettest.Candidate) {
				nc := f.Server.Connect(f.T)
				body := fmt.Appendf(nil, `{"instance":%q,"to":"b","wait_ms":%d}`, leader.Status().Instance, wait)
				f.Expect(nc.PublishRequest(subject("transfer", key), nc.NewInbox(), body)).To(Succeed())
				after(time.Second)
				f.Expect(leader.IsLeader()).To(BeFalse())
				f.Expect(follower.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestACandidateIsAnsweredForThoughNothingCanBeWrittenOnAnotherConnection(t *testing.T) {
	g := NewWithT(t)
	var link natstest.Stuck
	s := natstest.StartTCP(t)
	good, bad := s.Connect(t), s.Connect(t, nats.SetCustomDialer(&link))
	s.Bucket(t, good, time.Minute)
	join := func(nc *nats.Conn) func() *control.Member {
		js, err := jetstream.New(nc)
		g.Expect(err).NotTo(HaveOccurred())
		bucket, err := js.KeyValue(context.Background(), natstest.BucketName)
		g.Expect(err).NotTo(HaveOccurred())
		return func() *control.Member {
			return control.Join(kv.With(bucket, js), key, struct{ control.Served }{}, slog.New(slog.DiscardHandler))
		}
	}
	joinGood, joinBad := join(good), join(bad)
	running := func(function string) {
		g.EventuallyWithOffset(1, func() string {
			stacks := make([]byte, 1<<20)
			return string(stacks[:runtime.Stack(stacks, true)])
		}, time.Minute).Should(ContainSubstring(function))
	}
	end := link.Begin()
	defer end()
	g.Expect(bad.Publish("x", nil)).To(Succeed())
	running("stuckConn.Write(")
	waits, joined := make(chan struct{}), make(chan struct{})
	go func() { joinBad().Leave(); close(waits) }()
	running("control.Join(")
	go func() { joinGood().Leave(); close(joined) }()
	g.Eventually(joined, time.Minute).Should(BeClosed())
	g.Expect(waits).NotTo(BeClosed())
	end()
	g.Eventually(waits, time.Minute).Should(BeClosed())
}

func TestManyRequestsDoNotBlockACandidate(t *testing.T) {
	withFollower(t, func(f *fleettest.Fleet, leader, follower *fleettest.Candidate) {
		follower.Link.DelayReplies(20 * time.Millisecond)
		nc := f.Server.Connect(f.T)
		for range 200 {
			f.Expect(nc.PublishRequest(subject("refresh", key), nc.NewInbox(), nil)).To(Succeed())
		}
		f.Expect(nc.Flush()).To(Succeed())
		after(100 * time.Millisecond)
		f.Expect(leader.Transfer(context.Background(), "b")).To(Succeed())
	})
}

func TestAnswerNeverWritesTheKey(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, to := range []string{"$SRV.PING", subject("candidates", key), subject("refresh", key)} {
		t.Run(to, func(t *testing.T) {
			withFollower(t, func(f *fleettest.Fleet, leader, _ *fleettest.Candidate) {
				nc := f.Server.Connect(f.T)
				f.Expect(nc.PublishRequest(to, "$KV."+natstest.BucketName+"."+key, nil)).To(Succeed())
				f.Expect(nc.Flush()).To(Succeed())
				after(2 * interval)
				f.Expect(leader.IsLeader()).To(BeTrue())
			})
		})
	}
}

func TestNoAnswerChangesTheBucket(t *testing.T) {
	// The candidates reach JetStream below "ops", as over an import from another account. The user "operator" may send requests to
	// candidates and nothing else.
	const config = `
		mappings: {
			"ops.STREAM.>": "$JS.API.STREAM.>", "ops.DIRECT.>": "$JS.API.DIRECT.>", "ops.CONSUMER.>": "$JS.API.CONSUMER.>",
			"ops.$KV.>": "$KV.>", "ops.INFO": "$JS.API.INFO"
		}
		authorization: { users: [
			{user: candidate, password: x},
			{user: operator, password: x, permissions: {publish: ["election-control.>", "$SRV.>"], subscribe: ["_INBOX.>"]}}
		] }
		no_auth_user: candidate`
	replies := []string{
		"$KV.ELECTIONS.scheduler",
		"$JS.API.STREAM.PURGE.KV_ELECTIONS",
		"$JS.API.STREAM.DELETE.KV_ELECTIONS",
		"ops.STREAM.PURGE.KV_ELECTIONS",
		"ops.STREAM.DELETE.KV_ELECTIONS",
		"ops.STREAM.DELETE.ABCDEFGHIJKLMNOPQRSTUV",
		"ops.$KV.ELECTIONS.scheduler",
		"ops.$KV.ELECTIONS.ABCDEFGHIJKLMNOPQRSTUV",
		"election.ELECTIONS.$KV.ELECTIONS.scheduler",
		"election-control.ELECTIONS.resign.scheduler",
		"election-control.ELECTIONS.ABCDEFGHIJKLMNOPQRSTUV.xy",
	}
	fleettest.RunGuarded(t, config, func(f *fleettest.Fleet) {
		js, err := jetstream.NewWithAPIPrefix(f.Server.Connect(f.T), "ops")
		f.Expect(err).NotTo(HaveOccurred())
		bucket, err := election.OpenBucket(context.Background(), js, natstest.BucketName)
		f.Expect(err).NotTo(HaveOccurred())
		a := f.CandidateOn("a", nil, bucket).Begin()
		after(2 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		inboxLike, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "ABCDEFGHIJKLMNOPQRSTUV", Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		nc := f.Server.Connect(f.T, nats.UserInfo("operator", "x"))
		before := f.Stream()
		for _, to := range replies {
			for _, request := range []*nats.Msg{
				{Subject: subject("candidates", key), Data: []byte("{}")},
				{Subject: subject("candidates", key), Data: []byte("malformed")},
				{Subject: subject("refresh", key), Data: []byte("{}")},
				{Subject: subject("transfer", key), Data: []byte("{}")}, // without a target
				{Subject: "$SRV.PING"}, {Subject: "$SRV.INFO.election"}, {Subject: "$SRV.STATS"},
			} {
				request.Reply = to
				f.Expect(nc.PublishMsg(request)).To(Succeed())
				f.Expect(nc.Flush()).To(Succeed())
				after(fleettest.Instant)
				f.Expect(f.Stream()).To(Equal(before), "%s, with the reply subject %s", request.Subject, to)
			}
		}
		_, err = inboxLike.Info(context.Background())
		f.Expect(err).NotTo(HaveOccurred(), "the stream still exists")
		after(2 * interval)
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(a.Status().Wins).To(BeEquivalentTo(1))
	})
}

func TestCandidatesOnAConnectionWithoutEchoFindEachOther(t *testing.T) {
	natstest.SkipIfShort(t)
	for name, opts := range map[string][2][]election.Option{
		"relinquish": {{election.WithRelinquish("30s")}, nil},
		"preempt":    {nil, {election.WithPriority(3), election.WithPreemption()}},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.Run(t, func(f *fleettest.Fleet) {
				bucket := f.Open(f.Server.Connect(f.T, nats.NoEcho()))
				f.CandidateOn("a", nil, bucket, opts[0]...).Begin()
				after(interval)
				b := f.CandidateOn("b", nil, bucket, opts[1]...).Begin()
				after(2 * time.Minute)
				f.Expect(b.Status().Wins).To(BeNumerically(">", 0))
			}, fleettest.Republished)
		})
	}
}

func TestCandidatesWithOwnInboxPrefixesFindEachOther(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a := f.CandidateOn("a", nil, f.Open(f.Server.Connect(f.T, nats.CustomInboxPrefix("app.a")))).Begin()
		after(interval)
		b := f.CandidateOn("b", nil, f.Open(f.Server.Connect(f.T, nats.CustomInboxPrefix("app.b")))).Begin()
		after(3 * interval)
		f.Expect(a.Transfer(context.Background(), "b")).To(Succeed())
		f.Expect(b.IsLeader()).To(BeTrue())

		m, err := f.Server.Connect(f.T, nats.CustomInboxPrefix("_INBOX_micro")).Request("$SRV.PING.election", nil, time.Second)
		f.Expect(err).NotTo(HaveOccurred(), "its first token says that it is an inbox")
		f.Expect(m.Data).NotTo(BeEmpty())
		_, err = f.Server.Connect(f.T, nats.CustomInboxPrefix("app.c")).Request("$SRV.PING.election", nil, time.Second)
		f.Expect(err).To(MatchError(nats.ErrTimeout), "which may be a subject of an application")
	}, fleettest.Republished)
}

func TestProcessAnswersAsOneMicroService(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a := f.Connected("a").Begin()
		after(interval)
		nc := f.Server.Connect(f.T)
		request := func(verb micro.Verb, into any) {
			to, err := micro.ControlSubject(verb, "election", "")
			f.Expect(err).NotTo(HaveOccurred())
			m, err := nc.Request(to, nil, time.Second)
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(json.Unmarshal(m.Data, into)).To(Succeed())
		}
		var ping micro.Ping
		request(micro.PingVerb, &ping)
		f.Expect(ping.Type).To(Equal(micro.PingResponseType))
		f.Expect(ping.Name).To(Equal("election"))
		f.Expect(ping.Metadata).To(HaveKeyWithValue("bucket", natstest.BucketName))
		var info micro.Info
		request(micro.InfoVerb, &info)
		f.Expect(info.ID).To(Equal(ping.ID))
		subjects := []string{}
		for _, e := range info.Endpoints {
			subjects = append(subjects, e.Subject)
			f.Expect(e.Metadata).NotTo(BeNil())
		}
		f.Expect(subjects).To(ConsistOf(subject("candidates", ">"), subject("resign", ">"), subject("transfer", ">"), subject("refresh", ">")))
		f.Expect(a.IsLeader()).To(BeTrue())

		f.Expect(a.Shutdown(context.Background())).To(Succeed())
		after(time.Second)
		_, err := nc.Request("$SRV.PING.election", nil, time.Second)
		f.Expect(err).To(MatchError(nats.ErrNoResponders), "the service ends with its last candidate")
	}, fleettest.Republished)
}

func TestRecordThatAConsumerDeliversAsARequestIsIgnored(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, to := range []string{subject("resign", key), subject("candidates", key), "$SRV.PING"} {
		t.Run(to, func(t *testing.T) {
			withFollower(t, func(f *fleettest.Fleet, leader, _ *fleettest.Candidate) {
				nc := f.Server.Connect(f.T)
				delivered, err := nc.SubscribeSync(to) // the server delivers while somebody subscribes to this very subject
				f.Expect(err).NotTo(HaveOccurred())
				config := fmt.Sprintf(`{"stream_name":"KV_ELECTIONS","config":{"name":"c","deliver_subject":%q,"deliver_policy":"last","ack_policy":"none"}}`, to)
				_, err = nc.Request("$JS.API.CONSUMER.CREATE.KV_ELECTIONS.c", []byte(config), time.Second)
				f.Expect(err).NotTo(HaveOccurred())
				m, err := delivered.NextMsg(time.Second)
				f.Expect(err).NotTo(HaveOccurred())
				f.Expect(m.Subject).To(Equal("$KV.ELECTIONS." + key))
				f.Expect(string(m.Data)).To(ContainSubstring(leader.Status().Instance), "as a request to resign it would name the leader")
				after(2 * interval)
				f.Expect(leader.IsLeader()).To(BeTrue())
				f.Expect(leader.Transfer(context.Background(), "b")).To(Succeed(), "and requests are still answered")
			})
		})
	}
}
