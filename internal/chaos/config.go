package chaos

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/processes"
)

// Config says what is done to which candidates, and for how long.
type Config struct {
	Candidates, Replicas int
	TTL                  time.Duration
	StandDown            time.Duration
	Length               time.Duration
	Every                time.Duration // the rate of faults; 0 waits for a leader after each
	Seed                 uint64
	Faults               []string  // the kinds of faults; all if there is none
	Rate                 float64   // of replies that get lost at all times
	Keep                 bool      // histories and logs
	Out                  io.Writer // where it is told what happens
}

// Check finds what is wrong.
func (p Config) Check() error {
	var problems []error
	if !history.Supported {
		problems = append(problems, errors.New("--processes: this system cannot stop and continue processes; use Linux or macOS"))
	}
	if p.Replicas != 1 && p.Replicas != processes.ClusterSize {
		problems = append(problems, fmt.Errorf("--replicas %d: give 1 or %d, for there are %d servers", p.Replicas, processes.ClusterSize, processes.ClusterSize))
	}
	for _, b := range breakages {
		if slices.Contains(p.Faults, b.name) && !b.fits(p.Replicas) {
			problems = append(problems, fmt.Errorf("--fault %s needs a bucket with --replicas %d: give that, or leave the fault out", b.name, b.replicas))
		}
	}
	if p.Length < 10*time.Second || p.Length > 24*time.Hour {
		problems = append(problems, fmt.Errorf("--for %v: give 10s to 24h", p.Length))
	}
	if p.Length < shortestTTLs*p.TTL {
		problems = append(problems, fmt.Errorf("--for %v: give at least %d times the TTL of %v, or little can happen", p.Length, shortestTTLs, p.TTL))
	}
	if p.StandDown < 0 || p.StandDown > time.Hour {
		problems = append(problems, fmt.Errorf("--stand-down %v: give 0s to 1h", p.StandDown))
	}
	return errors.Join(problems...)
}

// shortestTTLs is how many TTLs a drill lasts at least.
const shortestTTLs = 4
