package drill

import (
	"context"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/drill/timeline"
)

// sampleInterval is the time from one sample to the next.
const sampleInterval = time.Millisecond

// sampled is a candidate as the sampler sees it.
type sampled interface {
	leads() bool
	state() (timeline.Phase, uint64)
}

// sampler reads the states of all candidates each millisecond, and records them with times of one clock.
type sampler struct {
	candidates []sampled
	started    time.Time

	mu      sync.Mutex
	key     string // of the current election
	last    time.Duration
	samples int
	maxGap  time.Duration // the longest time between two samples
	overlap time.Duration // the time in which two candidates led
	spans   [][]timeline.Span
	leading []uint64 // the term that each candidate led in the last sample; 0 for none
	terms   []timeline.Term
	waiters []*waiter
}

// waiter waits for the first sample that meets a condition.
type waiter struct {
	condition func(leading []uint64) bool
	met       chan observation // receives the first sample that meets the condition
}

// observation is what the sampler reports to a waiter: the time of the sample, and the index of the candidate that led the latest term
// then; -1 if no candidate led.
type observation struct {
	at     time.Duration
	leader int
}

func newSampler[C sampled](candidates []C) *sampler {
	s := &sampler{
		started: time.Now(),
		spans:   make([][]timeline.Span, len(candidates)),
		leading: make([]uint64, len(candidates)),
	}
	for _, c := range candidates {
		s.candidates = append(s.candidates, c)
	}
	return s
}

// now returns the time since the sampler was created.
func (s *sampler) now() time.Duration { return time.Since(s.started) }

// run samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.sample(s.now())
		}
	}
}

// sample records the states of all candidates once.
func (s *sampler) sample(at time.Duration) {
	overlap := twoLead(s.candidates)
	s.mu.Lock()
	defer s.mu.Unlock()
	gap := at - s.last
	s.last = at
	if s.samples > 0 {
		s.maxGap = max(s.maxGap, gap)
	}
	s.samples++
	if overlap {
		s.overlap += max(gap, sampleInterval) // the overlap may have begun right after the last sample
	}
	for i, c := range s.candidates {
		p, term := c.state()
		s.extendSpan(i, p, at)
		if p == timeline.PhaseLeader && term != s.leading[i] {
			s.terms = append(s.terms, timeline.Term{Key: s.key, Number: term, Row: i, At: at})
		}
		s.leading[i] = term
	}
	s.notifyWaiters(at)
}

// twoLead says whether two candidates led at one instant. Two successive reads cannot prove that, because leadership may change hands
// between them. Therefore twoLead reads the first candidate again after the second: if the first candidate led before and after, it also
// led at the instant of the read in between.
func twoLead[C sampled](candidates []C) bool {
	for i, a := range candidates {
		if !a.leads() {
			continue
		}
		for _, b := range candidates[i+1:] {
			if b.leads() && a.leads() {
				return true
			}
		}
	}
	return false
}

// extendSpan extends the last span of candidate i, or begins another one in a new phase. The caller holds mu.
func (s *sampler) extendSpan(i int, p timeline.Phase, at time.Duration) {
	spans := s.spans[i]
	if n := len(spans); n > 0 {
		spans[n-1].To = at
		if spans[n-1].Phase == p {
			return
		}
	}
	s.spans[i] = append(spans, timeline.Span{Phase: p, From: at, To: at})
}

// notifyWaiters notifies and removes the waiters whose condition the last sample meets. The caller holds mu.
func (s *sampler) notifyWaiters(at time.Duration) {
	remaining := s.waiters[:0]
	for _, w := range s.waiters {
		if w.condition(s.leading) {
			w.met <- observation{at: at, leader: latestLeader(s.leading)}
			continue
		}
		remaining = append(remaining, w)
	}
	clear(s.waiters[len(remaining):])
	s.waiters = remaining
}

// startElection sets the key of the terms that the sampler records from now on.
func (s *sampler) startElection(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
}

// waitFor returns a channel that receives the first later sample that meets the condition.
func (s *sampler) waitFor(condition func(leading []uint64) bool) <-chan observation {
	w := &waiter{condition: condition, met: make(chan observation, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = append(s.waiters, w)
	return w.met
}

// termAfter is the condition that a candidate leads a term with a larger number.
func termAfter(number uint64) func([]uint64) bool {
	return func(leading []uint64) bool {
		for _, term := range leading {
			if term > number {
				return true
			}
		}
		return false
	}
}

// notLeading is the condition that candidate i does not lead.
func notLeading(i int) func([]uint64) bool {
	return func(leading []uint64) bool { return leading[i] == 0 }
}

// latestLeader returns the index of the candidate that leads the term with the largest number, or -1 if no candidate leads.
func latestLeader(leading []uint64) int {
	leader, highest := -1, uint64(0)
	for i, term := range leading {
		if term > highest {
			leader, highest = i, term
		}
	}
	return leader
}

// highestTerm returns the largest term number that the sampler has recorded; 0 if there is none.
func (s *sampler) highestTerm() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	highest := uint64(0)
	for _, t := range s.terms {
		highest = max(highest, t.Number)
	}
	return highest
}

// firstOutOfOrder returns the first term whose number is not larger than the numbers of all earlier terms of the same key.
func firstOutOfOrder(terms []timeline.Term) (timeline.Term, bool) {
	highest := map[string]uint64{}
	for _, t := range terms {
		if t.Number <= highest[t.Key] {
			return t, true
		}
		highest[t.Key] = t.Number
	}
	return timeline.Term{}, false
}
