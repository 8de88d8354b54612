//go:build linux || darwin

package supervise

import (
	"context"
	"log/slog"
	"os/exec"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/witness"
)

// flushTimeout is how long the start of a program, or the first signal to it, may wait for a witness that does not take what it is told.
const flushTimeout = time.Second

// startWitness starts the witness of this process: a child of this process that releases the key if this process is killed, once the program's
// group is dead. The witness kills nothing: without it the next leader waits for the end of the lease. startWitness returns nil if there is to be
// none, or if the witness cannot be started. In the process of the witness it does not return, and calls exiting before that process exits.
func (r *Config) startWitness(name string, log *slog.Logger, exiting func()) *groupTeller {
	if r.NoWitness {
		return nil
	}
	teller, err := witness.Start(witness.Config{
		Dial: func(context.Context) (*nats.Conn, error) {
			client, err := r.Connection.ConnectForever("election-cli run witness "+name, log)
			if err != nil {
				return nil, err
			}
			return client.Conn, nil
		},
		Log: log, GroupRuns: groupRuns, Exiting: exiting,
		StartChild: func(cmd *exec.Cmd) (reap func() error, err error) {
			return func() error { return ownChildren.wait(cmd) }, ownChildren.start(cmd)
		},
	})
	if err != nil {
		log.Warn("There is no witness: if this process is killed, the key is released when its lease is over", "error", err)
		return nil
	}
	return &groupTeller{teller: teller}
}

// groupTeller tells the witness of the term of this process, with the process group of the program. The witness knows a term only together with
// the group of the program that runs. So whatever it knows when this process is killed, no process of any program runs any more when the witness
// writes the release:
//
//   - Before a program executes, the witness knows its group and nothing older, or there is no witness: programStarts.
//   - A term that begins while a program runs, as in signal mode, is told with the group of that program: Began.
//   - While no program runs, the witness knows no term. The key is left to its lease then, or this process releases it.
//
// A nil groupTeller does nothing.
type groupTeller struct {
	teller *witness.Teller

	mu    sync.Mutex
	term  *witness.Term // nil while this candidate holds none
	group int           // of the program; 0 while none runs
}

// option returns the option that has an election tell of its terms.
func (g *groupTeller) option() election.Option {
	return func(o *settings.Options) {
		if g != nil {
			o.Witness = g
		}
	}
}

// Began takes a term that begins. It does not wait.
func (g *groupTeller) Began(t witness.Term) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.SettleMs = record.Milliseconds(witness.DefaultSettleTime)
	g.term = &t
	g.tell()
}

// Over takes the commitment of a term that is over. It does not wait.
func (g *groupTeller) Over(c record.Commitment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.term != nil && g.term.Commitment() == c {
		g.term = nil
	}
	g.teller.Over(c)
}

// tell tells the witness of the term, if a program runs. The caller holds mu.
func (g *groupTeller) tell() {
	if g.term != nil && g.group != 0 {
		told := *g.term
		told.Group = g.group
		g.teller.Began(told)
	}
}

// programStarts is called before a program begins that has the given group. When it returns, no witness knows anything older.
func (g *groupTeller) programStarts(group int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.group = group
	g.tell()
	g.mu.Unlock()
	g.flush()
}

// programEnded is called when no process of the program's group runs any more.
func (g *groupTeller) programEnded() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.group = 0
	if g.term != nil {
		g.teller.Over(g.term.Commitment())
	}
}

// flush waits until the witness knows of the term.
func (g *groupTeller) flush() {
	if g == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	g.teller.Flush(ctx)
}

// close ends the witness, which then releases nothing any more.
func (g *groupTeller) close() {
	if g != nil {
		g.teller.Close()
	}
}
