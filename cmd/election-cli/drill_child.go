package main

import (
	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/processes"
)

// registerChild adds the command that runs a child, which is not for users.
func registerChild(app *fisk.Application, t *cli.Env) {
	var role string
	cmd := app.Command("drill-process", "Runs one process of a drill").Hidden().Action(func(*fisk.ParseContext) error {
		return cli.Failed(processes.RunChild(role, t.Stdout))
	})
	cmd.Arg("role", "What the process is").Required().EnumVar(&role, processes.RoleServer, processes.RoleCandidate)
}
