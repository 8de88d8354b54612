package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// misdirected is what a client can have arrive on a subject without permission to publish there: nc sends what brings it about, for the body
// of a request. Some of it is published as it is, where it is the server that sends it in earnest.
var misdirected = map[string]func(f *fleettest.Fleet, nc *nats.Conn, to string, body []byte){
	"heartbeats of a consumer": func(f *fleettest.Fleet, nc *nats.Conn, to string, _ []byte) {
		delivered, err := nc.SubscribeSync(to) // the server delivers while somebody subscribes to this very subject
		f.Expect(err).NotTo(HaveOccurred())
		config := fmt.Sprintf(`{"stream_name":"KV_ELECTIONS","config":{"name":"c","deliver_subject":%q,"deliver_policy":"new","ack_policy":"none","idle_heartbeat":100000000,"flow_control":true}}`, to)
		request(f, nc, "$JS.API.CONSUMER.CREATE.KV_ELECTIONS.c", config)
		m, err := delivered.NextMsg(time.Second)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(m.Subject).To(Equal(to))
		f.Expect(m.Header.Get("Status")).To(Equal("100"))
	},
	"a request for flow control": func(f *fleettest.Fleet, nc *nats.Conn, to string, _ []byte) {
		publish(f, nc, &nats.Msg{Subject: to, Reply: "$JS.FC.KV_ELECTIONS.c.x", Header: nats.Header{"Status": {"100"}, "Description": {"FlowControl Request"}}})
	},
	"the status of a pull request": func(f *fleettest.Fleet, nc *nats.Conn, to string, _ []byte) {
		request(f, nc, "$JS.API.CONSUMER.CREATE.KV_ELECTIONS.p", `{"stream_name":"KV_ELECTIONS","config":{"name":"p","deliver_policy":"new","ack_policy":"none"}}`)
		for range 3 {
			publish(f, nc, &nats.Msg{Subject: "$JS.API.CONSUMER.MSG.NEXT.KV_ELECTIONS.p", Reply: to, Data: []byte(`{"batch":1,"no_wait":true}`)})
		}
	},
	"an answer of the JetStream API": func(f *fleettest.Fleet, nc *nats.Conn, to string, _ []byte) {
		publish(f, nc, &nats.Msg{Subject: "$JS.API.STREAM.INFO.KV_ELECTIONS", Reply: to})
	},
	"a value that a direct get reads": func(f *fleettest.Fleet, nc *nats.Conn, to string, body []byte) {
		_, err := f.Bucket.Put(context.Background(), "other", body)
		f.Expect(err).NotTo(HaveOccurred())
		publish(f, nc, &nats.Msg{Subject: "$JS.API.DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.other", Reply: to})
	},
	"the acknowledgement of a write": func(f *fleettest.Fleet, nc *nats.Conn, to string, _ []byte) {
		publish(f, nc, &nats.Msg{Subject: "$KV.ELECTIONS.other", Reply: to})
	},
	"the answers of services": func(f *fleettest.Fleet, nc *nats.Conn, to string, _ []byte) {
		_, err := f.Server.Connect(f.T).Subscribe("$SRV.PING", func(m *nats.Msg) { _ = m.Respond([]byte(`{"type":"io.nats.micro.v1.ping_response"}`)) })
		f.Expect(err).NotTo(HaveOccurred())
		after(fleettest.Instant)
		publish(f, nc, &nats.Msg{Subject: "$SRV.PING", Reply: to})
	},
	"the answer of a program that echoes": func(f *fleettest.Fleet, nc *nats.Conn, to string, body []byte) {
		_, err := f.Server.Connect(f.T).Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
		f.Expect(err).NotTo(HaveOccurred())
		after(fleettest.Instant)
		publish(f, nc, &nats.Msg{Subject: "echo", Reply: to, Data: body})
	},
	"what a stream republishes": func(f *fleettest.Fleet, nc *nats.Conn, to string, body []byte) {
		js, err := jetstream.New(nc)
		f.Expect(err).NotTo(HaveOccurred())
		_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{
			Name: "R", Subjects: []string{"republish"}, Storage: jetstream.MemoryStorage, RePublish: &jetstream.RePublish{Source: "republish", Destination: to},
		})
		f.Expect(err).NotTo(HaveOccurred())
		publish(f, nc, &nats.Msg{Subject: "republish", Data: body, Reply: nc.NewInbox()})
	},
	"the trace of a message": func(f *fleettest.Fleet, nc *nats.Conn, to string, body []byte) {
		publish(f, nc, &nats.Msg{Subject: "anything", Data: body, Header: nats.Header{"Nats-Trace-Dest": {to}}})
	},
	"a status with a reply subject": func(f *fleettest.Fleet, nc *nats.Conn, to string, body []byte) {
		publish(f, nc, &nats.Msg{Subject: to, Reply: nc.NewInbox(), Data: body, Header: nats.Header{"Status": {"100"}}})
	},
	"a stored message with a reply subject": func(f *fleettest.Fleet, nc *nats.Conn, to string, body []byte) {
		publish(f, nc, &nats.Msg{Subject: to, Reply: nc.NewInbox(), Data: body, Header: nats.Header{"Nats-Stream": {"KV_ELECTIONS"}, "Nats-Sequence": {"1"}}})
	},
	"a request without a reply subject": func(f *fleettest.Fleet, nc *nats.Conn, to string, body []byte) {
		publish(f, nc, &nats.Msg{Subject: to, Data: body})
	},
	"a request to be answered on a key": func(f *fleettest.Fleet, nc *nats.Conn, to string, body []byte) {
		publish(f, nc, &nats.Msg{Subject: to, Data: body, Reply: "$KV.ELECTIONS." + key})
	},
}

