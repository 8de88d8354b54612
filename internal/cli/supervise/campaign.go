//go:build linux || darwin

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/core"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/settings"
	"github.com/natscampaign/election/internal/timeutil"
)

// connection is a connection to the server, and the bucket that was found there.
type connection struct {
	*cli.Client
	bucket *election.Bucket
}

// connect connects, opens the bucket and divides its leases, unless that is done. It waits for the server and the bucket, unless --no-wait was given.
// It returns nil if the run has ended: before it was done, or because of an error that it found.
func (r *runner) connect(ctx context.Context) *connection {
	if r.connected != nil {
		return r.connected
	}
	client, err := r.Connection.ConnectWithRetry("election-cli run "+r.Name, r.finish, r.log, nats.RetryOnFailedConnect(!r.NoWait))
	if err != nil {
		if r.NoWait {
			err = fmt.Errorf("%w; or leave out --no-wait to wait for the server", err)
		}
		r.finish(err)
		return nil
	}
	c := &connection{Client: client}
	if err := r.openBucket(ctx, c); err != nil {
		if ctx.Err() == nil {
			r.finish(err)
		}
		client.Conn.Close()
		return nil
	}
	r.connected = c
	return c
}

// disconnect closes the connection.
func (r *runner) disconnect() {
	if r.connected != nil {
		r.connected.Conn.Close()
	}
}

// openBucket opens the bucket and divides its leases. A run that has campaigned waits for a bucket that is gone, as the library does while it
// campaigns: it would be just the hosts that led which do not come back when the bucket does.
func (r *runner) openBucket(ctx context.Context, c *connection) (err error) {
	for warned := false; ; warned = true {
		if r.NoWait {
			c.bucket, err = c.OpenBucket(ctx, r.Bucket)
		} else {
			c.bucket, err = c.WaitForBucket(ctx, r.Bucket, r.log)
		}
		waiting := "Bucket cannot be read yet, waiting for it"
		switch {
		case err == nil:
			var info kv.Info
			if info, err = c.LoadInfo(ctx, c.bucket); err == nil {
				if warned {
					r.log.Info("Bucket can be used again", "bucket", r.Bucket)
				}
				if err := cli.CheckIntervalIn(r.Interval, info); err != nil {
					return err
				}
				times, err := r.divideLease(info)
				r.election.Store(nil) // one of the bucket as it is now follows
				r.times.Store(&times)
				r.log.Debug("Lease is divided", "ttl", info.TTL, "interval", times.interval, "grace", times.grace, "kill_time", times.killTime)
				return err
			}
			if r.NoWait {
				return err
			}
		case !r.NoWait && r.campaigned && errors.Is(err, jetstream.ErrBucketNotFound):
			waiting = "Bucket is gone, waiting for it"
		default:
			return err
		}
		if !warned {
			r.log.Warn(waiting, "bucket", r.Bucket, "error", err)
		}
		if err := timeutil.Pause(ctx, cli.RetryInterval); err != nil { // then open it again, because it may have been deleted meanwhile
			return err
		}
	}
}

// leader returns the holder of the key.
func (c *connection) leader(ctx context.Context, key string) (election.Leader, error) {
	e, err := election.NewElection("unknown", key, c.bucket)
	if err != nil {
		return election.Leader{}, err
	}
	return e.Leader(ctx)
}

// runHealthCommand runs a command of a health check, in the environment of the program.
func (r *runner) runHealthCommand(cmd *exec.Cmd) error {
	cmd.Env = r.environment(nil)
	if err := ownChildren.start(cmd); err != nil {
		return err
	}
	return ownChildren.wait(cmd)
}

// newElection returns the election of the run in a bucket. One counts all terms of the run, so its metrics do, too.
func (r *runner) newElection(bucket *election.Bucket) (*election.Election, error) {
	opts := []election.Option{election.WithLogger(r.log), r.witness.option(), cli.IntervalOption(r.Interval), settings.SplayOnce,
		election.WithReleaseTimeout(r.stopTimeout() + releaseAfterKill)} // the library renews the lease until the program has exited
	if r.StandDownSet {
		opts = append(opts, election.WithStandDown(r.StandDown))
	}
	if r.campaigned || r.NoWait {
		opts = append(opts, election.WithSplay(0)) // hosts that started together no longer campaign together
	}
	opts = append(opts, r.Health.Options(r.log, r.runHealthCommand)...)
	if r.served != nil {
		opts = append(opts, r.served.Options()...)
	}
	var e *election.Election
	if r.NoWait {
		opts = append(opts, settings.WithoutStandbys) // others that come gave up, and do not wait
		opts = append(opts, election.WithBackoff(afterLostCampaign(func() {
			if campaign := r.contends.Load(); campaign != nil && (*campaign).Err() == nil { // otherwise the candidate withdrew, and did not lose
				r.finish(r.conflictOf(e))
			}
		})))
	}
	e, err := election.NewElection(r.Name, r.Key, bucket, opts...)
	return e, err
}

