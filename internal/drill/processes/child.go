package processes

import (
	"sync"
	"time"

	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/host"
)

// child is a server or a candidate, whose process may be down.
type child struct {
	mu      sync.Mutex
	process *Process // nil while it is down
	up      []history.Span
}

// attach takes a process that was started.
func (c *child) attach(p *Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process = p
	c.up = append(c.up, history.Span{From: host.Clock()})
}

// detach returns the process and marks the child as down; nil if it was down.
func (c *child) detach() *Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.process
	c.process = nil
	if p != nil {
		c.up[len(c.up)-1].To = host.Clock()
	}
	return p
}

// Process returns the process; nil while the child is down.
func (c *child) Process() *Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

// Kill kills the process and waits until it is gone.
func (c *child) Kill() {
	if p := c.detach(); p != nil {
		p.kill()
	}
}

// Shutdown shuts the process down in order and waits until it is gone.
func (c *child) Shutdown() {
	if p := c.detach(); p != nil {
		p.shutdown()
	}
}

// Uptimes returns the times in which the child was up, until now.
func (c *child) Uptimes(now time.Duration) []history.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := append([]history.Span(nil), c.up...)
	for i := range spans {
		if spans[i].To == 0 {
			spans[i].To = now
		}
	}
	return spans
}
