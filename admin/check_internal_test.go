package admin

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
)

func TestFixForMissingMarkersWorksOnTheServerThereIs(t *testing.T) {
	g := NewWithT(t)
	for version, fix := range map[string]string{
		"2.10.27":       "upgrade the servers, of which this one has version 2.10.27, to 2.11 or newer",
		"1.4.1":         "upgrade",
		"2.9.0-beta.1":  "upgrade",
		"2.11.0":        "run 'election-cli bucket edit",
		"2.15.2":        "run 'election-cli bucket edit",
		"3.0.0-RC.1":    "run 'election-cli bucket edit",
		"":              "2.11 or newer",
		"not a version": "2.11 or newer",
	} {
		g.Expect((&checkup{}).markerFix(version)).To(ContainSubstring(fix), version)
		g.Expect((&checkup{}).markerFix(version)).To(ContainSubstring("CreateBucket"), version)
	}
}

func TestFindingsAreReadByProgramsToo(t *testing.T) {
	g := NewWithT(t)
	for i, name := range []string{"info", "warning", "critical"} {
		finding := Finding{Code: "no-ttl", Severity: Severity(i), Message: "m", Fix: "r"}
		b, err := json.Marshal(finding)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(b).To(MatchJSON(`{"code":"no-ttl","severity":"` + name + `","message":"m","fix":"r"}`))
		var back Finding
		g.Expect(json.Unmarshal(b, &back)).To(Succeed())
		g.Expect(back).To(Equal(finding))
	}
	g.Expect(new(Severity).UnmarshalText([]byte("fatal"))).To(MatchError(ContainSubstring(`"fatal"`)))
	g.Expect(Severity(7).String()).To(Equal("Severity(7)"))
}

func TestCheckAgainstAServerThatGrantsLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("refused requests take their time: not with -short")
	}
	g, ctx := NewWithT(t), context.Background()
	grant := func(publish, subscribe []string) *server.Permissions {
		return &server.Permissions{Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: append(subscribe, "_INBOX_own.>")}}
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "guarded", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
		Users: []*server.User{
			{Username: "admin", Password: "x"},
			{Username: "least", Password: "x", Permissions: grant([]string{"$JS.API.STREAM.INFO.KV_E", "$KV.E.scheduler"}, nil)},
			{Username: "enough", Password: "x", Permissions: grant([]string{
				"$JS.API.STREAM.INFO.KV_E", "$KV.E.>", "$JS.API.DIRECT.GET.KV_E.$KV.E.>", "$JS.API.CONSUMER.CREATE.KV_E.*.$KV.E.>", "$JS.API.CONSUMER.DELETE.KV_E.*", "$JS.FC.KV_E.>", "election-answers.E.>",
			}, []string{"election.E.>", "$KV.E.>"})},
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	g.Expect(s.ReadyForConnections(10 * time.Second)).To(BeTrue())

	as := func(user string) jetstream.JetStream {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "x"), nats.CustomInboxPrefix("_INBOX_own"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(), nats.PingInterval(time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		g.Expect(err).NotTo(HaveOccurred())
		return js
	}
	_, err = election.CreateBucket(ctx, as("admin"), election.BucketConfig{Name: "E", TTL: 10 * time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	checkAs := func(user string) (problems []string) {
		js := as(user)
		bucket, err := js.KeyValue(ctx, "E")
		g.Expect(err).NotTo(HaveOccurred())
		found, err := Check(ctx, bucket, election.WithJetStream(js))
		g.Expect(err).NotTo(HaveOccurred())
		for _, finding := range found {
			if finding.Code == "subscribe-refused" {
				g.Expect(finding.Message).To(ContainSubstring(" cannot be subscribed to: not permitted"))
			}
			if !strings.HasPrefix(finding.Code, "expect-") {
				problems = append(problems, finding.Code)
			}
		}
		return problems
	}
	g.Expect(checkAs("enough")).To(BeEmpty())
	g.Expect(checkAs("least")).To(Equal([]string{"write-refused", "read-refused", "watch-refused", "subscribe-refused", "answers-refused", "attempts-refused"}))
}
