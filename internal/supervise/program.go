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
	"github.com/natscampaign/election/internal/terminal"
)

// program is one run of the program, in a process group of its own that has the program's number.
type program struct {
	pid      int
	terminal bool // whether it has the terminal
	started  time.Time
	says     *slog.Logger       // of signals that may not be sent
	ended    chan struct{}      // closed when the program itself has ended; its group may go on
	status   syscall.WaitStatus // valid then

	mu     sync.Mutex
	gone   bool           // whether the group is gone too, so that its number may be somebody else's
	denied bool           // whether a signal could not be sent, which is said once
	told   syscall.Signal // with which it was told to end first; 0 if it was not
	when   time.Time      // it was told
	news   chan struct{}  // receives when it was told
}

// findProgram returns where the program is that is called name, or the exit code for one that cannot be run.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || errors.Is(err, exec.ErrDot) { // whoever has . in the PATH means it
		return path, nil
	}
	return "", notStarted(name, err)
}

// notStarted returns the exit code for a program that could not be started.
func notStarted(name string, err error) *cli.ExitError {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // the name is said already
	}
	if errors.Is(err, exec.ErrNotFound) {
		return &cli.ExitError{Code: ExitNotFound, Message: "program " + terminal.Printable(name) + " is not found: name one that is in PATH, or give its path"}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &cli.ExitError{Code: ExitNotFound, Message: "program " + terminal.Printable(name) + " is not found: " + err.Error()}
	}
	return &cli.ExitError{Code: ExitNotExecutable, Message: "program " + terminal.Printable(name) + " cannot be executed: " + err.Error()}
}

// startProgram starts a program once guard, which is called with its number, has returned without an error. Should this
// process be killed or stopped at any point, the program either does not begin or is known to its guardian.
func startProgram(cmd *exec.Cmd, terminal bool, guard func(pid int) error) (*program, error) {
	cmd.SysProcAttr = programAttributes(terminal)
	p := &program{terminal: terminal, ended: make(chan struct{}), news: make(chan struct{}, 1)}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the program is to end with this process, not with one of its threads
		defer runtime.UnlockOSThread()
		err := startGated(cmd, guard)
		if err == nil {
			p.pid, p.started = cmd.Process.Pid, time.Now()
		}
		started <- err
		if err == nil {
			_ = cmd.Wait()
			p.status, _ = cmd.ProcessState.Sys().(syscall.WaitStatus)
			close(p.ended)
		}
	}()
	return p, <-started
}

// over says whether the program itself has ended.
func (p *program) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// code returns the exit code of a program that has ended, as a shell has it.
func (p *program) code() int {
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
	if !p.gone && !p.over() {
		p.send(p.pid, s)
	}
}

// send sends a signal to the program, or to its group. One that is not permitted, as to a program that became root by
// sudo, is said aloud: nothing else ends that program either. The caller holds mu.
func (p *program) send(to int, s syscall.Signal) {
	err := unix.Kill(to, s)
	if runtime.GOOS == "darwin" && to < 0 && errors.Is(err, unix.EPERM) {
		err = unix.Kill(p.pid, 0) // the group's answer is the same where all of it has ended and was not waited for
	}
	if err != nil && !errors.Is(err, unix.ESRCH) && !p.denied {
		p.denied = true
		p.says.Error("Program cannot be signalled and may outlive its lease: run election-cli as the user that the program becomes, "+
			"or have the program remain the user that it is started as", "pid", p.pid, "signal", unix.SignalName(s), "error", err)
	}
}

// tell tells the group to end. What was stopped is continued, so that it can.
func (p *program) tell(s syscall.Signal) {
	p.mu.Lock()
	if p.told == 0 {
		p.told, p.when = s, time.Now()
		select {
		case p.news <- struct{}{}:
		default:
		}
	}
	p.mu.Unlock()
	p.signalGroup(s)
	p.signalGroup(unix.SIGCONT)
}

// toldAt returns the signal with which the program was told to end first, 0 if it was not, and when.
func (p *program) toldAt() (syscall.Signal, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told, p.when
}

// remains says whether anything is left of the group of a program that has ended.
func (p *program) remains() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for { // where this is process 1, what is left without a parent is ours to wait for
		if pid, err := unix.Wait4(-p.pid, nil, unix.WNOHANG, nil); pid <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch err := unix.Kill(-p.pid, 0); {
	case errors.Is(err, unix.ESRCH):
		p.gone = true
	case err == nil && !p.gone && !groupLives(p.pid):
		// Only zombies are left, which some process 1 waits for late or never. A process that a member started after the
		// list was read may be missing in it: nothing that was killed starts another, so that the second list is complete.
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		p.gone = !groupLives(p.pid)
	}
	return !p.gone
}

// forget gives up a group of which something is left that does not even end when it is killed.
func (p *program) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
}
