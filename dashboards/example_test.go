package dashboards_test

import (
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/natscampaign/election/dashboards"
)

// A program writes the dashboard to where Grafana finds it.
func ExampleGrafana() {
	board, err := dashboards.Grafana(dashboards.WithElection("scheduler"))
	if err != nil {
		log.Fatal(err)
	}
	var content struct{ Title string }
	if err := json.Unmarshal(board, &content); err != nil {
		log.Fatal(err)
	}
	fmt.Println(content.Title)
	// Output: Leader election: scheduler
}

// The expressions of the rules are for one election, whose metrics have a prefix.
func ExampleRules() {
	rules, err := dashboards.Rules(dashboards.WithNamespace("shop"), dashboards.WithElection("scheduler"))
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(rules)) {
		if strings.Contains(line, "expr: sum by") {
			fmt.Println(strings.TrimSpace(line))
			break
		}
	}
	// Output: expr: sum by (job, bucket, election) (shop_election_leader{election="scheduler"})
}
