package lint

import (
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// variables stand for what Grafana puts in their place where PromQL takes no text.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$__interval", "1m")

// query is an expression, and what it asks for.
type query struct {
	expr      parser.Expr
	selectors []*parser.VectorSelector
	ranges    []*parser.MatrixSelector
	grouping  []string // labels by which series are put together or matched
	groups    []string // those of them that what comes out may have
}

// parse returns the expression as Prometheus reads it.
func parse(g *WithT, text string) *query {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(text))
	g.Expect(err).NotTo(HaveOccurred(), text)
	q := &query{expr: expr}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			q.selectors = append(q.selectors, n)
		case *parser.MatrixSelector:
			q.ranges = append(q.ranges, n)
		case *parser.AggregateExpr:
			q.grouping = append(q.grouping, n.Grouping...)
			q.groups = append(q.groups, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				q.grouping = append(q.grouping, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	g.Expect(q.selectors).NotTo(BeEmpty(), text)
	return q
}

// resolve expects that every series and every label that q asks for exists.
func (x exposition) resolve(g *WithT, q *query) {
	all := []string{}
	for _, s := range q.selectors {
		has, ok := x[s.Name]
		g.Expect(ok).To(BeTrue(), "nobody shows %s, in %s", s.Name, q.expr)
		for label := range has {
			all = append(all, label)
		}
		for _, m := range s.LabelMatchers {
			if m.Name == labels.MetricName {
				continue
			}
			g.Expect(has).To(HaveKey(m.Name), "label in %s", s)
			if m.Type == labels.MatchEqual && m.Name != "election" {
				g.Expect(has[m.Name]).To(ContainElement(m.Value), "value in %s", s)
			}
			for _, value := range m.SetMatches() { // of a list of alternatives
				g.Expect(has[m.Name]).To(ContainElement(value), "value in %s", s)
			}
		}
	}
	for _, label := range q.grouping {
		g.Expect(all).To(ContainElement(label), "grouping in %s", q.expr)
	}
}

// counter matches the names of what only grows, a native histogram too.
var counter = regexp.MustCompile(`_(total|bucket|sum|count|duration_seconds)$`)

// shaped expects that counters are asked for their increase, and nothing else is.
func (q *query) shaped(g *WithT) {
	for _, s := range q.selectors {
		ranged := slices.ContainsFunc(q.ranges, func(r *parser.MatrixSelector) bool { return r.VectorSelector == s })
		if counter.MatchString(s.Name) && !strings.Contains(s.Name, ":") {
			g.Expect(ranged).To(BeTrue(), "%s is a counter, in %s", s.Name, q.expr)
		}
	}
	parser.Inspect(q.expr, func(n parser.Node, _ []parser.Node) error {
		if call, ok := n.(*parser.Call); ok && slices.Contains([]string{"rate", "increase", "irate"}, call.Func.Name) {
			s := call.Args[0].(*parser.MatrixSelector).VectorSelector.(*parser.VectorSelector)
			g.Expect(counter.MatchString(s.Name)).To(BeTrue(), "%s is no counter, in %s", s.Name, q.expr)
		}
		return nil
	})
}
