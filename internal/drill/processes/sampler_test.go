package processes

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/history"
)

func TestASampleInWhichTheProcessWasStoppedAddsNoDeadline(t *testing.T) {
	g := NewWithT(t)
	s, term := &sampler{lastBeat: time.Hour}, election.Term{Number: 7}
	g.Expect(s.events(1*time.Second, 5*time.Second, true, term, -time.Second)).To(BeEmpty(), "nor the start of a belief")
	s.lastSample = 5 * time.Second
	g.Expect(s.events(5*time.Second, 5*time.Second, true, term, 3*time.Second)).To(HaveExactElements(
		HaveField("Deadline", 8*time.Second)))
	stoppedAt := 5*time.Second + sampleInterval
	g.Expect(s.events(stoppedAt, 9*time.Second, true, term, -time.Second)).To(BeEmpty())
	g.Expect(s.events(9*time.Second, 9*time.Second, false, election.Term{}, 0)).To(HaveExactElements(
		And(HaveField("What", history.Paused), HaveField("Last", stoppedAt)),
		And(HaveField("What", history.Doubts), HaveField("Last", stoppedAt))))
}

// writerFunc is called with each event.
type writerFunc func()

func (w writerFunc) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

// On a busy host the sampler may not be run between the end of a term and the end of the candidate.
func TestABeliefEndsWithItsTermThoughNoSampleWasTakenSince(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := &sampler{election: &election.Election{}}
	s.history = history.NewWriter(writerFunc(func() {
		if ctx.Err() == nil { // the first sample, as if it had been true
			s.term = 7
			cancel()
		}
	}))
	g.Expect(runSamplers(ctx, []*sampler{s})).To(Succeed())
	g.Expect(s.term).To(BeZero())
}
