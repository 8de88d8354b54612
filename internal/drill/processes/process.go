package processes

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/host"
)

// The roles that [Run] accepts.
const (
	RoleServer    = "server"
	RoleCandidate = "candidate"
)

const (
	readyLine    = "ready"
	readyTimeout = time.Minute      // for a process to get ready: a server reads its files, on a busy host for long
	exitTimeout  = 15 * time.Second // for a process to shut down
)

// Process is a child process that runs this program in one role. The first line of its input is its configuration, and each
// further line of a candidate's input a transfer that is asked of it; the process ends when its input ends.
type Process struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr string // the file that takes its error output

	exitRequested atomic.Bool
	exited        chan struct{}
	exitedAt      time.Duration // when its output ended; valid once exited is closed
}

// Run is the main function of a child process. It returns after the process was asked to shut down, or with an error. It
// exits the program when standard input ends, because then the drill is gone.
func Run(role string, stdout io.Writer) error {
	in := bufio.NewReader(os.Stdin)
	config, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the configuration from standard input: %w; only drill --processes runs this command", err)
	}
	requests := make(chan string, 64)
	go func() {
		defer close(requests)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			requests <- lines.Text()
		}
		killProgram()
		os.Exit(cli.ExitFailure)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), signalTerminate)
	defer stop()
	ready := func() { fmt.Fprintln(stdout, readyLine) }
	if role == RoleServer {
		return runServer(ctx, config, ready)
	}
	return runCandidate(ctx, config, ready, requests)
}

// start runs a process and returns when the process is ready. The function read receives the output after that.
func start(ctx context.Context, role, name, stderr string, config any, read func(io.Reader)) (*Process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{name: name, stderr: stderr, cmd: exec.Command(path, "drill-process", role), exited: make(chan struct{})}
	p.cmd.SysProcAttr = sysProcAttr()
	file, err := os.OpenFile(stderr, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the process has a descriptor of its own
	p.cmd.Stderr = file
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewReader(out)
		line, _ := lines.ReadString('\n')
		ready <- strings.TrimSpace(line) == readyLine
		read(lines)
		_, _ = io.Copy(io.Discard, lines)
		p.exitedAt = host.Clock()
		_ = p.cmd.Wait() // it closes the pipe, so the output must have been read by now
		close(p.exited)
	}()
	if err := json.NewEncoder(p.in).Encode(config); err != nil {
		p.kill()
		return nil, err
	}
	return p, p.awaitReady(ctx, ready)
}

// awaitReady returns when the process is ready. It kills a process that does not get ready in time.
func (p *Process) awaitReady(ctx context.Context, ready <-chan bool) error {
	timeout := time.NewTimer(readyTimeout)
	defer timeout.Stop()
	select {
	case ok := <-ready:
		if ok {
			return nil
		}
		p.kill()
		return p.exitError()
	case <-timeout.C:
		p.kill()
		return fmt.Errorf("the process of %s was not ready within %v: %s", p.name, readyTimeout, p.lastLines())
	case <-ctx.Done():
		p.kill()
		return ctx.Err()
	}
}

// exitError returns the error of a process that ended by itself.
func (p *Process) exitError() error {
	return fmt.Errorf("the process of %s ended by itself: %s", p.name, p.lastLines())
}

// lastLines returns the last lines that the process wrote to its error output.
func (p *Process) lastLines() string {
	text, _ := os.ReadFile(p.stderr)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// kill sends SIGKILL, which also ends a stopped process, and waits until the process is gone.
func (p *Process) kill() {
	p.exitRequested.Store(true)
	_ = p.signal(os.Kill)
	<-p.exited
}

// shutdown asks the process to shut down in order, and waits until it is gone. It kills a process that takes too long.
func (p *Process) shutdown() {
	p.exitRequested.Store(true)
	_ = p.signal(signalTerminate)
	select {
	case <-p.exited:
	case <-time.After(exitTimeout):
		p.kill()
	}
}

// Suspend stops the process where it is, until Continue.
func (p *Process) Suspend() error { return p.signal(SignalStop) }

// Continue lets a suspended process run on.
func (p *Process) Continue() error { return p.signal(SignalContinue) }

// signal sends a signal to the process, and to the nats-server program that it may run.
func (p *Process) signal(s os.Signal) error {
	select {
	case <-p.exited:
		return os.ErrProcessDone // its number may belong to another process by now
	default:
		return signalGroup(p.cmd.Process, s)
	}
}

// UnexpectedExit returns an error if the process has ended and the drill did not ask for that. It returns nil for a nil
// process.
func (p *Process) UnexpectedExit() error {
	if p == nil || p.exitRequested.Load() {
		return nil
	}
	select {
	case <-p.exited:
		return p.exitError()
	default:
		return nil
	}
}
