package main

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

// candidateProcess is one candidate, which may be down.
type candidateProcess struct {
	name   string
	index  int
	wire   *wire
	config candidateConfig
	output string
	board  *board

	mu      sync.Mutex
	process *child // nil while it is down
}

// board shows who believes that it leads, as far as candidates have told.
type board struct {
	mu      sync.Mutex
	leading []believed
	turn    func(candidate int, term uint64) // told of each belief that begins
}

// believed is a belief that goes on; its term is 0 if there is none.
type believed struct {
	term  uint64
	since time.Duration
}

// newCandidates prepares candidates, each with a wire of its own. They do not run yet.
func newCandidates(n int, c *cluster, folder string, common candidateConfig, rate float64, random *rand.Rand, b *board) ([]*candidateProcess, error) {
	var addresses []string
	for _, s := range c.servers {
		addresses = append(addresses, s.address())
	}
	b.leading = make([]believed, n)
	var all []*candidateProcess
	for i := range n {
		w, err := openWire(addresses, rate, rand.New(rand.NewPCG(random.Uint64(), uint64(i))))
		if err != nil {
			closeWires(all)
			return nil, err
		}
		p := &candidateProcess{name: candidateName(i), index: i, wire: w, config: common, board: b}
		p.output = filepath.Join(folder, p.name+".err")
		p.config.Name, p.config.Servers = p.name, w.urls()
		p.config.History, p.config.Log = filepath.Join(folder, p.name+".history"), filepath.Join(folder, p.name+".log")
		all = append(all, p)
	}
	return all, nil
}

// candidateName returns the name of a candidate, which is also that of its user.
func candidateName(i int) string { return fmt.Sprintf("candidate-%d", i+1) }

func closeWires(candidates []*candidateProcess) {
	for _, p := range candidates {
		p.wire.close()
	}
}

// start runs the candidate's process.
func (p *candidateProcess) start(ctx context.Context) error {
	c, err := startChild(ctx, roleCandidate, p.name, p.output, p.config, p.hear)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process = c
	return nil
}

// hear follows what the process tells of itself.
func (p *candidateProcess) hear(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e history.Event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			p.board.note(p.index, e)
		}
	}
	p.board.note(p.index, history.Event{What: history.Doubts}) // it is gone
}

// kill ends the process at once, and writes into its history that it did, or that it had ended by itself before.
func (p *candidateProcess) kill() error {
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

// leave has the candidate leave in order, and returns when it is gone. One that has ended by itself did not.
func (p *candidateProcess) leave() {
	if p.running().lost() != nil {
		_ = p.kill()
		return
	}
	if c := p.take(); c != nil {
		c.leave()
	}
}

// take returns the process, which is no longer the candidate's.
func (p *candidateProcess) take() *child {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.process
	p.process = nil
	return c
}

// running returns the process, or nil.
func (p *candidateProcess) running() *child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// read returns what the candidate's history says, up to the given time.
func (p *candidateProcess) read(end time.Duration) (*history.Candidate, error) {
	f, err := os.Open(p.config.History)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return history.Read(f, p.name, end)
}

// note takes over what candidate i has told.
func (b *board) note(i int, e history.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.What {
	case history.Believes:
		b.leading[i] = believed{e.Term, e.At}
		b.turn(i, e.Term)
	case history.Doubts, history.Stopped:
		b.leading[i] = believed{}
	}
}

// leader returns who believes in the latest term, and -1 if nobody believes. One that was stopped seems to, until another
// does.
func (b *board) leader() (int, believed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	who, latest := -1, believed{}
	for i, l := range b.leading {
		if l.term > latest.term {
			who, latest = i, l
		}
	}
	return who, latest
}
