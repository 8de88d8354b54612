// Package gocronelector lets gocron, version 2, run its jobs on the leader only.
//
// An [Elector] is what gocron.WithDistributedElector takes:
//
//	e, err := election.NewElection(name, "jobs", bucket, election.WithJetStream(js))
//	…
//	go e.Start(ctx)
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronelector.New(e)))
//
// gocron asks once, when a job is due. A job that runs when leadership ends runs on: give long jobs the context of
// [election.Election.Run], or have them ask [election.Term.Valid] before each effect and send [election.Term.Token] along.
// A job that is due while nobody leads, as during a stand-down, is run by nobody; gocron runs it when it is due again.
//
// This package does not import gocron; that its interface is met is tested in a module of its own.
package gocronelector

import (
	"context"
	"fmt"

	"github.com/natscampaign/election"
)

// Elector answers gocron's question whether a job may run here.
type Elector struct{ election *election.Election }

// New returns an Elector that answers for e, which the program starts and stops.
func New(e *election.Election) *Elector { return &Elector{election: e} }

// IsLeader returns nil if e leads now, by the clock and without asking anybody. Otherwise the error wraps
// [election.ErrNotLeader] and says where e stands, and ctx's error if that has ended.
func (l *Elector) IsLeader(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.election == nil {
		return fmt.Errorf("%w: the Elector was made of no election: pass New one", election.ErrNotLeader)
	}
	if l.election.IsLeader() {
		return nil
	}
	return fmt.Errorf("%w: %s", election.ErrNotLeader, l.election.State())
}
