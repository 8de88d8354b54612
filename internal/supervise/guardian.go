//go:build linux || darwin

package supervise

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardianRestartDelay is the pause before a guardian process that ended is replaced.
const guardianRestartDelay = time.Second

// guardian controls the guardian process. If this process is killed, the guardian process kills the program's group; if this
// process is stopped (SIGSTOP), the guardian process carries out the last order when it is due. The guardian process has a
// session of its own, so that no signal to the group or the terminal of this process ends it too.
type guardian struct {
	log  *slog.Logger
	done chan struct{} // closed when the last guardian process has ended

	mu        sync.Mutex
	in        *os.File // the guardian process reads the other end
	cmd       *exec.Cmd
	last      order
	dismissed bool
}

// startGuardian starts a guardian process, and replaces it whenever it ends, until dismiss.
func startGuardian(log *slog.Logger) (*guardian, error) {
	g := &guardian{log: log, done: make(chan struct{})}
	if err := g.start(); err != nil {
		return nil, err
	}
	go g.replaceEnded()
	return g, nil
}

// start starts the process. The last order is in its input before it begins. The caller holds mu, or nothing else uses g yet.
func (g *guardian) start() error {
	path, err := executablePath()
	if err != nil {
		return err
	}
	childIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = childIn.Close() }()
	cmd := exec.Command(path)
	cmd.Args, cmd.Env = []string{"election-cli", GuardianCommand}, []string{}
	cmd.Stdin, cmd.SysProcAttr = childIn, &syscall.SysProcAttr{Setsid: true}
	g.in = in
	g.write()
	if err := ownChildren.start(cmd); err != nil {
		_ = in.Close()
		return err
	}
	g.cmd = cmd
	return nil
}

// replaceEnded starts another guardian process each time one ends, until dismiss.
func (g *guardian) replaceEnded() {
	defer close(g.done)
	for {
		g.mu.Lock()
		cmd := g.cmd
		g.mu.Unlock()
		_ = ownChildren.wait(cmd)
		g.mu.Lock()
		for !g.dismissed {
			g.log.Warn("Guardian ended, starting another: until then the program may outlive this process")
			_ = g.in.Close()
			g.mu.Unlock()
			time.Sleep(guardianRestartDelay)
			g.mu.Lock()
			if g.dismissed || g.start() == nil {
				break
			}
		}
		dismissed := g.dismissed
		g.mu.Unlock()
		if dismissed {
			return
		}
	}
}

// setOrder replaces the last order, unless o is the same. It reports whether the replaced order was due, so that the guardian
// has carried it out or is about to, and for how long. It checks that after it has written o, because this process may be stopped just before.
func (g *guardian) setOrder(o order) (wasDue bool, ago time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	replaced := g.last
	if !o.sameAs(replaced) {
		if g.last = o; !g.dismissed {
			g.write()
		}
	}
	return replaced.isDue(), -replaced.remaining()
}

// write sends the last order, in one write, which a pipe takes as a whole or not at all. It never waits for a guardian that
// does not read: a pipe has room for hundreds of orders, and each order is complete. The caller holds mu.
func (g *guardian) write() {
	line, _ := json.Marshal(g.last)
	if in, err := g.in.SyscallConn(); err == nil {
		_ = in.Write(func(fd uintptr) bool {
			_, _ = unix.Write(int(fd), append(line, '\n'))
			return true
		})
	}
}

// dismiss ends the guardian process, once there is no program left to guard.
func (g *guardian) dismiss() {
	g.mu.Lock()
	g.last, g.dismissed = order{}, true
	g.write()
	_ = g.in.Close()
	_ = g.cmd.Process.Kill()
	g.mu.Unlock()
	<-g.done
}
