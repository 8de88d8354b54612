// Package processes runs NATS servers and candidates as processes of their own, for drills that kill, stop and cut them.
//
// A process is this very program again in the role of a server or of a candidate, see [RunChild]. It ends with its standard input, and so
// with the drill that started it, however that ends. Candidates write a history of what they believe, and of the records that they append
// to a stream while they lead. Their links to the servers are outside of their processes: they go on while a candidate is stopped or gone.
package processes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/history"
)

const (
	RoleServer    = "server"
	RoleCandidate = "candidate"

	readyLine   = "ready"
	exitTimeout = 15 * time.Second // for a process that was asked to wind up
)

// Process is a process that a drill runs: this program again, in a role of a drill. What it is to do is told by the first
// line of its input; when its input ends, so does the process.
type Process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  string // the file that takes its output for errors

	expected atomic.Bool // whether it is meant to end
	exited   chan struct{}
	err      error         // valid once exited is closed
	at       time.Duration // when its output ended, valid then too
}

// RunChild is the child: it runs until it is told to leave in order, or its input ends.
func RunChild(role string, stdout io.Writer) error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("this command is used by drill --processes only: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(cli.ExitFailure) // whoever started this is gone
	}()
	ctx, stop := signal.NotifyContext(context.Background(), leaveInOrder)
	defer stop()
	ready := func() { fmt.Fprintln(stdout, readyLine) }
	if role == RoleServer {
		return serveAlone(ctx, line, ready)
	}
	return standAlone(ctx, line, ready)
}

// startProcess runs a process and returns when it is ready. What the process writes after that is heard by hear.
func startProcess(ctx context.Context, role, name, log string, config any, hear func(io.Reader)) (*Process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Process{name: name, log: log, cmd: exec.Command(path, "drill-process", role), exited: make(chan struct{})}
	c.cmd.SysProcAttr = apart()
	errors, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = errors.Close() }() // the process has its own
	c.cmd.Stderr = errors
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan bool, 1)
	go func() { // reads to the end before it waits, as exec demands
		lines := bufio.NewReader(out)
		line, _ := lines.ReadString('\n')
		ready <- strings.TrimSpace(line) == readyLine
		hear(lines)
		_, _ = io.Copy(io.Discard, lines)
		c.at = history.Now()
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	if err := json.NewEncoder(c.in).Encode(config); err != nil {
		c.kill()
		return nil, err
	}
	return c, c.await(ctx, ready)
}

// await returns when the process is ready; if it does not get so, it is killed.
func (c *Process) await(ctx context.Context, ready <-chan bool) error {
	late := time.NewTimer(exitTimeout)
	defer late.Stop()
	select {
	case ok := <-ready:
		if ok {
			return nil
		}
	case <-late.C:
	case <-ctx.Done():
	}
	c.kill()
	return errors.Join(ctx.Err(), c.complaint())
}

// complaint is an error that says what the process wrote last.
func (c *Process) complaint() error {
	text, _ := os.ReadFile(c.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("the process of %s ended by itself: %s", c.name, strings.Join(lines[max(0, len(lines)-5):], "\n"))
}

// kill ends the process at once, stopped or not, and returns when it is gone.
func (c *Process) kill() {
	c.expected.Store(true)
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// leave has the process wind up, and returns when it is gone. One that does not is killed.
func (c *Process) leave() {
	c.expected.Store(true)
	_ = c.cmd.Process.Signal(leaveInOrder)
	select {
	case <-c.exited:
	case <-time.After(exitTimeout):
		c.kill()
	}
}

// Stop stops the process where it is, until proceed.
func (c *Process) Stop() error { return c.cmd.Process.Signal(SignalStop) }

// Proceed lets a stopped process go on.
func (c *Process) Proceed() error { return c.cmd.Process.Signal(SignalContinue) }

// Lost returns an error once the process has ended although nobody asked it to.
func (c *Process) Lost() error {
	if c == nil || c.expected.Load() {
		return nil
	}
	select {
	case <-c.exited:
		return c.complaint()
	default:
		return nil
	}
}
