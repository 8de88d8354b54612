package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// access is a server whose users have different permissions, with a leader in the election jobs. The user admin has all permissions; that
// of the others are in their names.
type access struct{ *fixture }

func newAccess(t *testing.T) *access {
	t.Helper()
	skipIfShort(t)
	const info, get = "$JS.API.STREAM.INFO.KV_LEADER_ELECTION", "$JS.API.DIRECT.GET.KV_LEADER_ELECTION.>"
	user := func(name string, publish ...string) *server.User {
		return &server.User{Username: name, Password: clitest.Password, Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", "election-answers.>"}},
		}}
	}
	s := natstest.StartNode(t, "server", &server.Options{JetStream: true, Users: []*server.User{
		{Username: "admin", Password: clitest.Password},
		user("nothing", "nothing"), user("anywhere", "$JS.API.STREAM.INFO.>"), user("info", info), user("get", info, get), user("create", "$JS.API.INFO", info, "$JS.API.STREAM.INFO.KV_NEW", get, "$JS.API.CONSUMER.CREATE.KV_LEADER_ELECTION.>"),
		user("ask", info, get, "election-control.LEADER_ELECTION.*.jobs"), user("resign", info, get, "election-control.LEADER_ELECTION.resign.mail"),
	}})
	return &access{fixtureOn(t, s.ClientURL(), "admin", election.BucketConfig{TTL: healthyTTL})}
}

// as renews the record of the leader, which may expire on a busy host, and runs a command line as a user.
func (a *access) as(user string, args ...string) (code int, stdout, stderr string) {
	a.T.Helper()
	a.Put("jobs", clitest.LeaderRecord("web-1", nil))
	a.user = user
	return a.run(args...)
}

func TestCheckAsksForThePermissionsOfTheRoleOnly(t *testing.T) {
	t.Parallel()
	a := newAccess(t)
	for _, c := range []struct {
		user, role string
		code       int
		says       string
	}{
		{"create", "observer", 0, `OK  "web-1" leads "jobs", renewed `},
		{"ask", "operator", 0, `OK  "web-1" leads "jobs", renewed `},
		{"admin", "candidate", 0, `OK  "web-1" leads "jobs", renewed `},
		{"get", "observer", 0, "info      watch-refused: changes of the whole bucket cannot be watched: not permitted"},
		{"create", "operator", 1, `warning   request-refused: candidates of "jobs" cannot be asked: not permitted: candidates, resign, transfer. Fix: permit to publish to `},
		{"create", "candidate", 2, `critical  write-refused: the key "jobs" cannot be written by this user: not permitted. Fix: permit to publish to `},
	} {
		as := func(args ...string) (code int, stdout, stderr string) { return a.as(c.user, args...) }
		code, stdout, stderr := runAnswered(as, "check", "jobs", "--as", c.role)
		a.Expect(code).To(Equal(c.code), "%s as %s: %s%s", c.user, c.role, stdout, stderr)
		a.Expect(stdout).To(ContainSubstring(c.says), "%s as %s", c.user, c.role)
		forecast := MatchRegexp(`(?m)^info      expect-crash: after the crash of a leader somebody leads again in \d+s, or \d+s at worst(; \d+s if no standby has been notified of a renewal yet)?$`) // two digits
		if c.code == 2 {
			forecast = Not(ContainSubstring("expect-"))
		}
		a.Expect(stdout).To(forecast)
	}
	_, stdout, _ := a.as("admin", "check", "jobs", "-v")
	a.Expect(stdout).To(MatchRegexp(`(?m)^info      expect-crash: .* in the median and .* at worst until somebody leads again, as candidates are notified`))
}

