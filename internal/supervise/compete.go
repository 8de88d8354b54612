//go:build linux || darwin

package supervise

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/internal/timeutil"
)

// stand is the bucket as this candidate found it.
type stand struct {
	*cli.Session
	bucket *election.Bucket
}

// compete stands in the election and runs the program while it leads, until the run ends.
func (r *runner) compete(ctx context.Context) {
	patience := r.patience()
	defer patience.Stop()
	s := r.reach(ctx)
	if s == nil {
		return
	}
	defer s.Conn.Close()
	if r.NoWait {
		if l, err := s.leader(ctx, r.Key); err == nil {
			r.fail(r.conflictWith(&l))
		}
	}
	for first := true; ctx.Err() == nil; first = false {
		var rest time.Duration
		r.once(ctx, s, first, func(ctx context.Context, t election.Term, leave func()) {
			patience.Stop()
			if rest = r.lead(ctx, &t); rest != 0 || r.last != nil || t.Valid() {
				leave()
			} else if r.MaxWaitSet {
				patience.Reset(r.MaxWait)
			}
		})
		switch {
		case r.last != nil:
			r.fail(errEnded)
		case r.NoWait && rest == 0:
			r.fail(r.conflictWith(nil))
		}
		_ = timeutil.Pause(ctx, rest)
		if r.MaxWaitSet && ctx.Err() == nil {
			patience.Reset(r.MaxWait)
		}
	}
}

// patience returns a timer that ends the run when it has waited for long enough.
func (r *runner) patience() *time.Timer {
	t := time.AfterFunc(longestFuture, func() {
		r.fail(&cli.ExitError{Code: ExitTimedOut, Message: fmt.Sprintf("%s was not led within %v: --max-wait is over", r.Key, r.MaxWait)})
	})
	if r.MaxWaitSet {
		t.Reset(r.MaxWait)
	}
	return t
}

// reach connects, finds the bucket and divides its leases. It returns nil if the run ended meanwhile, or because of what
// it found. With --no-wait it waits for nobody.
func (r *runner) reach(ctx context.Context) *stand {
	s, err := r.Connection.Join("election-cli run "+r.Name, r.fail, r.log)
	if err != nil {
		r.fail(err)
		return nil
	}
	found := &stand{Session: s}
	if err := r.find(ctx, found); err != nil {
		if ctx.Err() == nil {
			r.fail(err)
		}
		s.Conn.Close()
		return nil
	}
	return found
}

// find finds the bucket and divides its leases.
func (r *runner) find(ctx context.Context, s *stand) (err error) {
	if r.NoWait {
		if !s.Conn.IsConnected() {
			return fmt.Errorf("%s cannot be reached: start the server, or leave out --no-wait to wait for it", strings.Join(cli.ServersOf(s.Conn), ", "))
		}
		s.bucket, err = s.FindBucket(ctx, r.Bucket)
	} else {
		s.bucket, err = s.AwaitBucket(ctx, r.Bucket, r.log)
	}
	if err != nil {
		return err
	}
	for {
		status, err := s.bucket.Status(ctx)
		if err == nil {
			times, err := r.timesFor(status.TTL())
			r.times.Store(&times)
			r.log.Debug("Lease divided", "ttl", status.TTL(), "interval", times.interval, "grace", times.grace, "death", times.death)
			return err
		}
		if r.NoWait {
			return fmt.Errorf("bucket %q on %s cannot be read: %w", r.Bucket, s.ServerURL(), err)
		}
		r.log.Warn("Bucket cannot be read yet, waiting for it", "error", err)
		if err := timeutil.Pause(ctx, cli.RetryPause); err != nil {
			return err
		}
	}
}

// leader returns who holds the key.
func (s *stand) leader(ctx context.Context, key string) (election.Leader, error) {
	e, err := election.NewElection("unknown", key, s.bucket)
	if err != nil {
		return election.Leader{}, err
	}
	return e.Leader(ctx)
}

// once takes part in the election until ctx ends, or work calls the function that it is given, to leave. It
// returns false if something is wrong, and has then ended the run.
func (r *runner) once(ctx context.Context, s *stand, first bool, work func(ctx context.Context, t election.Term, leave func())) (ok bool) {
	times := r.times.Load()
	opts := []election.Option{election.WithLogger(r.log),
		election.WithCampaignInterval(times.interval), election.WithLeaseMargin(times.margin)}
	if r.StandDownSet {
		opts = append(opts, election.WithStandDown(r.StandDown))
	}
	if !first || r.NoWait {
		opts = append(opts, election.WithSplay(0)) // what started together is apart by now
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var e *election.Election
	if r.NoWait {
		opts = append(opts, election.WithBackoff(lostCampaign(func() {
			if ctx.Err() == nil { // else it was left, and not lost
				r.fail(r.conflictIn(e))
			}
		})))
	}
	e, err := election.NewElection(r.Name, r.Key, s.bucket, opts...)
	if err != nil {
		r.fail(cli.InFlags(err))
		return false
	}
	err = e.Run(ctx, func(ctx context.Context, t election.Term) error {
		work(ctx, t, leave)
		return nil
	})
	if err != nil {
		r.fail(cli.InFlags(err))
	}
	return err == nil
}

// lostCampaign is a backoff that makes known that a campaign was lost.
type lostCampaign func()

// Duration is asked for after each campaign that was lost, and after leadership was.
func (f lostCampaign) Duration(int) time.Duration {
	f()
	return time.Minute
}

// conflictIn returns what becomes of a run with --no-wait that did not win, or leads no longer.
func (r *runner) conflictIn(e *election.Election) error {
	s := e.Status()
	if s.Leader == nil && s.LastError != "" && s.Wins == 0 {
		return errors.New("the key could not be taken: " + s.LastError)
	}
	return r.conflictWith(s.Leader)
}

// conflictWith returns what becomes of a run with --no-wait in an election that l leads, if that is known.
func (r *runner) conflictWith(l *election.Leader) error {
	if l == nil || l.Name == r.Name {
		return &cli.ExitError{Code: r.Conflict, Message: "this candidate does not lead " + r.Key}
	}
	holds := "leads"
	if l.Term == 0 {
		holds = "is about to lead"
	}
	return &cli.ExitError{Code: r.Conflict, Message: fmt.Sprintf("%s %s %s", terminal.Printable(l.Name), holds, r.Key)}
}

// lead runs the program in a term, until leadership ends or the program does for good. It returns after which time to
// stand again if the program is to be started anew.
func (r *runner) lead(ctx context.Context, t *election.Term) (rest time.Duration) {
	for ctx.Err() == nil {
		end, ran, lost := &cli.ExitError{}, time.Duration(0), false
		p, err := r.start(t)
		if errors.Is(err, errLeaseOver) {
			return 0
		}
		if err == nil {
			lost = r.attend(ctx, p, t)
			end.Code, ran = p.code(), time.Since(p.started)
		} else if failed, ok := errors.AsType[*cli.ExitError](err); ok {
			end = failed
		}
		if r.interrupted.Load() {
			r.last = end
			return 0
		}
		if lost {
			return 0
		}
		rest, again := r.again(p, end, ran)
		if !again {
			r.last = end
			return 0
		}
		if r.OnExit == OnExitRelease {
			return rest
		}
		_ = timeutil.Pause(ctx, rest)
	}
	return 0
}

// interruptedAt says whether a program ended because its user pressed a key that ends programs.
func (r *runner) interruptedAt(p *program) bool {
	return p != nil && p.terminal && p.status.Signaled() && (p.status.Signal() == unix.SIGINT || p.status.Signal() == unix.SIGQUIT)
}