func publish(f *fleettest.Fleet, nc *nats.Conn, m *nats.Msg) {
	f.Helper()
	f.Expect(nc.PublishMsg(m)).To(Succeed())
	f.Expect(nc.Flush()).To(Succeed())
}

func request(f *fleettest.Fleet, nc *nats.Conn, to, body string) {
	f.Helper()
	m, err := nc.Request(to, []byte(body), time.Second)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(string(m.Data)).NotTo(ContainSubstring(`"error"`))
}

func TestWhatIsNoRequestMovesNoLeadershipAndCostsNothing(t *testing.T) {
	natstest.SkipIfShort(t)
	for what, send := range misdirected {
		for _, verb := range []string{"resign", "transfer", "candidates", "refresh"} {
			t.Run(what+"/"+verb, func(t *testing.T) {
				withFollower(t, func(f *fleettest.Fleet, leader, follower *fleettest.Candidate) {
					body := fmt.Appendf(nil, `{"instance":%q,"to":"b","release_ms":10}`, leader.Status().Instance)
					term, _ := leader.Term()
					after(2 * interval) // until the follower has made its first campaigns
					var sent atomic.Int64
					follower.Link.OnRequest(func(faultproxy.Message) { sent.Add(1) })
					send(f, f.Server.Connect(f.T), subject(verb, key), body)
					after(2 * interval)
					now, leads := leader.Term()
					f.Expect(leads).To(BeTrue())
					f.Expect(now.Number).To(Equal(term.Number))
					f.Expect(sent.Load()).To(BeZero(), "the follower answers nothing, and reads nothing")

					o := f.Operator()
					f.Expect(o.Transfer(context.Background(), key, "b")).To(Succeed(), "requests are still carried out")
				})
			})
		}
	}
}

func TestHandoverIsNotTakenForDoneBecauseAStreamStoredTheRequest(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		a := f.Connected("a").Begin()
		after(interval)
		js := f.JetStream()
		_, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "ALL", Subjects: []string{"election-control.>"}, Storage: jetstream.MemoryStorage})
		f.Expect(err).NotTo(HaveOccurred())
		c := control.Client{Bucket: kv.With(f.Open(f.Server.Connect(f.T)), nil)}
		f.Expect(c.Resign(context.Background(), key, "nobody", time.Minute)).To(MatchError(ContainSubstring("does not answer")))
		f.Expect(a.IsLeader()).To(BeTrue())
		f.Expect(c.Resign(context.Background(), key, a.Status().Instance, time.Minute)).To(Succeed())
		f.Expect(a.IsLeader()).To(BeFalse())
	}, fleettest.Republished)
}

func TestRequestThatIsTooLargeIsAnsweredWithAnError(t *testing.T) {
	withFollower(t, func(f *fleettest.Fleet, leader, _ *fleettest.Candidate) {
		nc := f.Server.Connect(f.T)
		for _, verb := range []string{"resign", "transfer", "candidates", "refresh"} {
			for size, refused := range map[int]bool{3_500: false, 4_200: true, 1_000_000: true} {
				body := fmt.Appendf(nil, `{"instance":"nobody","to":"%s"}`, strings.Repeat(`\u0000`, size/6))
				m, err := nc.Request(subject(verb, key), body, 2*time.Second)
				if refused {
					f.Expect(err).NotTo(HaveOccurred())
					f.Expect(m.Header.Get(micro.ErrorHeader)).To(ContainSubstring("at most 4096 bytes"), verb)
					f.Expect(m.Header.Get(micro.ErrorCodeHeader)).To(Equal("400"))
				} else if verb != "refresh" {
					f.Expect(err).To(MatchError(nats.ErrTimeout), "nobody has that instance")
				}
			}
		}
		f.Expect(leader.IsLeader()).To(BeTrue())
	})
}

