package lint

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/dashboards"
)

// promtool returns what promtool says, and expects that it has nothing to complain of.
func promtool(t *testing.T, stdin []byte, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: apt-get install prometheus")
	}
	cmd := exec.Command(program, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

func TestPromtoolHasNothingToSayOfTheMetrics(t *testing.T) {
	_, text := gathered(t, "")
	NewWithT(t).Expect(promtool(t, text, "check", "metrics")).To(BeEmpty())
}

func TestPromtoolTakesTheRulesInEveryVariant(t *testing.T) {
	for _, v := range variants {
		g, file := NewWithT(t), filepath.Join(t.TempDir(), "rules.yaml")
		rules, err := dashboards.Rules(v.options...)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(file, rules, 0o600)).To(Succeed())
		g.Expect(promtool(t, nil, "check", "rules", "--lint=all", "--lint-fatal", file)).To(ContainSubstring("rules found"), v.name)
	}
}

func TestAnExpectedElectionThatNobodyCampaignsForRaisesAnAlert(t *testing.T) {
	g, folder := NewWithT(t), t.TempDir()
	rules, err := dashboards.Rules(dashboards.WithExpected("jobs", "reports"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(folder, "rules.yaml"), rules, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(folder, "test.yaml"), []byte(`
rule_files: [rules.yaml]
tests:
  - interval: 1m
    input_series:
      - {series: 'election_leader{job="j", instance="a", bucket="B", election="jobs", identity="a"}', values: '0x30'} # it need not lead
    promql_expr_test:
      - expr: ALERTS{alertname="ElectionAbsent", alertstate="firing"}
        eval_time: 4m
      - expr: ALERTS{alertname="ElectionAbsent", alertstate="firing"}
        eval_time: 6m
        exp_samples: [{labels: 'ALERTS{alertname="ElectionAbsent", alertstate="firing", election="reports", severity="critical"}', value: 1}]
`), 0o600)).To(Succeed())
	g.Expect(promtool(t, nil, "test", "rules", filepath.Join(folder, "test.yaml"))).To(ContainSubstring("SUCCESS"))
}

func TestPromtoolFindsThatAlertsFireWhenTheyShould(t *testing.T) {
	NewWithT(t).Expect(promtool(t, nil, "test", "rules", "../rules_test.yaml")).To(ContainSubstring("SUCCESS"))
}
