package main

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
)

func TestReplicasOnASingleServerAreRefusedWithAFixThatWorks(t *testing.T) {
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	code, _, stderr := runInProcess("bucket", "add", "--replicas", "3", "-s", e.URL())
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(ContainSubstring("cannot have 3 replicas, because the server belongs to no cluster: give 1 replica, or leave their number out"))
	for _, fix := range [][]string{{"--bucket", "ONE", "--replicas", "1"}, {"--bucket", "LEFT_OUT"}} {
		code, _, stderr = runInProcess(append([]string{"bucket", "add", "-s", e.URL()}, fix...)...)
		g.Expect(code).To(Equal(cli.ExitOK), stderr)
	}
}
