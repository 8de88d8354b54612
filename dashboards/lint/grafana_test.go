package lint

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/dashboards"
)

// board is what of a dashboard the rules look at.
type board struct {
	Title, Description, UID string
	Templating              struct{ List []variable }
	Panels                  []panel
}

type variable struct {
	Name, Label, Type string
	Query             json.RawMessage
	Definition        string
	Datasource        source
	Multi, IncludeAll bool
	AllValue          string
}

type source struct{ Type, UID string }

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               source
	Targets                  []struct {
		Expr, LegendFormat, RefID, Format string
		Instant                           bool
		Datasource                        source
	}
	FieldConfig struct {
		Defaults  struct{ Unit, NoValue string }
		Overrides []override
	}
	Options struct {
		SortBy []struct {
			DisplayName string
			Desc        bool
		}
	}
	Transformations []transformation
	GridPos         struct{ H, W, X, Y int }
}

// override is what a panel shows of one column in another way.
type override struct {
	Matcher    struct{ ID, Options string }
	Properties []property
}

type property struct {
	ID    string
	Value json.RawMessage
}

// mapping returns the names of values.
func (p property) mapping(g *WithT) map[string]struct{ Text string } {
	var m []struct {
		Options map[string]struct{ Text string }
	}
	g.Expect(json.Unmarshal(p.Value, &m)).To(Succeed())
	g.Expect(m).To(HaveLen(1))
	return m[0].Options
}

type transformation struct {
	ID      string
	Options struct {
		ExcludeByName map[string]bool
		IndexByName   map[string]int
		RenameByName  map[string]string
	}
}

// panel returns the panel of a title and a type.
func (b board) panel(g *WithT, title, kind string) panel {
	i := slices.IndexFunc(b.Panels, func(p panel) bool { return p.Title == title && p.Type == kind })
	g.Expect(i).NotTo(Equal(-1), title)
	return b.Panels[i]
}

// variants are the options to try, with the namespace that they name.
var variants = []struct {
	name, namespace string
	options         []dashboards.Option
}{
	{"as it is", "", nil},
	{"with a namespace", "choria", []dashboards.Option{dashboards.WithNamespace("choria")}},
	{"for one election", "", []dashboards.Option{dashboards.WithElection("jobs")}},
	{"with elections that are expected", "", []dashboards.Option{dashboards.WithExpected("jobs", "reports")}},
	{"with both", "choria", []dashboards.Option{dashboards.WithNamespace("choria"), dashboards.WithElection("jobs")}},
}

func boardOf(g *WithT, opts ...dashboards.Option) (b board) {
	text, err := dashboards.Grafana(opts...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(text, &b)).To(Succeed())
	return b
}

func TestEveryPanelAsksForWhatCandidatesShow(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			g, x := NewWithT(t), exposed(t, v.namespace)
			asked := map[string]bool{}
			for _, p := range boardOf(g, v.options...).Panels {
				for _, target := range p.Targets {
					q := parse(g, target.Expr)
					x.resolve(g, q)
					q.shaped(g)
					for _, s := range q.selectors {
						asked[s.Name] = true
					}
					for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
						g.Expect(q.groups).To(ContainElement(label[1]), "legend of %s", p.Title)
					}
				}
			}
			for name := range x {
				if !strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") {
					g.Expect(asked).To(HaveKey(name), "it is on the dashboard")
				}
			}
		})
	}
}

// The rules are those of Grafana's dashboard-linter, and some more.
func TestTheDashboardKeepsTheRulesOfTheLinter(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			g := NewWithT(t)
			b := boardOf(g, v.options...)
			g.Expect(b.Title).NotTo(BeEmpty())
			g.Expect(b.Description).NotTo(BeEmpty())
			b.templated(g)
			ids, taken := map[int]bool{}, map[[2]int]string{}
			for _, p := range b.Panels {
				g.Expect(ids).NotTo(HaveKey(p.ID))
				ids[p.ID] = true
				for x := range p.GridPos.W {
					for y := range p.GridPos.H {
						at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
						g.Expect(taken).NotTo(HaveKey(at), "%s lies on another panel", p.Title)
						g.Expect(at[0]).To(BeNumerically("<", 24), p.Title)
						taken[at] = p.Title
					}
				}
				p.ruled(g, len(b.Templating.List) == 4)
			}
		})
	}
}

