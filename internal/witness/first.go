//go:build linux || darwin

package witness

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/host"
)

// inits are the names of programs that end when their child does, as process 1 of a container.
var inits = []string{"tini", "docker-init", "dumb-init", "catatonit", "pod_init"}

// isFirst reports whether the end of this process ends its container, with all other processes there: it is process 1, the child of a process 1
// that ends with it, or came into a namespace of processes from outside.
func isFirst() bool {
	switch os.Getppid() {
	case 0:
		return true
	case 1:
		name, err := os.ReadFile("/proc/1/comm")
		return err == nil && slices.Contains(inits, strings.TrimSpace(string(name)))
	}
	return os.Getpid() == 1
}

// exitTimeout is how long the releases may take after which this process ends as its program did: a supervisor waits for that to start the next one.
const exitTimeout = 2 * time.Second

// startProgram starts the program as a child of this process, with the same arguments, environment, standard streams and terminal. It forwards
// signals, reaps what the program leaves behind, releases the program's terms when the program is dead, and ends as the program did. It returns only
// if the program cannot be started.
func (c *Config) startProgram() error {
	own, passed, err := socketPair()
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	cmd, err := command(roleProgram, passed)
	if err != nil {
		_ = passed.Close()
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_, noTerminal := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: noTerminal == nil}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	var p *Process
	if err = cmd.Start(); err == nil {
		p, err = OpenProcess(cmd.Process.Pid) // which is this process's to reap: the number stays its own until then
	}
	_ = passed.Close()
	if err != nil {
		signal.Stop(signals)
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		return err
	}
	host.NameProcess(witnessName)
	go forward(signals, cmd.Process)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		NewKeeper(c.Dial, c.Log, c.GroupRuns).Keep(context.Background(), own, p)
	}()
	status := reapUntil(cmd.Process.Pid)
	timer := time.NewTimer(exitTimeout)
	select {
	case <-kept:
	case <-timer.C:
	}
	exitAs(status)
	return nil
}

// forward passes signals on to the program, but for those that the runtime and the kernel send to this process alone.
func forward(signals <-chan os.Signal, program *os.Process) {
	for s := range signals {
		switch s {
		case unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGTTOU, unix.SIGTTIN:
		default:
			_ = program.Signal(s)
		}
	}
}

// reapUntil reaps all children of this process, those that it has adopted too, until the program is dead, and returns how that ended.
func reapUntil(program int) (status unix.WaitStatus) {
	for {
		switch pid, err := unix.Wait4(-1, &status, 0, nil); {
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0
		case pid == program && (status.Exited() || status.Signaled()):
			return status
		}
	}
}

// exitAs ends this process as another has ended: by its exit code, or by the signal that killed it. Process 1 cannot be killed, and exits as a shell
// reports a signal.
func exitAs(status unix.WaitStatus) {
	if !status.Signaled() {
		os.Exit(status.ExitStatus())
	}
	if os.Getpid() != 1 {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the program has left a core, if anything has
		signal.Reset(status.Signal())
		_ = unix.Kill(os.Getpid(), status.Signal())
		time.Sleep(100 * time.Millisecond)
	}
	os.Exit(128 + int(status.Signal()))
}