func TestAMissingPermissionIsNamedAtOnceWithItsFix(t *testing.T) {
	t.Parallel()
	a := newAccess(t)
	const inspect, read, watch = "$JS.API.STREAM.INFO.KV_LEADER_ELECTION", "$JS.API.DIRECT.GET.KV_LEADER_ELECTION.$KV.LEADER_ELECTION.jobs", "$JS.API.CONSUMER.CREATE.KV_LEADER_ELECTION.*.$KV.LEADER_ELECTION.jobs"
	for _, c := range []struct {
		user, command string
		code          int
		missing       string
	}{
		{"info", "check jobs", 3, read},
		{"info", "check jobs --format nagios", 3, read},
		{"info", "info jobs", 2, read},
		{"info", "info", 2, read},
		{"info", "ls", 2, read},
		{"nothing", "check jobs", 3, inspect},
		{"nothing", "ls", 2, inspect},
		{"nothing", "wait jobs", 2, inspect},
		{"get", "wait jobs", 2, watch},
		{"get", "watch jobs", 2, watch},
		{"create", "evict jobs --force", 2, "$KV.LEADER_ELECTION.jobs"},
		{"create", "pause jobs", 2, "$JS.API.STREAM.UPDATE.KV_LEADER_ELECTION"},
		{"create", "bucket rm --force", 2, "$JS.API.STREAM.DELETE.KV_LEADER_ELECTION"},
		{"create", "bucket add --bucket NEW", 2, "$JS.API.STREAM.CREATE.KV_NEW"},
		{"get", "candidates jobs", 2, "election-control.LEADER_ELECTION.candidates.jobs"},
	} {
		code, stdout, stderr := a.as(c.user, append(strings.Fields(c.command), "--timeout", "1m")...) // so that a time-out is seen
		a.Expect(code).To(Equal(c.code), "%s: %s: %s", c.user, c.command, stderr)
		a.Expect(stdout+stderr).To(And(ContainSubstring("publish to "+c.missing), ContainSubstring("docs/PERMISSIONS.md")), "%s: %s", c.user, c.command)
		a.Expect(stdout+stderr).NotTo(ContainSubstring("deadline exceeded"), "%s: %s", c.user, c.command)
	}
	code, stdout, stderr := a.as("create", "ls")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(stdout).To(MatchRegexp(`^jobs\tweb-1\tleader\t`), "a user that may not delete consumers sees the leader")
	a.Expect(stdout).NotTo(ContainSubstring("over for"))
}

func TestLsAndInfoNeedOnlyThePermissionToRead(t *testing.T) {
	t.Parallel()
	a := newAccess(t)
	code, stdout, stderr := a.as("get", "info", "jobs")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(stdout).To(ContainSubstring("Leader: web-1"))
	a.Put("gone", clitest.LeaderRecord("web-2", clitest.Record{"released": time.Now()}))
	a.Put("more", clitest.LeaderRecord("web-3", nil))
	code, stdout, stderr = a.as("get", "ls")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(stdout).To(MatchRegexp(`^jobs\tweb-1\t.*\nmore\tweb-3\t.*\n$`), "without permission for a consumer the keys are read one by one")

	_, err := election.CreateBucket(t.Context(), a.Client.JetStream, election.BucketConfig{Name: "EMPTY", TTL: healthyTTL})
	a.Expect(err).NotTo(HaveOccurred())
	code, _, stderr = a.as("anywhere", "ls", "--bucket", "EMPTY")
	a.Expect(code).To(Equal(cli.ExitOK))
	a.Expect(stderr).To(MatchRegexp(`\ANobody leads in bucket "EMPTY" .*\n\z`), "ls can do without what was refused")
}

func TestResignNeedsOnlyThePermissionToResign(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	a := newAccess(t)
	e := clitest.Lead(t, a.Bucket, "web-1", "mail")
	code, _, stderr := a.as("resign", "candidates", "mail")
	a.Expect(code).To(Equal(cli.ExitFailure), stderr)
	a.Expect(stderr).To(ContainSubstring("not permitted: permit to publish to election-control.LEADER_ELECTION.candidates.mail"))
	code, _, stderr = a.as("resign", "transfer", "mail", "--to", "web-2")
	a.Expect(code).To(Equal(cli.ExitNegative), stderr)
	a.Expect(stderr).To(ContainSubstring("not permitted: permit to publish to election-control.LEADER_ELECTION.transfer.mail"))
	code, stdout, stderr := a.as("resign", "resign", "mail", "--force")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(stdout).To(ContainSubstring(`"web-1" has resigned`))
	a.Expect(e.IsLeader()).To(BeFalse())
}

