package processes

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/host"
)

// Candidate is one candidate of a drill. Its process may be down; its link and its history remain.
type Candidate struct {
	child
	Name    string
	Index   int
	Link    *Link
	config  CandidateConfig
	stderr  string
	leaders *Leaders
}

// NewCandidates prepares n candidates, each with its own link to the servers, and starts none of them. Every link loses
// replies at the given rate. The candidates report to leaders.
func NewCandidates(n int, cluster *Cluster, folder string, common CandidateConfig, replyLoss float64, random *rand.Rand, leaders *Leaders) ([]*Candidate, error) {
	var addresses []string
	for _, s := range cluster.Servers {
		addresses = append(addresses, s.address())
	}
	var all []*Candidate
	for i := range n {
		leaders.Reported = append(leaders.Reported, map[string]ReportedTerm{})
		l, err := OpenLink(addresses, replyLoss, rand.New(rand.NewPCG(random.Uint64(), uint64(i))))
		if err != nil {
			CloseLinks(all)
			return nil, err
		}
		c := &Candidate{Name: candidateName(i), Index: i, Link: l, config: common, leaders: leaders}
		c.stderr = filepath.Join(folder, c.Name+".err")
		c.config.Name, c.config.Servers = c.Name, l.URLs
		c.config.History, c.config.Log = filepath.Join(folder, c.Name+".history"), filepath.Join(folder, c.Name+".log")
		all = append(all, c)
	}
	return all, nil
}

// candidateName returns the name of a candidate, which is also the name of its user.
func candidateName(i int) string { return fmt.Sprintf("candidate-%d", i+1) }

// CloseLinks closes the links of all candidates.
func CloseLinks(candidates []*Candidate) {
	for _, c := range candidates {
		c.Link.Close()
	}
}

// Start runs the candidate's process.
func (c *Candidate) Start(ctx context.Context) error {
	p, err := start(ctx, RoleCandidate, c.Name, c.stderr, c.config, c.readEvents)
	if err != nil {
		return err
	}
	c.attach(p)
	return nil
}

// readEvents passes on the events that the process writes to its output.
func (c *Candidate) readEvents(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e history.Event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			c.leaders.update(c.Index, e)
		}
	}
	c.leaders.update(c.Index, history.Event{What: history.Stopped}) // the process is gone
}

// Kill kills the process and writes the time into the candidate's history: the time of the kill, or the earlier time at
// which the process ended by itself.
func (c *Candidate) Kill() error {
	p := c.detach()
	if p == nil {
		return nil
	}
	at := host.Clock()
	p.kill()
	at = min(at, p.exitedAt)
	f, err := os.OpenFile(c.config.History, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return history.NewWriter(f).Write(history.Event{At: at, What: history.Killed})
}

// Shutdown lets the candidate leave the election in order, and waits until its process is gone. If the process has ended by
// itself, the history gets the same event as after Kill.
func (c *Candidate) Shutdown() {
	if c.Process().UnexpectedExit() != nil {
		_ = c.Kill()
		return
	}
	c.child.Shutdown()
}

// Transfer asks the process to transfer one of its keys to another candidate.
func (c *Candidate) Transfer(key, to string) error {
	p := c.Process()
	if p == nil {
		return nil
	}
	_, err := fmt.Fprintln(p.in, key, to)
	return err
}

// ReadHistory reads the candidate's history of each of its keys, which ends at the given time at the latest.
func (c *Candidate) ReadHistory(end time.Duration) ([]*history.Candidate, error) {
	f, err := os.Open(c.config.History)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return history.ReadKeys(f, c.Name, c.config.KeyNames(), end)
}
