// Package gocronelector lets gocron, version 2, run its jobs on the leader only.
//
//	// schedule runs a job every minute, in the process that leads, until ctx ends.
//	func schedule(ctx context.Context, candidate *election.Election, job func()) error {
//		elector := gocronelector.New(candidate)
//		scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//		if err != nil {
//			return err
//		}
//		if _, err := scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(job)); err != nil {
//			return err
//		}
//		scheduler.Start()
//		context.AfterFunc(ctx, func() {
//			_ = scheduler.Shutdown() // waits for jobs that run, ten seconds by default
//			candidate.Stop()         // and then releases the key
//		})
//		return candidate.Start(context.WithoutCancel(ctx))
//	}
//
// Package election says how to make a candidate. The next leader may run a job while one still runs here that takes longer than Shutdown waits: set
// gocron.WithStopTimeout above the longest job.
//
// gocron asks the [Elector] once, when a job is due. A job that runs when leadership ends runs on: give long jobs the context of
// [election.Election.Run], or have them check [election.Term.Valid] before each effect and send [election.Term.Token] along. A job that is due
// while nobody leads, as during a stand-down, does not run; gocron runs it when it is due again.
//
// This package does not import gocron; a module of its own tests that Elector has gocron's interface.
package gocronelector

import (
	"context"
	"fmt"

	"github.com/natscampaign/election"
)

// Elector tells gocron whether a job may run in this process.
type Elector struct{ election *election.Election }

// New returns an Elector for e, which the program starts and stops.
func New(e *election.Election) *Elector { return &Elector{election: e} }

// IsLeader returns nil if the election leads now, by the clock and without a request. Otherwise the error wraps [election.ErrNotLeader] and
// names the state of the candidate. If ctx has ended, IsLeader returns its error.
func (l *Elector) IsLeader(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.election == nil {
		return fmt.Errorf("%w: the Elector has no election: pass one to New", election.ErrNotLeader)
	}
	if l.election.IsLeader() {
		return nil
	}
	return fmt.Errorf("%w: %s", election.ErrNotLeader, l.election.State())
}
