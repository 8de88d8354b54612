package cli

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/test/natstest"
)

// The client holds its lock while it waits for a server that refuses it, which stops virtual time: this test runs in real time.
func TestConnectionThatNeverGivesUpOutlastsRefusalsOfItsCredentials(t *testing.T) {
	natstest.SkipIfShort(t)
	g, opts := NewWithT(t), &server.Options{}
	users := func(o *server.Options, name string) { o.Users = []*server.User{{Username: name, Password: "x"}} }
	users(opts, "other")
	s := natstest.StartNode(t, "users", opts)
	refusals := make(lines, 100)
	flags := &ConnectionFlags{Server: s.ClientURL(), User: "a", Password: "x", NoContext: true, Timeout: 5 * time.Second}
	client, err := flags.ConnectForever("witness", slog.New(terminal.NewLogHandler(refusals, terminal.Style{}, slog.LevelDebug)))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(client.Conn.Close)
	for range 4 { // the client closes a connection after two in a row
		g.Eventually(refusals, "20s").Should(Receive(ContainSubstring("correct --user and --password")))
	}
	g.Expect(client.Conn.IsClosed()).To(BeFalse())
	changed := opts.Clone()
	users(changed, "a")
	g.Expect(s.ReloadOptions(changed)).To(Succeed())
	g.Eventually(client.Conn.IsConnected, "20s", "10ms").Should(BeTrue())
}

// lines receives each line that is written; more than it holds are lost.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- strings.TrimSpace(string(b)):
	default:
	}
	return len(b), nil
}

func TestCheckReportsWrongFlagsAndConnectsToNothing(t *testing.T) {
	g := NewWithT(t)
	g.Expect((&ConnectionFlags{Server: "nats://127.0.0.1:1", NoContext: true, Timeout: time.Second}).Check()).To(Succeed())
	g.Expect((&ConnectionFlags{Server: "http://h", NoContext: true, Timeout: time.Second}).Check()).To(MatchError(ContainSubstring("http://h")))
	g.Expect((&ConnectionFlags{Context: "no-such", Timeout: time.Second}).Check()).To(MatchError(ContainSubstring("--context")))
}
