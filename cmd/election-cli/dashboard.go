package main

import (
	"context"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/dashboards"
	"github.com/natscampaign/election/internal/cli"
)

const dashboardHelp = `Import the dashboard into Grafana by hand or by provisioning. In Grafana you choose the data source, the job, the instance and,
unless --election is given, the election. The command does not connect to a server.

Example: election-cli dashboard > dashboard.json

The dashboard shows the metrics of candidates. A Go program registers them with WithRegisterer; for this tool, run
'election-cli campaign KEY --metrics ADDR'.`

const rulesHelp = `Add the file to the rule_files of Prometheus. It has alerts for an election without a leader or candidates, for two leaders, a pause
that lasts, frequent changes of leadership, failed and late renewals, candidates that are not notified or not scraped, and writes
after a term, each with a link to the runbook. The command does not connect to a server.

Example: election-cli rules > election-rules.yml

The rules use the metrics of candidates. A Go program registers them with WithRegisterer; for this tool, run
'election-cli campaign KEY --metrics ADDR'.`

// dashboardCommand implements dashboard and rules. Both print a file for the metrics of candidates.
type dashboardCommand struct {
	*cli.Env
	generate  func(...dashboards.Option) ([]byte, error)
	election  string
	namespace string
}

func registerDashboard(app *fisk.Application, env *cli.Env) {
	for _, c := range []struct {
		name, help, long string
		generate         func(...dashboards.Option) ([]byte, error)
	}{
		{"dashboard", "Prints a Grafana dashboard for elections", dashboardHelp, dashboards.Grafana},
		{"rules", "Prints recording and alerting rules for Prometheus", rulesHelp, dashboards.Rules},
	} {
		d := &dashboardCommand{Env: env, generate: c.generate}
		cmd := app.Command(c.name, c.help).HelpLong(c.long).Action(cli.Action(d.run))
		cmd.Flag("election", "Limit the file to this election").PlaceHolder("KEY").StringVar(&d.election)
		cmd.Flag("namespace", "Prefix of the names of all metrics, as in NS_election_leader: that of WithRegisterer or --metrics-namespace").PlaceHolder("NS").StringVar(&d.namespace)
	}
}

// run prints the file.
func (d *dashboardCommand) run(context.Context) error {
	text, err := d.generate(dashboards.WithElection(d.election), dashboards.WithNamespace(d.namespace))
	if err != nil {
		return err
	}
	_, err = d.Stdout.Write(text)
	return err
}
