package processes

import (
	"bytes"
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/host"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestAcksOfTheStreamAreParsed(t *testing.T) {
	g := NewWithT(t)
	parse := func(data string) ack {
		return parseAck(&nats.Msg{Subject: "_INBOX.x.00ab-01.7", Data: []byte(data)}, "_INBOX.x")
	}
	g.Expect(parse(`{"stream":"S","seq":12}`)).To(Equal(ack{token: "00ab-01", number: 7, sequence: 12}))
	g.Expect(parse(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"}}`).err).To(MatchError(errRefused))
	g.Expect(parse(`{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}`).err).To(MatchError(errRefused))
	g.Expect(parse(`{"error":{"code":503,"err_code":10077}}`).err).To(And(HaveOccurred(), Not(MatchError(errRefused))))
	g.Expect(parse("").err).To(HaveOccurred(), "no stream has the subject")
}

func TestAValidTermIsRecordedAsOvertakenWhenTheStreamHasARecordOfALaterTerm(t *testing.T) {
	t.Parallel()
	a := clitest.New(t, clitest.LongTTL)
	_, err := a.Client.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: Stream, Subjects: []string{Subject}})
	a.Expect(err).NotTo(HaveOccurred())
	var recorded bytes.Buffer
	appender := &Appender{Client: a.Client, History: history.NewWriter(&recorded)}
	e, err := election.NewElection("x", "jobs", a.Bucket, election.WithSplay(0), election.WithStandDown(0))
	a.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(context.Background()) }()
	defer clitest.Shutdown(t, e)
	a.Eventually(e.IsLeader).WithTimeout(clitest.Timeout).Should(BeTrue())
	led, _ := e.Term()
	later := election.Term{BucketCreated: led.BucketCreated, Number: led.Number + 6}
	store := func(of election.Term) {
		_, err := a.Client.JetStream.PublishMsg(t.Context(), &nats.Msg{Subject: Subject, Header: nats.Header{HeaderToken: {of.Token()}}})
		a.Expect(err).NotTo(HaveOccurred())
	}
	find := func() *Position {
		at, err := appender.FindPosition(t.Context(), led, -1)
		a.Expect(err).NotTo(HaveOccurred())
		return at
	}
	store(led)
	a.Expect(find().Fenced).To(BeFalse())
	a.Expect(recorded.String()).To(BeEmpty())
	store(later)
	a.Expect(find().Fenced).To(BeTrue())
	c, err := history.Read(&recorded, "x", host.Clock())
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(c.Overtaken).To(HaveLen(1))
	a.Expect(c.Overtaken[0].Term).To(Equal(led.Number))
	a.Expect(c.Overtaken[0].Later).To(Equal(later.Token()))
	clitest.Shutdown(t, e)
	a.Expect(find().Fenced).To(BeTrue())
	a.Expect(recorded.String()).To(BeEmpty(), "the term is no longer valid")
}
