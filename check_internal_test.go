package election

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
)

func TestOutlookByWhatCandidatesHear(t *testing.T) {
	const ms = time.Millisecond
	var o options
	standard, err := o.timing(10 * time.Second)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	quick := standard
	quick.standDown = time.Second
	for name, c := range map[string]struct {
		opts                     options
		timing                   timing
		hears                    hearing
		release, crash, eviction outlook
	}{
		"all":            {o, standard, hearing{source: sourceWatch, markers: time.Second}, outlook{23 * ms, 46 * ms}, outlook{13773 * ms, 17946 * ms}, outlook{10023 * ms, 10046 * ms}},
		"counted":        {o, standard, hearing{source: sourceRepublish, markers: time.Second, counted: true}, outlook{1 * ms, 71 * ms}, outlook{13751 * ms, 17946 * ms}, outlook{10001 * ms, 10046 * ms}},
		"no markers":     {o, standard, hearing{source: sourceWatch}, outlook{23 * ms, 46 * ms}, outlook{14173 * ms, 17946 * ms}, outlook{10023 * ms, 10046 * ms}},
		"quick":          {o, quick, hearing{source: sourceWatch, markers: time.Second}, outlook{23 * ms, 46 * ms}, outlook{7273 * ms, 11446 * ms}, outlook{10023 * ms, 10046 * ms}},
		"bare names":     {options{plain: true}, standard, hearing{source: sourceWatch}, outlook{23 * ms, 46 * ms}, outlook{14173 * ms, 17946 * ms}, outlook{10023 * ms, 10046 * ms}},
		"deaf":           {o, standard, hearing{source: sourceNone, markers: time.Second}, outlook{3750 * ms, 7500 * ms}, outlook{17500 * ms, 25400 * ms}, outlook{11250 * ms, 15000 * ms}},
		"deaf, deleted":  {o, standard, hearing{source: sourceNone}, outlook{11250 * ms, 15000 * ms}, outlook{17500 * ms, 25400 * ms}, outlook{11250 * ms, 15000 * ms}},
		"deaf and blind": {o, standard, hearing{source: sourceNone, markers: time.Second, blind: true}, outlook{22250 * ms, 26400 * ms}, outlook{18500 * ms, 26400 * ms}, outlook{22250 * ms, 26400 * ms}},
		"blind, deleted": {o, standard, hearing{source: sourceNone, blind: true}, outlook{21250 * ms, 25400 * ms}, outlook{17500 * ms, 25400 * ms}, outlook{21250 * ms, 25400 * ms}},
		"a backoff":      {options{backoff: ConstantBackoff(time.Second)}, standard, hearing{source: sourceNone, markers: time.Second}, outlook{5000 * ms, 10000 * ms}, outlook{18750 * ms, 27900 * ms}, outlook{12500 * ms, 17500 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			release, crash, eviction := c.opts.vacancies(c.timing, c.hears)
			g.Expect(release).To(Equal(c.release))
			g.Expect(crash).To(Equal(c.crash))
			g.Expect(eviction).To(Equal(c.eviction))
		})
	}
}

func TestFindingsAreReadByProgramsToo(t *testing.T) {
	g := NewWithT(t)
	for i, name := range []string{"info", "warning", "critical"} {
		finding := Finding{Code: "no-ttl", Severity: Severity(i), Message: "m", Remedy: "r"}
		b, err := json.Marshal(finding)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(b).To(MatchJSON(`{"code":"no-ttl","severity":"` + name + `","message":"m","remedy":"r"}`))
		var back Finding
		g.Expect(json.Unmarshal(b, &back)).To(Succeed())
		g.Expect(back).To(Equal(finding))
	}
	g.Expect(new(Severity).UnmarshalText([]byte("fatal"))).To(MatchError(ContainSubstring(`"fatal"`)))
	g.Expect(Severity(7).String()).To(Equal("Severity(7)"))
}

func TestCheckAgainstAServerThatGrantsLittle(t *testing.T) {
	g, ctx := NewWithT(t), context.Background()
	grant := func(publish, subscribe []string) *server.Permissions {
		return &server.Permissions{Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: append(subscribe, "_INBOX.>")}}
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "guarded", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
		Users: []*server.User{
			{Username: "admin", Password: "x"},
			{Username: "least", Password: "x", Permissions: grant([]string{"$JS.API.STREAM.INFO.KV_E", "$KV.E.scheduler"}, nil)},
			{Username: "enough", Password: "x", Permissions: grant([]string{
				"$JS.API.STREAM.INFO.KV_E", "$KV.E.>", "$JS.API.DIRECT.GET.KV_E.$KV.E.>", "$JS.API.CONSUMER.CREATE.KV_E.*.$KV.E.>", "$JS.API.CONSUMER.DELETE.KV_E.*", "$JS.FC.KV_E.>",
			}, []string{"election.E.>", "$KV.E.>"})},
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	g.Expect(s.ReadyForConnections(10 * time.Second)).To(BeTrue())

	as := func(user string) jetstream.JetStream {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "x"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		g.Expect(err).NotTo(HaveOccurred())
		return js
	}
	_, err = CreateBucket(ctx, as("admin"), BucketConfig{Name: "E", TTL: 10 * time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	checkAs := func(user string) (troubles []string) {
		js := as(user)
		bucket, err := js.KeyValue(ctx, "E")
		g.Expect(err).NotTo(HaveOccurred())
		found, err := Check(ctx, bucket, WithJetStream(js))
		g.Expect(err).NotTo(HaveOccurred())
		for _, finding := range found {
			if finding.Code == "subscribe-refused" {
				g.Expect(finding.Message).To(ContainSubstring(" cannot be subscribed to: nats: permissions violation"))
			}
			if !strings.HasPrefix(finding.Code, "expect-") {
				troubles = append(troubles, finding.Code)
			}
		}
		return troubles
	}
	g.Expect(checkAs("enough")).To(BeEmpty())
	g.Expect(checkAs("least")).To(Equal([]string{"write-refused", "read-refused", "watch-refused", "subscribe-refused", "count-refused"}))
}
