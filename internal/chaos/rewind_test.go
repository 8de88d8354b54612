package chaos

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/processes"
)

// rewoundRun is a drill in which the bucket forgot writes at 20 s, 1 s after a renewal of x. Its TTL is 5 s: the next renewal
// was due at 22.75 s, and the lease ends at 23.9 s. It has y believe from the given second on.
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

// judgedRun returns the report on a run.
func judgedRun(run *history.Run) *Report {
	p := &Report{SetBack: orderByRewinds(run)}
	p.fill(run, run.Check())
	return p
}

func TestARewindIsToldApartFromTermsOutOfOrder(t *testing.T) {
	g := NewWithT(t)
	p := judgedRun(rewoundRun(25))
	g.Expect(p.SetBack).To(Equal(1))
	g.Expect(p.TermsOutOfOrder).To(BeZero())
	g.Expect(p.Unneeded).To(BeZero())
	g.Expect(p.OverlapMS + p.RewoundMS).To(BeZero())
	run := rewoundRun(25)
	run.Faults[0].From = 26 * time.Second // after the smaller number
	p = judgedRun(run)
	g.Expect(p.SetBack).To(BeZero())
	g.Expect(p.TermsOutOfOrder).To(Equal(1))
}

func TestARewindExplainsTwoLeadersOnlyUntilTheFirstIsToldOfIt(t *testing.T) {
	g := NewWithT(t)
	p := judgedRun(rewoundRun(22.5))
	g.Expect(p.RewoundMS).To(Equal(int64(500)), "until its renewal was due, and a quarter of a second")
	g.Expect(p.OverlapMS).To(Equal(int64(900)))
	g.Expect(p.Complaint()).To(ContainSubstring("two candidates believed at once for 900 ms"))
	p = judgedRun(rewoundRun(22.5, history.Fault{Kind: "cut", Candidate: "x", Span: history.Span{From: 21 * time.Second, To: 22700 * time.Millisecond}}))
	g.Expect(p.RewoundMS).To(Equal(int64(1200)), "until a second after its link was healed")
	g.Expect(p.OverlapMS).To(Equal(int64(200)))
	p = judgedRun(rewoundRun(22.5, history.Fault{Kind: "cut", Candidate: "y", Span: history.Span{From: 21 * time.Second, To: 25 * time.Second}}))
	g.Expect(p.OverlapMS).To(Equal(int64(900)), "that was another's link")
	run := rewoundRun(22.5)
	run.Beliefs[0].Deadline, run.Beliefs[0].To = 40*time.Second, 40*time.Second
	g.Expect(judgedRun(run).RewoundMS).To(Equal(int64(1500)), "renewals after the rewind give it no more time")
	run = rewoundRun(19)
	g.Expect(judgedRun(run).RewoundMS).To(BeZero(), "it began before the rewind")
}

func TestARewindExplainsARecordOfALaterTermOnlyUntilTheLeaderIsToldOfIt(t *testing.T) {
	g := NewWithT(t)
	run := rewoundRun(22.5)
	run.Overtaken = []history.Overtaking{{Candidate: "x", Term: 9, Later: "r0001/6", At: 22900 * time.Millisecond}, {Candidate: "x", Term: 9, Later: "r0001/6", At: 23200 * time.Millisecond}}
	p := judgedRun(run)
	g.Expect(p.RewoundBeliefs).To(Equal(1))
	g.Expect(p.Overtaken).To(Equal(1))
	g.Expect(p.Complaint()).To(ContainSubstring("1 belief in a term although a later one had been led"))
}

func TestRecordsOfATermThatWasWonAfterARewindComeLaterWhateverItsNumber(t *testing.T) {
	t.Parallel()
	a := clitest.New(t, clitest.Quiet)
	_, err := a.S.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: processes.Stream, Subjects: []string{processes.Subject}})
	a.Expect(err).NotTo(HaveOccurred())
	var past bytes.Buffer
	appends := &processes.Appender{Session: a.S, Config: &processes.CandidateConfig{Name: "x", Stream: processes.Stream, Subject: processes.Subject}, History: history.NewWriter(&past)}
	e, err := election.NewElection("x", "jobs", a.Bucket, election.WithSplay(0), election.WithStandDown(0))
	a.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	defer clitest.ShutDown(t, e)
	a.Eventually(e.IsLeader).WithTimeout(clitest.Patience).Should(BeTrue())
	led, _ := e.Term()
	before := election.Term{BucketCreated: led.BucketCreated, Number: led.Number + 6}
	_, err = a.S.JetStream.PublishMsg(t.Context(), &nats.Msg{Subject: processes.Subject, Header: nats.Header{processes.HeaderToken: {before.Token()}, processes.HeaderCandidate: {"y"}}})
	a.Expect(err).NotTo(HaveOccurred())
	d := &Drill{js: a.S.JetStream}
	a.Expect(d.markRewind(t.Context())).To(Succeed())

	at, err := appends.Find(t.Context(), led, -1)
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(*at).To(Equal(processes.Position{Last: 2, Rewinds: 1}), "it goes on after the mark")
	at, err = appends.Find(t.Context(), before, 0)
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(at.Fenced).To(BeTrue(), "its records were begun before")
	a.Expect(past.String()).To(BeEmpty(), "a mark is no leader")
	marked, err := a.S.JetStream.Stream(t.Context(), processes.Stream)
	a.Expect(err).NotTo(HaveOccurred())
	m, err := marked.GetMsg(t.Context(), 2)
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(processes.IsMark(processes.ReadRecord(2, m.Header))).To(BeTrue())
	a.Expect(processes.ReadRecord(2, m.Header).Token > before.Token()).To(BeTrue())
	a.Expect(processes.ReadRecord(2, m.Header).Token < processes.AfterRewinds(1, led.Token())).To(BeTrue())
}
