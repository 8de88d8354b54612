package main

import (
	"context"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/dashboards"
	"github.com/natscampaign/election/internal/cli"
)

const dashboardHelp = `Import it in Grafana, by hand or by provisioning. Data source, job, instance and election are chosen on the dashboard;
--election leaves out the last. No server is asked.

Candidates show their metrics where a program gives them WithRegisterer, and by 'election-cli campaign KEY --metrics
ADDRESS'.`

const rulesHelp = `Name the file among the rule_files of Prometheus. It has alerts on an election without a leader or without candidates, on
two leaders, on leadership that changes too often, on renewals that fail or come late, on candidates that are not notified of
vacancies, and on candidates that are not scraped. No server is asked.

Candidates show their metrics where a program gives them WithRegisterer, and by 'election-cli campaign KEY --metrics
ADDRESS'.`

// dashboardCommand is the command of that name, and rules: each prints a file that is made of the metrics of candidates.
type dashboardCommand struct {
	*cli.Env
	give      func(...dashboards.Option) ([]byte, error)
	election  string
	namespace string
}

func registerDashboard(app *fisk.Application, t *cli.Env) {
	for _, c := range []struct {
		name, help, long string
		give             func(...dashboards.Option) ([]byte, error)
	}{
		{"dashboard", "Prints a Grafana dashboard for elections", dashboardHelp, dashboards.Grafana},
		{"rules", "Prints recording and alerting rules for Prometheus", rulesHelp, dashboards.Rules},
	} {
		d := &dashboardCommand{Env: t, give: c.give}
		cmd := app.Command(c.name, c.help).HelpLong(c.long).Action(cli.Action(d.run))
		cmd.Flag("election", "For this election only").PlaceHolder("KEY").StringVar(&d.election)
		cmd.Flag("namespace", "Prefix that a program gave all of the metrics, without its underscore").PlaceHolder("NS").StringVar(&d.namespace)
	}
}

// run prints the file.
func (d *dashboardCommand) run(context.Context) error {
	text, err := d.give(dashboards.WithElection(d.election), dashboards.WithNamespace(d.namespace))
	if err != nil {
		return err
	}
	_, err = d.Stdout.Write(text)
	return err
}
