package drill

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/drill/faultproxy"
	"github.com/natscampaign/election/internal/drill/timeline"
)

// fakeCandidate is a candidate whose calls of leads return the given answers in order, and the last answer from then on.
type fakeCandidate struct {
	answers []bool
	calls   int
	term    uint64
}

func (s *fakeCandidate) leads() bool {
	answer := s.answers[min(s.calls, len(s.answers)-1)]
	s.calls++
	return answer
}

func (s *fakeCandidate) state() (timeline.Phase, uint64) {
	if s.answers[len(s.answers)-1] {
		return timeline.PhaseLeader, s.term
	}
	return timeline.PhaseCandidate, 0
}

func always(leads bool) *fakeCandidate { return &fakeCandidate{answers: []bool{leads}, term: 7} }

func TestTwoLeadersAreDetectedAtAnyTwoIndexes(t *testing.T) {
	g := NewWithT(t)
	for a := range 4 {
		for b := range a {
			fleet := []*fakeCandidate{always(false), always(false), always(false), always(false)}
			fleet[a], fleet[b] = always(true), always(true)
			g.Expect(twoLead(fleet)).To(BeTrue(), "candidates %d and %d", a, b)
		}
	}
}

func TestAHandoverBetweenTwoReadsIsNotAnOverlap(t *testing.T) {
	g := NewWithT(t)
	// The first read sees the old leader, and the second read the new leader. Only a third read shows that the old leader no longer led.
	old, next := &fakeCandidate{answers: []bool{true, false}}, &fakeCandidate{answers: []bool{true}}
	g.Expect(twoLead([]*fakeCandidate{old, next})).To(BeFalse())

	old, next = &fakeCandidate{answers: []bool{true, false}}, &fakeCandidate{answers: []bool{false, true}}
	g.Expect(twoLead([]*fakeCandidate{next, old})).To(BeFalse())
}

func TestOneLeaderOrNoLeaderIsNotAnOverlap(t *testing.T) {
	g := NewWithT(t)
	g.Expect(twoLead([]*fakeCandidate{})).To(BeFalse())
	g.Expect(twoLead([]*fakeCandidate{always(false), always(false)})).To(BeFalse())
	g.Expect(twoLead([]*fakeCandidate{always(false), always(true), always(false)})).To(BeFalse())
}

func TestAnOverlapIncludesTheWholeTimeSinceThePreviousSample(t *testing.T) {
	g := NewWithT(t)
	a, b := always(true), always(false)
	s := newSampler([]*fakeCandidate{a, b})
	s.sample(1 * time.Millisecond)
	g.Expect(s.overlap).To(BeZero())
	b.answers = []bool{true}
	s.sample(5 * time.Millisecond) // the sampler was late, and the overlap may have lasted since the previous sample
	s.sample(5*time.Millisecond + 10*time.Microsecond)
	g.Expect(s.overlap).To(Equal(5*time.Millisecond), "4 ms, and at least 1 ms for each sample")
	g.Expect(s.maxGap).To(Equal(4 * time.Millisecond))

	p := &Report{}
	p.complete(&Rehearsal{sampler: s})
	g.Expect(p.Overlap).To(BeEquivalentTo(5 * time.Millisecond))
	g.Expect(p.FailureReason()).To(ContainSubstring("two candidates led at once for 5 ms"))
}

func TestTermsAreRecordedInTheOrderInWhichTheyBegan(t *testing.T) {
	g := NewWithT(t)
	a, b := always(true), always(false)
	a.term, b.term = 3, 9
	s := newSampler([]*fakeCandidate{a, b})
	s.startElection("key")
	s.sample(1 * time.Millisecond)
	s.sample(2 * time.Millisecond)
	a.answers, b.answers = []bool{false}, []bool{true}
	s.sample(3 * time.Millisecond)
	a.answers, b.answers = []bool{true}, []bool{false}
	a.term = 11
	s.sample(4 * time.Millisecond)
	g.Expect(s.terms).To(Equal([]timeline.Term{
		{Key: "key", Number: 3, Row: 0, At: 1 * time.Millisecond}, {Key: "key", Number: 9, Row: 1, At: 3 * time.Millisecond}, {Key: "key", Number: 11, Row: 0, At: 4 * time.Millisecond},
	}))
	g.Expect(s.highestTerm()).To(BeEquivalentTo(11))
	_, wrong := firstOutOfOrder(s.terms)
	g.Expect(wrong).To(BeFalse())
}

func TestTermsMustBeInOrderWithinEachKey(t *testing.T) {
	g := NewWithT(t)
	_, wrong := firstOutOfOrder([]timeline.Term{{Key: "a", Number: 5}, {Key: "b", Number: 2}, {Key: "a", Number: 6}})
	g.Expect(wrong).To(BeFalse())
	for _, second := range []uint64{4, 5} {
		bad, wrong := firstOutOfOrder([]timeline.Term{{Key: "a", Number: 5}, {Key: "a", Number: second}})
		g.Expect(wrong).To(BeTrue())
		g.Expect(bad.Number).To(Equal(second))
	}
}

func TestASpanLastsUntilTheNextPhaseBegins(t *testing.T) {
	g := NewWithT(t)
	a := always(false)
	s := newSampler([]*fakeCandidate{a})
	s.sample(1 * time.Millisecond)
	s.sample(2 * time.Millisecond)
	a.answers = []bool{true}
	s.sample(3 * time.Millisecond)
	s.sample(4 * time.Millisecond)
	g.Expect(s.spans[0]).To(Equal([]timeline.Span{
		{Phase: timeline.PhaseCandidate, From: 1 * time.Millisecond, To: 3 * time.Millisecond}, {Phase: timeline.PhaseLeader, From: 3 * time.Millisecond, To: 4 * time.Millisecond},
	}))
}

func TestAWaiterReceivesTheFirstSampleThatMeetsItsCondition(t *testing.T) {
	g := NewWithT(t)
	a, b := always(true), always(false)
	a.term, b.term = 3, 4
	s := newSampler([]*fakeCandidate{a, b})
	lost, next := s.waitFor(notLeading(0)), s.waitFor(termAfter(3))
	s.sample(1 * time.Millisecond)
	g.Expect(lost).NotTo(Receive())
	a.answers = []bool{false}
	s.sample(2 * time.Millisecond)
	g.Expect(lost).To(Receive(Equal(observation{2 * time.Millisecond, -1})))
	g.Expect(next).NotTo(Receive())
	b.answers = []bool{true}
	s.sample(3 * time.Millisecond)
	g.Expect(next).To(Receive(Equal(observation{3 * time.Millisecond, 1})))
	g.Expect(s.waiters).To(BeEmpty())
}

func TestACandidateThatDoesNotCampaignIsInPhaseOut(t *testing.T) {
	g := NewWithT(t)
	c := &candidate{link: faultproxy.New(nil)}
	defer c.link.Close()
	p, term := c.state()
	g.Expect(p).To(Equal(timeline.PhaseOut))
	g.Expect(term).To(BeZero())
	g.Expect(c.leads()).To(BeFalse())
}
