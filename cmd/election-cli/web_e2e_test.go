package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/test/natstest"
)

// urlsOf starts a campaign that waits for a server which is not there, and returns the URLs of its metrics and of its page.
func urlsOf(t *testing.T, flags ...string) []string {
	t.Helper()
	s := startServing(t, append([]string{"campaign", "jobs", "--name", "web-1", "-s", "nats://127.0.0.1:1"}, flags...)...)
	return []string{s.url("Metrics are served"), s.url("Serving the status page")}
}

func TestMetricsAndStatusAreOnLoopbackUnlessAnAddressIsGiven(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	urls := urlsOf(t, "--metrics", ":0", "--status", "0.0.0.0:0")
	g.Expect(urls[0]).To(MatchRegexp(`^http://127\.0\.0\.1:\d+/metrics$`))
	g.Expect(urls[1]).To(MatchRegexp(`^http://(0\.0\.0\.0|\[::\]):\d+/$`))
	urls = urlsOf(t, "--metrics", "localhost:0", "--status", ":0")
	g.Expect(urls[0]).To(MatchRegexp(`^http://(127\.0\.0\.1|\[::1\]):\d+/metrics$`))
	g.Expect(urls[1]).To(MatchRegexp(`^http://127\.0\.0\.1:\d+/$`))
}

func TestOneAddressServesMetricsAndTheStatusPageWithTLSAndAPassword(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	port := natstest.FreePort(t)
	client, config := webConfig(t)
	urls := urlsOf(t, "--metrics", fmt.Sprintf(":%d", port), "--status", fmt.Sprintf("127.0.0.1:%d", port), "--web-config", config)
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
	code, stdout, stderr := runInProcess("campaign", "jobs", "-s", "nats://127.0.0.1:1", "--status", ":0", "--web-config", config)
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stdout).To(BeEmpty())
	g.Expect(stderr).To(And(HavePrefix("election-cli: --web-config "+config+": "), ContainSubstring("bcrypt"), ContainSubstring("https://prometheus.io/docs/")))
}

// startServing starts a command that serves over HTTP, and reads its log.
func startServing(t *testing.T, args ...string) *process {
	t.Helper()
	cmd, _, _ := command(t, args...)
	return followLog(NewWithT(t), cmd)
}

// url waits for the line of the log with the text, and returns the URL that it names.
func (p *process) url(text string) string {
	var line string
	p.g.Eventually(p.lines).Should(Receive(&line))
	p.g.Expect(line).To(ContainSubstring(text))
	_, url, _ := strings.Cut(line, "url=")
	return strings.TrimSpace(url)
}

// get returns the status and the body of an answer to a browser.
func get(client *http.Client, url string) string {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	request.Header.Set("Accept", "text/html")
	r, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	defer client.CloseIdleConnections()
	body, _ := io.ReadAll(r.Body)
	return r.Status + "\n" + string(body)
}

// fetch returns a function that requests a URL, which returns the status and the body of the answer.
func fetch(url string) func() string {
	return func() string { return get(http.DefaultClient, url) }
}
