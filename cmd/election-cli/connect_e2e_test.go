package main

import (
	"bytes"
	"crypto/tls"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/clitest"
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
	code, _, stderr := runInProcess("campaign", "key", "--user", "right", "-s", s.ClientURL(), "--timeout", "3s")
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
				var cmd *exec.Cmd
				var stderr *bytes.Buffer
				limit := time.Second
				for again := true; again && limit < clitest.Timeout; again = strings.Contains(stderr.String(), "no server has answered") { // on a busy host
					limit *= 2
					args := []string{name, "key", "-s", c.server, "--connect-timeout", limit.String()}
					if name == "run" {
						args = append(args, "--", "true")
					}
					cmd, _, stderr = command(t, args...)
					g.Expect(cmd.Run()).NotTo(Succeed())
				}
				g.Expect(cmd.ProcessState.ExitCode()).To(Equal(exit), stderr.String())
				lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
				g.Expect(lines[0]).To(MatchRegexp("WARN .*" + c.reason))
				g.Expect(lines[len(lines)-1]).To(MatchRegexp("no connection within the --connect-timeout of %v: .*"+c.reason, limit))
			})
		}
	}
}

func TestCommandsFailAtOnceWithoutTheBucketAndSayHowToCreateIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	for _, line := range []string{"ls", "info", "info k", "watch", "wait k", "evict k --force", "campaign k"} {
		code, stdout, stderr := f.run(append(strings.Fields(line), "--bucket", "NONE")...)
		f.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitFailure, ""}), line)
		f.Expect(stderr).To(And(ContainSubstring(`no bucket "NONE"`), ContainSubstring("election-cli bucket add --bucket NONE")), line)
	}
}

func TestReadingCommandsFailAtOnceWithoutAServer(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	for _, line := range []string{"ls", "info", "info k", "wait k --max-wait 1h"} {
		code, _, stderr := runInProcess(append(strings.Fields(line), "-s", "nats://127.0.0.1:1")...)
		g.Expect(code).To(Equal(cli.ExitFailure), line)
		g.Expect(stderr).To(ContainSubstring("cannot connect to nats://127.0.0.1:1: connection refused"), line)
	}
	code, _, stderr := runInProcess("wait", "jobs", "--max-wait", "200ms", "--connect-timeout", "1h", "-s", "nats://127.0.0.1:1")
	g.Expect(code).To(Equal(cli.ExitFailure), "nothing is known of the condition")
	g.Expect(stderr).To(ContainSubstring(`"jobs" could not be observed within 200ms`))
}
