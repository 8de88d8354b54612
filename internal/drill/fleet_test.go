package drill

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestTheDrillCanCutLinksThatUseTLSAndPasswords(t *testing.T) {
	if testing.Short() {
		t.Skip("leases run out in real time: not with -short")
	}
	g := NewWithT(t)
	cert, ca := natstest.Certificate(t)
	s := natstest.StartNode(t, "server", &server.Options{
		JetStream: true,
		Username:  "u", Password: "p", TLS: true, TLSTimeout: clitest.Timeout.Seconds(),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	})

	flags := cli.ConnectionFlags{Server: s.ClientURL(), User: "u", Password: "p", TLSCA: ca, Timeout: clitest.Timeout, NoContext: true}
	operator, err := flags.Connect()
	g.Expect(err).NotTo(HaveOccurred())
	defer operator.Conn.Close()
	_, err = election.CreateBucket(t.Context(), operator.JetStream, election.BucketConfig{Name: "B", TTL: time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	f, err := newFleet(t.Context(), flags, "B", 2)
	g.Expect(err).NotTo(HaveOccurred())
	defer f.close()

	one, two := f.candidates[0], f.candidates[1]
	one.start("key")
	g.Eventually(one.leads).WithTimeout(clitest.Timeout).WithPolling(time.Millisecond).Should(BeTrue())
	two.start("key")
	one.link.Cut()
	g.Eventually(two.leads).WithTimeout(clitest.Timeout).WithPolling(time.Millisecond).Should(BeTrue())
	g.Expect(one.leads()).To(BeFalse())
	one.link.Heal()
	g.Expect(f.awaitConnections(t.Context())).To(Succeed())
	g.Expect(one.client.Conn.IsConnected()).To(BeTrue())
	g.Expect(f.failed).NotTo(Receive())
}

func TestAFleetCannotConnectWithoutTheBucket(t *testing.T) {
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	_, err = newFleet(t.Context(), cli.FlagsForServer(e.URL(), clitest.Timeout), "NONE", 2)
	g.Expect(err).To(MatchError(And(ContainSubstring("candidate-1"), ContainSubstring("NONE"))))
}
