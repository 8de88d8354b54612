package drill

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestADrillConnectsToItsEmbeddedServerEvenIfAContextIsSelected(t *testing.T) {
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	natstest.KeepContext(t, "far", `{"url":"nats://h:1","socks_proxy":"socks5://p:1","jetstream_domain":"hub","user":"u","password":"p"}`, true)
	flags := cli.FlagsForServer(e.URL(), clitest.Timeout)
	s, err := flags.Connect(requireDirectConnection)
	g.Expect(err).NotTo(HaveOccurred())
	defer s.Conn.Close()
	g.Expect(s.Conn.Opts.User).To(BeEmpty())
	g.Expect(s.JetStream.Options().Domain).To(BeEmpty())
}

func TestADrillRefusesAContextThatConnectsThroughAProxy(t *testing.T) {
	g := NewWithT(t)
	natstest.KeepContext(t, "far", `{"url":"nats://h:1","socks_proxy":"socks5://p:1"}`, false)
	_, err := (&cli.ConnectionFlags{Context: "far", Timeout: time.Second}).Connect(requireDirectConnection)
	g.Expect(err).To(MatchError(ContainSubstring("a proxy, which a drill cannot cut")))
}
