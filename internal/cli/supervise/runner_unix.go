//go:build linux || darwin

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
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
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/witness"
)

// runner is one execution of the command run.
type runner struct {
	*Config
	path        string // of the program; "" while it is not found
	won, lost   syscall.Signal
	log         *slog.Logger
	guardian    *guardians
	witness     *groupTeller // nil if there is none
	terminal    tty
	times       atomic.Pointer[leaseTimes]        // nil until the bucket is known; see divided
	connected   *connection                       // nil before
	election    atomic.Pointer[election.Election] // of all campaigns in the bucket; nil before the first
	contends    atomic.Pointer[context.Context]   // of the campaign in which it campaigns or leads; nil once it withdraws
	winsBefore  uint64                            // that campaign
	finish      context.CancelCauseFunc           // ends the run; the cause decides the exit code
	current     atomic.Pointer[program]           // nil while no program runs
	failures    int                               // number of starts in a row after which the program did not run for restartResetAfter
	campaigned  bool                              // whether this run has campaigned
	notRenewed  atomic.Uint64                     // the number of the last term that was given up because its lease was not renewed
	served      Server                            // nil if nothing is served
	hook        *lostHook                         // nil if there is none
	programExit *cli.ExitError                    // the last exit of the program, once run does not start it again

	starting    sync.Mutex  // held while the program is started
	interrupted atomic.Bool // whether a signal asked run to end
}

// Run runs the program whenever this host leads, or all the time with OnLostSignal. It returns when the program is not to be
// started again, when a signal ends the run, or when the run fails. A [cli.ExitError] carries the exit code.
func (r *Config) Run() error {
	named := cmp.Or(r.Name, cli.Host()) // for the witness, whose process would make up another name than this one
	if err := r.validate(); err != nil {
		return err
	}
	stderr := terminal.NewQueue(r.Stderr, terminal.DroppedLines, func(error) {}) // the program goes on if stderr cannot be written
	defer stderr.Close()
	log := slog.New(terminal.NewLogHandler(stderr, terminal.StyleFor(r.Stderr), r.logLevel()))
	if witness.IsWitness() {
		r.startWitness(named, log.With("of", "witness"), stderr.Close) // does not return
	}
	path, err := findProgram(r.Argv[0])
	if err != nil && r.Restart == RestartNever { // a program that is started again may be installed until then
		return err
	}
	n := &runner{Config: r, path: path, terminal: findTerminal(r.Stdin), log: log}
	if n.won, err = parseSignal("--won", r.WonSignal, unix.SIGUSR1); err != nil {
		return err
	}
	if n.lost, err = parseSignal("--lost", r.LostSignal, unix.SIGUSR2); err != nil {
		return err
	}
	n.witness = r.startWitness(named, log, stderr.Close)
	defer n.witness.close()
	if r.Serve != nil {
		if n.served, err = r.Serve(n.log); err != nil {
			return err
		}
		defer n.served.Stop()
	}
	defer adoptOrphans()()
	if n.hook, err = n.findLostHook(); err != nil {
		return err
	}
	defer n.hook.wait()
	if n.guardian, err = startGuardian(n.log); err != nil {
		return fmt.Errorf("the guardian process cannot be started: %w", err)
	}
	defer n.guardian.dismiss()
	ctx, finish := context.WithCancelCause(context.Background())
	defer finish(nil)
	n.finish = finish
	defer n.disconnect()
	defer n.forwardSignals()()
	if r.OnLost == OnLostSignal {
		n.runSignalMode(ctx)
	} else {
		n.runTerminateMode(ctx)
	}
	return n.outcome(context.Cause(ctx))
}

// errProgramEnded is the cause that ends a run whose program is not started again.
var errProgramEnded = errors.New("the program has ended")

// outcome returns the error of a run that ended for the given cause.
func (r *runner) outcome(cause error) error {
	interrupted, ok := errors.AsType[interruption](cause)
	switch {
	case !ok && !errors.Is(cause, errProgramEnded):
		return cause
	case r.programExit != nil:
		return r.programExit
	}
	return &cli.ExitError{Code: ExitSignal + int(interrupted.signal)}
}

// logLevel returns the least level that is logged.
func (r *Config) logLevel() slog.Level {
	switch {
	case r.Verbose:
		return slog.LevelDebug
	case r.Quiet:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// environment returns the environment of a program that is started in a term; t is nil if it is started in none. The passwords of this
// command are not the program's, unless the user gave --keep-env.
func (r *runner) environment(t *election.Term) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "ELECTION_KEY", "ELECTION_NAME", "ELECTION_BUCKET", "ELECTION_TERM", "ELECTION_TOKEN", endedReason:
			return true
		case "NATS_PASSWORD", "NATS_TOKEN":
			return !r.KeepEnv
		case "NATS_USER": // without a password it is a token
			return !r.KeepEnv && r.Connection.Password == ""
		case "NATS_URL":
			return !r.KeepEnv && strings.Contains(value, "@")
		}
		return false
	})
	env = append(env, "ELECTION_KEY="+r.Key, "ELECTION_NAME="+r.Name, "ELECTION_BUCKET="+r.Bucket)
	if t != nil {
		env = append(env, "ELECTION_TERM="+strconv.FormatUint(t.Number, 10), "ELECTION_TOKEN="+t.Token())
	}
	return env
}

// execution is one execution of the program, from its start until its group is gone.
type execution struct {
	program    *program       // nil if the program could not be started
	exit       *cli.ExitError // the program's exit code, or the reason why it could not be started
	ran        time.Duration  // 0 if the program could not be started
	terminated bool           // whether run terminated the program
}

// runProgram starts the program and supervises it until its group is gone. It returns false if it did not try to start the
// program because the lease of t was over. The term is nil in signal mode.
func (r *runner) runProgram(ctx context.Context, t *election.Term) (x execution, tried bool) {
	p, err := r.start(t)
	if errors.Is(err, errLeaseOver) {
		return execution{}, false
	}
	if exit, ok := errors.AsType[*cli.ExitError](err); ok {
		return execution{exit: exit}, true
	}
	if err != nil {
		return execution{exit: startError(r.Argv[0], err)}, true
	}
	terminated := r.supervise(ctx, p, t)
	return execution{program: p, exit: &cli.ExitError{Code: p.exitCode()}, ran: time.Since(p.started), terminated: terminated}, true
}

// errLeaseOver is the error of start if the lease was over before the program began.
var errLeaseOver = errors.New("the lease is over")

// start starts the program in a term; t is nil if it is started in none.
func (r *runner) start(t *election.Term) (*program, error) {
	path := r.path
	if path == "" {
		var err error
		if path, err = findProgram(r.Argv[0]); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(path)
	cmd.Args, cmd.Env, cmd.Err = r.Argv, r.environment(t), nil
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.Stdin, r.Stdout, r.Stderr
	r.starting.Lock()
	defer r.starting.Unlock()
	p, err := startProgram(cmd, r.terminal.isForeground(), func(pid int) error {
		r.guardian.setOrder(r.guardianOrder(pid, t))
		r.witness.programStarts(pid)
		if t != nil && !t.Valid() { // this process was stopped
			return errLeaseOver
		}
		return nil
	})
	if err != nil {
		r.guardian.setOrder(order{})
		r.witness.programEnded()
		r.terminal.reclaim(p)
		return nil, err
	}
	p.log = r.log
	r.current.Store(p)
	r.log.Info("Program started", "pid", p.pid)
	return p, nil
}
