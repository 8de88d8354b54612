package dashboards_test

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/dashboards"
)

// files are what the package returns, and where it comes from.
var files = map[string]func(...dashboards.Option) ([]byte, error){"grafana.json": dashboards.Grafana, "rules.yaml": dashboards.Rules}

// must returns what give returns, without an error.
func must(g *WithT, give func(...dashboards.Option) ([]byte, error), opts ...dashboards.Option) []byte {
	text, err := give(opts...)
	g.Expect(err).NotTo(HaveOccurred())
	return text
}

func TestWithoutOptionsTheFilesComeAsTheyAre(t *testing.T) {
	g := NewWithT(t)
	for name, give := range files {
		file, err := os.ReadFile(name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(must(g, give))).To(Equal(string(file)), name)
	}
}

func TestANamespaceIsPutBeforeEveryMetricAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	metric := regexp.MustCompile(`(\w*)\belection[_:][a-z]`)
	bare := regexp.MustCompile(`(^|[^_\w])election[_:][a-z]`)
	for name, give := range files {
		before := metric.FindAllIndex(must(g, give), -1)
		named := must(g, give, dashboards.WithNamespace("choria"))
		g.Expect(len(before)).To(BeNumerically(">", 20), name)
		g.Expect(bare.FindAll(named, -1)).To(BeEmpty(), name)
		g.Expect(regexp.MustCompile(`\bchoria_election[_:][a-z]`).FindAll(named, -1)).To(HaveLen(len(before)), name)
		g.Expect(string(named)).NotTo(ContainSubstring("choria_election="))
	}
}

func TestAFixedElectionLeavesNothingToChoose(t *testing.T) {
	g := NewWithT(t)
	board := must(g, dashboards.Grafana, dashboards.WithElection("jobs.eu/1"))
	g.Expect(string(board)).NotTo(ContainSubstring("$election"))
	g.Expect(string(board)).To(And(ContainSubstring(`election=\"jobs.eu/1\"`), ContainSubstring("Leader election: jobs.eu/1")))
	var parsed struct {
		Templating struct{ List []struct{ Name string } }
		UID        string
	}
	g.Expect(json.Unmarshal(board, &parsed)).To(Succeed())
	g.Expect(parsed.Templating.List).To(HaveLen(4), "datasource, job, instance and bucket")
	g.Expect(parsed.UID).To(BeEmpty(), "it does not replace the other")
	rules := must(g, dashboards.Rules, dashboards.WithElection("jobs.eu/1"), dashboards.WithNamespace("x"))
	g.Expect(string(rules)).NotTo(ContainSubstring(`election=~`))
	g.Expect(string(rules)).To(And(ContainSubstring(`election="jobs.eu/1"`), ContainSubstring(`- name: "x election jobs.eu/1"`)))
}

func TestExpectedElectionsHaveAnAlertByAbsence(t *testing.T) {
	g := NewWithT(t)
	rules := string(must(g, dashboards.Rules, dashboards.WithExpected("jobs", "reports.eu"), dashboards.WithNamespace("x")))
	g.Expect(rules).To(HavePrefix(string(must(g, dashboards.Rules, dashboards.WithNamespace("x")))))
	g.Expect(rules).To(MatchRegexp(`absent\(x_election_leader{election="jobs"}\)\s+or absent\(x_election_leader{election="reports.eu"}\)`))
	_, err := dashboards.Rules(dashboards.WithElection("jobs"), dashboards.WithExpected("jobs", "reports"))
	g.Expect(err).To(MatchError(ContainSubstring(`"reports" is expected`)))
	must(g, dashboards.Rules, dashboards.WithElection("jobs"), dashboards.WithExpected("jobs"))
}

func TestOptionsThatWouldBreakAnExpressionAreRefused(t *testing.T) {
	g := NewWithT(t)
	for _, wrong := range []dashboards.Option{
		dashboards.WithNamespace("1x"), dashboards.WithNamespace("a b"), dashboards.WithNamespace("a:b"), dashboards.WithNamespace(`a"`),
		dashboards.WithElection(`a..b`), dashboards.WithElection(`a"} or vector(1`), dashboards.WithElection("a\nb"), dashboards.WithElection("a*"),
		dashboards.WithExpected("a b"), dashboards.WithExpected("a", `b"}`), dashboards.WithExpected("a", ""),
	} {
		for name, give := range files {
			_, err := give(wrong)
			g.Expect(err).To(MatchError(ContainSubstring("use letters")), name)
		}
	}
}
