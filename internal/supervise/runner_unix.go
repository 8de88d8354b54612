//go:build linux || darwin

package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/terminal"
)

// runner is one call of run.
type runner struct {
	*Config
	path      string // of the program
	won, lost syscall.Signal
	log       *slog.Logger
	guardian  *guardian
	terminal  tty
	times     atomic.Pointer[leaseTimes] // nil until the bucket was reached
	fail      context.CancelCauseFunc    // ends the run, with what it comes to
	current   atomic.Pointer[program]    // nil while there is none
	failures  int                        // starts in a row after which the program did not run for long
	last      *cli.ExitError             // what the program's end comes to, once it is not started again

	starting    sync.Mutex  // held while a program is started
	interrupted atomic.Bool // whether a signal ended the run
}

// interruption is the cause that ends a run by a signal.
type interruption struct{ signal syscall.Signal }

// Error names the signal.
func (i interruption) Error() string { return "interrupted by " + unix.SignalName(i.signal) }

// Run runs the program whenever this host leads.
func (r *Config) Run() error {
	if err := r.check(); err != nil {
		return err
	}
	path, err := findProgram(r.Argv[0])
	if err != nil {
		return err
	}
	n := &runner{Config: r, path: path, terminal: findTerminal(r.Stdin)}
	if n.won, err = signalNamed("--won", r.Won, unix.SIGUSR1); err != nil {
		return err
	}
	if n.lost, err = signalNamed("--lost", r.Lost, unix.SIGUSR2); err != nil {
		return err
	}
	stderr := terminal.NewQueue(r.Stderr, terminal.Dropped, func(error) {}) // nobody reads it, and the program goes on
	defer stderr.Close()
	n.log = slog.New(terminal.NewLogHandler(stderr, terminal.StyleFor(r.Stderr), r.level()))
	if n.guardian, err = startGuardian(n.log); err != nil {
		return fmt.Errorf("the guardian of the program does not start: %w", err)
	}
	defer n.guardian.dismiss()
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	n.fail = fail
	defer n.listen()()
	if r.OnLost == OnLostSignal {
		n.accompany(ctx)
	} else {
		n.compete(ctx)
	}
	return n.verdict(context.Cause(ctx))
}

// errEnded is the cause that ends a run whose program has ended for good.
var errEnded = errors.New("the program has ended")

// verdict returns what a run comes to that ended for the given cause.
func (r *runner) verdict(cause error) error {
	interrupted, ok := errors.AsType[interruption](cause)
	switch {
	case !ok && !errors.Is(cause, errEnded):
		return cause
	case r.last != nil:
		return r.last
	}
	return &cli.ExitError{Code: ExitSignal + int(interrupted.signal)}
}

// level returns which log lines are written.
func (r *Config) level() slog.Level {
	switch {
	case r.Verbose:
		return slog.LevelDebug
	case r.Quiet:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// signalNamed reads a signal as kill does, with or without SIG, or as a number.
func signalNamed(flag, name string, byDefault syscall.Signal) (syscall.Signal, error) {
	if name == "" {
		return byDefault, nil
	}
	s := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if n, err := strconv.Atoi(name); err == nil && unix.SignalName(syscall.Signal(n)) != "" {
		s = syscall.Signal(n)
	}
	if s == 0 || s == unix.SIGKILL || s == unix.SIGSTOP {
		return 0, fmt.Errorf("%s %q is no signal that a program can receive: give one such as USR1 or HUP", flag, name)
	}
	return s, nil
}

// listen passes signals on to the program until the returned function is called.
func (r *runner) listen() (stop func()) {
	// Once asked for, a reader of stderr that went away is an error of the write and no longer the end of the process.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	signals := []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2}
	if !signal.Ignored(unix.SIGHUP) { // as it is under nohup, also for the program
		signals = append(signals, unix.SIGHUP)
	}
	c := make(chan os.Signal, 16)
	signal.Notify(c, signals...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range c {
			if s, ok := s.(syscall.Signal); ok {
				r.pass(s)
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(c)
		<-done
	}
}

// pass passes a signal on to the program, and ends the run if the signal asks for that.
func (r *runner) pass(s syscall.Signal) {
	r.starting.Lock() // what comes while a program is started is for that program
	p := r.current.Load()
	r.starting.Unlock()
	ends := s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGHUP && p == nil
	if ends {
		r.interrupted.Store(true) // before the program can have ended of it
	}
	switch {
	case p != nil && ends:
		r.log.Info("Terminating the program, and this command with it", "signal", unix.SignalName(s))
		p.tell(s)
	case p != nil:
		r.log.Debug("Signal is passed on", "signal", unix.SignalName(s))
		p.signalGroup(s)
	}
	if ends {
		r.fail(interruption{s})
	}
}

// environment returns that of a program which is started in a term; nil for one that is started in none.
func (r *runner) environment(t *election.Term) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"ELECTION_KEY", "ELECTION_NAME", "ELECTION_BUCKET", "ELECTION_TERM", "ELECTION_TOKEN"}, name)
	})
	env = append(env, "ELECTION_KEY="+r.Key, "ELECTION_NAME="+r.Name, "ELECTION_BUCKET="+r.Bucket)
	if t != nil {
		env = append(env, "ELECTION_TERM="+strconv.FormatUint(t.Number, 10), "ELECTION_TOKEN="+t.Token())
	}
	return env
}

// errLeaseOver is the error of a program that was not started, as its term was over before it began.
var errLeaseOver = errors.New("the lease is over")

// start starts the program, in a term unless it is nil.
func (r *runner) start(t *election.Term) (*program, error) {
	cmd := exec.Command(r.path)
	cmd.Args, cmd.Env, cmd.Err = r.Argv, r.environment(t), nil
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.Stdin, r.Stdout, r.Stderr
	r.starting.Lock()
	defer r.starting.Unlock()
	p, err := startProgram(cmd, r.terminal.ours(), func(pid int) error {
		r.guardian.tell(r.orderFor(pid, t))
		if t != nil && !t.Valid() { // this process was stopped
			return errLeaseOver
		}
		return nil
	})
	if err != nil {
		r.guardian.tell(order{})
		r.terminal.takeBack(p)
		if errors.Is(err, errLeaseOver) {
			return nil, err
		}
		return nil, notStarted(r.Argv[0], err)
	}
	p.says = r.log
	r.current.Store(p)
	r.log.Info("Program started", "pid", p.pid)
	return p, nil
}

// again says whether a program that ended is started again, and after which pause: not if somebody ended it by a signal to run
// or at its terminal. The program is nil, and the time it ran 0, if it could not be started.
func (r *runner) again(p *program, end *cli.ExitError, ran time.Duration) (time.Duration, bool) {
	if r.interrupted.Load() || r.interruptedAt(p) {
		return 0, false
	}
	if r.Restart == RestartNever || r.Restart == RestartOnFailure && end.Code == cli.ExitOK {
		return 0, false
	}
	if ran >= restartCalm {
		r.failures = 0
	}
	longest := restartLongest
	if r.failures < 16 {
		longest = min(restartFirst<<r.failures, restartLongest)
	}
	r.failures++
	rest := longest/2 + rand.N(longest/2)
	if end.Message != "" {
		r.log.Error("Program not started", "error", end.Message)
	}
	r.log.Info("Program is started again", "in", terminal.Human(rest), "leadership", r.OnExit)
	return rest, true
}

const (
	restartFirst   = 100 * time.Millisecond
	restartLongest = 30 * time.Second
	restartCalm    = 30 * time.Second // after running so long a program counts as well
)
