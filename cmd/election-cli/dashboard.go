package main

import (
	"context"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/dashboards"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/serving"
	"github.com/natscampaign/election/internal/validate"
)

const dashboardHelp = `Import the dashboard into Grafana by hand or by provisioning. In Grafana you choose the data source, the job, the instance and,
unless --election is given, the election. The command does not connect to a server.

Example: election-cli dashboard > dashboard.json

The dashboard shows the metrics of candidates. A Go program registers them with WithRegisterer; for this tool, run
'election-cli campaign KEY --metrics ADDR'.

With --serve the command prints nothing. It serves a page about all elections of the bucket instead, until it is interrupted (exit
code 0). It does not campaign:

    election-cli dashboard --serve :8222

The page lists the elections with their leaders and how many candidates would take over, links to each, and is updated at each change. With
--election it shows that election only. It forgets an election that nobody led for an hour, but for the 500 that ended in order last, and learns
of none that nobody leads, so name those that must have a leader: --expect scheduler,reports. The page changes nothing. A port alone is served on the loopback interface only; give 0.0.0.0:8222 for all interfaces. There is no
TLS and no password, unless --web-config names a file, as for 'election-cli campaign'. /healthz answers probes (503 while the elections cannot be observed).

/metrics has what the command observes: election_observed_up, election_observed_leader, election_observed_leaders,
election_observed_term, election_observed_lease_remaining_seconds, election_observed_paused and election_observed_events_total.
These names are not those of candidates, so that the rules and the dashboard never count an observer as a second leader. Have
Prometheus scrape the candidates for these.`

const rulesHelp = `Add the file to the rule_files of Prometheus. It has alerts for an election without a leader or candidates, for two leaders, a pause
that lasts, a leader from which nobody would take over, frequent changes of leadership, failed and late renewals, candidates that are not
notified or not scraped, and writes after a term, each with a link to the runbook. With --expect there is an alert for elections of which no
candidate is seen, though none ever was. The command does not connect to a server.

Example: election-cli rules > election-rules.yml

The rules use the metrics of candidates. A Go program registers them with WithRegisterer; for this tool, run
'election-cli campaign KEY --metrics ADDR'.`

// dashboardCommand implements dashboard and rules. Both print a file for the metrics of candidates.
type dashboardCommand struct {
	*cli.Env
	name      string // of the command
	generate  func(...dashboards.Option) ([]byte, error)
	election  string
	namespace string
	serve     string
	webConfig string
	expected  []string
}

func registerDashboard(app *fisk.Application, env *cli.Env) {
	for _, c := range []struct {
		name, help, long string
		generate         func(...dashboards.Option) ([]byte, error)
	}{
		{"dashboard", "Prints a Grafana dashboard for elections, or serves a page about them", dashboardHelp, dashboards.Grafana},
		{"rules", "Prints recording and alerting rules for Prometheus", rulesHelp, dashboards.Rules},
	} {
		d := &dashboardCommand{Env: env, name: c.name, generate: c.generate}
		cmd := app.Command(c.name, c.help).HelpLong(c.long).Action(cli.Action(d.run))
		cmd.Flag("election", "Limit the file to this election").PlaceHolder("KEY").StringVar(&d.election)
		cmd.Flag("namespace", "Prefix of the names of all metrics, as in NS_election_leader: that of WithRegisterer or --metrics-namespace").PlaceHolder("NS").StringVar(&d.namespace)
		if c.name == "dashboard" {
			cli.KeysVar(cmd.Flag("expect", "Elections that the page of --serve lists although nobody ever led them, separated by commas"), &d.expected)
			cmd.Flag("serve", "Serve a page about the elections of the bucket on http://ADDR/, and metrics about them").PlaceHolder("ADDR").StringVar(&d.serve)
			serving.RegisterWebConfig(cmd, "with TLS and passwords for --serve", &d.webConfig)
			env.Connection.RegisterConnectTimeout(cmd)
		} else {
			cli.KeysVar(cmd.Flag("expect", "Elections of which candidates must be seen, separated by commas: adds an alert that fires where none is"), &d.expected)
		}
	}
}

// run prints the file, or serves the page.
func (d *dashboardCommand) run(ctx context.Context) error {
	if d.serve != "" {
		return d.servePage(ctx)
	}
	var problems cli.Problems
	problems.If(d.webConfig != "", "--web-config is for --serve: add it, or leave --web-config out")
	problems.If(len(d.expected) > 0 && d.name == "dashboard", "--expect is for --serve, and for 'election-cli rules': add --serve, or leave --expect out")
	if err := problems.Err(); err != nil {
		return err
	}
	text, err := d.generate(dashboards.WithElection(d.election), dashboards.WithNamespace(d.namespace), dashboards.WithExpected(d.expected...))
	if err != nil {
		return err
	}
	_, err = d.Stdout.Write(text)
	return err
}

// servePage serves the page until ctx ends.
func (d *dashboardCommand) servePage(ctx context.Context) error {
	var problems cli.Problems
	problems.If(d.namespace != "", "--namespace is for the file that is printed: leave it out, or --serve")
	problems.If(d.election != "" && len(d.expected) > 0, "--election and --expect exclude each other: a page about one election shows that one in any case")
	if d.election != "" {
		problems.Add(validate.Key(d.election))
	}
	if err := problems.Err(); err != nil {
		return err
	}
	return serving.Bucket(ctx, d.Env, d.serve, d.webConfig, d.election, d.expected)
}
