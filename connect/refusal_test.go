package connect_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/connect"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// withUsers has a server know the users of the given names, each with the password "x".
func withUsers(names ...string) func(*server.Options) {
	return func(o *server.Options) {
		o.Users = nil
		for _, name := range names {
			o.Users = append(o.Users, &server.User{Username: name, Password: "x"})
		}
	}
}

// The client holds its lock while it waits for a server that refuses it, which stops virtual time: these tests run in real time.

func TestConnectionOutlastsRefusalsOfItsCredentials(t *testing.T) {
	natstest.SkipIfShort(t)
	g, opts := NewWithT(t), &server.Options{JetStream: true}
	withUsers("a", "other")(opts)
	s := natstest.StartNode(t, "users", opts)
	reload := func(names ...string) {
		changed := opts.Clone()
		withUsers(names...)(changed)
		g.Expect(s.ReloadOptions(changed)).To(Succeed())
	}
	var log buffer
	c, err := connect.Connect(context.Background(), connect.Config{
		Name: "a", Key: fleettest.Key, Bucket: "E", TTL: 2 * time.Second, URL: s.ClientURL(), User: "a", Password: "x", Splay: new(time.Duration(0)),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(c.Close)
	e, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options()...)
	g.Expect(err).NotTo(HaveOccurred())
	result := make(chan error, 1)
	go func() { result <- e.Start(context.Background()) }()
	t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	for n := range 2 {
		g.Eventually(e.IsLeader, "20s", "10ms").Should(BeTrue())
		reload("other") // a mistake in the configuration, or a rotation
		g.Eventually(func() int { return log.count("refuses the credentials") }, "20s", "10ms").Should(Equal(n + 1))
		refused := c.NATS.Stats().Reconnects
		g.Eventually(func() uint64 { return c.NATS.Stats().Reconnects - refused }, "20s", "10ms").Should(BeNumerically(">=", 3), "it goes on trying")
		reload("a", "other")
		g.Eventually(c.NATS.IsConnected, "20s", "10ms").Should(BeTrue())
	}
	g.Eventually(e.IsLeader, "20s", "10ms").Should(BeTrue())
	g.Expect(result).NotTo(Receive())
	g.Expect(log.count("refuses the credentials")).To(Equal(2), "one warning for each time")
}

func TestCredentialsThatWereNeverAcceptedAreAnErrorSoon(t *testing.T) {
	g, opts := NewWithT(t), &server.Options{JetStream: true}
	withUsers("a")(opts)
	s := natstest.StartNode(t, "users", opts)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := connect.Connect(ctx, connect.Config{Name: "a", Bucket: "E", URL: s.ClientURL(), User: "a", Password: "wrong"},
		nats.ConnectHandler(func(*nats.Conn) {}), nats.ReconnectErrHandler(func(*nats.Conn, error) {}))
	g.Expect(err).To(And(MatchError(nats.ErrAuthorization), MatchError(ContainSubstring("correct User and Password")), Not(MatchError(ContainSubstring("wrong")))))
	g.Expect(ctx.Err()).NotTo(HaveOccurred(), "nothing was waited for")
}
