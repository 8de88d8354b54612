package history

import (
	"bytes"
	"errors"
	"github.com/natscampaign/election/internal/host"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// write returns a history with the given events.
func write(t *testing.T, events ...Event) string {
	t.Helper()
	g := NewWithT(t)
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, e := range events {
		g.Expect(w.Write(e)).To(Succeed())
	}
	return b.String()
}

func read(t *testing.T, text string) *Candidate {
	t.Helper()
	c, err := Read(strings.NewReader(text), "x", at(100))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

func TestABeliefEndsWithTheLastTrueAnswer(t *testing.T) {
	g := NewWithT(t)
	c := read(t, write(t,
		Event{At: at(1), What: Started},
		Event{At: at(2), What: Elected, Term: 7, Reason: "vacant"},
		Event{At: at(6), What: Believes, Term: 7, Token: "t", Deadline: at(10)},
		Event{At: at(9), What: Renewed, Deadline: at(14)},
		Event{At: at(14.1), What: Lost, Term: 7, Reason: "deadline"},
		Event{At: at(14.2), What: Doubts, Term: 7, Last: at(13.9)},
		Event{At: at(15), What: Beat, Samples: 40},
		Event{At: at(16), What: Stopped},
	))
	g.Expect(c.Beliefs).To(Equal([]Belief{{Candidate: "x", Term: 7, Token: "t", From: at(6), To: at(13.9), Deadline: at(14), Reason: "deadline"}}))
	g.Expect(c.Holds).To(Equal([]Hold{{Candidate: "x", Term: 7, From: at(2), To: at(14.1)}}))
	g.Expect(c.Alive).To(Equal([]Hold{{Candidate: "x", From: at(1), To: at(16)}}))
	g.Expect(c.Samples).To(Equal(40))
}

func TestAReasonMayBeRecordedAfterTheEndOfItsBelief(t *testing.T) {
	g := NewWithT(t)
	c := read(t, write(t,
		Event{At: at(6), What: Believes, Term: 7, Deadline: at(10)},
		Event{At: at(8), What: Doubts, Last: at(7.9)},
		Event{At: at(8.1), What: Lost, Term: 7, Reason: "overwritten"},
	))
	g.Expect(c.Beliefs[0].Reason).To(Equal("overwritten"))
}

func TestAKilledCandidateBelievedUntilItWasKilledOrItsLeaseWasOver(t *testing.T) {
	g := NewWithT(t)
	believes := Event{At: at(6), What: Believes, Term: 7, Deadline: at(10)}
	c := read(t, write(t, believes, Event{At: at(8), What: Killed}))
	g.Expect(c.Beliefs[0].To).To(Equal(at(8)))
	c = read(t, write(t, believes, Event{At: at(12), What: Killed}))
	g.Expect(c.Beliefs[0].To).To(Equal(at(10)))
	c = read(t, write(t, believes, Event{At: at(12), What: Killed}, Event{At: at(13), What: Started}))
	g.Expect(c.Beliefs[0].To).To(Equal(at(10)))
	g.Expect(c.Alive).To(HaveLen(1), "the second process")
}

func TestALineThatWasCutShortIsSkipped(t *testing.T) {
	g := NewWithT(t)
	text := write(t, Event{At: at(1), What: Started}, Event{At: at(6), What: Believes, Term: 7, Deadline: at(10)})
	c := read(t, text[:len(text)-3])
	g.Expect(c.Beliefs).To(BeEmpty())
	g.Expect(c.Alive).To(Equal([]Hold{{Candidate: "x", From: at(1), To: at(100)}}))
}

func TestALineThatIsNoEventIsAnError(t *testing.T) {
	_, err := Read(strings.NewReader("{\"t\":1,\"e\":\"started\"}\nnonsense\n"), "x", at(100))
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("history of x, line 2")))
}

func TestSamplesOfAllProcessesAreAddedAndTheLongestPauseIsFound(t *testing.T) {
	g := NewWithT(t)
	c := read(t, write(t,
		Event{At: at(1), What: Started},
		Event{At: at(2), What: Beat, Samples: 10}, Event{At: at(3), What: Beat, Samples: 20},
		Event{At: at(9), What: Paused, Last: at(3)},
		Event{At: at(9), What: Killed},
		Event{At: at(10), What: Started},
		Event{At: at(11), What: Beat, Samples: 5}, Event{At: at(12), What: Fenced},
	))
	g.Expect(c.Samples).To(Equal(25))
	g.Expect(c.LongestPause(nil)).To(Equal(at(6)))
	g.Expect(c.LongestPause([]Fault{fault("stop", "y", 3, 9)})).To(Equal(at(6)))
	g.Expect(c.LongestPause([]Fault{fault("stop", "x", 3, 9)})).To(BeZero())
	g.Expect(c.Fenced).To(Equal(1))
}

