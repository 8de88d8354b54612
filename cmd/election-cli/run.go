package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/serving"
	"github.com/natscampaign/election/internal/cli/supervise"
)

const runHelp = `election-cli run [FLAGS] KEY -- PROGRAM ARGS...

Start this on every host; the program then runs on the host that leads:

    election-cli run scheduler -- /usr/local/bin/scheduler --port 8080

This command starts the program when leadership counts. The program is dead before the lease ends, so it never runs on
two hosts at once. This command passes the arguments to the program as they are, without a shell. The program inherits
stdin, stdout and stderr; this command writes its log to stderr. When this host loses leadership, this command campaigns
again, and starts the program again when this host leads again. When the program exits on its own, this command exits
with the program's exit code.

Environment: the program finds ELECTION_KEY, ELECTION_NAME (the name of this candidate), ELECTION_BUCKET, ELECTION_TERM
and ELECTION_TOKEN. ELECTION_TOKEN is the fencing token, which sorts after the tokens of all earlier terms. Send it with
every write, and have the receiver refuse a token that sorts before one that the receiver has seen. The program does not
inherit NATS_PASSWORD, NATS_TOKEN, a NATS_USER that is a token, nor a NATS_URL that contains credentials, unless --keep-env
is given. It inherits all descriptors that this command inherited, such as the sockets of systemd, and LISTEN_PID then
names the program.

End of the program: the program runs in a process group of its own, and this command ends the whole group. In an orderly
stop, after TERM to this command or when an operator asks for a handover, it sends TERM, renews the lease until the
program has exited, and sends KILL after --stop-timeout. If the lease is not renewed, it sends TERM and, after --grace,
KILL, early enough that the program is dead before the lease ends, and then gives up leadership. It refuses a --grace that
leaves no time to retry a renewal. If the lease ends at once, for example because somebody deletes the key, it kills the
group without grace. After the program has exited, this command kills the rest of the group and releases the key, so that
another host leads within milliseconds. If this command itself is killed or stopped, a guardian process kills the group, and
if the guardian is killed with it, the guardian's deputy does.

Witness: if this command itself is killed, another process, its witness, releases the key once the group is dead, so that
another host leads within milliseconds and a settle time of 250 ms rather than when the lease is over. The witness connects
with the flags of this command while this host leads. Without it, as with --no-witness, the lease is over when it is over.

Hook: with --lost-hook this command runs one more program, without arguments, whenever leadership has ended and the program
is gone; with --on-lost=signal, after --lost was sent. Its environment is that of the program in the term that ended, and
ELECTION_ENDED_REASON is the reason, in the words of the log and of election_transitions_total:

    stopped, resigned, transferred, relinquished, unhealthy, work-ended, overwritten, deleted, bucket-replaced, cloned,
    rewound, closed or deadline

The reason is deadline also if the program was ended because the lease was not renewed, where the log has work-ended. The
hook runs beside all else: another host may lead already, so it must do nothing that only a leader may do. It is killed
after 10 s. It does not run if this command is killed.

Limits: this command does not end processes that leave the group, as daemons do, so keep the program in the foreground.
If this command, the guardian and its deputy are killed at the same instant, what the program started may live on. If all of
them and the program are frozen together, as by docker pause, the program runs for some milliseconds after the freeze.
It cannot end a program that changes its user, for example by sudo, and such a program may outlive its lease: run this
command as root or as that user.

Metrics and page: --metrics and --status serve the metrics of this candidate and a page about the election, as for
'election-cli campaign'.

Signals: this command forwards INT and TERM to the group and then ends itself: it waits until the program is gone,
releases the key, and exits with the program's exit code. It forwards HUP, USR1 and USR2 and goes on; HUP ends this
command only while no program runs. On a terminal, the program runs in the foreground and reads the keyboard. Ctrl-C
goes to the program. Ctrl-Z stops the program and this command, and fg continues both, as in any shell; the guardian kills
a program that is still stopped when the lease ends. Add '</dev/null' to keep the program from the terminal. If the program
is stopped otherwise, by SIGSTOP or because it reads the terminal from the background, this command logs a warning, and
gives up leadership after a TTL.

With --on-lost=signal, the program runs all the time, on every host, and only receives signals: --won when leadership
counts and --lost when it ends. Both go to the program itself, not to its group. On Linux, this command sends --won when
the program has handlers for both signals, or after 2 s. If the lease is not renewed, --lost arrives at least --grace
before the lease ends; if somebody deletes or overwrites the key, --lost can only arrive afterwards. If this command is
stopped, the guardian sends --lost instead, so --lost may arrive twice. ELECTION_TERM and ELECTION_TOKEN are not set.

With --restart, this command starts the program again after the program exits on its own or could not be started, but
not if Ctrl-C or a signal to this command ended the program. The delay before a restart grows from 100 ms to 30 s; it is
short again after the program has run for 30 s. During the delay the key is released, and any host may lead next. With
--on-exit=keep this host keeps the key instead.

` + cli.HealthHelp + ` The checks of run are about this host, because
the program runs only while this host leads. With --on-lost=signal they may be about the program.

This command waits for an unreachable server, and logs why it cannot connect. With --connect-timeout it exits if there is
no connection after that time. It exits at once if the server refuses the credentials, or if there is no bucket. It
waits for a bucket that is gone after this command has campaigned there.

With --no-wait, this command reads the key once. It gives up if another candidate leads, if the election is paused, or if
this host is not healthy. Otherwise it waits only for as long as it takes to win the key and to stand down: 0.75 of the TTL
where nobody released the key within the last TTL.

With --hold-at-least, this command stays and keeps the key until that much time has passed since the program started, though
the program exits earlier by itself. So a job of cron runs at most once per period although the clocks of hosts differ:

    * * * * *  election-cli run nightly --no-wait --hold-at-least 50s -- /usr/local/bin/nightly

Give more than the clocks may differ, and less than the period. A signal to this command, and its death, end the hold.

Exit codes: the exit code of the program; 128+N if signal N ended the program, or if it ended this command while no
program ran (130 for INT, 143 for TERM); 1, or --conflict-exit-code, if --no-wait was given and this host does not lead;
124 if --max-wait ran out; 125 for wrong usage and any other error; 126 if the program cannot be executed; 127 if the
program is not found.

` + serving.Help

