package control

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestErrorIsCutAtTheEndOfAWord(t *testing.T) {
	g := NewWithT(t)
	short := strings.Repeat("word ", maxErrorBytes/5)
	g.Expect(CutError(short)).To(Equal(short))
	for i := range 5 {
		g.Expect(CutError(strings.Repeat("x", i) + " " + strings.Repeat("word ", maxErrorBytes))).To(And(
			HaveSuffix(" word …"), WithTransform(func(s string) int { return len(s) }, BeNumerically("<=", maxErrorBytes))))
	}
	g.Expect(CutError(strings.Repeat("ä", maxErrorBytes))).To(And(HaveSuffix("ä …"), Satisfy(utf8.ValidString)))
}

func TestRequestIsAnsweredInInboxesAndUnderItsOwnKeyOnly(t *testing.T) {
	const id = "ABCDEFGHIJKLMNOPQRSTUV"
	for _, c := range []struct {
		reply, key string
		want       bool
	}{
		{AnswerSubject("E", id, "jobs"), "jobs", true},
		{AnswerSubject("E", id, "jobs.a"), "jobs.a", true},
		{nats.NewInbox(), "jobs", true},
		{nats.NewInbox() + ".x1Y", "", true},
		{"_INBOX_ops." + id + ".x1Y", "jobs", true},
		{"_R_.kgO5hX.sjfXw0", "jobs", true}, // from another account

		{"", "jobs", false},
		{"_INBOX", "jobs", false},
		{"_INBOX.", "jobs", false},
		{"_INBOX_ops", "jobs", false},
		{"_R_", "jobs", false},
		{"x._INBOX." + id, "jobs", false},
		{AnswerSubject("E", id, "nightly"), "jobs", false},
		{AnswerSubject("E", id, "jobs.a"), "jobs", false},
		{AnswerSubject("E", id, "jobs"), "jobs.a", false},
		{AnswerSubject("F", id, "jobs"), "jobs", false},
		{AnswerSubject("E", "a.b", "jobs"), "jobs", false},
		{AnswerSubject("E", "", "jobs"), "jobs", false},
		{"election-answers.E.jobs", "jobs", false},
		{"election-answers.E." + id, "", false}, // to what nats micro asks
		{AnswerSubject("E", id, ""), "", false},
		{"$KV.E.jobs", "jobs", false},
		{"$JS.API.STREAM.PURGE.KV_E", "jobs", false},
		{"$JS.leaf.API.$KV.E." + id, "jobs", false},
		{"election.E.$KV.E.jobs", "jobs", false},
		{Subject("E", verbResign, "jobs"), "jobs", false},
		{"orders.new", "jobs", false},
	} {
		NewWithT(t).Expect(answerable(c.reply, "E", c.key)).To(Equal(c.want), "%q, about %q", c.reply, c.key)
	}
}

func TestRefusalOfAnEarlierRequestIsNotTakenForOneOfThis(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		g := NewWithT(t)
		s := natstest.Start(t, func(o *server.Options) {
			g.Expect(o.ProcessConfigString(`authorization: {users: [{user: u, password: x, permissions: {publish: "other"}}]}`)).To(Succeed())
		})
		nc := s.Connect(t, nats.UserInfo("u", "x"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		refused := func(before error, what string) bool {
			unclear, err := kv.RefusedSince(ctx, nc, before, what)
			g.Expect(err).To(Or(BeNil(), MatchError(nats.ErrPermissionViolation)))
			g.Expect(unclear).To(Equal(err == nil && !errors.Is(nc.LastError(), before)))
			return err != nil
		}
		before := nc.LastError()
		g.Expect(nc.Publish("jobs", nil)).To(Succeed())
		g.Expect(refused(before, `Publish to "job"`)).To(BeFalse(), "another subject was refused")
		g.Expect(refused(before, `Publish to "jobs"`)).To(BeTrue())
		before = nc.LastError()
		g.Expect(refused(before, `Publish to "jobs"`)).To(BeFalse(), "it may have been granted since")
		g.Expect(nc.Publish("jobs", nil)).To(Succeed())
		g.Expect(refused(before, `Publish to "jobs"`)).To(BeTrue(), "and refused again")
	})
}
