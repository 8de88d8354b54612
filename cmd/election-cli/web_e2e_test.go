package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/natstest"
)

// urlsOf starts a campaign that waits for a server which is not there, and returns the URLs of what it serves.
func urlsOf(t *testing.T, count int, flags ...string) (urls []string) {
	t.Helper()
	g := NewWithT(t)
	cmd, _, _ := command(t, append([]string{"campaign", "jobs", "--name", "web-1", "-s", "nats://127.0.0.1:1"}, flags...)...)
	lines, err := linesOf(&cmd.Stderr, cmd.StderrPipe)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	for range count {
		var line string
		g.Eventually(lines).WithTimeout(clitest.Timeout).Should(Receive(&line))
		g.Expect(line).To(MatchRegexp("Metrics are served|Serving the status page"))
		urls = append(urls, regexp.MustCompile(`https?://\S+`).FindString(line))
	}
	return urls
}

// get returns the status and the body of an answer.
func get(client *http.Client, url string) string {
	r, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	defer client.CloseIdleConnections()
	body, _ := io.ReadAll(r.Body)
	return r.Status + "\n" + string(body)
}

func TestMetricsAndStatusAreOnLoopbackUnlessAnAddressIsGiven(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	urls := urlsOf(t, 2, "--metrics", ":0", "--status", "0.0.0.0:0")
	g.Expect(urls[0]).To(MatchRegexp(`^http://127\.0\.0\.1:\d+/metrics$`))
	g.Expect(urls[1]).To(MatchRegexp(`^http://(0\.0\.0\.0|\[::\]):\d+/$`))
	urls = urlsOf(t, 2, "--metrics", "localhost:0", "--status", ":0")
	g.Expect(urls[0]).To(MatchRegexp(`^http://(127\.0\.0\.1|\[::1\]):\d+/metrics$`))
	g.Expect(urls[1]).To(MatchRegexp(`^http://127\.0\.0\.1:\d+/$`))
}

func TestOneAddressServesMetricsAndTheStatusPageWithTLSAndAPassword(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	port := free.Addr().(*net.TCPAddr).Port
	g.Expect(free.Close()).To(Succeed())
	client, config := webConfig(t)
	urls := urlsOf(t, 2, "--metrics", fmt.Sprintf(":%d", port), "--status", fmt.Sprintf("127.0.0.1:%d", port), "--web-config", config)
	site := fmt.Sprintf("127.0.0.1:%d", port)
	g.Expect(urls).To(Equal([]string{"https://" + site + "/metrics", "https://" + site + "/"}))

	g.Expect(get(client, "https://operator:secret@"+site+"/metrics")).To(And(HavePrefix("200 OK"), ContainSubstring("go_goroutines")))
	g.Expect(get(client, "https://operator:secret@"+site+"/")).To(And(HavePrefix("200 OK"), ContainSubstring("<title>")))
	g.Expect(get(client, "https://operator:secret@"+site+"/healthz")).To(HavePrefix("200 OK"))
	for _, path := range []string{"/metrics", "/", "/leader", "/events"} {
		g.Expect(get(client, "https://"+site+path)).To(HavePrefix("401"), path)
	}
	g.Expect(get(client, "http://operator:secret@"+site+"/metrics")).To(HavePrefix("400"), "without TLS")
}

// webConfig returns a web configuration file with a certificate and the password "secret" of a user named operator, and a client that
// trusts the certificate.
func webConfig(t *testing.T) (client *http.Client, config string) {
	t.Helper()
	g := NewWithT(t)
	cert, authority := natstest.Certificate(t)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	g.Expect(err).NotTo(HaveOccurred())
	dir := filepath.Dir(authority)
	g.Expect(os.WriteFile(filepath.Join(dir, "web.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600)).To(Succeed())
	config = filepath.Join(dir, "web.yml")
	g.Expect(os.WriteFile(config, []byte(`tls_server_config: {cert_file: ca.pem, key_file: web.key}
basic_auth_users: {operator: "$2y$04$7LyeGGDLmWCsKDh6UwMbKuawQ7DvgOiQgQyveV2Vyznojh8f/oIkC"}
`), 0o600)).To(Succeed())
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	g.Expect(err).NotTo(HaveOccurred())
	trusted := x509.NewCertPool()
	trusted.AddCert(leaf)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}, config
}

func TestAWrongWebConfigurationEndsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	config := filepath.Join(t.TempDir(), "web.yml")
	g.Expect(os.WriteFile(config, []byte("basic_auth_users: {operator: secret}"), 0o600)).To(Succeed())
	code, stdout, stderr := runBinary(t, "campaign", "jobs", "-s", "nats://127.0.0.1:1", "--status", ":0", "--web-config", config)
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stdout).To(BeEmpty())
	g.Expect(stderr).To(And(HavePrefix("election-cli: --web-config "+config+": "), ContainSubstring("bcrypt"), ContainSubstring("https://prometheus.io/docs/")))
}
