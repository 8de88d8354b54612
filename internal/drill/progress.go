package drill

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/cli/terminal"
)

// ttlsPerRound is the usual duration of a round in TTLs, by experience.
const ttlsPerRound = 5.5

// progress shows the progress of a drill: one line for each fault and one for its result; on a terminal the line of the fault is live.
type progress struct {
	w      io.Writer
	style  terminal.Style
	live   bool
	now    func() time.Duration
	rounds int
	ttl    time.Duration

	mu      sync.Mutex
	status  string        // the text of the live line
	faultAt time.Duration // when the drill injected the current fault
	waiting bool          // whether the drill waits for the next leader after a fault
}

func newProgress(w io.Writer, now func() time.Duration, rounds int, ttl time.Duration) *progress {
	return &progress{w: w, style: terminal.StyleFor(w), live: terminal.IsTerminal(w), now: now, rounds: rounds, ttl: ttl, status: "candidates connect"}
}

// printHeader writes the parameters of the drill.
func (p *progress) printHeader(r *Report) {
	server := r.Server
	if r.Embedded {
		server = "an embedded server"
	}
	fmt.Fprintf(p.w, "Drill with %d candidates, TTL %s, %s on %s (nats-server %s), about %s\n",
		r.Candidates, terminal.FormatDuration(p.ttl), terminal.Plural(p.rounds, "round"), server, r.ServerVersion, terminal.FormatDuration(p.estimate().Round(time.Second)))
}

func (p *progress) estimate() time.Duration {
	return time.Duration(ttlsPerRound * float64(p.rounds) * float64(p.ttl))
}

// begin shows the fault that the drill injects into a candidate: without a live line, in a line of its own.
func (p *progress) begin(f failover, candidate string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting, p.faultAt = true, f.faultAt
	fault := [...]string{
		candidate + " campaigns first",
		candidate + " led and has stopped",
		candidate + " led and is cut off",
		"the key of " + candidate + " was deleted",
	}[f.kind]
	p.status = fmt.Sprintf("round %d of %d  %s", f.round+1, p.rounds, fault)
	if !p.live {
		fmt.Fprintf(p.w, "round %d  %-14s %8s  %s\n", f.round+1, f.kind, "", fault)
	}
}

// finish writes the result of a failover.
func (p *progress) finish(f failover, candidates []*candidate, bound time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = false
	p.status = fmt.Sprintf("round %d of %d  in steady state", f.round+1, p.rounds)
	line := fmt.Sprintf("round %d  %-14s  %s", f.round+1, f.kind, p.style.Paint(terminal.Red, fmt.Sprintf("no candidate led within %s", terminal.FormatDuration(bound))))
	if f.led() {
		line = fmt.Sprintf("round %d  %-14s %8s  %s leads", f.round+1, f.kind, terminal.FormatSeconds(f.duration().Seconds()), candidates[f.leader].name)
	}
	p.erase()
	fmt.Fprintln(p.w, line)
	p.draw()
}

// run updates the live line until ctx ends.
func (p *progress) run(ctx context.Context) {
	if !p.live {
		return
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// end removes the live line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
}

// draw replaces the live line. The caller holds mu.
func (p *progress) draw() {
	if !p.live {
		return
	}
	text := p.status
	if p.waiting {
		text += fmt.Sprintf(" %.1f s ago", (p.now() - p.faultAt).Seconds())
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", p.style.Paint(terminal.Faint, fmt.Sprintf("%3.0f s of about %.0f s  %s", p.now().Seconds(), p.estimate().Seconds(), text)))
}

// erase clears the live line. The caller holds mu.
func (p *progress) erase() {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
