package history

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// timing is that of the runs here: a renewal is due 3.75 s after the last, and the deadline is 1.15 s later.
var timing = Timing{TTL: 5 * time.Second, Interval: 3750 * time.Millisecond, Margin: 100 * time.Millisecond, StandDown: 3750 * time.Millisecond}

func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// belief returns a belief that ended by its deadline.
func belief(candidate string, term uint64, from, to float64) Belief {
	return Belief{Candidate: candidate, Term: term, Token: string(rune('a' + term)), From: at(from), To: at(to), Deadline: at(to), Reason: reasonDeadline}
}

func fault(kind, candidate string, from, to float64) Fault {
	return Fault{Kind: kind, Candidate: candidate, Ends: kind == "kill" || kind == "handover", Releases: kind == "handover", Span: Span{at(from), at(to)}}
}

func records(tokens string) (all []Record) {
	numbers := map[rune]uint64{}
	for i, token := range tokens {
		all = append(all, Record{Sequence: uint64(i + 1), Candidate: "x", Token: string(token), Number: numbers[token]})
		numbers[token]++
	}
	return all
}

// clean is a run in which the leader was cut off once.
func clean() *Run {
	return &Run{
		Timing: timing, From: at(0), To: at(40), Records: records("bbbbcccc"),
		Beliefs: []Belief{belief("x", 1, 4, 14), belief("y", 2, 18, 45)},
		Faults:  []Fault{fault("cut", "x", 10, 17)},
	}
}

func TestACleanRunPasses(t *testing.T) {
	g := NewWithT(t)
	f := clean().Check()
	g.Expect(f.Overlaps).To(BeEmpty())
	g.Expect(f.Disorder).To(BeEmpty())
	g.Expect(f.Misplaced).To(BeEmpty())
	g.Expect(f.Changes).To(HaveLen(1))
	g.Expect(f.Changes[0].Cause).To(Equal("cut"))
	g.Expect(f.Changes[0].Unneeded).To(BeFalse())
	g.Expect(f.Gaps).To(HaveLen(2), "from the start, and from the cut")
	g.Expect(f.Gaps[1].Took()).To(Equal(at(8)), "a failover counts from its fault")
	g.Expect(f.Gaps[1].Bound).To(Equal(at(5 + 0.4 + 1 + 3.75)))
	for _, gap := range f.Gaps {
		g.Expect(gap.Late()).To(BeFalse())
	}
}

func TestOverlappingBeliefsAreFoundAndCountedOnce(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Beliefs[0].To = at(19.5)
	r.Beliefs = append(r.Beliefs, belief("z", 3, 19, 20)) // a third, in part of that time and longer
	f := r.Check()
	g.Expect(f.Overlaps).To(HaveLen(3))
	var spans []Span
	for _, o := range f.Overlaps {
		spans = append(spans, o.Span)
	}
	g.Expect(TotalLength(spans)).To(Equal(at(2)))
}

func TestOneCandidateDoesNotOverlapWithItself(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Beliefs[1].Candidate, r.Beliefs[1].From = "x", at(14)
	g.Expect(r.Check().Overlaps).To(BeEmpty())
}

func TestATermThatBeginsAfterALaterOneIsFound(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Beliefs[0].Term, r.Beliefs[0].Token = 3, "d"
	g.Expect(r.Check().Disorder).To(ConsistOf("term 2 of y began after term 3 of x"))
}

func TestARecordOfADeposedLeaderIsFound(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Records = records("bbcbc")
	g.Expect(r.Check().Misplaced).To(ConsistOf(ContainSubstring("record 4 of the stream, number 2 of x under b, comes after one of x under c")))
}

func TestARecordThatIsMissingIsFound(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Records = append(r.Records[:2], r.Records[3:]...)
	g.Expect(r.Check().Misplaced).To(ConsistOf(ContainSubstring("record 4 of the stream is number 3")))
	r = clean()
	r.Records = r.Records[1:]
	g.Expect(r.Check().Misplaced).NotTo(BeEmpty(), "the first of a term")
}

