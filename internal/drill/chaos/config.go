package chaos

import (
	"io"
	"os/exec"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/host"
)

// Config is the configuration of a drill.
type Config struct {
	Candidates int
	Replicas   int // of the bucket
	Sessions   int // the number of keys of each candidate's session; 0 if candidates campaign by elections
	TTL        time.Duration
	StandDown  time.Duration
	Duration   time.Duration
	Interval   time.Duration // between faults; 0 means to wait for a leader after each fault
	Seed       uint64
	Faults     []string  // kinds; empty means all
	ReplyLoss  float64   // the share of replies that the links lose at random, from 0 to 0.5
	Witness    bool      // the candidates have a witness
	Keep       bool      // keep histories and logs
	Server     string    // the nats-server program to run; empty for the server that is built in
	Progress   io.Writer // for lines of progress
}

// minTTLs is the minimum duration of a drill, in TTLs.
const minTTLs = 4

// maxKeys is the maximum number of keys of a session. A candidate asks every 2 ms of each key whether it leads.
const maxKeys = 200

// Validate returns an error that names every invalid flag and how to fix it.
func (c Config) Validate() error {
	var problems cli.Problems
	problems.If(!host.HasClock, "--processes: this system cannot stop and continue processes; use Linux or macOS")
	problems.If(c.Replicas != 1 && c.Replicas != processes.ClusterSize, "--replicas %d: give 1 or %d, because there are %d servers", c.Replicas, processes.ClusterSize, processes.ClusterSize)
	for _, k := range faultKinds {
		problems.If(slices.Contains(c.Faults, k.name) && k.replicas != 0 && k.replicas != c.Replicas, "--fault %s needs a bucket with --replicas %d: give that, or leave the fault out", k.name, k.replicas)
		problems.If(slices.Contains(c.Faults, k.name) && c.Sessions > 0 && k.sessions == never, "--fault %s is not for sessions: leave it or --sessions out", k.name)
		problems.If(slices.Contains(c.Faults, k.name) && c.Sessions == 0 && k.sessions == only, "--fault %s is for sessions: give --sessions, or leave the fault out", k.name)
	}
	problems.If(c.Duration < 10*time.Second || c.Duration > 24*time.Hour, "--for %v: give 10s to 24h", c.Duration)
	problems.If(c.Duration < minTTLs*c.TTL, "--for %v: give at least %d times the TTL of %v, or the drill injects few faults", c.Duration, minTTLs, c.TTL)
	problems.If(c.Sessions < 0 || c.Sessions > maxKeys, "--sessions %d: give a number of keys up to %d, or leave it out to campaign by an election", c.Sessions, maxKeys)
	problems.If(c.StandDown < 0 || c.StandDown > time.Hour, "--stand-down %v: give 0s to 1h", c.StandDown)
	if c.Server != "" {
		_, err := exec.LookPath(c.Server)
		problems.If(err != nil, "--nats-server %s: %w: give the path of a nats-server program, or leave it out for the server in this program", c.Server, err)
	}
	return problems.Err()
}
