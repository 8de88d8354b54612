package control

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natstest"
)

func TestOnlyInboxesAreAnswered(t *testing.T) {
	const id = "ABCDEFGHIJKLMNOPQRSTUV"
	const api, own = "ops.js", "app.inbox"
	for _, c := range []struct {
		reply, named string
		want         bool
	}{
		{nats.NewInbox(), "", true},
		{nats.NewInbox() + ".x1Y", "", true},
		{nats.NewInbox(), "$KV", true},
		{"_INBOX_ops." + id, "_INBOX_ops", true},
		{"_INBOX_ops." + id + ".x1Y", "_INBOX_ops", true},
		{"team.a.inbox." + id, "team.a.inbox", true},
		{"app.inbox." + id, "", true},
		{"app.inbox." + id + ".x1Y", "another", true},
		{"api.kv_inbox." + id, "api.kv_inbox", true},
		{"_R_.kgO5hX.sjfXw0", "", true}, // from another account

		{"", "", false},
		{"_INBOX", "", false},
		{"_R_", "", false},
		{"_INBOX_ops." + id, "", false},
		{"_INBOX_ops." + id, "_INBOX", false},
		{"team.a.inbox." + id, "team.a", false},
		{id, "", false},
		{"." + id, "", false},
		{"orders.new", "orders", false},
		{"orders.ABCDEFGHIJKLMNOPQRSTU", "orders", false},
		{"orders." + id + "W", "orders", false},
		{"orders." + id + ".", "orders", false},
		{"orders." + id + ".x.y", "orders", false},
		{"orders." + id + ".*", "orders", false},
		{"orders." + id + "\n", "orders", false},
		{"orders.ABCDEFGHIJKLMNOPQRST-V", "orders", false},
		{"$KV.E.scheduler", "", false},
		{"$KV.E." + id, "$KV.E", false},
		{"$JS.API.STREAM.PURGE.KV_E", "", false},
		{"$JS.leaf.API.STREAM.DELETE." + id, "$JS.leaf.API.STREAM.DELETE", false},
		{"$JS.leaf.API.$KV.E." + id, "$JS.leaf.API.$KV.E", false},
		{"x.$KV.E." + id, "x.$KV.E", false},
		{"x.API.STREAM.DELETE." + id, "x.API.STREAM.DELETE", false},
		{"x.STREAM.MSG.DELETE.KV_E." + id, "x.STREAM.MSG.DELETE.KV_E", false},
		{"ops.js.STREAM.DELETE." + id, "ops.js.STREAM.DELETE", false},
		{"ops.js." + id, "ops.js", false},
		{"x.ops.js." + id, "x.ops.js", false},
		{"ops.jsx." + id, "ops.jsx", true},
		{"election.E." + id, "election.E", false},
		{"election-control.E.resign." + id, "election-control.E.resign", false},
		{"app.election." + id, "app.election", true},
	} {
		NewWithT(t).Expect(answerable(c.reply, api, own, c.named)).To(Equal(c.want), "%q, with the prefix %q", c.reply, c.named)
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