func TestAChangeIsUnneededIfTheLeaseCouldHaveBeenRenewed(t *testing.T) {
	// The first term's deadline is at 14 s, so that a renewal was due at 12.85 s.
	for name, c := range map[string]struct {
		faults   []Fault
		outages  []Span
		reason   string
		cause    string
		unneeded bool
	}{
		"nothing happened":                 {nil, nil, "deadline", KindNone, true},
		"somebody else was hit":            {[]Fault{fault("cut", "y", 10, 17)}, nil, "deadline", KindNone, true},
		"it was cut off too short":         {[]Fault{fault("cut", "x", 12, 13.2)}, nil, "deadline", KindNone, true},
		"it was cut off long enough":       {[]Fault{fault("cut", "x", 12, 13.5)}, nil, "deadline", "cut", false},
		"it was killed":                    {[]Fault{fault("kill", "x", 14, 16)}, nil, "", "kill", false},
		"it led on after it was killed":    {[]Fault{fault("kill", "x", 5, 6)}, nil, "deadline", KindNone, true},
		"another was killed":               {[]Fault{fault("kill", "y", 14, 16)}, nil, "deadline", KindNone, true},
		"it was killed in another term":    {[]Fault{fault("kill", "x", 2, 3)}, nil, "deadline", KindNone, true},
		"there was an outage":              {nil, []Span{{at(12), at(15)}}, "deadline", KindOutage, false},
		"a short outage":                   {nil, []Span{{at(12), at(13.2)}}, "deadline", KindNone, true},
		"two, with little time between":    {nil, []Span{{at(12), at(13.2)}, {at(13.7), at(15)}}, "deadline", KindOutage, false},
		"an outage with a cause":           {[]Fault{fault("kill-server", "", 11.8, 16)}, []Span{{at(12), at(15)}}, "deadline", "kill-server", false},
		"an outage with two causes":        {[]Fault{fault("lose-quorum", "", 11.8, 16), fault("step-down", "", 12, 12.1)}, []Span{{at(12), at(15)}}, "deadline", "lose-quorum", false},
		"an outage after a fault":          {[]Fault{fault("step-down", "", 8, 8.1)}, []Span{{at(12), at(15)}}, "deadline", KindOutage, false},
		"its key was lost without a fault": {nil, []Span{{at(12), at(15)}}, "overwritten", KindNone, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := clean()
			r.Faults, r.Outages, r.Beliefs[0].Reason = c.faults, c.outages, c.reason
			f := r.Check()
			g.Expect(f.Changes).To(HaveLen(1))
			g.Expect(f.Changes[0].Cause).To(Equal(c.cause))
			g.Expect(f.Changes[0].Unneeded).To(Equal(c.unneeded))
		})
	}
}

func TestAFailoverBeyondItsBoundIsFound(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Beliefs[1].From = at(20.2)
	gaps := r.Check().Gaps
	g.Expect(gaps[1].Late()).To(BeTrue())
	g.Expect(gaps[1].Kind).To(Equal("cut"))
	g.Expect(gaps[1].Fault.From).To(Equal(at(10)))
}

func TestAHandoverHasABoundOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Faults = []Fault{fault("handover", "x", 14, 15)}
	r.Beliefs[1].From = at(14.9)
	g.Expect(r.Check().Gaps[1].Late()).To(BeFalse())
	r.Beliefs[1].From = at(15.1)
	g.Expect(r.Check().Gaps[1].Late()).To(BeTrue())
	r.Faults[0].From = at(14.001) // a belief ends with the last answer before the fault
	g.Expect(r.Check().Gaps[1].Bound).To(Equal(Release))
	r.Faults = append(r.Faults, fault("cut", "y", 14.5, 20)) // the candidate that was about to lead
	g.Expect(r.Check().Gaps[1].Bound).To(Equal(timing.Bound()))
}

func TestALeaderWithoutRepliesMayRenewOnceMore(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Faults[0].Renews = true
	g.Expect(r.Check().Gaps[1].Bound).To(Equal(timing.Bound() + timing.Interval))
}

func TestAfterAnOutageTheBoundCountsFromItsEnd(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Outages = []Span{{at(11), at(17)}}
	gap := r.Check().Gaps[1]
	g.Expect(gap.Since).To(Equal(at(17)))
	g.Expect(gap.Bound).To(Equal(timing.OutageBound()))
}

func TestATimeWithoutALeaderAtTheEndMayBeLateToo(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Beliefs = r.Beliefs[:1]
	gaps := r.Check().Gaps
	g.Expect(gaps).To(HaveLen(2))
	g.Expect(gaps[1].To).To(Equal(r.To))
	r.To = at(18)
	g.Expect(r.Check().Gaps).To(HaveLen(1), "there was time left")
	g.Expect((&Run{Timing: timing, To: at(60)}).Check().Gaps).To(HaveLen(1), "no candidate ever led")
}

func TestBeliefsAfterTheEndAreNoChanges(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Beliefs = append(r.Beliefs, belief("z", 3, 46, 47))
	g.Expect(r.Check().Changes).To(HaveLen(1))
}

func TestAfterARepairASessionMayLoseALeaseMoreFromItsEnd(t *testing.T) {
	g := NewWithT(t)
	r := clean()
	r.Repairs = []Span{{at(13), at(16)}}
	r.Faults = []Fault{fault("kill-server", "", 13, 16)}
	found := r.Check()
	g.Expect(found.Changes[0].Cause).To(Equal("kill-server"), "although the bucket took writes")
	g.Expect(found.Changes[0].Unneeded).To(BeFalse())
	gap := found.Gaps[1]
	g.Expect(gap.Took()).To(Equal(at(2)))
	g.Expect(gap.Bound).To(Equal(timing.OutageBound() + timing.TTL))
}