// registerRun adds the command run.
func registerRun(app *fisk.Application, env *cli.Env) {
	r := &supervise.Config{Env: env}
	var first string
	var words []string
	var served serving.Flags
	cmd := app.Command("run", "Runs a program while this host leads").HelpLong(runHelp).Action(func(*fisk.ParseContext) error {
		if r.Name == "" {
			served.Identity = cli.Host()
		}
		if len(words) > 0 && len(env.Argv) > 0 { // the last of the words is that of cutProgram
			return cli.AsCommandError(fmt.Errorf("%q is before --, and the program %q after it: give all of the program after the first --", first, env.Argv[0]))
		}
		return cli.AsCommandError(r.Run())
	})
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&r.Key)
	cmd.Arg("program", "The program").PlaceHolder("-- <program>").Required().StringVar(&first)
	cmd.Arg("args", "The arguments of the program, passed as they are").StringsVar(&words)
	cmd.Flag("name", "Name of this candidate (default HOST-PID, or HOST in Kubernetes and for process 1)").PlaceHolder("NAME").StringVar(&r.Name)
	cli.DurationVar(cmd.Flag("max-wait", "Longest time to wait until this host leads, each time (then exit 124)").IsSetByUser(&r.MaxWaitSet), &r.MaxWait)
	cmd.Flag("no-wait", "Try once to lead, and give up if another candidate leads (exit 1)").UnNegatableBoolVar(&r.NoWait)
	cli.IntVar(cmd.Flag("conflict-exit-code", "Exit code of --no-wait if another candidate leads (default 1)").Short('E').PlaceHolder("CODE").IsSetByUser(&r.ConflictExitCodeSet), &r.ConflictExitCode, 75)
	cli.DurationVar(cmd.Flag("hold-at-least", "Keep the key for at least this long from the start of the program, though it has exited by itself").IsSetByUser(&r.HoldAtLeastSet), &r.HoldAtLeast)
	cli.DurationVar(cmd.Flag("grace", "Time from TERM to KILL when the lease is not renewed (default an eighth of what the interval leaves of the lease, 1.25s to 10s, or less if the lease allows no more)").IsSetByUser(&r.GraceSet), &r.Grace)
	cli.DurationVar(cmd.Flag("stop-timeout", "Time that the program has to exit in an orderly stop, while this host keeps the lease (default 10s, or --grace if that is longer)").IsSetByUser(&r.StopTimeoutSet), &r.StopTimeout)
	cli.IntervalVar(cmd, "Time between renewals; a shorter interval survives longer outages of the server, and leaves more for --grace (default a quarter of the TTL)", &r.Interval)
	cli.DurationVar(cmd.Flag("stand-down", "Time from winning a key that was not released to leading (default one interval, or 0.75 of the TTL if nothing is known of a leader before)").IsSetByUser(&r.StandDownSet), &r.StandDown)
	cli.EnumVar(cmd.Flag("on-lost", "When leadership ends: terminate the program, or only signal it").Default(supervise.OnLostTerminate), &r.OnLost, supervise.OnLostTerminate, supervise.OnLostSignal)
	cmd.Flag("won", "With --on-lost=signal, the signal for the start of leadership (default USR1)").PlaceHolder("SIGNAL").IsSetByUser(&r.WonSignalSet).StringVar(&r.WonSignal)
	cmd.Flag("lost", "With --on-lost=signal, the signal for the end of leadership (default USR2)").PlaceHolder("SIGNAL").IsSetByUser(&r.LostSignalSet).StringVar(&r.LostSignal)
	r.Health.Register(cmd)
	cmd.Flag("lost-hook", "Program to run when leadership has ended; ELECTION_ENDED_REASON in its environment says why").PlaceHolder("PROGRAM").StringVar(&r.LostHook)
	cli.EnumVar(cmd.Flag("restart", "When to start the program again after it exits: never, on-failure or always").Default(supervise.RestartNever), &r.Restart, supervise.RestartNever, supervise.RestartOnFailure, supervise.RestartAlways)
	cli.EnumVar(cmd.Flag("on-exit", "What to do with the key until a restart: release or keep it").IsSetByUser(&r.OnExitSet).Default(supervise.OnExitRelease), &r.OnExit, supervise.OnExitRelease, supervise.OnExitKeep)
	cmd.Flag("no-witness", "Start no witness: if this command is killed, the key is released when its lease is over").UnNegatableBoolVar(&r.NoWitness)
	cmd.Flag("keep-env", "Also pass NATS_PASSWORD, NATS_TOKEN, a NATS_USER that is a token, and a NATS_URL that contains credentials, to the program").UnNegatableBoolVar(&r.KeepEnv)
	cmd.Flag("verbose", "Also log each campaign and each renewal").Short('v').UnNegatableBoolVar(&r.Verbose)
	cmd.Flag("quiet", "Log only warnings and errors").Short('q').UnNegatableBoolVar(&r.Quiet)
	served.Register(cmd)
	r.Serve = func(log *slog.Logger) (supervise.Server, error) {
		if err := served.Check(r.Name, r.Key); err != nil {
			return nil, err
		}
		return served.Serve(r.Name, r.Key, log)
	}
	env.Connection.RegisterConnectTimeout(cmd)
}

