package main

import (
	"slices"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/supervise"
)

const runHelp = `election-cli run [FLAGS] KEY -- PROGRAM ARGS...

The program is started when leadership counts and is dead before the lease is over, so that it never runs on two hosts
at once. It gets its arguments as they are, and no shell sees them. Input and output are its own; what this command has
to say goes to stderr. When leadership is lost this command campaigns again, and starts the program anew when it leads. When
the program ends by itself this command ends too, with its exit code.

The program finds in its environment ELECTION_KEY, ELECTION_NAME (of this candidate), ELECTION_BUCKET, ELECTION_TERM and
ELECTION_TOKEN, the fencing token: it sorts after those of all earlier terms, and what the program writes to should refuse
one that sorts before another it has seen.

It runs in a process group of its own, which is ended as a whole: by TERM and, after --grace, by KILL; by KILL alone where
the lease is over at once, as when somebody removes the key. While a lease is not renewed the program gets TERM so
early that it is dead before the lease is over, and leadership is given up. A --grace that leaves no time for a renewal in
good order is refused. When the program has ended, what is left of its group is killed and the key is released, so that
another host leads within milliseconds. Should this command be killed or stopped, a guardian process kills the group. What
leaves its group, as daemons do, is not looked after: have the program stay in the foreground. A program that becomes
another user, as by sudo, cannot be ended by this command, and may outlive its lease, unless this command is root's or that
user's: run it as that user.

INT and TERM are passed on to the group and end this command: once the program is gone the key is released, and the exit
code is the program's. HUP, USR1 and USR2 are only passed on; HUP ends this command while there is no program. On a
terminal the program is in the foreground and reads what is typed; Ctrl-C is the program's, and Ctrl-Z does nothing, for
a leader that stopped would lose its lease. Give '</dev/null' to a program that is not to have the terminal.

With --on-lost=signal the program runs all the time, whoever leads, and only gets a signal: --won when leadership counts and
--lost when it ends. These go to the program itself, not to its group. On Linux --won waits up to 2 s for the program to
have handlers for both. When the lease is running out, --lost comes at least --grace before its end; when the key was
removed or overwritten it can only come after the fact. Should this command be stopped, the guardian sends --lost in its
place, so that it may come twice. ELECTION_TERM and ELECTION_TOKEN are not set.

With --restart a program that ended by itself, or could not be started, is started again after a pause that grows from
100 ms to 30 s, and is short again once the program has run for 30 s. The key is released for that time, and any host may
lead next, or it is kept with --on-exit=keep.

--no-wait reads once whether somebody leads, and if nobody does, waits no longer than it takes to win and to stand down.

Exit codes: that of the program; 128+N if signal N ended it, or this command while there was no program (130 for INT, 143
for TERM); 1, or --conflict-exit-code, if --no-wait was given and this host does not lead; 124 if --max-wait ran out; 125
for wrong usage and any other error; 126 if the program cannot be executed; 127 if there is no such program.`

func registerRun(app *fisk.Application, t *cli.Env) {
	r := &supervise.Config{Env: t}
	cmd := app.Command("run", "Runs a program while this host leads").HelpLong(runHelp).Action(func(*fisk.ParseContext) error {
		return cli.Failed(r.Run())
	})
	cmd.Arg("key", "The election, a key of the bucket").Required().StringVar(&r.Key)
	cmd.Arg("program", "The program, after --").Required().String()
	cmd.Arg("args", "Its arguments, passed as they are").Strings()
	cmd.Flag("name", "Name of this candidate (default HOST-PID-UNIQUE)").PlaceHolder("NAME").StringVar(&r.Name)
	cmd.Flag("max-wait", "Give up after waiting so long to lead, each time (exit 124)").PlaceHolder("DURATION").IsSetByUser(&r.MaxWaitSet).DurationVar(&r.MaxWait)
	cmd.Flag("no-wait", "Try once to lead, and give up if somebody else does (exit 1)").UnNegatableBoolVar(&r.NoWait)
	cmd.Flag("conflict-exit-code", "Exit code of --no-wait in place of 1").Short('E').PlaceHolder("CODE").IsSetByUser(&r.ConflictSet).IntVar(&r.Conflict)
	cmd.Flag("grace", "Time from TERM to KILL (default as fits the lease, at most 10s)").PlaceHolder("DURATION").IsSetByUser(&r.GraceSet).DurationVar(&r.Grace)
	cmd.Flag("interval", "Time between renewals (default 0.75 of the TTL); less leaves more for --grace").PlaceHolder("DURATION").IsSetByUser(&r.IntervalSet).DurationVar(&r.Interval)
	cmd.Flag("stand-down", "Time from winning a key that expired to leading (default one interval)").PlaceHolder("DURATION").IsSetByUser(&r.StandDownSet).DurationVar(&r.StandDown)
	cmd.Flag("on-lost", "What to do when leadership ends: terminate the program, or only signal it").Default(supervise.OnLostTerminate).EnumVar(&r.OnLost, supervise.OnLostTerminate, supervise.OnLostSignal)
	cmd.Flag("won", "Signal that tells the program that it leads, with --on-lost=signal (default USR1)").PlaceHolder("SIGNAL").IsSetByUser(&r.WonSet).StringVar(&r.Won)
	cmd.Flag("lost", "Signal that tells it that it no longer does (default USR2)").PlaceHolder("SIGNAL").IsSetByUser(&r.LostSet).StringVar(&r.Lost)
	cmd.Flag("restart", "Start a program that ended again: never, on-failure or always").Default(supervise.RestartNever).EnumVar(&r.Restart, supervise.RestartNever, supervise.RestartOnFailure, supervise.RestartAlways)
	cmd.Flag("on-exit", "Leadership until the program is started again: release or keep (default release)").IsSetByUser(&r.OnExitSet).Default(supervise.OnExitRelease).EnumVar(&r.OnExit, supervise.OnExitRelease, supervise.OnExitKeep)
	cmd.Flag("verbose", "Log each campaign and renewal as well").Short('v').UnNegatableBoolVar(&r.Verbose)
	cmd.Flag("quiet", "Log warnings only").UnNegatableBoolVar(&r.Quiet)
}

// cutProgram takes the program and its arguments, all that follows the first --, off the arguments of run, and leaves one
// word in place of them. The parser would drop every other -- too.
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

// registerGuardian adds the command that is a guardian, which is not for users.
func registerGuardian(app *fisk.Application) {
	app.Command(supervise.GuardianCommand, "Ends a program with the process that ran it").Hidden().Action(func(*fisk.ParseContext) error {
		supervise.Guard()
		return nil
	})
}
