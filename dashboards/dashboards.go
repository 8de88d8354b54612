// Package dashboards has what is needed to look after elections with Prometheus and Grafana: a dashboard, and recording and alerting rules.
//
//	package main
//
//	import (
//		"log"
//		"os"
//
//		"github.com/natscampaign/election/dashboards"
//	)
//
//	func main() {
//		dashboard, err := dashboards.Grafana()
//		if err != nil {
//			log.Fatal(err)
//		}
//		rules, err := dashboards.Rules(dashboards.WithNamespace("choria"), dashboards.WithElection("scheduler"))
//		if err != nil {
//			log.Fatal(err)
//		}
//		for name, content := range map[string][]byte{"election.json": dashboard, "election-rules.yaml": rules} {
//			if err := os.WriteFile(name, content, 0o644); err != nil {
//				log.Fatal(err)
//			}
//		}
//	}
//
// They are made of the metrics that election.WithRegisterer and fence.WithRegisterer register. "election-cli dashboard" and
// "election-cli rules" print the same.
package dashboards

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/natscampaign/election/internal/validate"
)

//go:embed grafana.json
var grafana []byte

//go:embed rules.yaml
var rules []byte

// Option changes what Grafana and Rules return.
type Option func(*options)

type options struct {
	namespace, election string
	expected            []string // keys
}

// WithNamespace sets the prefix of the names of all metrics: that of election.WithMetricsNamespace and fence.WithMetricsNamespace. What
// the rules record has the same prefix.
func WithNamespace(namespace string) Option { return func(o *options) { o.namespace = namespace } }

// WithElection fixes the election, by its key. Without it the dashboard lets you choose, and rules are for all elections. Elections of one key
// in several buckets stay apart.
func WithElection(key string) Option { return func(o *options) { o.election = key } }

// WithExpected names elections, by their keys, of which candidates must be seen: the rules get the alert ElectionAbsent, which fires where none
// is, though none ever was. The dashboard takes no notice of it.
func WithExpected(keys ...string) Option { return func(o *options) { o.expected = keys } }

// names matches what the names of metrics and of recorded series begin with.
var names = regexp.MustCompile(`\belection(_[a-z]|:[a-z])`)

// newOptions returns what opts set, or an error if that would break an expression.
func newOptions(opts []Option) (o options, err error) {
	for _, option := range opts {
		option(&o)
	}
	switch {
	case o.namespace != "" && !validate.IsNamespace(o.namespace):
		return o, fmt.Errorf("%q is no prefix of a metric: use letters, digits and underscores, and no digit first", o.namespace)
	case o.election != "" && !validate.IsKey(o.election):
		return o, fmt.Errorf("%q is not a key: use letters, digits, dots, and - _ = /", o.election)
	}
	for _, key := range o.expected {
		switch {
		case !validate.IsKey(key):
			return o, fmt.Errorf("%q is not a key: use letters, digits, dots, and - _ = /", key)
		case o.election != "" && key != o.election:
			return o, fmt.Errorf("the file is for the election %q, and %q is expected: expect elections in a file for all", o.election, key)
		}
	}
	return o, nil
}

// expression returns an expression, or text in which some stand, for the namespace and the election of o.
func (o options) expression(text string) string {
	if o.namespace != "" {
		text = names.ReplaceAllString(text, o.namespace+"_election$1")
	}
	if o.election != "" {
		fixed := fmt.Sprintf(`election="%s"`, o.election)
		text = strings.NewReplacer(`election=~"$election"`, fixed, `election=~".+"`, fixed).Replace(text)
	}
	return text
}

// absence returns the alert for the elections that are expected. Without a metric there is no label, so that each has a term of its own.
func (o options) absence() string {
	var absent []string
	for _, key := range o.expected {
		absent = append(absent, fmt.Sprintf(`absent(election_leader{election="%s"})`, key))
	}
	return fmt.Sprintf(absentAlert, strings.Join(absent, "\n            or "))
}

// absentAlert is the alert for elections of which no candidate is seen, without its expression.
const absentAlert = `
      - alert: ElectionAbsent
        expr: >-
          %s
        for: 5m
        labels:
          severity: critical
        annotations:
          runbook_url: https://github.com/natscampaign/election/blob/main/docs/OPERATIONS.md#electionabsent
          summary: 'No candidate of {{ $labels.election }} is seen, and one is expected'
          description: >-
            The election {{ $labels.election }} is expected, and for five minutes no candidate in it has been scraped. Either none runs,
            none is scraped, or the key is misspelt: "election-cli check --expect {{ $labels.election }}" tells which.
`

// Rules returns recording and alerting rules as a rule file of Prometheus, or an error if an option is wrong.
func Rules(opts ...Option) ([]byte, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	text := string(rules)
	if len(o.expected) > 0 {
		text += o.absence()
	}
	text = o.expression(text)
	if name := strings.TrimSpace(o.namespace + " election " + o.election); name != "election" { // so that several find room beside each other
		text = strings.Replace(text, "  - name: election\n", fmt.Sprintf("  - name: %q\n", name), 1)
	}
	return []byte(text), nil
}

// Grafana returns a dashboard as Grafana imports it, or an error if an option is wrong. Its queries are tested with a real Prometheus; no test
// has Grafana draw it.
func Grafana(opts ...Option) ([]byte, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	var board map[string]any
	if err := json.Unmarshal(grafana, &board); err != nil {
		return nil, err
	}
	o.within(board)
	if o.namespace != "" {
		board["title"] = fmt.Sprintf("%s (%s)", board["title"], o.namespace)
	}
	if o.election != "" {
		board["title"] = fmt.Sprintf("%s: %s", board["title"], o.election)
		o.fix(board["templating"].(map[string]any))
	}
	if o.namespace+o.election != "" {
		delete(board, "uid") // Grafana gives it one, and the other dashboard stays
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // expressions are full of < and >
	e.SetIndent("", "  ")
	err = e.Encode(board)
	return b.Bytes(), err
}

// fix takes away the choice of an election.
func (o options) fix(templating map[string]any) {
	var kept []any
	for _, variable := range templating["list"].([]any) {
		if variable.(map[string]any)["name"] != "election" {
			kept = append(kept, variable)
		}
	}
	templating["list"] = kept
}

// within returns v with all text in it as an expression of o.
func (o options) within(v any) any {
	switch v := v.(type) {
	case string:
		return o.expression(v)
	case []any:
		for i := range v {
			v[i] = o.within(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = o.within(v[k])
		}
	}
	return v
}
