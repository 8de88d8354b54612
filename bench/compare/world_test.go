//go:build linux

package compare

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serverAddress is where all servers listen.
const serverAddress = "10.77.0.1"

// now is the monotonic clock, which all processes of a machine share.
func now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// event is what a candidate tells, as a line of JSON.
type event struct {
	At      time.Duration // by now()
	Kind    string        // one of the kinds below
	Key     string        `json:",omitempty"`
	Count   int64         `json:",omitempty"`
	Message string        `json:",omitempty"`

	by *process
}

const (
	leads    = "leads"    // the system's API says that the candidate leads
	ends     = "ends"     // and that it leads no more
	stopping = "stopping" // the orderly stop of a candidate begins
	counted  = "counted"  // the requests so far of a candidate
	failed   = "failed"
)

// world is a bridge between the servers, which run here, and candidates.
type world struct {
	mac   string
	links atomic.Int32
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getenv(asWorld) == "" {
		t.Skip("needs -compare, which makes a network namespace")
	}
	const mac = "02:00:00:00:00:01" // or the bridge takes that of a port, another one each time
	ip(t, "link set lo up", "link add br0 address "+mac+" type bridge", "addr add "+serverAddress+"/16 dev br0", "link set br0 up")
	return &world{mac: mac}
}

// macOf returns the address of an interface.
func macOf(t testing.TB, dev string) string {
	t.Helper()
	out, err := exec.Command("ip", "-json", "link", "show", dev).Output()
	var links []struct{ Address string }
	if err == nil {
		err = json.Unmarshal(out, &links)
	}
	if err != nil || len(links) != 1 {
		t.Fatal("ip link show", dev, err)
	}
	return links[0].Address
}

// ip runs commands of iproute2.
func ip(t testing.TB, commands ...string) {
	t.Helper()
	if err := runIP(commands...); err != nil {
		t.Fatal(err)
	}
}

func runIP(commands ...string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return nil
}

// journal is all events of the candidates of one comparison.
type journal struct {
	mu     sync.Mutex
	events []event
	news   chan struct{}
}

func newJournal() *journal { return &journal{news: make(chan struct{})} }

func (j *journal) add(e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
	close(j.news)
	j.news = make(chan struct{})
}

// first returns the first event of a kind after an instant, for a key, by a process.
func (j *journal) first(kind, key string, by *process, after time.Duration) (event, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		if e.Kind == kind && e.Key == key && e.by == by && e.At >= after {
			return e, true
		}
	}
	return event{}, false
}

// await waits until something holds, and tells whether it does in time.
func (j *journal) await(limit time.Duration, holds func() bool) bool {
	deadline := time.After(limit)
	for {
		j.mu.Lock()
		news := j.news
		j.mu.Unlock()
		if holds() {
			return true
		}
		select {
		case <-news:
		case <-deadline:
			return holds()
		}
	}
}

func (j *journal) failures() (messages []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		if e.Kind == failed {
			messages = append(messages, e.Key+": "+e.Message)
		}
	}
	return messages
}

// process runs candidates, one per election, behind a link of its own.
type process struct {
	t     testing.TB
	veth  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	netns *os.File // keeps the namespace, so that its kernel says goodbye for a killed process
}

// process starts one for a case, whose server is at the endpoint.
func (w *world) process(t testing.TB, j *journal, name, endpoint string) *process {
	t.Helper()
	n := w.links.Add(1)
	p := &process{t: t, veth: fmt.Sprintf("c%d", n)}
	address := fmt.Sprintf("10.77.%d.%d", 1+n/200, 1+n%200)
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), asCandidate+"="+name, endpointOf+"="+endpoint)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-read
		_ = p.cmd.Wait()
		if p.netns != nil {
			_ = p.netns.Close()
		}
	})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			e := event{by: p}
			if err := json.Unmarshal(lines.Bytes(), &e); err == nil {
				j.add(e)
			}
		}
	}()
	pid := p.cmd.Process.Pid
	if p.netns, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
		t.Fatal(err)
	}
	peer := "p" + p.veth[1:]
	ip(t, fmt.Sprintf("link add %s type veth peer name %s", p.veth, peer))
	mac := macOf(t, peer)
	ip(t,
		fmt.Sprintf("link set %s netns %d", peer, pid),
		fmt.Sprintf("link set %s master br0", p.veth),
		fmt.Sprintf("link set %s up", p.veth),
		fmt.Sprintf("neigh replace %s lladdr %s dev br0 nud permanent", address, mac))
	p.tell("link", peer, address, w.mac)
	return p
}

// tell sends a command to the process.
func (p *process) tell(words ...string) {
	if _, err := fmt.Fprintln(p.in, strings.Join(words, " ")); err != nil {
		p.t.Logf("a candidate's process is gone: %v", err)
	}
}

// cut has all packets vanish, in both directions, without any notice to either end, and returns when.
func (p *process) cut() time.Duration {
	p.t.Helper()
	at := now()
	ip(p.t, "link set "+p.veth+" nomaster")
	return at
}

// kill kills the process, and returns when.
func (p *process) kill() time.Duration {
	at := now()
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	return at
}
