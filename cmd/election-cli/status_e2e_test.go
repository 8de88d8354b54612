package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/clitest"
)

func TestACampaignServesItsStatusPage(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	cmd, stdout, _ := command(t, "campaign", "jobs", "--name", "web-1", "--embedded", "--ttl", "2s", "--status", ":0")
	lines, err := linesOf(&cmd.Stderr, cmd.StderrPipe)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	var line string
	g.Eventually(lines).WithTimeout(clitest.Timeout).Should(Receive(&line))
	g.Expect(line).To(ContainSubstring("Serving the status page"))
	_, url, _ := strings.Cut(line, "url=")
	url = strings.TrimSpace(url)
	g.Expect(url).To(HavePrefix("http://127.0.0.1:"))
	get := func(path string) func() (string, error) {
		return func() (string, error) {
			r, err := http.Get(url + path)
			if err != nil {
				return "", err
			}
			defer r.Body.Close()
			defer http.DefaultClient.CloseIdleConnections()
			body, err := io.ReadAll(r.Body)
			return r.Status + "\n" + string(body), err
		}
	}
	g.Eventually(get("leader")).WithTimeout(clitest.Timeout).Should(And(HavePrefix("200"), ContainSubstring(`"is_leader":true`)))
	g.Eventually(get("")).WithTimeout(clitest.Timeout).Should(And(
		ContainSubstring("web-1 leads"), MatchRegexp(`<i class="c0"></i>web-1</td><td class="leader">leader</td>`), ContainSubstring("<dt>Term</dt><dd>1</dd>"),
	))
	g.Expect(get("healthz")()).To(And(HavePrefix("200"), ContainSubstring(`"healthy":true`)))
	events, err := http.Get(url + "events")
	g.Expect(err).NotTo(HaveOccurred())
	defer events.Body.Close()
	g.Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
	g.Expect(cmd.Wait()).To(Succeed(), stdout.String())
	_, _ = io.Copy(io.Discard, events.Body) // returns, because the server closes the connection
}