// busy is a candidate that describes itself only when it is released.
type busy struct{ released chan struct{} }

func (b busy) Describe() control.Candidate {
	<-b.released
	return control.Candidate{Key: key, Name: "a", Instance: "i"}
}
func (busy) BucketCreated() time.Time               { return time.Time{} }
func (busy) HoldsKey() bool                         { return false }
func (busy) Resign(context.Context) error           { return control.ErrNotLeader }
func (busy) Transfer(context.Context, string) error { return control.ErrNotLeader }
func (busy) Refresh(context.Context) bool           { return true }
func (busy) ExpectRelease(time.Duration)            {}
func (busy) HandoverTimeout() time.Duration         { return time.Minute }

func TestLargeRequestsDoNotFillTheMemoryOfABusyCandidate(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		b := busy{make(chan struct{})}
		m := control.Join(kv.With(f.Open(f.Server.Connect(f.T, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))), nil), key, b, slog.New(slog.DiscardHandler))
		defer m.Leave()
		nc := f.Server.Connect(f.T)
		live := func() int64 {
			after(fleettest.Instant)
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		large, header := make([]byte, 1_000_000), nats.Header{"X": {strings.Repeat("0", 900_000)}}
		flood := func(to string, n int) {
			for range n {
				publish(f, nc, &nats.Msg{Subject: to, Reply: nc.NewInbox(), Data: large})
				publish(f, nc, &nats.Msg{Subject: to, Reply: nc.NewInbox(), Header: header})
			}
		}
		publish(f, nc, &nats.Msg{Subject: subject("candidates", key), Reply: nc.NewInbox()}) // which keeps it busy
		flood(subject("candidates", key), 3)
		before := live()
		for _, to := range []string{subject("candidates", key), subject("refresh", key), "$SRV.PING", "$SRV.INFO.election"} {
			flood(to, 100)
		}
		f.Expect(live() - before).To(BeNumerically("<", 8<<20))
		close(b.released)
	}, fleettest.Republished)
}

// identityOf returns the identity of the service of the process that answers a ping first.
func identityOf(f *fleettest.Fleet, nc *nats.Conn) (ping micro.Ping) {
	f.Helper()
	m, err := nc.Request("$SRV.PING.election", nil, time.Second)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(json.Unmarshal(m.Data, &ping)).To(Succeed())
	return ping
}

func TestMicroServiceCountsWhatItIsAsked(t *testing.T) {
	fleettest.Run(t, func(f *fleettest.Fleet) {
		f.Connected("a").Begin()
		after(2 * interval)
		nc := f.Server.Connect(f.T)
		o, err := admin.New(f.Open(nc))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(o.Transfer(context.Background(), key, "nobody")).To(MatchError(election.ErrNoCandidate))
		publish(f, nc, &nats.Msg{Subject: subject("resign", key)})
		after(0)
		ping := identityOf(f, nc)
		to, err := micro.ControlSubject(micro.StatsVerb, ping.Name, ping.ID)
		f.Expect(err).NotTo(HaveOccurred())
		m, err := nc.Request(to, nil, time.Second)
		f.Expect(err).NotTo(HaveOccurred())
		var s micro.Stats
		f.Expect(json.Unmarshal(m.Data, &s)).To(Succeed())
		f.Expect(s.Type).To(Equal(micro.StatsResponseType))
		f.Expect(s.Started).To(BeTemporally("~", time.Now(), time.Hour))
		f.Expect(s.Endpoints).To(HaveLen(4))
		for _, e := range s.Endpoints {
			f.Expect(e.Subject).To(Equal(subject(e.Name, ">")))
			switch e.Name {
			case "resign":
				f.Expect(e.NumRequests).To(Equal(1))
				f.Expect(e.LastError).To(ContainSubstring("dropped"))
			case "transfer":
				f.Expect(e.NumErrors).To(Equal(1))
				f.Expect(e.LastError).To(ContainSubstring("nobody"))
			}
		}
	}, fleettest.Republished)
}
