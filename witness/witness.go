// Package witness has a leader whose process is killed replaced within milliseconds, rather than when its lease is over.
//
//	package main
//
//	import (
//		"context"
//		"log"
//		"os"
//		"os/signal"
//		"syscall"
//
//		"github.com/nats-io/nats.go"
//
//		"github.com/natscampaign/election"
//		"github.com/natscampaign/election/connect"
//		"github.com/natscampaign/election/witness"
//	)
//
//	func main() {
//		w, err := witness.Start(dial) // first in main: see Start
//		if err != nil {
//			log.Print("Going on without a witness: ", err) // w is nil, and its option has no effect
//		}
//		if err := run(w); err != nil {
//			log.Fatal(err)
//		}
//	}
//
//	// dial is called in the process of the witness.
//	func dial(context.Context) (*nats.Conn, error) {
//		return nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1))
//	}
//
//	func run(w *witness.Witness) error {
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//		defer stop()
//		c, err := connect.Connect(ctx, connect.Config{Key: "scheduler", URL: os.Getenv("NATS_URL")})
//		if err != nil {
//			return err
//		}
//		defer c.Close()
//		candidate, err := election.NewElection(c.Name, c.Key, c.Bucket, c.Options(w.Option())...)
//		if err != nil {
//			return err
//		}
//		return candidate.Run(ctx, func(ctx context.Context, term election.Term) error {
//			<-ctx.Done() // the work: it must return soon after ctx ends
//			return nil
//		})
//	}
//
// A witness is a second process, which learns from the kernel that the first has died: by kill -9, a panic, os.Exit, a fault or the kernel's
// OOM killer. It then releases the key, and the next candidate leads as after a Stop.
//
// # What is guaranteed
//
// The witness releases only the terms of that very process, only once all of its threads have ended, and only while its record is stored under
// the key: a renewal that was on its way is either replaced by the release or refused by the server. So there are no two leaders. Without a
// witness, with a dead, stopped, slow or cut-off one, nothing changes: the lease is over when it is over.
//
// # What is not guaranteed
//
// What the dead process had already sent may still be on its way to a database, or wait in its queue. So a release has its successor stand
// down for a settle time, see [WithSettleTime]. What the process had started may go on: other processes are not waited for. If those do the
// work of the leader, use election-cli run, which waits for them.
//
// If the program replaces itself by exec, the same holds on Linux: no thread of the former image runs. On macOS, and in process 1 of a container, the key is
// left to its lease.
//
// A witness is killed with its program by what kills everything: the end of the host, of the pod or container, of the cgroup
// (memory.oom.group), a kill by the name of the program. Then the lease rules, or the host has a witness of its own, which survives that: see
// [OfHost].
//
// Where the record is a bare name (election.WithPlainValue) a witness recognises no term, and does nothing.
//
// # What it costs
//
// A process of 11 to 12 MB, of which 2.4 MB are its own and the rest the program's text, and one connection while its program leads. What the
// program does before it calls [Start], it does in both processes. There are no requests until the program dies.
package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/witness"
)

// ErrUnsupported is returned by [Start] and [OfHost] on a system other than Linux and macOS. Go on without a witness there.
var ErrUnsupported = witness.ErrUnsupported

// DefaultSettleTime is the default of [WithSettleTime]: 250 ms.
const DefaultSettleTime = witness.DefaultSettleTime

// maxSettleTime bounds the settle time. The lease of a longer one is over before.
const maxSettleTime = time.Hour

// Witness is the witness of this process. A nil Witness is none: its methods do nothing.
type Witness struct {
	teller *witness.Teller
	settle time.Duration
}

// options are what options set.
type options struct {
	settle time.Duration
	log    *slog.Logger
}

// Option is an option of [Start] and [OfHost].
type Option func(*options)

// WithSettleTime sets for how long the successor of a leader that has died stands down: for effects that the dead process had sent and that
// are still on their way. It is at least what was left of the dead leader's own stand-down. 0 suits work whose effects are fenced by
// [election.Term.Token], or that can be repeated. Default: 250 ms. At most 1 h.
func WithSettleTime(d time.Duration) Option { return func(o *options) { o.settle = d } }

