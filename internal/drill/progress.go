package drill

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/terminal"
)

// roundTakesTTLs is how many TTLs a round takes, as experience shows; the progress is measured against it.
const roundTakesTTLs = 5.5

// progress tells on stderr how far a drill has come: on a terminal by one line that changes, elsewhere by lines that
// each tell one result.
type progress struct {
	w      io.Writer
	style  terminal.Style
	live   bool
	now    func() time.Duration
	rounds int
	ttl    time.Duration

	mu     sync.Mutex
	doing  string
	since  time.Duration
	active bool
}

func newProgress(w io.Writer, now func() time.Duration, rounds int, ttl time.Duration) *progress {
	return &progress{w: w, style: terminal.StyleFor(w), live: terminal.IsTerminal(w), now: now, rounds: rounds, ttl: ttl, doing: "candidates connect"}
}

// announce says what is about to happen, and where.
func (p *progress) announce(r *Report) {
	where := r.Server
	if r.Embedded {
		where = "an embedded server"
	}
	fmt.Fprintf(p.w, "Drill with %d candidates, TTL %s, %s on %s (nats-server %s), about %s\n",
		r.Candidates, terminal.Human(p.ttl), terminal.Plural(p.rounds, "round"), where, r.ServerVersion, terminal.Human(p.estimate().Round(time.Second)))
}

func (p *progress) estimate() time.Duration {
	return time.Duration(roundTakesTTLs * float64(p.rounds) * float64(p.ttl))
}

// begin says which fault was committed.
func (p *progress) begin(f fault, member string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active, p.since = true, f.at
	p.doing = fmt.Sprintf("round %d of %d  %s", f.round+1, p.rounds, [...]string{
		member + " campaigns first",
		member + " led and has stopped",
		member + " led and is cut off",
		"the key of " + member + " was deleted",
	}[f.kind])
}

// finish tells what came of a fault.
func (p *progress) finish(f fault, members []*member, bound time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active = false
	p.doing = fmt.Sprintf("round %d of %d  in steady state", f.round+1, p.rounds)
	line := fmt.Sprintf("round %d  %-14s  %s", f.round+1, f.kind, p.style.Paint(terminal.Red, fmt.Sprintf("nobody led within %s", terminal.Human(bound))))
	if f.led > 0 {
		line = fmt.Sprintf("round %d  %-14s %8s  %s leads", f.round+1, f.kind, terminal.Figure((f.led - f.at).Seconds()), members[f.leader].name)
	}
	p.erase()
	fmt.Fprintln(p.w, line)
	p.draw()
}

// run keeps the live line up to date until ctx ends.
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

// draw writes the live line over itself. The caller holds mu.
func (p *progress) draw() {
	if !p.live {
		return
	}
	text := p.doing
	if p.active {
		text += fmt.Sprintf(" %.1f s ago", (p.now() - p.since).Seconds())
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", p.style.Paint(terminal.Faint, fmt.Sprintf("%3.0f s of about %.0f s  %s", p.now().Seconds(), p.estimate().Seconds(), text)))
}

// erase clears the live line. The caller holds mu.
func (p *progress) erase() {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
