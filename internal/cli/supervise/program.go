//go:build linux || darwin

package supervise

import (
	"errors"
	"io/fs"
	"log/slog"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/wakeup"
)

// program is one run of the program, in a process group of its own, whose number is the program's process number.
type program struct {
	pid         int
	hasTerminal bool // whether the program was started in the foreground of the terminal
	started     time.Time
	log         *slog.Logger       // for signals that the system refuses to send
	exited      chan struct{}      // closed when the program itself has exited; other processes of its group may still run
	status      syscall.WaitStatus // valid once exited is closed

	mu            sync.Mutex
	gone          bool           // whether the group is gone too: another group may get its number, so nothing may signal it any more
	denied        bool           // whether the system has refused to send a signal, which is logged once
	termSignal    syscall.Signal // the first signal that asked the program to exit; 0 if there was none
	terminated    time.Time      // when that signal was sent
	onTermination chan struct{}  // receives when that signal is sent
}

// findProgram returns the path of the named program, or an error with the exit code for a program that cannot be executed.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || errors.Is(err, exec.ErrDot) { // a user with . in PATH wants it there
		return path, nil
	}
	return "", startError(name, err)
}

// startError returns the error, with its exit code, for a program that could not be started.
func startError(name string, err error) *cli.ExitError {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // the outer error repeats the name
	}
	if errors.Is(err, exec.ErrNotFound) {
		return &cli.ExitError{Code: ExitNotFound, Message: "program " + terminal.Quote(name) + " is not found: give the name of a program in PATH, or its path"}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &cli.ExitError{Code: ExitNotFound, Message: "program " + terminal.Quote(name) + " is not found: " + terminal.Printable(err.Error())}
	}
	return &cli.ExitError{Code: ExitNotExecutable, Message: "program " + terminal.Quote(name) + " cannot be executed: " + terminal.Printable(err.Error())}
}

// startProgram starts a process, calls register with its number, and has the process execute the program if register returns
// nil. If this process is killed or stopped at any point, either the program does not begin or its guardian knows of it.
func startProgram(cmd *exec.Cmd, hasTerminal bool, register func(pid int) error) (*program, error) {
	cmd.SysProcAttr = programAttributes(hasTerminal)
	p := &program{hasTerminal: hasTerminal, exited: make(chan struct{}), onTermination: make(chan struct{}, 1)}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Linux kills the program when the thread that started it ends: keep that thread until the program exits
		defer runtime.UnlockOSThread()
		err := startAtGate(cmd, register)
		if err == nil {
			p.pid, p.started = cmd.Process.Pid, time.Now()
		}
		started <- err
		if err == nil {
			_ = ownChildren.wait(cmd)
			p.status, _ = cmd.ProcessState.Sys().(syscall.WaitStatus)
			close(p.exited)
		}
	}()
	return p, <-started
}

// hasExited reports whether the program itself has exited.
func (p *program) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// exitCode returns the exit code of a program that has exited, as shells report it.
func (p *program) exitCode() int {
	if p.status.Signaled() {
		return ExitSignal + int(p.status.Signal())
	}
	return p.status.ExitStatus()
}

// signalGroup sends a signal to the whole group.
func (p *program) signalGroup(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.send(-p.pid, s)
	}
}

// signal sends a signal to the program alone.
func (p *program) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone && !p.hasExited() {
		p.send(p.pid, s)
	}
}

// send sends a signal to the program, or to its group. It logs the first refusal for lack of permission, for example because
// the program became root by sudo: the guardian cannot kill such a program either. The caller holds mu.
func (p *program) send(to int, s syscall.Signal) {
	err := unix.Kill(to, s)
	if runtime.GOOS == "darwin" && to < 0 && errors.Is(err, unix.EPERM) {
		err = unix.Kill(p.pid, 0) // macOS returns EPERM for a group of zombies too
	}
	if err != nil && !errors.Is(err, unix.ESRCH) && !p.denied {
		p.denied = true
		p.log.Error("Program cannot be signalled and may outlive its lease: run election-cli as the user that the program becomes, "+
			"or do not let the program change its user", "pid", p.pid, "signal", unix.SignalName(s), "error", err)
	}
}

// terminate asks the group to exit. It also continues stopped processes of the group, because those cannot exit.
func (p *program) terminate(s syscall.Signal) {
	p.mu.Lock()
	if p.termSignal == 0 {
		p.termSignal, p.terminated = s, time.Now()
		wakeup.Send(p.onTermination)
	}
	p.mu.Unlock()
	p.signalGroup(s)
	p.signalGroup(unix.SIGCONT)
}

// termination returns the first signal that asked the program to exit, and when it was sent; 0 if there was none.
func (p *program) termination() (syscall.Signal, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.termSignal, p.terminated
}

// groupGone reports whether no process of the group runs any more. Call it only after the program itself has exited. It reaps
// the orphans of this process, and kills the group if only zombies seem to be left.
func (p *program) groupGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ownChildren.reapOrphans()
	p.gone = p.gone || !groupRuns(p.pid)
	return p.gone
}

// groupRuns reports whether any process of a group runs. It kills the group if only zombies seem to be left.
func groupRuns(group int) bool {
	switch err := unix.Kill(-group, 0); {
	case errors.Is(err, unix.ESRCH):
		return false
	case err == nil && !host.GroupRuns(group):
		// Only zombies seem to be left, which process 1 may reap late or never. But the list of processes may lack a process
		// that a member of the group started while the list was read. After KILL no member starts another, so the second
		// list is complete.
		_ = unix.Kill(-group, unix.SIGKILL)
		return host.GroupRuns(group)
	}
	return true
}

// abandonGroup stops signalling a group whose processes do not even end when they are killed.
func (p *program) abandonGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
}
