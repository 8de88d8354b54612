package main

import (
	"crypto/tls"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestWrongCredentialsEndADrillAndACampaign(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	s := natstest.StartNode(t, "server", &server.Options{Authorization: "right"})

	for _, command := range [][]string{{"drill"}, {"campaign", "key"}} {
		code, stdout, stderr := runInProcess(append(command, "--user", "s3cret", "-s", s.ClientURL())...)
		g.Expect(code).To(Equal(cli.ExitFailure))
		g.Expect(stderr).To(MatchRegexp("(?i)authorization violation"))
		g.Expect(stdout + stderr).NotTo(ContainSubstring("s3cret"))
	}
	code, _, stderr := runInProcess("campaign", "key", "--user", "right", "-s", s.ClientURL(), "--timeout", "500ms")
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(ContainSubstring("has no JetStream for this account"))
}

func TestAConnectionThatCannotWorkSaysWhyAndEndsAfterTheConnectTimeout(t *testing.T) {
	t.Parallel()
	certificates := httptest.NewTLSServer(nil)
	t.Cleanup(certificates.Close)
	s := natstest.StartNode(t, "server", &server.Options{
		TLS: true, TLSConfig: &tls.Config{Certificates: certificates.TLS.Certificates, MinVersion: tls.VersionTLS12},
	})

	for _, c := range []struct{ name, server, reason string }{
		{"an unknown authority", s.ClientURL(), "certificate signed by unknown authority: give the file .* with --tlsca"},
		{"an unknown host", "nats://host.invalid:4222", "lookup host.invalid"},
		{"nobody there", "nats://127.0.0.1:1", "connection refused"},
	} {
		for name, exit := range map[string]int{"run": supervise.ExitOwnError, "wait": cli.ExitFailure, "campaign": cli.ExitFailure, "watch": cli.ExitFailure} {
			t.Run(name+" and "+c.name, func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				args := []string{name, "key", "-s", c.server, "--connect-timeout", "2s"}
				if name == "run" {
					args = append(args, "--", "true")
				}
				cmd, _, stderr := command(t, args...)
				g.Expect(cmd.Run()).NotTo(Succeed())
				g.Expect(cmd.ProcessState.ExitCode()).To(Equal(exit), stderr.String())
				lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
				g.Expect(lines[0]).To(MatchRegexp("WARN .*" + c.reason))
				g.Expect(lines[len(lines)-1]).To(MatchRegexp("no connection within the --connect-timeout of 2s: .*" + c.reason))
			})
		}
	}
}

func TestTheErrorForAMissingBucketSaysHowToCreateIt(t *testing.T) {
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	code, _, stderr := runInProcess("campaign", "key", "--bucket", "SOME", "-s", e.URL())
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(And(ContainSubstring(`no bucket "SOME"`), ContainSubstring("'election-cli bucket add --bucket SOME'")))
}

func TestARefusalOfTheServerIsNamedWhereItMattersAndNowhereElse(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	user := func(name string, publish ...string) *server.User {
		return &server.User{Username: name, Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}}
	}
	s := natstest.StartNode(t, "server", &server.Options{
		JetStream: true,
		Users:     []*server.User{user("operator", ">"), user("monitor", "$JS.API.STREAM.INFO.>")},
	})
	run := func(user string, args ...string) (int, string) {
		code, _, stderr := runBinary(t, append(args, "-s", s.ClientURL(), "--user", user, "--password", "p", "--timeout", "500ms")...)
		return code, stderr
	}
	code, stderr := run("operator", "bucket", "add")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	code, stderr = run("monitor", "ls")
	g.Expect(code).To(Equal(cli.ExitOK))
	g.Expect(stderr).To(MatchRegexp(`\ANobody leads in bucket "LEADER_ELECTION" .*\n\z`), "ls can do without what was refused")
	code, stderr = run("monitor", "info", "jobs")
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(ContainSubstring("the server does not permit this user to publish to $JS.API.DIRECT.GET.KV_LEADER_ELECTION.$KV.LEADER_ELECTION.jobs\n"))
	code, stderr = run("monitor", "wait", "jobs", "--max-wait", "500ms")
	g.Expect(code).To(Equal(cli.ExitFailure))
	// By a warning, by the error, or by both: the error may end the command before the connection has reported the refusal.
	g.Expect(stderr).To(MatchRegexp(`(?i)the server does not permit this user to publish to \$JS\.API\.CONSUMER\.CREATE\.KV_LEADER_ELECTION\.`))
}
