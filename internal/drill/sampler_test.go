package drill

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/faultproxy"
	"github.com/natscampaign/election/internal/timeline"
)

// scripted is a candidate that answers whether it leads from a list, the last answer for ever.
type scripted struct {
	answers []bool
	asked   int
	term    uint64
}

func (s *scripted) leads() bool {
	answer := s.answers[min(s.asked, len(s.answers)-1)]
	s.asked++
	return answer
}

func (s *scripted) look() (timeline.Phase, uint64) {
	if s.answers[len(s.answers)-1] {
		return timeline.PhaseLeader, s.term
	}
	return timeline.PhaseCandidate, 0
}

func always(leads bool) *scripted { return &scripted{answers: []bool{leads}, term: 7} }

func TestTwoThatLeadAtOnceAreFoundWhereverTheyStand(t *testing.T) {
	g := NewWithT(t)
	for a := range 4 {
		for b := range a {
			fleet := []*scripted{always(false), always(false), always(false), always(false)}
			fleet[a], fleet[b] = always(true), always(true)
			g.Expect(together(fleet)).To(BeTrue(), "candidates %d and %d", a, b)
		}
	}
}

func TestLeadershipThatPassesOnBetweenTwoReadsIsNoOverlap(t *testing.T) {
	g := NewWithT(t)
	// The old leader is read while it leads, then the new one when it does too: only reading the old one again shows
	// that it no longer did.
	old, next := &scripted{answers: []bool{true, false}}, &scripted{answers: []bool{true}}
	g.Expect(together([]*scripted{old, next})).To(BeFalse())

	old, next = &scripted{answers: []bool{true, false}}, &scripted{answers: []bool{false, true}}
	g.Expect(together([]*scripted{next, old})).To(BeFalse())
}

func TestOneLeaderOrNoneIsNoOverlap(t *testing.T) {
	g := NewWithT(t)
	g.Expect(together([]*scripted{})).To(BeFalse())
	g.Expect(together([]*scripted{always(false), always(false)})).To(BeFalse())
	g.Expect(together([]*scripted{always(false), always(true), always(false)})).To(BeFalse())
}

func TestOverlapCountsTheWholeTimeSinceTheSampleBefore(t *testing.T) {
	g := NewWithT(t)
	a, b := always(true), always(false)
	s := newSampler([]*scripted{a, b})
	s.sample(1 * time.Millisecond)
	g.Expect(s.overlap).To(BeZero())
	b.answers = []bool{true}
	s.sample(5 * time.Millisecond) // the sampler was late: all that time may have been an overlap
	s.sample(5*time.Millisecond + 10*time.Microsecond)
	g.Expect(s.overlap).To(Equal(5*time.Millisecond), "4 ms, and a sample counts 1 ms at least")
	g.Expect(s.gap).To(Equal(4 * time.Millisecond))

	p := &Report{}
	p.fill(&Rehearsal{sampler: s})
	g.Expect(p.OverlapMS).To(BeEquivalentTo(5))
	g.Expect(p.Complaint()).To(ContainSubstring("two candidates led at once for 5 ms"))
}

func TestTermsAreWrittenDownInTheOrderInWhichTheyLed(t *testing.T) {
	g := NewWithT(t)
	a, b := always(true), always(false)
	a.term, b.term = 3, 9
	s := newSampler([]*scripted{a, b})
	s.begin("key")
	s.sample(1 * time.Millisecond)
	s.sample(2 * time.Millisecond)
	a.answers, b.answers = []bool{false}, []bool{true}
	s.sample(3 * time.Millisecond)
	a.answers, b.answers = []bool{true}, []bool{false}
	a.term = 11
	s.sample(4 * time.Millisecond)
	g.Expect(s.terms).To(Equal([]timeline.Term{
		{Key: "key", Number: 3, Member: 0, At: 1 * time.Millisecond}, {Key: "key", Number: 9, Member: 1, At: 3 * time.Millisecond}, {Key: "key", Number: 11, Member: 0, At: 4 * time.Millisecond},
	}))
	g.Expect(s.highestTerm()).To(BeEquivalentTo(11))
	_, wrong := disorder(s.terms)
	g.Expect(wrong).To(BeFalse())
}

func TestTermsOutOfOrderAreAComplaintWithinOneKeyOnly(t *testing.T) {
	g := NewWithT(t)
	_, wrong := disorder([]timeline.Term{{Key: "a", Number: 5}, {Key: "b", Number: 2}, {Key: "a", Number: 6}})
	g.Expect(wrong).To(BeFalse())
	for _, second := range []uint64{4, 5} {
		bad, wrong := disorder([]timeline.Term{{Key: "a", Number: 5}, {Key: "a", Number: second}})
		g.Expect(wrong).To(BeTrue())
		g.Expect(bad.Number).To(Equal(second))
	}
}

func TestASpanLastsUntilTheNextPhaseBegins(t *testing.T) {
	g := NewWithT(t)
	a := always(false)
	s := newSampler([]*scripted{a})
	s.sample(1 * time.Millisecond)
	s.sample(2 * time.Millisecond)
	a.answers = []bool{true}
	s.sample(3 * time.Millisecond)
	s.sample(4 * time.Millisecond)
	g.Expect(s.spans[0]).To(Equal([]timeline.Span{
		{Phase: timeline.PhaseCandidate, From: 1 * time.Millisecond, To: 3 * time.Millisecond}, {Phase: timeline.PhaseLeader, From: 3 * time.Millisecond, To: 4 * time.Millisecond},
	}))
}

func TestWhoWaitsHearsOfTheFirstSampleThatShowsIt(t *testing.T) {
	g := NewWithT(t)
	a, b := always(true), always(false)
	a.term, b.term = 3, 4
	s := newSampler([]*scripted{a, b})
	lost, later := s.expect(notLeading(0)), s.expect(laterTerm(3))
	s.sample(1 * time.Millisecond)
	g.Expect(lost).NotTo(Receive())
	a.answers = []bool{false}
	s.sample(2 * time.Millisecond)
	g.Expect(lost).To(Receive(Equal(sighting{2 * time.Millisecond, -1})))
	g.Expect(later).NotTo(Receive())
	b.answers = []bool{true}
	s.sample(3 * time.Millisecond)
	g.Expect(later).To(Receive(Equal(sighting{3 * time.Millisecond, 1})))
	g.Expect(s.waiting).To(BeEmpty())
}

func TestAMemberThatTakesNoPartIsOut(t *testing.T) {
	g := NewWithT(t)
	m := &member{link: faultproxy.New(nil)}
	defer m.link.Close()
	p, term := m.look()
	g.Expect(p).To(Equal(timeline.PhaseOut))
	g.Expect(term).To(BeZero())
	g.Expect(m.leads()).To(BeFalse())
}
