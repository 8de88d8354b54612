package drill

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/embedded"
)

// certificate returns a certificate for the loopback interface, and a file that vouches for it.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(embedded.Loopback)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	g.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(t.TempDir(), "ca.pem")
	g.Expect(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)).To(Succeed())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func TestLinksOfAFleetCanBeCutAlsoWithTLSAndPasswords(t *testing.T) {
	g := NewWithT(t)
	cert, ca := certificate(t)
	s, err := server.NewServer(&server.Options{
		Host: embedded.Loopback, Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		Username: "u", Password: "p", TLS: true, TLSTimeout: clitest.Patience.Seconds(),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	})
	g.Expect(err).NotTo(HaveOccurred())
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	g.Expect(s.ReadyForConnections(embedded.StartTimeout)).To(BeTrue())

	flags := cli.ConnFlags{Server: s.ClientURL(), User: "u", Password: "p", TLSCA: ca, Timeout: clitest.Patience, NoContext: true}
	operator, err := flags.Connect()
	g.Expect(err).NotTo(HaveOccurred())
	defer operator.Conn.Close()
	_, err = election.CreateBucket(t.Context(), operator.JetStream, election.BucketConfig{Name: "B", TTL: time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	f, err := newFleet(t.Context(), flags, "B", 2)
	g.Expect(err).NotTo(HaveOccurred())
	defer f.close()

	one, two := f.members[0], f.members[1]
	one.join("key")
	g.Eventually(one.leads).WithTimeout(clitest.Patience).WithPolling(time.Millisecond).Should(BeTrue())
	two.join("key")
	one.link.Cut()
	g.Eventually(two.leads).WithTimeout(clitest.Patience).WithPolling(time.Millisecond).Should(BeTrue())
	g.Expect(one.leads()).To(BeFalse())
	one.link.Heal()
	g.Expect(f.reconnected(t.Context())).To(Succeed())
	g.Expect(one.session.Conn.IsConnected()).To(BeTrue())
	g.Expect(f.broken).NotTo(Receive())
}

func TestAFleetFailsWhereTheBucketIsMissing(t *testing.T) {
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	_, err = newFleet(t.Context(), cli.FlagsTo(e.URL(), time.Second), "NONE", 2)
	g.Expect(err).To(MatchError(And(ContainSubstring("candidate-1"), ContainSubstring("NONE"))))
}
