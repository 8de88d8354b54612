package admin_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestCheckWarnsOfPowersThatNoUserShouldHave(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.RunGuarded(t, `
		candidate = ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$KV.ELECTIONS.scheduler", "election-control.ELECTIONS.candidates.scheduler"]
		authorization: { users: [
			{user: all, password: x}
			{user: safe, password: x, permissions: {
				publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$KV.ELECTIONS.scheduler", "election-control.ELECTIONS.candidates.scheduler", "election-answers.ELECTIONS.*.scheduler"]
				subscribe: ["_INBOX_safe.>", "$KV.ELECTIONS.scheduler", "election-control.ELECTIONS.*.scheduler"]
			}}
			{user: by-control, password: x, permissions: {publish: $candidate, subscribe: ["_INBOX_by-control.>", "election-control.ELECTIONS.*.scheduler"], allow_responses: true}}
			{user: by-key, password: x, permissions: {publish: $candidate, subscribe: ["_INBOX_by-key.>", "$KV.ELECTIONS.>"], allow_responses: {max: 2}}}
			{user: deaf, password: x, permissions: {publish: $candidate, subscribe: ["_INBOX_deaf.>"], allow_responses: true}}
			{user: reader, password: x, permissions: {publish: $candidate, subscribe: ["_INBOX_reader.>", "_INBOX.>"]}}
			{user: forger, password: x, permissions: {publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "_INBOX.>"], subscribe: ["_INBOX_forger.>"]}}
		] }, no_auth_user: all`, func(f *fleet) {
		a, _ := f.LeaderWith("b") // which receive what a check sends
		before, _ := a.Term()
		for user, expected := range map[string][]string{
			"all": nil, "safe": nil, "by-control": {"allow-responses"}, "by-key": {"allow-responses"},
			"deaf":   nil, // no message reaches it that it could answer
			"reader": {"inboxes-readable"}, "forger": {"inboxes-writable"},
		} {
			found, err := admin.CheckKey(ctx, f.Open(f.Server.Connect(f.T, nats.UserInfo(user, "x"), nats.CustomInboxPrefix("_INBOX_"+user))), key)
			f.Expect(err).NotTo(HaveOccurred())
			var powers []string
			for _, p := range found {
				switch p.Code {
				case "allow-responses", "inboxes-writable":
					f.Expect(p.Severity).To(Equal(admin.SeverityWarning))
					f.Expect(p.Fix).To(ContainSubstring("election-answers.ELECTIONS.*.scheduler"))
					powers = append(powers, p.Code)
				case "inboxes-readable":
					powers = append(powers, p.Code)
				}
			}
			f.Expect(powers).To(Equal(expected), user)
		}
		now, leads := a.Term()
		f.Expect(leads).To(BeTrue())
		f.Expect(now.Number).To(Equal(before.Number))
	})
}