func TestAnOvertakingIsRecorded(t *testing.T) {
	g := NewWithT(t)
	c := read(t, write(t,
		Event{At: at(6), What: Believes, Term: 17, Token: "17", Deadline: at(10)},
		Event{At: at(7), What: Overtaken, Term: 17, Token: "23"},
		Event{At: at(7.1), What: Doubts, Term: 17, Last: at(7)},
	))
	g.Expect(c.Overtaken).To(Equal([]Overtaking{{Candidate: "x", Term: 17, Later: "23", At: at(7)}}))
	g.Expect(c.Fenced).To(BeZero(), "the stream refused no record")
}

func TestAnEventIsOneWriteAndHasATime(t *testing.T) {
	g := NewWithT(t)
	if !host.HasClock {
		t.Skip("there is no clock that processes share")
	}
	w := &counted{}
	before := host.Clock()
	g.Expect(NewWriter(w).Write(Event{What: Beat})).To(Succeed())
	g.Expect(w.writes).To(Equal(1))
	g.Expect(w.text).To(HaveSuffix("\n"))
	g.Expect(host.Clock()).To(BeNumerically(">=", before))
	g.Expect(NewWriter(&counted{err: errors.New("full")}).Write(Event{What: Beat})).To(MatchError("full"))
}

func TestTheClockIsNotSetBack(t *testing.T) {
	g := NewWithT(t)
	if !host.HasClock {
		t.Skip("there is no clock that processes share")
	}
	from := host.Clock()
	time.Sleep(10 * time.Millisecond)
	g.Expect(host.Clock() - from).To(BeNumerically(">=", 10*time.Millisecond))
}

// counted is a writer that counts its writes.
type counted struct {
	text   string
	writes int
	err    error
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes++
	c.text += string(p)
	return len(p), c.err
}

func TestEventsOfASessionConcernTheirKeyAndThoseOfTheProcessAllKeys(t *testing.T) {
	g := NewWithT(t)
	text := write(t,
		Event{At: 1 * time.Second, What: Started},
		Event{At: 2 * time.Second, What: Believes, Key: "a", Term: 7, Token: "7", Deadline: 9 * time.Second},
		Event{At: 2 * time.Second, What: Works, Key: "a", Term: 7},
		Event{At: 3 * time.Second, What: Works, Key: "b", Term: 8},
		Event{At: 4 * time.Second, What: Rests, Key: "b", Term: 8},
		Event{At: 5 * time.Second, What: Killed})
	all, err := ReadKeys(strings.NewReader(text), "x", []string{"a", "b"}, time.Minute)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(2))
	g.Expect(all[0].Beliefs).To(HaveExactElements(HaveField("To", 5*time.Second)))
	g.Expect(all[0].Works).To(HaveExactElements(Belief{Candidate: "x", Term: 7, From: 2 * time.Second, To: 5 * time.Second, Deadline: 9 * time.Second}))
	g.Expect(all[1].Beliefs).To(BeEmpty())
	g.Expect(all[1].Works).To(HaveExactElements(Belief{Candidate: "x", Term: 8, From: 3 * time.Second, To: 4 * time.Second}))
}

func TestWorkEndsWhenItsProcessIsStoppedUnlessTheTermGoesOn(t *testing.T) {
	g := NewWithT(t)
	read := func(lastTrue time.Duration) time.Duration {
		text := write(t,
			Event{At: 2 * time.Second, What: Believes, Term: 7, Token: "7", Deadline: 9 * time.Second},
			Event{At: 2 * time.Second, What: Works, Term: 7},
			Event{At: 20 * time.Second, What: Paused, Last: 3 * time.Second},
			Event{At: 20*time.Second + 1, What: Doubts, Last: lastTrue},
			Event{At: 21 * time.Second, What: Rests, Term: 7})
		c, err := Read(strings.NewReader(text), "x", time.Minute)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(c.Works).To(HaveLen(1))
		return c.Works[0].To
	}
	g.Expect(read(3 * time.Second)).To(Equal(3 * time.Second))
	g.Expect(read(20 * time.Second)).To(Equal(21 * time.Second))
}

func TestWorkOfTwoCandidatesAtOnceIsFoundThoughNeitherConsideredItselfLeader(t *testing.T) {
	g := NewWithT(t)
	r := &Run{Works: []Belief{
		{Candidate: "b", Term: 2, From: 4 * time.Second, To: 6 * time.Second},
		{Candidate: "a", Term: 1, From: 1 * time.Second, To: 5 * time.Second},
		{Candidate: "a", Term: 3, From: 6 * time.Second, To: 7 * time.Second},
	}}
	found := r.Check()
	g.Expect(found.Overlaps).To(BeEmpty())
	g.Expect(found.Worked).To(HaveExactElements(HaveField("Span", Span{From: 4 * time.Second, To: 5 * time.Second})))
}
