package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/choria-io/fisk"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/serving"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/drill/alerts"
)

// alertPace is the time between two steps of a provocation: long enough for two scrapes of a minute.
const alertPace = 2 * time.Minute

// alertFlags are the flags of a drill that provokes alerts.
type alertFlags struct {
	address string
	names   []string
}

func (a *alertFlags) register(cmd *fisk.CmdClause) {
	cmd.Flag("alerts", "Provoke the alerts of 'election-cli rules', and serve the metrics of the candidates on http://ADDR/metrics").PlaceHolder("ADDR").StringVar(&a.address)
	var names []string
	for _, p := range alerts.Provocations {
		names = append(names, p.Alert)
	}
	cli.EnumsVar(cmd.Flag("alert", "With --alerts: an alert to provoke, repeatable (default all)").PlaceHolder("NAME"), &a.names, names...)
}

// checkAlerts returns an error for flags that do not go together with --alerts.
func (d *drillCommand) checkAlerts() error {
	others := d.processes.on || d.candidatesSet || d.ttlSet || d.roundsSet || d.replicasSet || d.json || d.svg != "" || d.Connection.NamesServerByFlag()
	var problems cli.Problems
	problems.If(d.alerts.address == "" && len(d.alerts.names) > 0, "--alert requires --alerts: give both, or leave --alert out")
	problems.If(d.alerts.address != "" && others, "--alerts measures nothing, on servers of its own: leave out all other flags but --alert")
	return problems.Err()
}

// provokeAlerts provokes alerts until ctx ends.
func (d *drillCommand) provokeAlerts(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	err := serving.Metrics(ctx, "--alerts", d.alerts.address, registry, d.Log(slog.LevelInfo), func(ctx context.Context) error {
		if err := d.printProvocations(); err != nil {
			return err
		}
		drill := alerts.Drill{Alerts: d.alerts.names, Metrics: registry, Pace: alertPace, Progress: func(text string) { fmt.Fprintln(d.Stderr, text) }}
		return drill.Run(ctx)
	})
	if ctx.Err() != nil {
		return nil // the normal end
	}
	return err
}

// printProvocations prints what is done for each alert.
func (d *drillCommand) printProvocations() error {
	table := &terminal.Table{Title: "Alerts", Header: []string{"Alert", "Fires after", "What happens"}, Prose: "What happens"}
	for _, p := range alerts.Provocations {
		if len(d.alerts.names) == 0 || slices.Contains(d.alerts.names, p.Alert) {
			table.Add(p.Alert, fmt.Sprintf("about %.0f min", p.After.Minutes()), p.What)
		}
	}
	return table.Print(d.Stdout, terminal.StyleFor(d.Stdout).Wide(d.wide))
}
