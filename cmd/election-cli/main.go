// Command election-cli rehearses and runs leader elections on NATS.
//
//	election-cli ls                  list the elections of a bucket and who leads
//	election-cli info [KEY]          describe the bucket, or one election
//	election-cli watch [KEY]         print the events of elections as they happen
//	election-cli wait KEY            wait until somebody leads, or nobody does
//	election-cli check [KEY]         check bucket and elections, for monitoring
//	election-cli candidates KEY      list the candidates that answer
//	election-cli resign KEY          ask the leader to resign
//	election-cli transfer KEY        ask the leader to hand over to another candidate
//	election-cli evict KEY           delete the leader's key
//	election-cli pause KEY           keep all candidates from campaigning, until resume KEY
//	election-cli campaign KEY        campaign until interrupted
//	election-cli file KEY PATH       keep a file on the host that leads, or check it
//	election-cli bucket add          make a bucket for elections; also: info, rm
//	election-cli server              run a JetStream server to try things out
//	election-cli run KEY -- PROGRAM  run a program while this host leads
//	election-cli dashboard           print a Grafana dashboard; also: rules, for Prometheus
//	election-cli drill               rehearse failovers and measure how long each takes
//
// Flags, environment and contexts for the connection are those of natscli. Data goes to stdout, everything else to
// stderr. The exit code is 0 if all is well, 1 for a negative result, 2 for wrong usage or any other error, and 130 for
// a command that was interrupted before it had a result. Commands that have others, as run, wait and check do, say so in
// their help.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/choria-io/fisk"

	"github.com/natscampaign/election/internal/checkup"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/supervise"
)

const appHelp = `Leader election for fleets that run NATS

Each key of a JetStream Key-Value bucket with a TTL is one election. Server, credentials and contexts are found as the
nats utility finds them; flags override the environment, which overrides the context.

Data is written to stdout, everything else to stderr. Colour is used on terminals only and never when NO_COLOR is set.

Exit codes: 0 all is well; 1 a negative result, such as a drill that found two leaders; 2 wrong usage or any other
error; 130 interrupted before there was a result. Commands that have others say so in their help.

Completion for bash and zsh, and the manual page:

    source <(election-cli --completion-script-bash)
    source <(election-cli --completion-script-zsh)
    election-cli --help-man | man -l -`

func main() {
	supervise.PassGate(os.Args)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code. Help and completion end the process by themselves.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	args, argv := cutProgram(args)
	t := &cli.Env{Stdin: stdin, Stdout: stdout, Stderr: stderr, Argv: argv}
	_, err := app(t).Parse(args)
	if err == nil {
		return cli.ExitOK
	}
	if v, ok := errors.AsType[*cli.ExitError](err); ok && v.Message == "" { // it has said what there is to say
		return v.Code
	}
	if !answered(err) {
		err = fmt.Errorf("%w\nRun 'election-cli --help' for the commands, 'election-cli COMMAND --help' for their flags", err)
	}
	const prefix = "election-cli: "
	text := strings.ReplaceAll(err.Error(), "\n", "\n"+strings.Repeat(" ", len(prefix)))
	fmt.Fprintf(stderr, "%s%s\n", prefix, text)
	if v, ok := errors.AsType[*cli.ExitError](err); ok {
		return v.Code
	}
	return exitOfError(args)
}

// ownErrors are the exit codes for wrong usage and any other error of those commands whose other codes mean something
// else, as is the custom for such commands.
var ownErrors = map[string]int{
	"check": int(checkup.GradeUnknown),
	"run":   supervise.ExitOwnError,
}

// exitOfError returns the exit code of the command that the arguments name, for wrong usage or any other error.
func exitOfError(args []string) int {
	if code, ok := ownErrors[commandOf(args)]; ok {
		return code
	}
	return cli.ExitFailure
}

// commandOf returns the command that the arguments name, empty if none.
func commandOf(args []string) string {
	line, _ := app(&cli.Env{Stdout: io.Discard, Stderr: io.Discard}).ParseContext(args)
	if line == nil || line.SelectedCommand == nil {
		return ""
	}
	return line.SelectedCommand.FullCommand()
}

// answered says whether err came from a command, which has said all there is to say.
func answered(err error) bool {
	_, ok := errors.AsType[cli.Failure](err)
	return ok
}

// A key or an argument that begins with @ is no file to read arguments from.
func init() { fisk.EnableFileExpansion = false }

// app builds the command line.
func app(t *cli.Env) *fisk.Application {
	app := fisk.New("election-cli", appHelp)
	app.UsageWriter(t.Stdout).ErrorWriter(t.Stderr)
	app.Author("The election authors")
	app.Version(version())
	app.HelpFlag.Short('h')
	t.Connection.Register(app)
	app.Flag("bucket", "Key-Value bucket that holds the elections").Envar("ELECTION_BUCKET").
		Default(cli.DefaultBucket).StringVar(&t.Bucket)
	registerLs(app, t)
	registerInfo(app, t)
	registerWatch(app, t)
	registerWait(app, t)
	registerCheck(app, t)
	registerEvict(app, t)
	registerCampaign(app, t)
	registerCandidates(app, t)
	registerHandover(app, t)
	registerPause(app, t)
	registerFile(app, t)
	registerBucket(app, t)
	registerServer(app, t)
	registerRun(app, t)
	registerDashboard(app, t)
	registerDrill(app, t)
	registerChild(app, t)
	registerGuardian(app)
	return app
}

// version returns the version that the binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "development"
	}
	return info.Main.Version
}
