package main

import (
	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill/processes"
)

// registerDrillProcess adds the command of the child processes of a drill. Users do not see it.
func registerDrillProcess(app *fisk.Application, t *cli.Env) {
	var role string
	cmd := app.Command("drill-process", "Runs one process of a drill").Hidden().Action(func(*fisk.ParseContext) error {
		return cli.AsCommandError(processes.Run(role, t.Stdout))
	})
	cmd.Arg("role", "Role of the process").Required().EnumVar(&role, processes.RoleServer, processes.RoleCandidate)
}
