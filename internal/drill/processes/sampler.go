package processes

import (
	"context"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/host"
)

const (
	sampleInterval    = 2 * time.Millisecond
	pauseThreshold    = 50 * time.Millisecond // a longer time between two samples is a pause
	deadlineTolerance = 5 * time.Millisecond  // two readings of one deadline may differ by this much
)

// BeatInterval is how often a candidate writes its number of samples into its history.
const BeatInterval = time.Second

// sampler calls IsLeader again and again, and writes each change of the answer into the history.
type sampler struct {
	election *election.Election
	history  *history.Writer
	key      string        // of a session; empty for a candidate without
	requests func() uint64 // of the session; nil for a candidate without
	further  bool          // another sampler of the process writes how often it calls, and when it does not

	samples    int
	lastSample time.Duration
	lastBeat   time.Duration
	term       uint64        // in which the candidate considers itself leader; 0 if in none
	lastTrue   time.Duration // just before the call that returned the last true answer
	deadline   time.Duration
}

// runSamplers takes samples until ctx ends or the history cannot be written. It takes a last one after ctx has ended: on a busy host it may not have been run
// since a term ended.
func runSamplers(ctx context.Context, all []*sampler) error {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		ended := ctx.Err() != nil
		for _, s := range all {
			if err := s.sample(); err != nil {
				return err
			}
		}
		if ended {
			return all[0].history.Write(all[0].beat())
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// sample calls IsLeader once. The answer was true at some moment between before and after; which moment is unknown. So a
// recorded belief begins after its first true answer and ends before the call that returned the last one.
func (s *sampler) sample() error {
	before := host.Clock()
	leads := s.election.IsLeader()
	t, ok := s.election.Term()
	left := time.Until(t.Deadline())
	after := host.Clock()
	for _, e := range s.events(before, after, leads && ok, t, left) {
		if e.What != history.Paused && e.What != history.Beat { // which concern the process
			e.Key = s.key
		}
		if err := s.history.Write(e); err != nil {
			return err
		}
	}
	return nil
}

// events returns what a sample adds to the history; left is the rest of the lease. If the process was stopped during the
// sample, the moment of the answer is unknown, and the sample adds no deadline.
func (s *sampler) events(before, after time.Duration, leads bool, t election.Term, left time.Duration) (events []history.Event) {
	if !s.further && s.lastSample > 0 && before-s.lastSample > pauseThreshold {
		events = append(events, history.Event{At: before, What: history.Paused, Last: s.lastSample, Still: leads})
	}
	if s.term != 0 && (!leads || t.Number != s.term) {
		events = append(events, history.Event{At: after, What: history.Doubts, Term: s.term, Last: s.lastTrue})
		s.term = 0
	}
	if leads {
		deadline := after + left
		switch {
		case after-before > deadlineTolerance:
		case s.term == 0:
			s.term, s.deadline = t.Number, deadline
			events = append(events, history.Event{At: after, What: history.Believes, Term: t.Number, Token: t.Token(), Deadline: deadline})
		case (deadline - s.deadline).Abs() > deadlineTolerance:
			s.deadline = deadline
			events = append(events, history.Event{At: after, What: history.Renewed, Term: t.Number, Deadline: deadline})
		}
		s.lastTrue = before
	}
	s.samples++
	s.lastSample = before
	if !s.further && before-s.lastBeat >= BeatInterval {
		s.lastBeat = before
		events = append(events, s.beat())
	}
	return events
}

func (s *sampler) beat() history.Event {
	e := history.Event{What: history.Beat, Samples: s.samples}
	if s.requests != nil {
		e.Requests = s.requests()
	}
	return e
}
