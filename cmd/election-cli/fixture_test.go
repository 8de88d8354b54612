package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// fixture is a server with a bucket, and runs commands against the server.
type fixture struct {
	*clitest.Fixture
	url  string
	user string // as whom the commands run, if somebody is named
}

// newFixture returns a fixture whose bucket has the given TTL. It skips the test with -short.
func newFixture(t *testing.T, ttl time.Duration) *fixture {
	t.Helper()
	skipIfShort(t)
	f := clitest.New(t, ttl)
	return &fixture{Fixture: f, url: f.Server.URL()}
}

// newServer returns a fixture without a bucket. It skips the test with -short.
func newServer(t *testing.T) *fixture {
	t.Helper()
	skipIfShort(t)
	server, client := clitest.ServerWithoutBucket(t)
	return &fixture{Fixture: &clitest.Fixture{Gomega: NewWithT(t), T: t, Server: server, Client: client}, url: server.URL()}
}

// fixtureOn returns a fixture on a server that the test has started, and connects to the server as a user, if one is named.
func fixtureOn(t *testing.T, url, user string, cfg election.BucketConfig) *fixture {
	t.Helper()
	return &fixture{Fixture: clitest.On(t, clitest.Connect(t, url, user), cfg), url: url, user: user}
}

// withServer adds the server and the user of the fixture to arguments.
func (f *fixture) withServer(args []string) []string {
	args = append(slices.Clone(args), "-s", f.url)
	if f.user != "" {
		args = append(args, "--user", f.user, "--password", clitest.Password)
	}
	return args
}

// command returns the built binary with arguments, for the server of the fixture.
func (f *fixture) command(args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	f.T.Helper()
	return command(f.T, f.withServer(args)...)
}

// run runs a command line in this process, for the server of the fixture. JSON output must be as its schema says.
func (f *fixture) run(args ...string) (code int, stdout, stderr string) {
	f.T.Helper()
	code, stdout, stderr = runInProcess(f.withServer(args)...)
	expectOutput(f, args, stdout)
	return code, stdout, stderr
}

// runAnswered runs a command line, and again if the server has not answered: that may be late on a busy host, and drops a request that comes while
// another server becomes the leader of the stream.
func runAnswered(run func(args ...string) (code int, stdout, stderr string), args ...string) (code int, stdout, stderr string) {
	for range 3 {
		if code, stdout, stderr = run(args...); !strings.Contains(stdout+stderr, "no answer") {
			break
		}
	}
	return code, stdout, stderr
}

// ok runs a command line that must succeed, and returns what it writes to stdout.
func (f *fixture) ok(args ...string) (stdout string) {
	f.T.Helper()
	code, stdout, stderr := f.run(args...)
	f.Expect(code).To(Equal(cli.ExitOK), "%q: %s", args, stderr)
	return stdout
}

// read runs a command line with --json, expects the exit code, and decodes stdout.
func (f *fixture) read(code int, into any, args ...string) {
	f.T.Helper()
	got, stdout, stderr := f.run(append(args, "--json")...)
	f.Expect(got).To(Equal(code), stderr)
	f.Expect(json.Unmarshal([]byte(stdout), into)).To(Succeed(), stdout)
}

// process is a command in a process of its own, and the lines of one of its outputs.
type process struct {
	g      Gomega
	cmd    *exec.Cmd
	lines  <-chan string
	stderr *bytes.Buffer // nil if the lines are those of stderr

	kept        string // a line for the following call of next
	unconfirmed bool   // an event came in place of the event released
}

// follow starts a command, and reads the lines that it writes to stdout.
func follow(g Gomega, cmd *exec.Cmd) *process {
	cmd.Stdout = nil
	stdout, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	stderr, _ := cmd.Stderr.(*bytes.Buffer)
	g.Expect(cmd.Start()).To(Succeed())
	return &process{g: g, cmd: cmd, lines: linesOf(stdout), stderr: stderr}
}

// followLog starts a command, and reads the lines that it writes to stderr.
func followLog(g Gomega, cmd *exec.Cmd) *process {
	cmd.Stderr = nil
	stderr, err := cmd.StderrPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	return &process{g: g, cmd: cmd, lines: linesOf(stderr)}
}

// linesOf returns the lines that arrive in a pipe.
func linesOf(pipe io.Reader) <-chan string {
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(pipe); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

// says waits for a line that contains all texts, and returns it. It skips other lines.
func (p *process) says(texts ...string) (line string) {
	for {
		p.g.Eventually(p.lines).Should(Receive(&line), "%q", texts)
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return line
		}
	}
}

// next waits for the next line, which must be an event of a candidate with the name. A candidate writes no event released if a busy server
// confirms the release too late: next keeps the event that comes in its place for the following call, and wait expects the reason in stderr.
func (p *process) next(name string) (e events.Event) {
	line := p.kept
	if p.kept = ""; line == "" {
		p.g.Eventually(p.lines).Should(Receive(&line), name)
	}
	expectSchema(p.g, "campaign", line)
	p.g.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed(), line)
	if name == events.Released && e.Event != name {
		p.kept, p.unconfirmed = line, true
		return e
	}
	p.g.Expect(e.Event).To(Equal(name), line)
	return e
}

// wait waits until the process has ended, and returns the error of that.
func (p *process) wait() error {
	err := p.cmd.Wait()
	if p.unconfirmed {
		p.g.Expect(p.stderr.String()).To(ContainSubstring("Release not confirmed"))
	}
	return err
}

// interrupt interrupts the process, and expects the events and the exit code 0.
func (p *process) interrupt(events ...string) {
	p.g.Expect(p.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	for _, name := range events {
		p.next(name)
	}
	p.g.Expect(p.wait()).To(Succeed(), func() string { return fmt.Sprint(p.stderr) })
}

// kill kills the process, as kill -9 does.
func (p *process) kill() {
	p.g.Expect(p.cmd.Process.Kill()).To(Succeed())
	_ = p.wait()
}

// ledBefore has somebody lead the election jobs, and release its key: then nobody has to stand down for a part of a long TTL.
func ledBefore(t *testing.T, url string) {
	t.Helper()
	code, _, stderr := runBinary(t, "run", "jobs", "--no-witness", "--stand-down", "0s", "-s", url, "--", "true")
	NewWithT(t).Expect(code).To(Equal(cli.ExitOK), stderr)
}

// skipWithoutInterrupts skips a test that interrupts a process on a system where processes cannot be interrupted.
func skipWithoutInterrupts(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows cannot interrupt a process")
	}
}

// linkTo returns a link to the server at a URL, and the URL of the link. The link can be cut.
func linkTo(t *testing.T, server string) (l *faultproxy.Link, url string) {
	t.Helper()
	l = faultproxy.New(nil)
	t.Cleanup(l.Close)
	address, err := l.Listen(strings.TrimPrefix(server, "nats://"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return l, "nats://" + address
}

// stoppedServer returns a server that is stopped, and the name of its bucket, in which web-1 holds the key jobs.
func stoppedServer(t *testing.T) (s *natstest.Server, bucket string) {
	t.Helper()
	s = natstest.StartTCP(t)
	kv := s.Bucket(t, s.Connect(t), clitest.LongTTL)
	_, err := kv.Put(t.Context(), "jobs", []byte("web-1"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	s.Stop()
	return s, kv.Bucket()
}
