package supervise

import (
	"context"
	"log/slog"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
)

// GuardianCommand is the first argument of a process that is a guardian: see [PassGate].
const GuardianCommand = "run-guardian"

// Exit codes of run, the same as those of env, flock, nohup and timeout. Every other exit code is the program's own.
const (
	ExitTimedOut      = 124
	ExitOwnError      = 125
	ExitNotExecutable = 126
	ExitNotFound      = 127
	ExitSignal        = 128 // plus the number of the signal
)

// Values of Config.OnLost: what run does to the program when leadership ends.
const (
	OnLostTerminate = "terminate"
	OnLostSignal    = "signal"
)

// Values of Config.Restart: after which exits run starts the program again.
const (
	RestartNever     = "never"
	RestartOnFailure = "on-failure"
	RestartAlways    = "always"
)

// Values of Config.OnExit: whether run releases or keeps the key between an exit of the program and the next start.
const (
	OnExitRelease = "release"
	OnExitKeep    = "keep"
)

// Config is the command line of run. A field whose name ends in Set reports whether the user gave that flag.
type Config struct {
	*cli.Env  // Argv is the program with its arguments
	Key, Name string

	// Waiting to lead.
	MaxWait          time.Duration
	NoWait           bool
	ConflictExitCode int // with NoWait, if another candidate leads

	// HoldAtLeast is how long this host keeps the key at least, from the start of a program that exits by itself.
	HoldAtLeast time.Duration

	// How each lease is divided; see the package documentation.
	Grace       time.Duration
	Interval    *time.Duration // nil is the one that suits the bucket
	StopTimeout time.Duration  // in an orderly stop, in place of Grace
	StandDown   time.Duration

	// What happens to the program and to the key.
	OnLost                string
	WonSignal, LostSignal string // with OnLostSignal
	Restart, OnExit       string

	Health cli.HealthFlags // which of its checks must succeed where this host leads

	NoWitness bool // if this process is killed, the key is released when its lease is over

	LostHook string                                 // the program that runs whenever leadership has ended; empty for none
	Serve    func(log *slog.Logger) (Server, error) // begins to serve what the flags ask for about the candidate; nil for nothing

	KeepEnv        bool // the program also gets NATS_PASSWORD, NATS_TOKEN, NATS_USER if that is a token, and NATS_URL if that contains credentials
	Verbose, Quiet bool

	MaxWaitSet, ConflictExitCodeSet bool
	GraceSet, StandDownSet          bool
	StopTimeoutSet                  bool
	WonSignalSet, LostSignalSet     bool
	OnExitSet, HoldAtLeastSet       bool
}

// Server serves something about the candidate, such as its metrics.
type Server interface {
	Options() []election.Option // of each candidate of the run
	Follow(ctx context.Context, client *cli.Client, bucket *election.Bucket, e *election.Election)
	Stop()
}

// validate fills in defaults, and returns what is wrong with the command line. It runs before run starts or dials anything.
func (r *Config) validate() error {
	if r.Name == "" {
		r.Name = cli.DefaultName()
	}
	if !r.ConflictExitCodeSet {
		r.ConflictExitCode = cli.ExitNegative
	}
	signals := r.OnLost == OnLostSignal
	problems := cli.Problems{r.Health.Check()}
	problems.If(len(r.Argv) == 0, "there is no program after --: put -- before the program, as in 'election-cli run KEY -- PROGRAM ARGS...'")
	problems.If(len(r.Argv) > 0 && r.Argv[0] == "", "the program after -- is empty: give its name or path")
	problems.If(r.NoWait && r.MaxWaitSet, "--no-wait and --max-wait exclude each other: give only one of them")
	problems.If(signals && (r.NoWait || r.MaxWaitSet), "--on-lost=signal starts the program without waiting to lead: leave out --no-wait and --max-wait")
	problems.If(!signals && (r.WonSignalSet || r.LostSignalSet), "--won and --lost need --on-lost=signal: give that flag too, or leave them out")
	problems.If(r.ConflictExitCodeSet && !r.NoWait, "--conflict-exit-code needs --no-wait: give that flag too, or leave it out")
	problems.If(r.ConflictExitCode < 0 || r.ConflictExitCode > 255, "--conflict-exit-code %d is not an exit code: give a number from 0 to 255", r.ConflictExitCode)
	problems.If(r.HoldAtLeastSet && (signals || r.Restart != RestartNever), "--hold-at-least is for a program that runs once: leave out --on-lost=signal and --restart, or --hold-at-least")
	problems.If(r.OnExitSet && r.Restart == RestartNever, "--on-exit needs --restart: give that flag too, or leave it out")
	problems.If(r.Verbose && r.Quiet, "--verbose and --quiet exclude each other: give only one of them")
	for _, d := range []struct {
		flag  string
		value time.Duration
		set   bool
	}{
		{"--max-wait", r.MaxWait, r.MaxWaitSet}, {"--grace", r.Grace, r.GraceSet},
		{"--stand-down", r.StandDown, r.StandDownSet}, {"--stop-timeout", r.StopTimeout, r.StopTimeoutSet},
		{"--hold-at-least", r.HoldAtLeast, r.HoldAtLeastSet},
	} {
		problems.If(d.set && d.value < 0, "%s %v is negative: give at least 0s, or leave it out", d.flag, d.value)
	}
	_, err := election.NewElection(r.Name, r.Key, cli.PlaceholderBucket{})
	problems.Add(err)
	return problems.Err()
}
