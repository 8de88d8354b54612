package serving

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// text returns a handler that writes a text.
func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

// get returns the answer of a server; the error if there is none.
func get(url string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return r.Status + " " + string(body)
}

// freeAddress returns an address on the loopback interface that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
}

func TestAPortAloneIsOnTheLoopbackInterface(t *testing.T) {
	for given, want := range map[string]string{
		":9222": "127.0.0.1:9222", ":0": "127.0.0.1:0", "localhost:1": "localhost:1", "0.0.0.0:9222": "0.0.0.0:9222", "[::]:9222": "[::]:9222", "web-1:80": "web-1:80",
	} {
		got, err := endpoint{Address: given}.listenAddress()
		NewWithT(t).Expect(got, err).To(Equal(want))
	}
}

func TestPagesWithTheSameAddressShareAServer(t *testing.T) {
	g := NewWithT(t)
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	s, err := serve([]endpoint{
		{Flag: "--metrics", Address: ":" + port, Pattern: "GET /metrics", Handler: text("metrics")},
		{Flag: "--status", Address: address, Pattern: "/", Handler: text("status")},
	}, "", quiet)
	g.Expect(err).NotTo(HaveOccurred())
	defer s.Stop()
	g.Expect(get("http://" + address + "/metrics")).To(Equal("200 OK metrics"))
	g.Expect(get("http://" + address + "/")).To(Equal("200 OK status"))
}

func TestAWrongAddressIsAnErrorThatNamesTheFlagAndLeavesNothingOpen(t *testing.T) {
	g := NewWithT(t)
	good := freeAddress(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer busy.Close()
	for _, bad := range []string{"", "9222", "127.0.0.1", "::1:80:90", "http://127.0.0.1:80", "127.0.0.1:nowhere", busy.Addr().String()} {
		_, err := serve([]endpoint{{Flag: "--metrics", Address: good, Pattern: "/", Handler: text("")}, {Flag: "--status", Address: bad}}, "", quiet)
		g.Expect(err).To(MatchError(And(HavePrefix("--status "+bad+": "), ContainSubstring("give an address such as :9222, for this host only, or 0.0.0.0:9222"))))
	}
	l, err := net.Listen("tcp", good)
	g.Expect(err).NotTo(HaveOccurred(), "it was closed again")
	_ = l.Close()
}

func TestAWrongConfigurationFileIsAnErrorBeforeAnythingIsServed(t *testing.T) {
	g := NewWithT(t)
	address, file := freeAddress(t), filepath.Join(t.TempDir(), "web.yml")
	for content, want := range map[string]string{
		"users: {a: b}":                "field users not found",
		"basic_auth_users: {a: plain}": "bcrypt",
		"tls_server_config: {cert_file: gone.crt, key_file: gone.key}": "gone.crt",
		"tls_server_config: {cert_file: web.yml}":                      "missing one of key or key_file",
		":": "yaml",
	} {
		g.Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
		_, err := serve([]endpoint{{Address: address, Pattern: "/", Handler: text("")}}, file, quiet)
		g.Expect(err).To(MatchError(And(HavePrefix("--web-config "+file+": "), ContainSubstring(want), ContainSubstring("the format is that of https://"))))
	}
	_, err := serve(nil, file+"x", quiet)
	g.Expect(err).To(MatchError(ContainSubstring("no such file")))
}

func TestAPasswordProtectsEveryPath(t *testing.T) {
	g := NewWithT(t)
	address, file := freeAddress(t), filepath.Join(t.TempDir(), "web.yml")
	const hash = "$2y$04$7LyeGGDLmWCsKDh6UwMbKuawQ7DvgOiQgQyveV2Vyznojh8f/oIkC" // of "secret"
	g.Expect(os.WriteFile(file, []byte("basic_auth_users: {operator: "+hash+"}"), 0o600)).To(Succeed())
	s, err := serve([]endpoint{{Address: address, Pattern: "/", Handler: text("status")}}, file, quiet)
	g.Expect(err).NotTo(HaveOccurred())
	defer s.Stop()
	for _, path := range []string{"/", "/metrics", "/leader", "/healthz"} {
		g.Expect(get("http://" + address + path)).To(HavePrefix("401"))
		g.Expect(get("http://operator:wrong@" + address + path)).To(HavePrefix("401"))
		g.Expect(get("http://operator:secret@" + address + path)).To(Equal("200 OK status"))
	}
}

func TestTheLogNamesTheURLsAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	var log strings.Builder
	s, err := serve([]endpoint{{Address: ":0", Pattern: "/", Path: "/metrics", Handler: text(""), Started: "Metrics are served"}}, "", slog.New(slog.NewTextHandler(&log, nil)))
	g.Expect(err).NotTo(HaveOccurred())
	s.Stop()
	g.Expect(log.String()).To(MatchRegexp(`^time=\S+ level=INFO msg="Metrics are served" url=http://127.0.0.1:\d+/metrics\n$`))
}

func TestStopEndsTheRequestsInProgress(t *testing.T) {
	g := NewWithT(t)
	address := freeAddress(t)
	begun, ended := make(chan struct{}), make(chan error, 1)
	s, err := serve([]endpoint{{Address: address, Pattern: "/", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		ended <- context.Cause(r.Context())
	})}}, "", quiet)
	g.Expect(err).NotTo(HaveOccurred())
	answer := make(chan string, 1)
	go func() { answer <- get("http://" + address) }()
	<-begun
	s.Stop()
	g.Expect(ended).To(Receive(MatchError(context.Canceled)), "Stop waits for the request")
	g.Eventually(answer, "20s").Should(Receive(HavePrefix("200")))
}
