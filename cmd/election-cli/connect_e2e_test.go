package main

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/embedded"
)

func TestWrongCredentialsEndADrillAndACampaign(t *testing.T) {
	g := NewWithT(t)
	s, err := server.NewServer(&server.Options{Host: embedded.Loopback, Port: server.RANDOM_PORT, Authorization: "right", NoLog: true, NoSigs: true})
	g.Expect(err).NotTo(HaveOccurred())
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	g.Expect(s.ReadyForConnections(embedded.StartTimeout)).To(BeTrue())

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

func TestTheErrorForAMissingBucketSaysHowToCreateIt(t *testing.T) {
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	code, _, stderr := runInProcess("campaign", "key", "--bucket", "SOME", "-s", e.URL())
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(And(ContainSubstring(`no bucket "SOME"`), ContainSubstring("'election-cli bucket add --bucket SOME'")))
}
