package chaos

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/drill/processes"
	"github.com/natscampaign/election/internal/test/clitest"
)

// rewoundRun returns a run in which the bucket forgot writes at 20 s, 1 s after a renewal of x. The TTL is 5 s, so the next renewal of x
// was due at 22.75 s, and its lease ended at 23.9 s. The term of y begins at the given second.
func rewoundRun(from float64, cut ...history.Fault) *history.Run {
	second := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return &history.Run{
		Timing: history.Timing{TTL: second(5), Interval: second(3.75), Margin: second(0.1), StandDown: second(3.75)}, To: second(40),
		Beliefs: []history.Belief{
			{Candidate: "x", Term: 9, Token: "9", From: second(4), To: second(23.9), Deadline: second(23.9), Reason: "deadline"},
			{Candidate: "y", Term: 6, Token: "6", From: second(from), To: second(40), Deadline: second(40)},
		},
		Faults:  append(cut, history.Fault{Kind: Rewind, Candidate: "x", Ends: true, Span: history.Span{From: second(20), To: second(21)}}),
		Outages: []history.Span{{From: second(20), To: second(20.5)}},
	}
}

// reportOn returns the report on a run.
func reportOn(run *history.Run) *Report {
	p := &Report{RepeatedTerms: orderTermsByRewinds(run)}
	p.addFindings(run, run.Check())
	return p
}

func TestATermNumberRepeatedAfterARewindIsNotOutOfOrder(t *testing.T) {
	g := NewWithT(t)
	p := reportOn(rewoundRun(25))
	g.Expect(p.RepeatedTerms).To(Equal(1))
	g.Expect(p.TermsOutOfOrder).To(BeZero())
	g.Expect(p.Unneeded).To(BeZero())
	g.Expect(p.Overlap + p.RewindOverlap).To(BeZero())
	run := rewoundRun(25)
	run.Faults[0].From = 26 * time.Second // after the term with the smaller number
	p = reportOn(run)
	g.Expect(p.RepeatedTerms).To(BeZero())
	g.Expect(p.TermsOutOfOrder).To(Equal(1))
}

func TestARewindExplainsTwoLeadersOnlyUntilTheFirstCanDetectIt(t *testing.T) {
	g := NewWithT(t)
	p := reportOn(rewoundRun(22.5))
	g.Expect(p.RewindOverlap).To(BeEquivalentTo(500*time.Millisecond), "until 0.25 s after its renewal was due")
	g.Expect(p.Overlap).To(BeEquivalentTo(900 * time.Millisecond))
	g.Expect(p.FailureReason()).To(ContainSubstring("two candidates led at once for 900 ms"))
	p = reportOn(rewoundRun(22.5, history.Fault{Kind: "cut", Candidate: "x", Span: history.Span{From: 21 * time.Second, To: 22700 * time.Millisecond}}))
	g.Expect(p.RewindOverlap).To(BeEquivalentTo(1200*time.Millisecond), "until 1 s after its link was restored")
	g.Expect(p.Overlap).To(BeEquivalentTo(200 * time.Millisecond))
	p = reportOn(rewoundRun(22.5, history.Fault{Kind: "cut", Candidate: "y", Span: history.Span{From: 21 * time.Second, To: 25 * time.Second}}))
	g.Expect(p.Overlap).To(BeEquivalentTo(900*time.Millisecond), "the link of another candidate was cut")
	run := rewoundRun(22.5)
	run.Beliefs[0].Deadline, run.Beliefs[0].To = 40*time.Second, 40*time.Second
	g.Expect(reportOn(run).RewindOverlap).To(BeEquivalentTo(1500*time.Millisecond), "later renewals do not extend the time to detect the rewind")
	run = rewoundRun(19)
	g.Expect(reportOn(run).RewindOverlap).To(BeZero(), "the overlap began before the rewind")
}

func TestARewindExplainsARecordOfALaterTermOnlyUntilTheLeaderCanDetectIt(t *testing.T) {
	g := NewWithT(t)
	run := rewoundRun(22.5)
	run.Overtaken = []history.Overtaking{{Candidate: "x", Term: 9, Later: "r0001/6", At: 22900 * time.Millisecond}, {Candidate: "x", Term: 9, Later: "r0001/6", At: 23200 * time.Millisecond}}
	p := reportOn(run)
	g.Expect(p.RewindOvertaken).To(Equal(1))
	g.Expect(p.Overtaken).To(Equal(1))
	g.Expect(p.FailureReason()).To(ContainSubstring("1 time a candidate considered itself leader although the stream had a record of a later term"))
}

func TestRecordsOfATermAfterARewindSortLaterWhateverItsNumber(t *testing.T) {
	t.Parallel()
	a := clitest.New(t, clitest.LongTTL)
	_, err := a.Client.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: processes.Stream, Subjects: []string{processes.Subject}})
	a.Expect(err).NotTo(HaveOccurred())
	var recorded bytes.Buffer
	appender := &processes.Appender{Client: a.Client, Candidate: "x", History: history.NewWriter(&recorded)}
	led := a.StartLeader()
	before := election.Term{BucketCreated: led.BucketCreated, Number: led.Number + 6}
	_, err = a.Client.JetStream.PublishMsg(t.Context(), &nats.Msg{Subject: processes.Subject, Header: nats.Header{processes.HeaderToken: {before.Token()}, processes.HeaderCandidate: {"y"}}})
	a.Expect(err).NotTo(HaveOccurred())
	d := &Drill{js: a.Client.JetStream}
	a.Expect(d.appendRewindMarker(t.Context())).To(Succeed())

	at, err := appender.FindPosition(t.Context(), led, -1)
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(*at).To(Equal(processes.Position{Last: 2, Rewinds: 1}), "the next record follows the marker")
	at, err = appender.FindPosition(t.Context(), before, 0)
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(at.Fenced).To(BeTrue(), "its first record is older than the marker")
	a.Expect(recorded.String()).To(BeEmpty(), "a marker is not the record of a later leader")
	stream, err := a.Client.JetStream.Stream(t.Context(), processes.Stream)
	a.Expect(err).NotTo(HaveOccurred())
	m, err := stream.GetMsg(t.Context(), 2)
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(processes.IsRewindMarker(processes.ParseRecord(2, m.Header))).To(BeTrue())
	a.Expect(processes.ParseRecord(2, m.Header).Token > before.Token()).To(BeTrue())
	a.Expect(processes.ParseRecord(2, m.Header).Token < processes.SortableToken(1, led.Token())).To(BeTrue())
}

func TestHandoverSoonAfterARewindNeedNotBeQuick(t *testing.T) {
	g := NewWithT(t)
	d := &Drill{Config: Config{TTL: 5 * time.Second}}
	rewound := &fault{faultKind: faultKind{name: Rewind}}
	rewound.span.From = time.Minute
	d.injected = []*fault{rewound, {faultKind: handover}}
	for at, want := range map[time.Duration]bool{59 * time.Second: false, 61 * time.Second: true, 79 * time.Second: true, 80 * time.Second: false} {
		g.Expect(d.wasRewound(at)).To(Equal(want), "%v", at)
	}
}
