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

// patience is how long a test waits for anything: far longer than it takes on an idle machine.
const patience = 30 * time.Second

// scratch is where the command is built, and where it finds no contexts of whoever runs the tests.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "pagetest-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// binary builds the command once, and returns its path.
var binary = sync.OnceValue(func() string {
	path := filepath.Join(scratch, "election-cli")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = ".." // it belongs to the module above
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	return path
})

// race is an election on a server of its own.
type race struct {
	*WithT
	t   *testing.T
	url string
}

// newRace starts a server, and makes a bucket in which keys last as long as that.
func newRace(t *testing.T, ttl time.Duration) *race {
	t.Helper()
	r := &race{WithT: NewWithT(t), t: t}
	server := r.command("server", "--port", "0", "--json")
	out, err := server.StdoutPipe()
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(server.Start()).To(Succeed())
	var said map[string]string
	r.Expect(json.NewDecoder(out).Decode(&said)).To(Succeed())
	r.url = said["url"]
	r.run("bucket", "add", "--ttl", ttl.String())
	return r
}

// command returns the built command, ready to be run on the server; it does not outlive the test.
func (r *race) command(args ...string) *exec.Cmd {
	if r.url != "" {
		args = append(args, "--server", r.url)
	}
	cmd := exec.Command(binary(), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NATS_") || strings.HasPrefix(v, "ELECTION_") })
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+scratch)
	r.t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// run runs the command, which must succeed.
func (r *race) run(args ...string) {
	r.t.Helper()
	out, err := r.command(args...).CombinedOutput()
	r.Expect(err).NotTo(HaveOccurred(), string(out))
}

// candidate is a process that stands.
type candidate struct {
	*race
	cmd  *exec.Cmd
	page string // what it serves
}

// stand starts a candidate, and returns when it serves its page and has told that it stands.
func (r *race) stand(name string) *candidate {
	r.t.Helper()
	cmd := r.command("campaign", "jobs", "--name", name, "--status", ":0")
	stdout, err := cmd.StdoutPipe()
	r.Expect(err).NotTo(HaveOccurred())
	stderr, err := cmd.StderrPipe()
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(cmd.Start()).To(Succeed())
	stood, served := make(chan string, 1000), make(chan string, 1000)
	for lines, from := range map[chan string]*bufio.Scanner{stood: bufio.NewScanner(stdout), served: bufio.NewScanner(stderr)} {
		go func() {
			for from.Scan() {
				lines <- from.Text()
			}
		}()
	}
	var line string
	r.Eventually(served).WithTimeout(patience).Should(Receive(&line))
	_, page, found := strings.Cut(line, "url=")
	r.Expect(found).To(BeTrue(), line)
	r.Eventually(stood).WithTimeout(patience).Should(Receive(), name)
	return &candidate{r, cmd, page}
}

// stop has the candidate wind up.
func (c *candidate) stop() {
	c.t.Helper()
	c.Expect(c.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	c.Expect(c.cmd.Wait()).To(Succeed())
}

// crash ends the candidate without any warning.
func (c *candidate) crash() {
	c.t.Helper()
	c.Expect(c.cmd.Process.Kill()).To(Succeed())
	c.Expect(c.cmd.Wait()).NotTo(Succeed())
}
