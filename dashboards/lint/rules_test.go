package lint

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"

	"github.com/natscampaign/election/dashboards"
)

type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func rulesOf(g *WithT, opts ...dashboards.Option) []rule {
	text, err := dashboards.Rules(opts...)
	g.Expect(err).NotTo(HaveOccurred())
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	g.Expect(yaml.Unmarshal(text, &file)).To(Succeed())
	g.Expect(file.Groups).To(HaveLen(1))
	return file.Groups[0].Rules
}

func TestEveryRuleAsksForWhatIsShownOrRecorded(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			g, x := NewWithT(t), exposed(t, v.namespace)
			x["up"] = map[string][]string{"job": nil, "instance": nil}
			for _, r := range rulesOf(g, v.options...) {
				q := parse(g, r.Expr)
				x.resolve(g, q)
				q.shaped(g)
				for _, s := range q.selectors {
					if s.Name != "up" {
						g.Expect(s.String()).To(ContainSubstring("election="), "it is for one election, or for any")
					}
				}
				if r.Record != "" { // from here on it is there, with what its series are made of
					x[r.Record] = map[string][]string{}
					for _, label := range append(slices.Clone(q.groups), "bucket", "election", "job") {
						x[r.Record][label] = nil
					}
				}
			}
		})
	}
}

func TestEveryAlertSaysHowBadItIsWhatHappenedAndWhatToDo(t *testing.T) {
	g := NewWithT(t)
	tests, err := os.ReadFile("../rules_test.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	alerts := 0
	for _, r := range rulesOf(g) {
		if r.Alert == "" {
			continue
		}
		alerts++
		g.Expect(r.Labels["severity"]).To(BeElementOf("critical", "warning", "info"), r.Alert)
		g.Expect(r.Annotations["summary"]).To(MatchRegexp(`\{\{ \$labels\.\w+ \}\}`), r.Alert)
		g.Expect(len(r.Annotations["description"])).To(BeNumerically(">", 80), r.Alert)
		q := parse(g, r.Expr)
		for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["description"], -1) {
			named := slices.Contains([]string{"job", "instance", "bucket", "election", "identity"}, label[1]) || slices.Contains(q.groups, label[1])
			g.Expect(named).To(BeTrue(), "%s in %s", label[1], r.Alert)
		}
		g.Expect(string(tests)).To(MatchRegexp(`\{alertname: `+r.Alert+`,`), "it is tried where it must not fire")
		g.Expect(strings.Contains(string(tests), "- alertname: "+r.Alert+"\n")).To(BeTrue(), "%s is tried where it fires", r.Alert)
	}
	g.Expect(alerts).To(BeNumerically(">=", 7))
}