func TestCheckSaysWhyNobodyLeadsAndWhatToDo(t *testing.T) {
	t.Parallel()
	a := newAccess(t)
	operator, err := admin.New(a.Bucket)
	a.Expect(err).NotTo(HaveOccurred())
	a.Expect(operator.Pause(t.Context(), "backup")).To(Succeed())
	for _, c := range []struct {
		user, args string
		code       int
		line       string
	}{
		{"admin", "backup", 2, `critical  no-leader: nobody leads "backup": the election is paused since `},
		{"admin", "nobody", 2, `critical  no-leader: nobody leads "nobody": no candidate answers. Fix: start the program that campaigns, or read its log, which says why: `},
		{"create", "nobody", 2, `critical  no-leader: nobody leads "nobody", and this user may not write the key, as a candidate must. Fix: permit to publish to $KV.LEADER_ELECTION.>, or to $KV.LEADER_ELECTION.nobody;`},
		{"create", "nobody --as observer", 2, `critical  no-leader: nobody leads "nobody"; this user may not ask whether there are candidates. Fix: run 'election-cli check nobody --as operator' as a user who may publish to election-control.LEADER_ELECTION.*.nobody, and subscribe to election-answers.LEADER_ELECTION.*.nobody`},
		{"admin", "jobs --bucket GONE", 2, `critical  no-bucket: there is no bucket "GONE" on ` + a.url + ` in account $G. Fix: create it with 'election-cli bucket add --bucket GONE', or name another with --bucket; if this is the wrong account, connect as a user of the right one`},
		{"anywhere", "jobs --bucket GONE", 2, `critical  no-bucket: there is no bucket "GONE" on ` + a.url + ` in the account of this user. Fix: `},
	} {
		code, stdout, stderr := a.as(c.user, append([]string{"check"}, strings.Fields(c.args)...)...)
		a.Expect(code).To(Equal(c.code), "%s: %s%s", c.args, stdout, stderr)
		a.Expect(stdout+stderr).To(ContainSubstring(c.line), c.args)
	}
	_, _, stderr := a.as("admin", "info", "nobody")
	a.Expect(stderr).To(ContainSubstring(`nobody leads "nobody" in bucket "LEADER_ELECTION" on ` + a.url + `; 'election-cli check nobody' says why`))
}

func TestKeysAndNamesAreQuotedInSentences(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	for _, c := range []struct{ args, says string }{
		{"wait nobody", `"nobody" leads "nobody", term 7`},
		{"check nobody --as observer", `OK  "nobody" leads "nobody", renewed `},
		{"watch --count 1", `"nobody" leads "nobody", term 7`},
		{"evict nobody", `Evict "nobody" from "nobody"?`},
		{"resign nobody", `No other candidate is ready in "nobody": if "nobody" resigns, `},
		{"candidates nobody", `"nobody" holds the key, but does not answer`},
		{"pause other", `Nobody leads "other", and no candidate answers for it.`},
		{"run nobody --no-wait -- true", `"nobody" leads "nobody"`},
	} {
		t.Run(c.args, func(t *testing.T) { // a second each, in which candidates could answer
			t.Parallel()
			f.Put("nobody", clitest.LeaderRecord("nobody", nil)) // not sooner: a subtest that runs beside others may begin late
			args := f.withServer(strings.Fields(c.args))
			if own, program, found := strings.Cut(c.args, " -- "); found {
				args = append(f.withServer(strings.Fields(own)), "--", program)
			}
			_, stdout, stderr := runBinary(t, args...)
			NewWithT(t).Expect(stdout + stderr).To(ContainSubstring(c.says))
		})
	}
}

func TestWaitDoesNotTimeOutOnALostConnection(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	server, client := clitest.ServerWithoutBucket(t)
	c := &waitCommand{Env: &cli.Env{}, key: "jobs", maxWait: time.Second}
	c.following.Store(client)
	exit := &cli.ExitError{}
	g.Expect(errors.As(c.timedOut(), &exit)).To(BeTrue())
	g.Expect(exit.Code).To(Equal(supervise.ExitTimedOut))
	server.Stop()
	g.Eventually(client.Conn.IsConnected).Should(BeFalse())
	g.Expect(c.timedOut()).To(MatchError(`"jobs" did not get a leader within 1s, as far as is known: the connection was lost`))
}

func TestThePauseIsTheReasonThatNobodyTakesOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.StartLeader()
	operator, err := admin.New(f.Bucket)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(operator.Pause(t.Context(), "jobs")).To(Succeed())
	for args, says := range map[string]string{
		"transfer jobs --to web-2": "takes over while the election is paused",
		"resign jobs":              `"jobs" is paused: if "web-1" resigns, nobody leads until 'election-cli resume jobs'`,
	} {
		code, _, stderr := f.run(strings.Fields(args)...)
		f.Expect(code).NotTo(BeZero(), args)
		f.Expect(stderr).To(ContainSubstring(says), args)
	}
	stdout := f.ok("resign", "jobs", "--force")
	f.Expect(stdout).To(Equal("\"web-1\" has resigned; \"jobs\" is paused, and nobody leads until 'election-cli resume jobs'\n"))
	for _, args := range []string{"resign jobs", "transfer jobs --to web-2", "info jobs"} {
		code, _, stderr := f.run(strings.Fields(args)...)
		f.Expect(code).To(Equal(cli.ExitNegative), args)
		f.Expect(stderr).To(MatchRegexp(`it is paused since \S+ \S+ by \S+, and no candidate campaigns until 'election-cli resume jobs'`), args)
	}
}
