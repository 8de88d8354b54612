package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/test/clitest"
)

// webProcess is a command that serves over HTTP, in a process of its own.
type webProcess struct {
	g     Gomega
	cmd   *exec.Cmd
	lines <-chan string // of its log
}

// startServing starts a command that serves over HTTP.
func startServing(t *testing.T, args ...string) *webProcess {
	t.Helper()
	g := NewWithT(t)
	cmd, _, _ := command(t, args...)
	lines, err := linesOf(&cmd.Stderr, cmd.StderrPipe)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	return &webProcess{g, cmd, lines}
}

// url waits for the line of the log with the text, and returns the URL that it names.
func (s *webProcess) url(text string) string {
	var line string
	s.g.Eventually(s.lines).WithTimeout(clitest.Timeout).Should(Receive(&line))
	s.g.Expect(line).To(ContainSubstring(text))
	_, url, _ := strings.Cut(line, "url=")
	return strings.TrimSpace(url)
}

// interrupt interrupts the command, and expects it to end with the exit code 0.
func (s *webProcess) interrupt() {
	s.g.Expect(s.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	s.g.Expect(s.cmd.Wait()).To(Succeed())
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
