package drill

import (
	"context"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/timeline"
)

// sampleEvery is how often all candidates are looked at.
const sampleEvery = time.Millisecond

// subject is what a sampler looks at.
type subject interface {
	leads() bool
	look() (timeline.Phase, uint64)
}

// sampler looks at all candidates each millisecond, on one clock, and writes down what it saw.
type sampler struct {
	subjects []subject
	began    time.Time

	mu      sync.Mutex
	key     string // the election under way
	last    time.Duration
	samples int
	gap     time.Duration // the longest between two samples
	overlap time.Duration
	spans   [][]timeline.Span
	leading []uint64 // the term that each candidate led at the last sample; 0 for none
	terms   []timeline.Term
	waiting []*expectation
}

// expectation is something that somebody waits to see.
type expectation struct {
	met  func(leading []uint64) bool
	seen chan sighting // receives when it was seen
}

// sighting is when something was seen, and who led the latest term then; -1 if nobody led.
type sighting struct {
	at     time.Duration
	leader int
}

func newSampler[S subject](subjects []S) *sampler {
	s := &sampler{
		began:   time.Now(),
		spans:   make([][]timeline.Span, len(subjects)),
		leading: make([]uint64, len(subjects)),
	}
	for _, x := range subjects {
		s.subjects = append(s.subjects, x)
	}
	return s
}

// now returns the time since the sampler began.
func (s *sampler) now() time.Duration { return time.Since(s.began) }

// run samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
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

// sample looks at everybody once.
func (s *sampler) sample(at time.Duration) {
	two := together(s.subjects)
	s.mu.Lock()
	defer s.mu.Unlock()
	step := at - s.last
	s.last = at
	if s.samples > 0 {
		s.gap = max(s.gap, step)
	}
	s.samples++
	if two {
		s.overlap += max(step, sampleEvery) // since the last sample, for all that is known
	}
	for i, x := range s.subjects {
		p, term := x.look()
		s.see(i, p, at)
		if p == timeline.PhaseLeader && term != s.leading[i] {
			s.terms = append(s.terms, timeline.Term{Key: s.key, Number: term, Member: i, At: at})
		}
		s.leading[i] = term
	}
	s.settle(at)
}

// together says whether two subjects led at one instant. Reading them one after the other cannot show that, for
// leadership may pass on in between. Hence the first is read again after the second: if it led before and after, it led
// at the instant at which the second did.
func together[S subject](subjects []S) bool {
	for i, a := range subjects {
		if !a.leads() {
			continue
		}
		for _, b := range subjects[i+1:] {
			if b.leads() && a.leads() {
				return true
			}
		}
	}
	return false
}

// see extends the span of candidate i, or begins another. The caller holds mu.
func (s *sampler) see(i int, p timeline.Phase, at time.Duration) {
	spans := s.spans[i]
	if n := len(spans); n > 0 {
		spans[n-1].To = at
		if spans[n-1].Phase == p {
			return
		}
	}
	s.spans[i] = append(spans, timeline.Span{Phase: p, From: at, To: at})
}

// settle tells those who wait for what is now seen. The caller holds mu.
func (s *sampler) settle(at time.Duration) {
	kept := s.waiting[:0]
	for _, e := range s.waiting {
		if e.met(s.leading) {
			e.seen <- sighting{at: at, leader: latest(s.leading)}
			continue
		}
		kept = append(kept, e)
	}
	clear(s.waiting[len(kept):])
	s.waiting = kept
}

// begin says which election is under way from now on.
func (s *sampler) begin(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
}

// expect returns a channel that receives the first sample from now on in which met holds.
func (s *sampler) expect(met func(leading []uint64) bool) <-chan sighting {
	e := &expectation{met: met, seen: make(chan sighting, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, e)
	return e.seen
}

// laterTerm is met when somebody leads a term after the given one.
func laterTerm(number uint64) func([]uint64) bool {
	return func(leading []uint64) bool {
		for _, term := range leading {
			if term > number {
				return true
			}
		}
		return false
	}
}

// notLeading is met when candidate i does not lead.
func notLeading(i int) func([]uint64) bool {
	return func(leading []uint64) bool { return leading[i] == 0 }
}

// latest returns who leads the term with the largest number, or -1 if nobody leads.
func latest(leading []uint64) int {
	who, highest := -1, uint64(0)
	for i, term := range leading {
		if term > highest {
			who, highest = i, term
		}
	}
	return who
}

// highestTerm returns the largest number of a term that was seen so far; 0 if none was.
func (s *sampler) highestTerm() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	highest := uint64(0)
	for _, t := range s.terms {
		highest = max(highest, t.Number)
	}
	return highest
}

// disorder returns the first term that did not have a larger number than the one before it under the same key.
func disorder(terms []timeline.Term) (timeline.Term, bool) {
	highest := map[string]uint64{}
	for _, t := range terms {
		if t.Number <= highest[t.Key] {
			return t, true
		}
		highest[t.Key] = t.Number
	}
	return timeline.Term{}, false
}
