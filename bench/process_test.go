package bench

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/test/natstest"
)

// serverProcess is a server in a process of its own, where it does not stand in the way of what is measured: this test
// binary again, running TestServerProcess.
type serverProcess struct{ url string }

const inOwnProcess = "ELECTION_BENCH_PROCESS"

// startProcess runs a test of this binary again, in a process of its own, until the benchmark ends, and returns the first line of its
// output.
func startProcess(tb testing.TB, test string) (line string) {
	tb.Helper()
	return startChild(tb, test, inOwnProcess+"=1").line(tb)
}

// child is a process of startChild. The benchmark ends it by the end of its input.
type child struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// startChild runs a test of this binary again, with further variables.
func startChild(tb testing.TB, test string, variables ...string) *child {
	tb.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), variables...)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c := &child{cmd, in, bufio.NewReader(out)}
	tb.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, c.out)
		_ = cmd.Wait()
	})
	return c
}

// line returns the next line of the output of a process.
func (c *child) line(tb testing.TB) string {
	tb.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// untilOrphaned prints the line that startProcess returns, and waits until the input ends, as that of an orphan does.
func untilOrphaned(line string) {
	fmt.Println(line)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestServerProcess is the server.
func TestServerProcess(t *testing.T) {
	if os.Getenv(inOwnProcess) == "" {
		t.Skip("runs a server when startServerProcess asks for it")
	}
	untilOrphaned(natstest.StartTCP(t).URL())
}

func startServerProcess(tb testing.TB) *serverProcess {
	tb.Helper()
	return &serverProcess{startProcess(tb, "TestServerProcess")}
}

// TestLoadProcess computes hashes on every core.
func TestLoadProcess(t *testing.T) {
	if os.Getenv(inOwnProcess) == "" {
		t.Skip("runs when a benchmark under load asks for it")
	}
	var idle atomic.Bool
	var busy sync.WaitGroup
	defer busy.Wait()
	defer idle.Store(true)
	for range runtime.GOMAXPROCS(0) {
		busy.Go(func() {
			for block := make([]byte, 16<<10); !idle.Load(); {
				sum := sha256.Sum256(block)
				copy(block, sum[:])
			}
		})
	}
	untilOrphaned("busy")
}

// Connect opens a connection that reconnects for ever; the benchmark's Cleanup closes it.
func (s *serverProcess) Connect(tb testing.TB, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	return connect(tb, s.url, opts...)
}

// cpuTime returns what this process has used of its processors so far.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestServerIsInAnotherProcess(t *testing.T) {
	t.Parallel()
	f := newFleet(t, startServerProcess(t), 2*time.Second, 1)
	before := cpuTime(t)
	f.lead(f.connect(), "k")
	if used := cpuTime(t) - before; used <= 0 || used > 2*time.Second {
		t.Errorf("an election took %v of processor time", used)
	}
}
