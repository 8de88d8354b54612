package main

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/dashboards"
	"github.com/natscampaign/election/internal/cli"
)

func TestDashboardAndRulesArePrintedWithoutAServer(t *testing.T) {
	g := NewWithT(t)
	for name, generate := range map[string]func(...dashboards.Option) ([]byte, error){"dashboard": dashboards.Grafana, "rules": dashboards.Rules} {
		for _, c := range []struct {
			args []string
			opts []dashboards.Option
		}{
			{[]string{name}, nil},
			{[]string{name, "--election", "jobs", "--namespace", "choria"}, []dashboards.Option{dashboards.WithElection("jobs"), dashboards.WithNamespace("choria")}},
		} {
			want, err := generate(c.opts...)
			g.Expect(err).NotTo(HaveOccurred())
			code, stdout, stderr := runInProcess(append(c.args, "-s", "nats://127.0.0.1:1")...)
			g.Expect(code).To(Equal(cli.ExitOK), stderr)
			g.Expect(stderr).To(BeEmpty())
			g.Expect(stdout).To(Equal(string(want)))
		}
	}
	_, stdout, _ := runInProcess("dashboard", "--election", "jobs")
	g.Expect(json.Valid([]byte(stdout))).To(BeTrue())
}
