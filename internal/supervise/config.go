package supervise

import (
	"errors"
	"fmt"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
)

// Exit codes of run, as env, flock, nohup and timeout have them; all others are the program's own.
const (
	ExitTimedOut      = 124
	ExitOwnError      = 125
	ExitNotExecutable = 126
	ExitNotFound      = 127
	ExitSignal        = 128 // plus the number of the signal
)

// What happens to the program when leadership ends.
const (
	OnLostTerminate = "terminate"
	OnLostSignal    = "signal"
)

// Which ends of the program it is started again after.
const (
	RestartNever     = "never"
	RestartOnFailure = "on-failure"
	RestartAlways    = "always"
)

// What happens to leadership while a program that ended is not yet started again.
const (
	OnExitRelease = "release"
	OnExitKeep    = "keep"
)

// Config is what the command line of run says.
type Config struct {
	*cli.Env
	Key, Name       string
	MaxWait         time.Duration
	NoWait          bool
	Conflict        int
	Grace           time.Duration
	Interval        time.Duration
	StandDown       time.Duration
	OnLost          string
	Won, Lost       string
	Restart, OnExit string
	Verbose, Quiet  bool
	MaxWaitSet      bool
	ConflictSet     bool
	GraceSet        bool
	IntervalSet     bool
	StandDownSet    bool
	WonSet, LostSet bool
	OnExitSet       bool
}

// check finds what is wrong with the flags before anything is begun.
func (r *Config) check() error {
	if r.Name == "" {
		r.Name = cli.DefaultName()
	}
	if !r.ConflictSet {
		r.Conflict = cli.ExitNegative
	}
	tells := r.OnLost == OnLostSignal
	switch {
	case len(r.Argv) == 0:
		return errors.New("put -- before the program, as in 'election-cli run KEY -- PROGRAM ARGS...', so that its flags are its own")
	case r.Argv[0] == "":
		return errors.New("the program after -- is empty: name one")
	case r.NoWait && r.MaxWaitSet:
		return errors.New("--no-wait and --max-wait contradict each other: leave one out")
	case tells && (r.NoWait || r.MaxWaitSet):
		return errors.New("--on-lost=signal starts the program at once: leave out --no-wait and --max-wait, which are about waiting to start it")
	case !tells && (r.WonSet || r.LostSet):
		return errors.New("--won and --lost are signals for a program that runs all the time: give --on-lost=signal too, or leave them out")
	case r.ConflictSet && !r.NoWait:
		return errors.New("--conflict-exit-code is that of --no-wait: give --no-wait too, or leave it out")
	case r.Conflict < 0 || r.Conflict > 255:
		return fmt.Errorf("--conflict-exit-code %d: give a code from 0 to 255", r.Conflict)
	case r.OnExitSet && r.Restart == RestartNever:
		return errors.New("--on-exit is about a program that is started again: give --restart too, or leave it out")
	case r.Verbose && r.Quiet:
		return errors.New("--verbose and --quiet contradict each other: leave one out")
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		set   bool
		least time.Duration
	}{
		{"--max-wait", r.MaxWait, r.MaxWaitSet, 0}, {"--grace", r.Grace, r.GraceSet, 0},
		{"--interval", r.Interval, r.IntervalSet, 10 * time.Millisecond}, {"--stand-down", r.StandDown, r.StandDownSet, 0},
	} {
		if d.set && d.value < d.least {
			return fmt.Errorf("%s %v is too short: give at least %v, or leave it out", d.flag, d.value, d.least)
		}
	}
	_, err := election.NewElection(r.Name, r.Key, cli.Unbound{})
	return cli.InFlags(err)
}

// GuardianCommand is the command, not for users, that a process runs as to be a guardian.
const GuardianCommand = "run-guardian"