// WithLogger has the witness write what it does and what fails. Default: nothing is written.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

func optionsOf(opts []Option) (*options, error) {
	o := &options{settle: DefaultSettleTime, log: slog.New(slog.DiscardHandler)}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: an option of the witness is nil: leave it out", election.ErrInvalidOption)
		}
		opt(o)
	}
	switch {
	case o.settle < 0 || o.settle > maxSettleTime:
		return nil, fmt.Errorf("%w: the settle time is %v: give 0 to %v", election.ErrInvalidOption, o.settle, maxSettleTime)
	case o.log == nil:
		return nil, fmt.Errorf("%w: the logger of the witness is nil: leave WithLogger out", election.ErrInvalidOption)
	}
	return o, nil
}

// Start gives this process a witness. Call it first in main, before anything that must happen once per program: before listening, locking and
// campaigning. The witness is the same program, started again with the same arguments and environment; in that process Start never returns.
//
// dial connects to the server that has the buckets, as a user who may read and write their keys. The witness calls it, in its own process, when this
// one leads, and again until it succeeds; it closes the connection when this process leads no more. The connection should reconnect for ever, as that
// of package connect does.
//
// The witness is a child of this process, and outlives it. It has a session of its own, so that no signal to a group or a terminal ends it. If it
// dies, another is started one second later. It keeps the stderr of this process for half a second after this process has ended.
//
// In process 1 of a container it is the other way round, because the kernel kills all of a container with its process 1. There this process
// becomes the witness, and Start returns only in a child: that has the same arguments, environment, standard streams and terminal, receives the
// signals that this process receives, and this process ends as the child does. The same holds for a child of tini, docker-init, dumb-init or
// catatonit, and for the first process of a container in a shared namespace of processes. Sockets that this process has inherited (LISTEN_FDS) the child
// does not receive; election-cli run passes those on.
//
// The error is [ErrUnsupported], an [election.ErrInvalidOption], or says why the process cannot be started.
func Start(dial func(ctx context.Context) (*nats.Conn, error), opts ...Option) (*Witness, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	if dial == nil {
		return nil, fmt.Errorf("%w: the witness was given no function that connects: pass one to Start", election.ErrInvalidOption)
	}
	teller, err := witness.Start(witness.Config{Dial: dial, Log: o.log, GroupRuns: host.GroupRuns})
	if err != nil {
		return nil, err
	}
	return &Witness{teller, o.settle}, nil
}

// OfHost has the witness of the host watch this process: the one whose socket the environment variable ELECTION_WITNESS names, as in
// unix:///run/election/witness.sock. It survives what kills a whole container, and is started by election-cli witness. While it does not run, nothing
// changes but that the lease rules; once it does, it is told of the terms of then. If the variable is not set, OfHost returns nil and no error.
//
// The socket must be that of the witness itself: it refuses a program that connects through a relay, and the logger of WithLogger then says so. It
// also refuses terms beyond some 10,000 of one program, and those with a domain or API prefix that it was not given.
func OfHost(opts ...Option) (*Witness, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	path, err := witness.HostSocket()
	switch {
	case errors.Is(err, ErrUnsupported):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", election.ErrInvalidOption, err)
	case path == "":
		return nil, nil
	}
	return &Witness{witness.OfHost(path, o.log), o.settle}, nil
}

// Option returns the option that has an election tell the witness of its terms. Elections, locks, slots and groups take it; any number of them
// may share a witness.
func (w *Witness) Option() election.Option {
	return func(o *settings.Options) {
		if w != nil {
			o.Witness = told{w}
		}
	}
}

// Close ends the witness of this process, which releases nothing any more. Call it if the program goes on after its elections; there is no need
// to before it exits.
func (w *Witness) Close() {
	if w != nil {
		w.teller.Close()
	}
}

// told adds the settle time to the terms of which elections tell.
type told struct{ *Witness }

func (w told) Began(t witness.Term) {
	t.SettleMs = record.Milliseconds(w.settle)
	w.teller.Began(t)
}

func (w told) Over(c record.Commitment) { w.teller.Over(c) }

// Flush waits until the witness knows of all terms.
func (w told) Flush(ctx context.Context) { w.teller.Flush(ctx) }