// templated expects that data source, job, instance, bucket and election are chosen, and how.
func (b board) templated(g *WithT) {
	first := b.Templating.List[0]
	g.Expect(first.Name).To(Equal("datasource"))
	g.Expect(first.Label).To(Equal("Data source"))
	g.Expect(first.Type).To(Equal("datasource"))
	g.Expect(string(first.Query)).To(Equal(`"prometheus"`))
	for i, v := range b.Templating.List[1:] {
		g.Expect(v.Name).To(Equal([]string{"job", "instance", "bucket", "election"}[i]))
		g.Expect(v.Label).To(Equal([]string{"Job", "Instance", "Bucket", "Election"}[i]))
		g.Expect(v.Datasource).To(Equal(source{"prometheus", "${datasource}"}))
		g.Expect([]any{v.Type, v.Multi, v.IncludeAll, v.AllValue}).To(Equal([]any{"query", true, true, ".+"}))
		query := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
		g.Expect(query).NotTo(BeNil(), v.Definition)
		g.Expect(query[2]).To(Equal(v.Name))
		parse(g, query[1])
	}
}

// ruled expects what there is to expect of one panel.
func (p panel) ruled(g *WithT, fixed bool) {
	g.Expect(p.Title).NotTo(BeEmpty())
	if p.Type == "row" {
		g.Expect(p.Targets).To(BeEmpty())
		return
	}
	g.Expect(p.Description).NotTo(BeEmpty(), p.Title)
	g.Expect(p.Type).To(BeElementOf("stat", "table", "timeseries", "state-timeline"), "%s is of no type that is deprecated", p.Title)
	g.Expect(p.FieldConfig.Defaults.Unit).To(BeElementOf("none", "s", "percentunit", "cps", "wps"), p.Title)
	g.Expect(p.Datasource).To(Equal(source{"prometheus", "${datasource}"}), p.Title)
	g.Expect(p.Targets).NotTo(BeEmpty(), p.Title)
	ids := map[string]bool{}
	for _, target := range p.Targets {
		g.Expect(ids).NotTo(HaveKey(target.RefID), p.Title)
		ids[target.RefID] = true
		g.Expect(target.Datasource).To(Equal(p.Datasource), p.Title)
		g.Expect(target.LegendFormat).NotTo(BeEmpty(), p.Title)
		for _, window := range regexp.MustCompile(`\[[^]]*\]`).FindAllString(target.Expr, -1) {
			g.Expect(window).To(BeElementOf("[$__rate_interval]", "[1h]"), p.Title)
		}
		for _, s := range parse(g, target.Expr).selectors {
			chosen := `election=~"$election"`
			if fixed {
				chosen = `election="jobs"`
			}
			matchers := []string{`job=~"$job"`, `instance=~"$instance"`, `bucket=~"$bucket"`, chosen}
			if strings.HasSuffix(s.Name, "election_build_info") { // it is of a process, whatever its elections
				matchers = matchers[:2]
			}
			if p.overview() {
				g.Expect(s.String()).NotTo(ContainSubstring("$instance"), "%s: whether an election has a leader is no question of an instance", p.Title)
				matchers = slices.Delete(matchers, 1, 2)
			}
			for _, matcher := range matchers {
				g.Expect(s.String()).To(ContainSubstring(matcher), p.Title)
			}
		}
	}
}

// overview reports whether the panel is about elections as a whole, and not about candidates.
func (p panel) overview() bool { return p.Type == "stat" || p.Type == "table" }

func TestPanelsThatAreEmptyWhileAllIsWellSayNone(t *testing.T) {
	g := NewWithT(t)
	said := map[string]string{}
	for _, p := range boardOf(g).Panels {
		said[p.Title] = p.FieldConfig.Defaults.NoValue
	}
	for _, title := range append(empty, "Changes by reason", "Failed renewals by reason", "Paused and unhealthy") {
		g.Expect(said).To(HaveKeyWithValue(title, "none"))
	}
}

func TestTheDocumentationListsWhatCandidatesShow(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../docs/REFERENCE.md")
	g.Expect(err).NotTo(HaveOccurred())
	listed := map[string]bool{}
	for _, line := range regexp.MustCompile("(?m)^- ((?:`election_\\w+`(?:,\\s+)?)+)(a histogram)?.*:").FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile(`\w+`).FindAllString(line[1], -1) {
			listed[name] = true
			if line[2] != "" {
				for _, end := range []string{"_bucket", "_sum", "_count"} {
					listed[name+end] = true
				}
			}
		}
	}
	text, err = os.ReadFile("../../fence/doc.go")
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range regexp.MustCompile(`registers the counter (election_\w+)`).FindAllStringSubmatch(string(text), -1) {
		listed[name[1]] = true
	}
	shown := map[string]bool{}
	for name := range exposed(t, "") {
		shown[name] = true
	}
	g.Expect(shown).To(Equal(listed))
}
