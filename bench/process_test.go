package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election/internal/natstest"
)

// serverProcess is a server in a process of its own, where it does not stand in the way of what is measured: this test
// binary again, running TestServerProcess.
type serverProcess struct{ url string }

const asServer = "ELECTION_BENCH_SERVER"

// TestServerProcess is the server. It runs until its input ends, as that of an orphan does.
func TestServerProcess(t *testing.T) {
	if os.Getenv(asServer) == "" {
		t.Skip("runs a server when startServerProcess asks for it")
	}
	fmt.Println(natstest.StartTCP(t).URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func startServerProcess(tb testing.TB) *serverProcess {
	tb.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerProcess$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), asServer+"=1")
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
	tb.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return &serverProcess{strings.TrimSpace(url)}
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
