package pagetest

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// timeout is how long a test waits for anything: far longer than necessary on an idle machine.
const timeout = 30 * time.Second

// tempDir has the built command. It is also the command's configuration folder, so that the command finds no NATS contexts of the user.
var tempDir string

func TestMain(m *testing.M) {
	var err error
	if tempDir, err = os.MkdirTemp("", "pagetest-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(tempDir)
	os.Exit(code)
}

// binary builds the command once, and returns its path.
var binary = sync.OnceValue(func() string {
	path := filepath.Join(tempDir, "election-cli")
	build := exec.Command("go", "build", "-o", path, "./cmd/election-cli")
	build.Dir = "../../../.." // the root of the election module
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	return path
})

// fixture is a server with a bucket, in a process of its own.
type fixture struct {
	*WithT
	t      *testing.T
	url    string
	server *exec.Cmd
}

// newFixture starts a server and creates a bucket with the given TTL.
func newFixture(t *testing.T, ttl time.Duration) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), t: t}
	f.server = f.command("server", "--port", "0", "--json")
	out, err := f.server.StdoutPipe()
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(f.server.Start()).To(Succeed())
	var output map[string]string
	f.Expect(json.NewDecoder(out).Decode(&output)).To(Succeed())
	f.url = output["url"]
	f.run("bucket", "add", "--ttl", ttl.String())
	return f
}

// stop ends the server.
func (f *fixture) stop() {
	f.t.Helper()
	f.Expect(f.server.Process.Kill()).To(Succeed())
	_ = f.server.Wait()
}

// command returns the built command with the given arguments and the server. The process is killed when the test ends.
func (f *fixture) command(args ...string) *exec.Cmd {
	if f.url != "" {
		args = append(args, "--server", f.url)
	}
	cmd := exec.Command(binary(), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NATS_") || strings.HasPrefix(v, "ELECTION_") })
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+tempDir)
	f.t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// run runs the command, and expects it to succeed.
func (f *fixture) run(args ...string) {
	f.t.Helper()
	out, err := f.command(args...).CombinedOutput()
	f.Expect(err).NotTo(HaveOccurred(), string(out))
}

// follow runs a command line that the page names.
func (f *fixture) follow(line string) {
	f.t.Helper()
	f.Expect(line).To(HavePrefix("election-cli "))
	f.run(strings.Fields(line)[1:]...)
}

// candidate is a process that campaigns.
type candidate struct {
	*fixture
	cmd  *exec.Cmd
	page string // the URL of its status page
}

// campaign starts a candidate, and returns when the candidate serves its page and campaigns.
func (f *fixture) campaign(name string) *candidate {
	f.t.Helper()
	c, events := f.serve("campaign", "jobs", "--name", name, "--status", ":0")
	f.Eventually(events).WithTimeout(timeout).Should(Receive(), name)
	return c
}

// serve starts a command that serves a page, and returns when it does, with the lines that the command writes to stdout.
func (f *fixture) serve(args ...string) (*candidate, <-chan string) {
	f.t.Helper()
	cmd := f.command(args...)
	stdout, err := cmd.StdoutPipe()
	f.Expect(err).NotTo(HaveOccurred())
	stderr, err := cmd.StderrPipe()
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(cmd.Start()).To(Succeed())
	events, logs := make(chan string, 1000), make(chan string, 1000)
	for lines, from := range map[chan string]*bufio.Scanner{events: bufio.NewScanner(stdout), logs: bufio.NewScanner(stderr)} {
		go func() {
			for from.Scan() {
				lines <- from.Text()
			}
		}()
	}
	var line string
	f.Eventually(logs).WithTimeout(timeout).Should(Receive(&line))
	_, page, found := strings.Cut(line, "url=")
	f.Expect(found).To(BeTrue(), line)
	return &candidate{f, cmd, page}, events
}

// stop interrupts the candidate, and waits until its process has ended.
func (c *candidate) stop() {
	c.t.Helper()
	c.Expect(c.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	c.Expect(c.cmd.Wait()).To(Succeed())
}

// crash kills the candidate.
func (c *candidate) crash() {
	c.t.Helper()
	c.Expect(c.cmd.Process.Kill()).To(Succeed())
	c.Expect(c.cmd.Wait()).NotTo(Succeed())
}
