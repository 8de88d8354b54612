package processes

import (
	"bytes"
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/history"
)

func TestTheBoardShowsTheLatestTerm(t *testing.T) {
	g := NewWithT(t)
	var turns []uint64
	b := &Board{Leading: make([]Believed, 2), Turn: func(_ int, term uint64) { turns = append(turns, term) }}
	who, _ := b.Leader()
	g.Expect(who).To(Equal(-1))
	b.note(0, history.Event{What: history.Believes, Term: 3, At: 1})
	b.note(1, history.Event{What: history.Believes, Term: 5, At: 2}) // 0 was stopped and cannot tell
	who, l := b.Leader()
	g.Expect(who).To(Equal(1))
	g.Expect(l).To(Equal(Believed{Term: 5, Since: 2}))
	b.note(1, history.Event{What: history.Doubts})
	b.note(0, history.Event{What: history.Stopped})
	who, _ = b.Leader()
	g.Expect(who).To(Equal(-1))
	g.Expect(turns).To(Equal([]uint64{3, 5}))
}

func TestAnswersToRecordsAreTold(t *testing.T) {
	g := NewWithT(t)
	parse := func(data string) answer {
		return parseAnswer(&nats.Msg{Subject: "_INBOX.x.00ab-01.7", Data: []byte(data)}, "_INBOX.x")
	}
	g.Expect(parse(`{"stream":"S","seq":12}`)).To(Equal(answer{token: "00ab-01", number: 7, sequence: 12}))
	g.Expect(parse(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"}}`).err).To(MatchError(errRefused))
	g.Expect(parse(`{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}`).err).To(MatchError(errRefused))
	g.Expect(parse(`{"error":{"code":503,"err_code":10077}}`).err).To(And(HaveOccurred(), Not(MatchError(errRefused))))
	g.Expect(parse("").err).To(HaveOccurred(), "nobody listens")
}

func TestALeaderThatFindsARecordOfALaterTermSaysWhetherItBelievesStill(t *testing.T) {
	t.Parallel()
	a := clitest.New(t, clitest.Quiet)
	_, err := a.S.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: Stream, Subjects: []string{Subject}})
	a.Expect(err).NotTo(HaveOccurred())
	var past bytes.Buffer
	appends := &Appender{Session: a.S, Config: &CandidateConfig{Stream: Stream, Subject: Subject}, History: history.NewWriter(&past)}
	e, err := election.NewElection("x", "jobs", a.Bucket, election.WithSplay(0), election.WithStandDown(0))
	a.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	defer clitest.ShutDown(t, e)
	a.Eventually(e.IsLeader).WithTimeout(clitest.Patience).Should(BeTrue())
	led, _ := e.Term()
	later := election.Term{BucketCreated: led.BucketCreated, Number: led.Number + 6}
	store := func(of election.Term) {
		_, err := a.S.JetStream.PublishMsg(t.Context(), &nats.Msg{Subject: Subject, Header: nats.Header{HeaderToken: {of.Token()}}})
		a.Expect(err).NotTo(HaveOccurred())
	}
	find := func() *Position {
		at, err := appends.Find(t.Context(), led, -1)
		a.Expect(err).NotTo(HaveOccurred())
		return at
	}
	store(led)
	a.Expect(find().Fenced).To(BeFalse())
	a.Expect(past.String()).To(BeEmpty())
	store(later)
	a.Expect(find().Fenced).To(BeTrue())
	c, err := history.Read(&past, "x", history.Now())
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(c.Overtaken).To(HaveLen(1))
	a.Expect(c.Overtaken[0].Term).To(Equal(led.Number))
	a.Expect(c.Overtaken[0].Later).To(Equal(later.Token()))
	clitest.ShutDown(t, e)
	a.Expect(find().Fenced).To(BeTrue())
	a.Expect(past.String()).To(BeEmpty(), "it no longer believes")
}
