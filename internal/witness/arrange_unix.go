//go:build linux || darwin

package witness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/host"
)

// Start gives this process a witness, and returns what tells the witness of terms.
//
// The witness is a child of this process that outlives it, with a session of its own and the same arguments. It comes to this call, too, and never
// returns from it. So this process keeps its number, its parent and its terminal: whoever supervises, traces or signals it notices
// nothing.
//
// A child does not outlive process 1 of a container: the kernel kills it. There this process becomes the witness instead, never returns, and starts
// the program as its child, unless StartChild is set. See first.go.
func Start(c Config) (*Teller, error) {
	role := os.Getenv(roleVariable)
	_ = os.Unsetenv(roleVariable) // it is none of a process that this one starts
	switch {
	case strings.HasPrefix(role, roleWitness):
		c.beWitness(strings.TrimPrefix(role, roleWitness))
	case role == roleProgram:
		link, err := inheritedLink()
		if err != nil {
			return nil, err
		}
		return NewTeller(link, nil, c.Log), nil // its witness is its parent, and has no successor
	case c.StartChild == nil && isFirst():
		return nil, c.startProgram() // returns only if that fails
	}
	reapFormerWitnesses()
	first, err := c.startChild(context.Background())
	if err != nil {
		return nil, fmt.Errorf("the witness cannot be started: %w", err)
	}
	return NewTeller(first, c.startChild, c.Log), nil
}

// beWitness watches the parent of this process until it has ended and its terms are released, and exits.
func (c *Config) beWitness(of string) {
	host.Outlive(witnessName)
	link, err := inheritedLink()
	if err != nil {
		c.fail(err)
	}
	unix.CloseOnExec(imageDescriptor) // else the next line would close it
	host.CloseInherited()
	parent, err := openParent(of)
	if err != nil {
		c.fail(err)
	}
	parent.inheritImage(imageDescriptor)
	k := NewKeeper(c.Dial, c.Log, c.GroupRuns)
	k.ended = func() {
		time.AfterFunc(stderrTimeout, func() {
			c.Log.Warn("The key is not released yet: the witness goes on trying, and logs no more")
			c.leaveStderr()
		})
	}
	k.Keep(context.Background(), link, parent)
	c.exiting()
	os.Exit(0)
}

// stderrTimeout is how long a witness keeps the stderr of a program that has ended. Whoever reads to its end waits as long: a shell's pipe, a
// supervisor, the parent of the program.
const stderrTimeout = 500 * time.Millisecond

// leaveStderr has this process write to nothing where it wrote to the stderr of its program.
func (c *Config) leaveStderr() {
	c.exiting()
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		_ = replaceDescriptor(int(null.Fd()), unix.Stderr)
		_ = null.Close()
	}
}

// exiting has what was logged written.
func (c *Config) exiting() {
	if c.Exiting != nil {
		c.Exiting()
	}
}

// fail ends a witness that cannot be one.
func (c *Config) fail(err error) {
	c.Log.Error("Witness cannot watch its program: a leader that dies is replaced when its lease is over", "error", err)
	c.leaveStderr()
	time.Sleep(time.Minute) // else its program would start the next one at once
	os.Exit(1)
}

// openParent returns the parent of this process, which is to have the given number.
func openParent(number string) (*Process, error) {
	pid, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	p, err := OpenProcess(pid)
	if os.Getppid() != pid { // it is dead, and the number may be another's
		if err == nil {
			p.Close()
		}
		return &Process{}, nil
	}
	return p, err
}

// inheritedLink returns the connection that was passed to this process.
func inheritedLink() (*net.UnixConn, error) {
	unix.CloseOnExec(linkDescriptor)
	f := os.NewFile(linkDescriptor, "witness")
	defer func() { _ = f.Close() }() // the connection has a copy
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("%s is set, and descriptor %d is no connection to a witness: unset the variable: %w", roleVariable, linkDescriptor, err)
	}
	link, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("%s is set, and descriptor %d is a connection of another kind: unset the variable", roleVariable, linkDescriptor)
	}
	return link, nil
}

// socketPair returns both ends of a connection.
func socketPair() (own *net.UnixConn, passed *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	mine, passed := os.NewFile(uintptr(fds[0]), "witness"), os.NewFile(uintptr(fds[1]), "witness")
	defer func() { _ = mine.Close() }() // the connection has a copy
	conn, err := net.FileConn(mine)
	if err != nil {
		_ = passed.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), passed, nil
}

// command returns the command that starts this very program again in a role.
func command(role string, passed ...*os.File) (*exec.Cmd, error) {
	path, err := host.ExecutablePath()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path)
	cmd.Args, cmd.ExtraFiles = os.Args, passed
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, roleVariable+"=") }), roleVariable+"="+role)
	return cmd, nil
}

// childLink is the connection to a witness that is a child of this process. The witness does not outlive it.
type childLink struct {
	*net.UnixConn
	witness *os.Process
}

// Close ends the connection and the witness.
func (l childLink) Close() error {
	return errors.Join(l.witness.Kill(), l.UnixConn.Close())
}

// startChild starts a witness as a child of this process.
func (c *Config) startChild(context.Context) (Link, error) {
	own, passed, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = passed.Close() }()
	cmd, err := command(roleWitness+strconv.Itoa(os.Getpid()), passed, ownImage()) // without an image that number is that of no file
	var reap func() error
	if err == nil {
		cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setsid: true}
		if c.StartChild != nil {
			reap, err = c.StartChild(cmd)
		} else {
			reap, err = cmd.Wait, cmd.Start()
		}
	}
	if err != nil {
		_ = own.Close()
		return nil, err
	}
	go func() { _ = reap() }()
	return childLink{own, cmd.Process}, nil
}
