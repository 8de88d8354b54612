//go:build linux || darwin

package supervise

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/lease"
)

const (
	guardianPause = time.Second // before one that ended is replaced
	guardianLook  = 250 * time.Millisecond
	// guardianPatience is how long a newer order may take that is on its way when an older one falls due. It is less than
	// half of leastDeath, as what is ordered for a lease falls due with half of its death left.
	guardianPatience = 5 * time.Millisecond
)

// order is what a guardian is to do. Orders are lines of JSON on its input, and each replaces the one before.
type order struct {
	Group  int            // to be killed when the input ends; 0 for none
	Target int            // to be sent Signal when it is due: as that of kill, 0 for none
	Signal syscall.Signal //
	Due    time.Duration  // by the machine's monotonic clock
	Boot   time.Duration  // by the clock that counts suspension; 0 if it could not be read
	Wall   int64          // by the wall clock, in Unix nanoseconds, which stands in for that clock
}

// orderAt returns an order for the given instant. It reads the clocks before it asks how far off that is: a suspension in
// between then makes the order due too early rather than too late.
func orderAt(at time.Time, o order) order {
	boot, ok := lease.SinceBoot()
	due := history.Now()
	until := left(at)
	o.Due, o.Wall = due+until, at.UnixNano()
	if ok {
		o.Boot = boot + until
	}
	return o
}

// left returns how long it is until the order is due. The wall clock may have been stepped, and counts only where no other
// clock counts suspension.
func (o order) left() time.Duration {
	mono := o.Due - history.Now()
	if boot, ok := lease.SinceBoot(); ok && o.Boot != 0 {
		return min(mono, o.Boot-boot)
	}
	return min(mono, time.Duration(o.Wall-time.Now().UnixNano()))
}

// repeats says whether o orders the same as another, for the same instant but for the time between readings of clocks.
func (o order) repeats(p order) bool {
	return o.Group == p.Group && o.Target == p.Target && o.Signal == p.Signal && time.Duration(o.Wall-p.Wall).Abs() < time.Millisecond
}

// guard does what it is ordered until its input ends, which it does when the process at its other end is gone.
func guard(in *os.File) {
	orders := make(chan order, 1)
	go func() {
		defer close(orders)
		for d := json.NewDecoder(in); ; {
			var next order
			if d.Decode(&next) != nil {
				return
			}
			orders <- next
		}
	}()
	var now order
	for ok := true; ok; {
		// An order is acted on when no newer one is there or came within the patience after it was seen to be due, also
		// where it fell due while this process was stopped: a newer one may have come meanwhile that was not read yet.
		look, due := guardianLook, now.Target != 0 && now.left() <= 0
		switch {
		case due:
			look = guardianPatience
		case now.Target != 0:
			look = min(now.left(), guardianLook)
		}
		wait := time.NewTimer(look)
		var next order
		select {
		case next, ok = <-orders:
			if ok {
				now = next
			}
		case <-wait.C:
			if due && len(orders) == 0 && !unread(in) {
				_ = unix.Kill(now.Target, now.Signal)
				now.Target = 0
			}
		}
	}
	if now.Group != 0 {
		_ = unix.Kill(-now.Group, unix.SIGKILL)
	}
}

// unread says whether there is something in a pipe.
func unread(pipe *os.File) bool {
	ready := []unix.PollFd{{Fd: int32(pipe.Fd()), Events: unix.POLLIN}}
	_, err := unix.Poll(ready, 0)
	return err == nil && ready[0].Revents&unix.POLLIN != 0
}

// guardian is a process that kills the program's group should this process be killed, and does what this one should have
// done should it be stopped. It is in a session of its own, so that nothing which ends this one ends it too.
type guardian struct {
	log  *slog.Logger
	done chan struct{}

	mu        sync.Mutex
	in        *os.File
	cmd       *exec.Cmd
	last      order
	dismissed bool
}

// startGuardian starts a guardian, which is replaced should it end before it is dismissed.
func startGuardian(log *slog.Logger) (*guardian, error) {
	g := &guardian{log: log, done: make(chan struct{})}
	if err := g.start(); err != nil {
		return nil, err
	}
	go g.replace()
	return g, nil
}

// start starts the process, with the last order there for it to read. Nobody else uses g meanwhile, or the caller holds mu.
func (g *guardian) start() error {
	path, err := ownPath()
	if err != nil {
		return err
	}
	far, near, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = far.Close() }()
	cmd := exec.Command(path)
	cmd.Args, cmd.Env = []string{"election-cli", GuardianCommand}, []string{}
	cmd.Stdin, cmd.SysProcAttr = far, &syscall.SysProcAttr{Setsid: true}
	g.in = near
	g.write()
	if err := cmd.Start(); err != nil {
		_ = near.Close()
		return err
	}
	g.cmd = cmd
	return nil
}

// replace starts another guardian each time one ends.
func (g *guardian) replace() {
	defer close(g.done)
	for {
		g.mu.Lock()
		cmd := g.cmd
		g.mu.Unlock()
		_ = cmd.Wait()
		g.mu.Lock()
		for !g.dismissed {
			g.log.Warn("Guardian ended, starting another: until then the program may outlive this process")
			_ = g.in.Close()
			g.mu.Unlock()
			time.Sleep(guardianPause)
			g.mu.Lock()
			if err := g.start(); err == nil {
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

// tell gives an order, unless it is the one that was given last. It says whether that one fell due before the new one was
// written, so that the guardian has done it or is about to: it is asked after the write, as this process may be stopped
// just before that.
func (g *guardian) tell(o order) (late bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.last
	if !o.repeats(before) {
		if g.last = o; !g.dismissed {
			g.write()
		}
	}
	return before.Target != 0 && before.left() <= 0
}

// write passes on the last order, in one write, which a pipe takes in whole or not at all. It does not wait for a guardian
// that does not read: a pipe has room for hundreds of orders, and each says all that there is to say. The caller holds mu.
func (g *guardian) write() {
	line, _ := json.Marshal(g.last)
	if in, err := g.in.SyscallConn(); err == nil {
		_ = in.Write(func(fd uintptr) bool {
			_, _ = unix.Write(int(fd), append(line, '\n'))
			return true
		})
	}
}

// dismiss ends the guardian, when there is nothing left to guard.
func (g *guardian) dismiss() {
	g.mu.Lock()
	g.last, g.dismissed = order{}, true
	g.write()
	_ = g.in.Close()
	_ = g.cmd.Process.Kill()
	g.mu.Unlock()
	<-g.done
}

// Guard is the process that is a guardian: it does what it is ordered by its standard input, until that ends.
func Guard() {
	// To end all processes of a service means to end this one by its input.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM)
	guard(os.Stdin)
}
