package main

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill/chaos"
)

// processFlags are the flags that require --processes.
type processFlags struct {
	chaos.Config
	on   bool
	rate string // of lost replies, as the user gave it

	set map[string]*bool // whether the user set a flag that requires --processes
}

func (p *processFlags) register(cmd *fisk.CmdClause) {
	p.set = map[string]*bool{}
	flag := func(name, help string) *fisk.FlagClause {
		p.set[name] = new(bool)
		return cmd.Flag(name, help).IsSetByUser(p.set[name])
	}
	cmd.Flag("processes", "Run candidates and a cluster of three servers as processes, and inject faults into them").UnNegatableBoolVar(&p.on)
	cli.DurationVar(flag("for", "With --processes: how long to inject faults").Default(chaos.DefaultDuration.String()), &p.Duration)
	cli.IntVar(flag("sessions", "With --processes: each candidate is a session, which campaigns for this number of keys").PlaceHolder("KEYS"), &p.Sessions, 50)
	cli.EnumsVar(flag("fault", "With --processes: a kind of fault to inject, repeatable (default all)").PlaceHolder("KIND"), &p.Faults, chaos.FaultNames()...)
	cli.DurationVar(flag("every", "With --processes: inject a fault at this interval, whether a candidate leads or not"), &p.Interval)
	flag("lose-replies", "With --processes: the share of replies that links lose at random, such as 1%").Default("0%").StringVar(&p.rate)
	cli.DurationVar(flag("stand-down", "With --processes: stand-down of the candidates (default 0.75 of the TTL)"), &p.StandDown)
	cli.Uint64Var(flag("seed", "With --processes: seed of the faults (default random)"), &p.Seed)
	flag("nats-server", "With --processes: the nats-server program to run (default: the server in this program)").PlaceHolder("PATH").StringVar(&p.Server)
	flag("witness", "With --processes: candidates have a witness, which releases the key of one that is killed").UnNegatableBoolVar(&p.Witness)
	flag("keep", "With --processes: keep histories and logs").UnNegatableBoolVar(&p.Keep)
}

// check returns an error that names every invalid flag, and sets the defaults that depend on other flags.
func (p *processFlags) check() error {
	var problems cli.Problems
	if !p.on {
		for _, name := range slices.Sorted(maps.Keys(p.set)) {
			problems.If(*p.set[name], "--%s requires --processes: give both, or leave --%[1]s out", name)
		}
		return problems.Err()
	}
	problems.If(*p.set["every"] && p.Interval < 500*time.Millisecond, "--every %v: give at least 500ms, or leave it out to wait for a leader after each fault", p.Interval)
	problems.If(p.Sessions > 0 && *p.set["stand-down"], "--stand-down %v: the keys of sessions have none: leave it or --sessions out", p.StandDown)
	if !*p.set["stand-down"] && p.Sessions == 0 {
		p.StandDown = p.TTL * 3 / 4
	}
	var err error
	p.ReplyLoss, err = parseRate(p.rate)
	problems.If(err != nil, "--lose-replies %s: %w", p.rate, err)
	if !*p.set["seed"] {
		p.Seed = rand.Uint64N(1_000_000)
	}
	problems.Add(p.Config.Validate())
	return problems.Err()
}

// parseRate parses a share of all replies, such as 1% or 0.01.
func parseRate(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	rate, err := strconv.ParseFloat(number, 64)
	if percent {
		rate /= 100
	}
	if err != nil || !(rate >= 0 && rate <= 0.5) {
		return 0, errors.New("give a share of all replies from 0% to 50%, such as 1%")
	}
	return rate, nil
}