// errNoDashes says how to separate the arguments of run from those of the program.
var errNoDashes = errors.New("-- is missing before the program, whose arguments this command would take for its own: as in 'election-cli run KEY -- PROGRAM ARGS...'")

// explainRun returns errNoDashes for an error of the parser in the arguments of a program without -- before it, as in 'run KEY ./prog --flag'.
func explainRun(args []string, argv []string, err error) error {
	line, parseErr := app(&cli.Env{}).ParseContext(args)
	if line == nil || line.SelectedCommand == nil || line.SelectedCommand.FullCommand() != "run" || parseErr == nil && argv != nil {
		return err
	}
	for _, e := range line.Elements {
		if arg, ok := e.Clause.(*fisk.ArgClause); ok && arg.Model().Name == "program" {
			return errNoDashes
		}
	}
	return err
}

// cutProgram splits the arguments of run at the first "--" into the command's own arguments and the program with its arguments.
// It leaves one word in place of the program, which the parser requires. The parser must not see the program's arguments: it
// would remove every further "--". The arguments of other commands stay as they are.
func cutProgram(args []string) (own, argv []string) {
	at := slices.Index(args, "--")
	if at < 0 || commandOf(args[:at]) != "run" {
		return args, nil
	}
	own, argv = slices.Clone(args[:at]), args[at+1:]
	if len(argv) > 0 {
		own = append(own, "program")
	}
	return own, argv
}
