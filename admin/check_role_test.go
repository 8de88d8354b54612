package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/test/fleettest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestCheckComplainsOfMissingPermissionsByTheRoleOfTheUser(t *testing.T) {
	natstest.SkipIfShort(t)
	fleettest.RunGuarded(t, `authorization: { users: [
		{user: all, password: x},
		{user: reader, password: x, permissions: {
			publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$JS.API.DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.scheduler", "$JS.API.CONSUMER.CREATE.KV_ELECTIONS.*.$KV.ELECTIONS.scheduler"]
			subscribe: ["_INBOX.>"]
		}}
		{user: asker, password: x, permissions: {
			publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$JS.API.DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.scheduler", "election-control.ELECTIONS.candidates.scheduler"]
			subscribe: ["_INBOX.>"]
		}}
		{user: none, password: x, permissions: {publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS"], subscribe: ["_INBOX.>"]}}
		{user: least, password: x, permissions: {publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$KV.ELECTIONS.scheduler"], subscribe: ["_INBOX.>"]}}
		{user: enough, password: x, permissions: {
			publish: ["$JS.API.STREAM.INFO.KV_ELECTIONS", "$KV.ELECTIONS.>", "$JS.API.DIRECT.GET.KV_ELECTIONS.$KV.ELECTIONS.>", "$JS.API.CONSUMER.CREATE.KV_ELECTIONS.*.$KV.ELECTIONS.>", "$JS.API.CONSUMER.DELETE.KV_ELECTIONS.*", "$JS.FC.KV_ELECTIONS.>", "election-answers.ELECTIONS.>"]
			subscribe: ["_INBOX.>", "election.ELECTIONS.>", "$KV.ELECTIONS.>"]
		}}
	] }, no_auth_user: all`, func(f *fleet) {
		for _, c := range []struct {
			user   string
			role   admin.Role
			expect []string
		}{
			{"reader", admin.RoleObserver, nil},
			{"reader", admin.RoleCandidate, []string{"write-refused", "subscribe-refused"}},
			{"asker", admin.RoleObserver, nil},
			{"asker", admin.RoleOperator, []string{"request-refused", "answers-refused"}},
			{"none", admin.RoleObserver, []string{"read-refused"}},
			{"none", admin.RoleCandidate, []string{"write-refused", "read-refused", "watch-refused", "subscribe-refused"}},
			{"all", admin.RoleCandidate, nil},
			{"all", admin.RoleOperator, nil},
		} {
			began := time.Now()
			found, err := admin.CheckAs(ctx, f.Open(f.Server.Connect(f.T, nats.UserInfo(c.user, "x"))), c.role, key)
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(time.Since(began)).To(BeNumerically("<", 500*time.Millisecond), "the server says at once what it refuses")
			var codes []string
			for _, p := range found {
				switch p.Code {
				case "memory", "reconnect-buffer", "reconnects-limited", "ping-interval", "no-markers": // about the fleet of the test
				default:
					if p.Severity > admin.SeverityInfo {
						codes = append(codes, p.Code)
					}
				}
				f.Expect(p.Short).NotTo(ContainSubstring("nats:"), "for people")
			}
			f.Expect(codes).To(ConsistOf(c.expect), "%s as %s", c.user, c.role)
			f.Expect(shortOf(found, "expect-release")).To(HavePrefix("after a release somebody leads again in "))
		}
		for user, expect := range map[string][]string{
			"least":  {"write-refused", "read-refused", "watch-refused", "subscribe-refused", "answers-refused", "attempts-refused"},
			"enough": nil,
		} {
			found, err := admin.Check(ctx, f.Open(f.Server.Connect(f.T, nats.UserInfo(user, "x"))))
			f.Expect(err).NotTo(HaveOccurred())
			var refused []string
			for _, p := range found {
				if strings.HasSuffix(p.Code, "-refused") {
					refused = append(refused, p.Code)
				}
				if p.Code == "subscribe-refused" {
					f.Expect(p.Message).To(ContainSubstring(" cannot be subscribed to: not permitted"))
				}
			}
			f.Expect(refused).To(Equal(expect), "whoever it is, for any key: %s", user)
		}
	})
}

func shortOf(found []admin.Finding, code string) string {
	for _, f := range found {
		if f.Code == code {
			return f.Short
		}
	}
	return ""
}
