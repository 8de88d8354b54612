//go:build linux || darwin

package supervise

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/host"
)

const (
	guardianRestartDelay = time.Second // the pause before a guardian that ended is replaced
	dismissTimeout       = time.Second // how long a guardian that is dismissed may take to end, before it is killed
)

// guardians controls the guardian and its deputy, two processes that get the same orders. If this process is killed, both kill the
// program's group; if this process is stopped (SIGSTOP), both carry out the last order when it is due. Each has a session of its own,
// so that no signal to the group or the terminal of this process ends it too.
//
// Either would do if this process alone were killed or stopped. Only the deputy is left when this process and the guardian are hit together, as
// happens easily: by the name of the command, or as a process with its children. The deputy has another name, and the guardian is its parent: a
// deputy without a guardian would become the child of this process, which adopts orphans. Only the guardian sends a signal other than KILL.
type guardians struct {
	log  *slog.Logger
	done chan struct{} // closed when the last guardian and its deputy have ended

	mu        sync.Mutex
	in        *os.File // the guardian reads the other end
	deputyIn  *os.File // the deputy reads the other end
	cmd       *exec.Cmd
	ended     <-chan struct{} // closed when the guardian or its deputy has ended
	end       func()          // ends both, and returns when they have ended
	last      order
	dismissed bool
}

// startGuardian starts a guardian with its deputy, and replaces both whenever one of them ends, until dismiss.
func startGuardian(log *slog.Logger) (*guardians, error) {
	g := &guardians{log: log, done: make(chan struct{})}
	if err := g.start(); err != nil {
		return nil, err
	}
	go g.replaceEnded()
	return g, nil
}

// start starts a guardian, which starts its deputy. The last order is in the input of both before they begin. The caller holds mu, or
// nothing else uses g yet.
func (g *guardians) start() (err error) {
	path, err := host.ExecutablePath()
	if err != nil {
		return err
	}
	var files []*os.File
	pipe := func() (r, w *os.File) {
		r, w, e := os.Pipe()
		err = errors.Join(err, e)
		files = append(files, r, w)
		return r, w
	}
	childIn, in := pipe()
	childDeputyIn, deputyIn := pipe()
	deputyLives, childDeputyLives := pipe() // ends when the deputy has ended
	cmd := exec.Command(path)
	if err == nil {
		g.last.write(in, deputyIn)
		cmd.Args, cmd.Env = []string{"election-cli", GuardianCommand, fileNumber(childDeputyIn), fileNumber(childDeputyLives)}, []string{}
		cmd.Stdin, cmd.SysProcAttr = childIn, &syscall.SysProcAttr{Setsid: true}
		err = ownChildren.start(cmd, childDeputyIn, childDeputyLives)
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return err
	}
	_, _, _ = childIn.Close(), childDeputyIn.Close(), childDeputyLives.Close()
	g.cmd, g.in, g.deputyIn = cmd, in, deputyIn
	g.follow(deputyLives)
	return nil
}

// follow sets ended and end for the processes that were just started.
func (g *guardians) follow(deputyLives *os.File) {
	cmd, in, deputyIn := g.cmd, g.in, g.deputyIn
	guardianEnded, deputyEnded, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(guardianEnded)
		_ = ownChildren.wait(cmd)
	}()
	go func() {
		defer close(deputyEnded)
		_, _ = deputyLives.Read(make([]byte, 1))
		_ = deputyLives.Close()
	}()
	go func() {
		defer close(ended)
		select {
		case <-guardianEnded:
		case <-deputyEnded:
		}
	}()
	g.ended = ended
	g.end = func() {
		writeOrder(in, order{})
		writeOrder(deputyIn, order{})
		_, _ = in.Close(), deputyIn.Close()
		kill := time.AfterFunc(dismissTimeout, func() { _ = cmd.Process.Kill() }) // it may be stopped
		defer kill.Stop()
		<-guardianEnded
		select {
		case <-deputyEnded:
		case <-time.After(dismissTimeout): // it is stopped, and ends when it goes on
		}
	}
}

// replaceEnded starts another guardian with its deputy each time one of them ends, until dismiss. The one that is left is on duty until
// its replacement is.
func (g *guardians) replaceEnded() {
	defer close(g.done)
	for {
		g.mu.Lock()
		ended, end := g.ended, g.end
		g.mu.Unlock()
		<-ended
		g.mu.Lock()
		for !g.dismissed {
			g.log.Warn("Guardian ended, starting another: until then its deputy alone, or the guardian without its deputy, guards the program")
			g.mu.Unlock()
			time.Sleep(guardianRestartDelay)
			g.mu.Lock()
			if g.dismissed || g.start() == nil {
				break
			}
		}
		dismissed := g.dismissed
		g.mu.Unlock()
		end()
		if dismissed {
			return
		}
	}
}

// setOrder replaces the last order, unless o is the same. It reports whether the replaced order was due, so that the guardian
// has carried it out or is about to, and for how long. It checks that after it has written o, because this process may be stopped just before.
func (g *guardians) setOrder(o order) (wasDue bool, ago time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	replaced := g.last
	if !o.sameAs(replaced) {
		if g.last = o; !g.dismissed {
			g.last.write(g.in, g.deputyIn)
		}
	}
	return replaced.isDue(), -replaced.remaining()
}

// write sends the order to a guardian and to its deputy.
func (o order) write(in, deputyIn *os.File) {
	writeOrder(in, o)
	writeOrder(deputyIn, o.forDeputy())
}

// writeOrder sends an order, in one write, which a pipe takes as a whole or not at all. It never waits for a process that
// does not read: a pipe has room for hundreds of orders, and each order is complete. It does nothing if the pipe is nil or closed.
func writeOrder(pipe *os.File, o order) {
	line, _ := json.Marshal(o)
	if in, err := pipe.SyscallConn(); err == nil {
		_ = in.Write(func(fd uintptr) bool {
			_, _ = unix.Write(int(fd), append(line, '\n'))
			return true
		})
	}
}

// dismiss ends the guardian and its deputy, once there is no program left to guard.
func (g *guardians) dismiss() {
	g.mu.Lock()
	g.last, g.dismissed = order{}, true
	g.last.write(g.in, g.deputyIn)
	_, _ = g.in.Close(), g.deputyIn.Close()
	g.mu.Unlock()
	<-g.done
}
