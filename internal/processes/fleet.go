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
	"sync"
	"time"

	"github.com/natscampaign/election/internal/history"
)

// Candidate is one candidate, which may be down.
type Candidate struct {
	Name   string
	Index  int
	Link   *Link
	config CandidateConfig
	output string
	board  *Board

	mu      sync.Mutex
	process *Process // nil while it is down
}

// Board shows who believes that it leads, as far as candidates have told.
type Board struct {
	mu      sync.Mutex
	Leading []Believed
	Turn    func(candidate int, term uint64) // told of each belief that begins
}

// Believed is a belief that goes on; its term is 0 if there is none.
type Believed struct {
	Term  uint64
	Since time.Duration
}

// NewCandidates prepares candidates, each with a wire of its own. They do not run yet.
func NewCandidates(n int, c *Cluster, folder string, common CandidateConfig, rate float64, random *rand.Rand, b *Board) ([]*Candidate, error) {
	var addresses []string
	for _, s := range c.Servers {
		addresses = append(addresses, s.address())
	}
	b.Leading = make([]Believed, n)
	var all []*Candidate
	for i := range n {
		w, err := OpenLink(addresses, rate, rand.New(rand.NewPCG(random.Uint64(), uint64(i))))
		if err != nil {
			CloseLinks(all)
			return nil, err
		}
		p := &Candidate{Name: candidateName(i), Index: i, Link: w, config: common, board: b}
		p.output = filepath.Join(folder, p.Name+".err")
		p.config.Name, p.config.Servers = p.Name, w.URLs()
		p.config.History, p.config.Log = filepath.Join(folder, p.Name+".history"), filepath.Join(folder, p.Name+".log")
		all = append(all, p)
	}
	return all, nil
}

// candidateName returns the name of a candidate, which is also that of its user.
func candidateName(i int) string { return fmt.Sprintf("candidate-%d", i+1) }

func CloseLinks(candidates []*Candidate) {
	for _, p := range candidates {
		p.Link.Close()
	}
}

// Start runs the candidate's process.
func (p *Candidate) Start(ctx context.Context) error {
	c, err := startProcess(ctx, RoleCandidate, p.Name, p.output, p.config, p.hear)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process = c
	return nil
}

// hear follows what the process tells of itself.
func (p *Candidate) hear(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e history.Event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			p.board.note(p.Index, e)
		}
	}
	p.board.note(p.Index, history.Event{What: history.Doubts}) // it is gone
}

// Kill ends the process at once, and writes into its history that it did, or that it had ended by itself before.
func (p *Candidate) Kill() error {
	c := p.take()
	if c == nil {
		return nil
	}
	at := history.Now()
	c.kill()
	at = min(at, c.at)
	f, err := os.OpenFile(p.config.History, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return history.NewWriter(f).Write(history.Event{At: at, What: history.Killed})
}

// Leave has the candidate leave in order, and returns when it is gone. One that has ended by itself did not.
func (p *Candidate) Leave() {
	if p.Running().Lost() != nil {
		_ = p.Kill()
		return
	}
	if c := p.take(); c != nil {
		c.leave()
	}
}

// take returns the process, which is no longer the candidate's.
func (p *Candidate) take() *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.process
	p.process = nil
	return c
}

// Running returns the process, or nil.
func (p *Candidate) Running() *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// Read returns what the candidate's history says, up to the given time.
func (p *Candidate) Read(end time.Duration) (*history.Candidate, error) {
	f, err := os.Open(p.config.History)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return history.Read(f, p.Name, end)
}

// note takes over what candidate i has told.
func (b *Board) note(i int, e history.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.What {
	case history.Believes:
		b.Leading[i] = Believed{e.Term, e.At}
		b.Turn(i, e.Term)
	case history.Doubts, history.Stopped:
		b.Leading[i] = Believed{}
	}
}

// Leader returns who believes in the latest term, and -1 if nobody believes. One that was stopped seems to, until another
// does.
func (b *Board) Leader() (int, Believed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	who, latest := -1, Believed{}
	for i, l := range b.Leading {
		if l.Term > latest.Term {
			who, latest = i, l
		}
	}
	return who, latest
}