// campaign takes part in the election until ctx ends or until lead, which is called in each term, calls withdraw. The first
// campaign of a run is splayed. It returns false if it failed, and has then ended the run.
func (r *runner) campaign(ctx context.Context, c *connection, lead func(ctx context.Context, t election.Term, withdraw func())) (ok bool) {
	e := r.election.Load()
	if e == nil {
		var err error
		if e, err = r.newElection(c.bucket); err != nil {
			r.finish(err)
			return false
		}
		r.election.Store(e)
	}
	r.campaigned = true
	if r.served != nil {
		r.served.Follow(ctx, c.Client, c.bucket, e)
	}
	followed := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.winsBefore = e.Status().Wins
	r.contends.Store(&ctx)
	campaigning, leads := context.WithCancel(ctx)
	defer leads()
	if r.NoWait {
		go r.giveUpWhenHeldBack(campaigning, e)
	}
	err := e.Run(ctx, func(ctx context.Context, t election.Term) error {
		leads()
		returned := make(chan struct{})
		defer close(returned)
		r.hook.follow(ctx, returned, t)
		lead(ctx, t, func() {
			r.contends.Store(nil)
			context.AfterFunc(ctx, cancel) // after the term: an earlier cancel would end it with the reason stopped instead of work-ended
		})
		return nil
	})
	if kv.IsGone(err) { // since it was opened
		if err = r.openBucket(followed, c); err == nil {
			return r.campaign(followed, c, lead)
		}
		if followed.Err() != nil {
			return false
		}
	}
	if err != nil {
		r.finish(err)
	}
	return err == nil
}

// giveUpWhenHeldBack ends a run with --no-wait that is not to campaign, because an operator has paused the election or this host is not healthy: that may
// last. It returns when ctx ends.
func (r *runner) giveUpWhenHeldBack(ctx context.Context, e *election.Election) {
	for timeutil.Pause(ctx, checkInterval) == nil {
		s := e.Status()
		why := ""
		switch {
		case s.Step != core.WaitingHeld.WithRole():
		case s.Paused:
			why = fmt.Sprintf("the election %q is paused; %s ends that", r.Key, r.NameCommand("resume "+r.Key))
		case s.Unhealthy != "":
			why = "this host is not healthy: " + s.Unhealthy
		}
		if why != "" {
			r.finish(&cli.ExitError{Code: r.ConflictExitCode, Message: why})
			return
		}
	}
}

// afterLostCampaign is a function that is called after each lost campaign and after each loss of leadership. It is an
// [election.Backoff], because the library asks its Backoff just then.
type afterLostCampaign func()

// Duration calls the function. The wait that it returns does not matter: the run ends.
func (f afterLostCampaign) Duration(int) time.Duration {
	f()
	return time.Minute
}

// conflictOf returns the outcome of a run with --no-wait that did not win, or that no longer leads.
func (r *runner) conflictOf(e *election.Election) error {
	s := e.Status()
	if s.Leader == nil && s.LastError != "" && s.Wins == r.winsBefore {
		return errors.New("the key could not be acquired: " + s.LastError)
	}
	return r.conflictWith(s.Leader)
}

// conflictWith returns the outcome of a run with --no-wait while l leads; l is nil if the leader is not known.
func (r *runner) conflictWith(l *election.Leader) error {
	if l == nil || l.Name == r.Name {
		return &cli.ExitError{Code: r.ConflictExitCode, Message: fmt.Sprintf("this candidate does not lead %q", r.Key)}
	}
	leads := "leads"
	if l.Term == 0 {
		leads = "is about to lead"
	}
	return &cli.ExitError{Code: r.ConflictExitCode, Message: fmt.Sprintf("%s %s %q", terminal.Quote(l.Name), leads, r.Key)}
}
