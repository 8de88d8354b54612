package main

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

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/history"
)

const (
	roleServer    = "server"
	roleCandidate = "candidate"

	readyLine    = "ready"
	exitPatience = 15 * time.Second // for a process that was asked to wind up
)

// child is a process that a drill runs: this program again, in a role of a drill. What it is to do is told by the first
// line of its input; when its input ends, so does the process.
type child struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  string // the file that takes its output for errors

	expected atomic.Bool // whether it is meant to end
	exited   chan struct{}
	err      error         // valid once exited is closed
	at       time.Duration // when its output ended, valid then too
}

// registerChild adds the command that runs a child, which is not for users.
func registerChild(app *fisk.Application, t *tool) {
	var role string
	cmd := app.Command("drill-process", "Runs one process of a drill").Hidden().Action(func(*fisk.ParseContext) error {
		return failure{runChild(t, role)}.orNil()
	})
	cmd.Arg("role", "What the process is").Required().EnumVar(&role, roleServer, roleCandidate)
}

// orNil returns nil if there is nothing to be marked.
func (f failure) orNil() error {
	if f.error == nil {
		return nil
	}
	return f
}

// runChild is the child: it runs until it is told to leave in order, or its input ends.
func runChild(t *tool, role string) error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("this command is used by drill --processes only: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(exitError) // whoever started this is gone
	}()
	ctx, stop := signal.NotifyContext(context.Background(), leaveInOrder)
	defer stop()
	ready := func() { fmt.Fprintln(t.stdout, readyLine) }
	if role == roleServer {
		return serveAlone(ctx, line, ready)
	}
	return standAlone(ctx, line, ready)
}

// startChild runs a process and returns when it is ready. What the process writes after that is heard by hear.
func startChild(ctx context.Context, role, name, log string, config any, hear func(io.Reader)) (*child, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{name: name, log: log, cmd: exec.Command(path, "drill-process", role), exited: make(chan struct{})}
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
func (c *child) await(ctx context.Context, ready <-chan bool) error {
	late := time.NewTimer(exitPatience)
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
func (c *child) complaint() error {
	text, _ := os.ReadFile(c.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("the process of %s ended by itself: %s", c.name, strings.Join(lines[max(0, len(lines)-5):], "\n"))
}

// kill ends the process at once, stopped or not, and returns when it is gone.
func (c *child) kill() {
	c.expected.Store(true)
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// leave has the process wind up, and returns when it is gone. One that does not is killed.
func (c *child) leave() {
	c.expected.Store(true)
	_ = c.cmd.Process.Signal(leaveInOrder)
	select {
	case <-c.exited:
	case <-time.After(exitPatience):
		c.kill()
	}
}

// stop stops the process where it is, until proceed.
func (c *child) stop() error { return c.cmd.Process.Signal(signalStop) }

// proceed lets a stopped process go on.
func (c *child) proceed() error { return c.cmd.Process.Signal(signalContinue) }

// lost returns an error once the process has ended although nobody asked it to.
func (c *child) lost() error {
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
