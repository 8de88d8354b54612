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

func TestExpectedElectionsAreForTheRulesAndForThePage(t *testing.T) {
	g := NewWithT(t)
	want, err := dashboards.Rules(dashboards.WithExpected("jobs", "reports"))
	g.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr := runInProcess("rules", "--expect", "reports,jobs")
	g.Expect([]any{code, stderr, stdout}).To(Equal([]any{cli.ExitOK, "", string(want)}))
	for _, c := range []struct {
		args []string
		why  string
	}{
		{[]string{"dashboard", "--expect", "jobs"}, "--expect is for --serve"},
		{[]string{"dashboard", "--serve", ":0", "--election", "jobs", "--expect", "jobs"}, "--election and --expect exclude each other"},
		{[]string{"rules", "--expect", "a b"}, "separated by commas"},
		{[]string{"rules", "--election", "jobs", "--expect", "reports"}, `"reports" is expected`},
	} {
		code, stdout, stderr := runInProcess(c.args...)
		g.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitFailure, ""}), "%q", c.args)
		g.Expect(stderr).To(ContainSubstring(c.why))
	}
}
