// Command election-cli operates, runs and rehearses leader elections on NATS.
//
//	election-cli ls                  list the elections of a bucket with their leaders
//	election-cli info [KEY]          describe the bucket, or one election
//	election-cli watch [KEY]         print the events of elections as they happen
//	election-cli wait KEY            wait until a candidate leads, or until nobody does
//	election-cli check [KEY]         check the bucket and its elections, for monitoring
//	election-cli candidates KEY      list the candidates that answer
//	election-cli resign KEY          ask the leader to resign
//	election-cli transfer KEY        ask the leader to hand over to another candidate
//	election-cli evict KEY           delete the leader's key (the leader loses its term)
//	election-cli pause KEY           stop all candidates from campaigning, until resume KEY
//	election-cli campaign KEY        campaign until interrupted
//	election-cli file KEY PATH       maintain a file on the host that leads, or check it
//	election-cli bucket add          create a bucket for elections; also: edit, info, prune, rm
//	election-cli server              run a JetStream server for experiments
//	election-cli run KEY -- PROGRAM  run a program while this host leads
//	election-cli witness             release the key of a leader whose process dies
//	election-cli dashboard           print a Grafana dashboard; also: rules, for Prometheus
//	election-cli drill               rehearse failovers and measure how long each takes
//
// The flags, environment variables and contexts for the connection are those of natscli. Commands write data to stdout, and
// everything else to stderr. The exit code is 0 for success, 1 for a negative result, 2 for wrong usage and any other error,
// and 130 for a command that was interrupted before it had a result. Commands with other exit codes, such as run, wait and
// check, document them in their help.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/version"
)

const (
	appHelp = `Leader election for fleets that run NATS

` + appDescription + `

Example: election-cli ls --server nats://127.0.0.1:4222

    Nobody leads?             election-cli check KEY
    Before maintenance        election-cli candidates KEY, then election-cli transfer KEY --to NAME
    To rehearse a failover    election-cli drill --server nats://STAGING:4222
    Which version is this?    election-cli --version

Exit codes: ` + appExitCodes + `

Completion for bash, zsh and fish, and the manual page:

    source <(election-cli --completion-script-bash)
    source <(election-cli --completion-script-zsh)
    election-cli --completion-script-fish | source
    election-cli --help-man | man -l -`

	appDescription = `Each key of a JetStream Key-Value bucket with a TTL is one election. The command finds server, credentials and contexts like the
nats utility: flags override the environment, which overrides the context.

Commands write data to stdout, and everything else to stderr. They use colours only on a terminal, and never if NO_COLOR is set.`

	appExitCodes = `0 for success; 1 for a negative result, such as a drill that found two leaders; 2 for wrong usage and any other error;
130 if interrupted before there was a result. Commands with other exit codes document them in their help.`
)

// manual is what the manual page has beside the help of the commands.
var manual = cli.Manual{
	Summary:     "leader election for fleets that run NATS",
	Description: appDescription,
	ExitCodes:   appExitCodes,
	Environment: map[string]string{
		"ELECTION_WITNESS": "The socket of the witness that releases the key if the process of campaign is killed, as in unix:///run/election/witness.sock.",
		"NO_COLOR":         "If set, the output has no colours.",
		"XDG_CONFIG_HOME":  "The contexts of nats are in the folder nats/context below this folder (default .config in the home directory of the user, whatever HOME says, as for nats).",
	},
	SeeAlso: "nats, nats-server, and https://github.com/natscampaign/election",
}

func main() {
	supervise.PassGate(os.Args)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code. For help and completion, fisk ends the process.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	args, argv := cutProgram(cli.HelpAsFlag(args))
	env := &cli.Env{Stdin: stdin, Stdout: stdout, Stderr: stderr, Argv: argv}
	_, err := app(env).Parse(args)
	if err == nil || errors.Is(err, cli.ErrHelpWritten) {
		return cli.ExitOK
	}
	if v, ok := errors.AsType[*cli.ExitError](err); ok && v.Message == "" { // the command has already written everything
		return v.Code
	}
	if errors.Is(err, syscall.EPIPE) { // as of head, which has read all that it wants
		return errorExitCode(args)
	}
	if !fromCommand(err) {
		if commandOf(args) == "check" && checkup.AsksForNagios(args) { // Nagios reads stdout
			_ = checkup.UnknownResult("", err).Write(stdout, checkup.FormatNagios)
		}
		err = cli.ExplainUsage(app(&cli.Env{}), args, explainRun(args, argv, err))
	}
	const prefix = "election-cli: "
	text := strings.ReplaceAll(env.Connection.Explain(err).Error(), "\n", "\n"+strings.Repeat(" ", len(prefix)))
	fmt.Fprintf(stderr, "%s%s\n", prefix, text)
	if v, ok := errors.AsType[*cli.ExitError](err); ok {
		return v.Code
	}
	return errorExitCode(args)
}

// errorExitCodes are the exit codes for wrong usage and any other error of the commands that do not use cli.ExitFailure.
var errorExitCodes = map[string]int{
	"check": int(checkup.StatusUnknown),
	"run":   supervise.ExitOwnError,
}

// errorExitCode returns the exit code for wrong usage and any other error of the command in the arguments.
func errorExitCode(args []string) int {
	if code, ok := errorExitCodes[commandOf(args)]; ok {
		return code
	}
	return cli.ExitFailure
}

// commandOf returns the name of the command in the arguments; empty if there is none.
func commandOf(args []string) string {
	line, _ := app(&cli.Env{Stdout: io.Discard, Stderr: io.Discard}).ParseContext(args)
	if line == nil || line.SelectedCommand == nil {
		return ""
	}
	return line.SelectedCommand.FullCommand()
}

// fromCommand reports whether a command returned err. The parser of the command line returns all other errors.
func fromCommand(err error) bool {
	_, ok := errors.AsType[cli.CommandError](err)
	return ok
}

// fisk must not read arguments from a file when a key or an argument begins with @.
func init() { fisk.EnableFileExpansion = false }

// app builds the command line.
func app(env *cli.Env) *fisk.Application {
	app := fisk.New("election-cli", appHelp)
	app.ErrorWriter(env.Stderr)
	cli.RegisterHelp(app, env.Stdout, manual)
	app.Author("The election authors")
	app.Version(version.String())
	app.HelpFlag.Short('h').Help("Show the help of a command")
	app.VersionFlag.Help("Show the version")
	cli.RefuseEmpty(app)
	env.Connection.Register(app)
	app.Flag("bucket", "Key-Value bucket with the elections").Envar("ELECTION_BUCKET").
		Default(cli.DefaultBucket).PlaceHolder("NAME").StringVar(&env.Bucket)
	registerLs(app, env)
	registerInfo(app, env)
	registerWatch(app, env)
	registerWait(app, env)
	registerCheck(app, env)
	registerEvict(app, env)
	registerCampaign(app, env)
	registerCandidates(app, env)
	registerHandover(app, env)
	registerPause(app, env)
	registerFile(app, env)
	registerBucket(app, env)
	registerServer(app, env)
	registerRun(app, env)
	registerWitness(app, env)
	registerDashboard(app, env)
	registerDrill(app, env)
	registerDrillProcess(app, env)
	return app
}
