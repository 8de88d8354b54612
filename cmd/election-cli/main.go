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
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/choria-io/fisk"
)

// defaultBucket holds the elections unless another is named.
const defaultBucket = "LEADER_ELECTION"

// Exit codes, as the help documents them.
const (
	exitOK          = 0
	exitNegative    = 1
	exitError       = 2
	exitInterrupted = 130
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

// tool is what all commands share: where they write, and the flags that are theirs in common.
type tool struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	conn           connFlags
	bucket         string
	argv           []string // the program that run is to run, and its arguments
}

// verdict is an error that decides the exit code by itself.
type verdict struct {
	code    int
	message string // empty if all was said
}

// Error returns the message for the user.
func (v *verdict) Error() string { return v.message }

func main() {
	passGate(os.Args)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code. Help and completion end the process by themselves.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	args, argv := cutProgram(args)
	t := &tool{stdin: stdin, stdout: stdout, stderr: stderr, argv: argv}
	_, err := t.app().Parse(args)
	if err == nil {
		return exitOK
	}
	if v, ok := errors.AsType[*verdict](err); ok && v.message == "" { // it has said what there is to say
		return v.code
	}
	if !answered(err) {
		err = fmt.Errorf("%w\nRun 'election-cli --help' for the commands, 'election-cli COMMAND --help' for their flags", err)
	}
	const prefix = "election-cli: "
	text := strings.ReplaceAll(err.Error(), "\n", "\n"+strings.Repeat(" ", len(prefix)))
	fmt.Fprintf(stderr, "%s%s\n", prefix, text)
	if v, ok := errors.AsType[*verdict](err); ok {
		return v.code
	}
	return exitOfError(args)
}

// ownErrors are the exit codes for wrong usage and any other error of those commands whose other codes mean something
// else, as is the custom for such commands.
var ownErrors = map[string]int{
	"check": int(gradeUnknown),
	"run":   exitOwnError,
}

// exitOfError returns the exit code of the command that the arguments name, for wrong usage or any other error.
func exitOfError(args []string) int {
	if code, ok := ownErrors[commandOf(args)]; ok {
		return code
	}
	return exitError
}

// commandOf returns the command that the arguments name, empty if none.
func commandOf(args []string) string {
	line, _ := (&tool{stdout: io.Discard, stderr: io.Discard}).app().ParseContext(args)
	if line == nil || line.SelectedCommand == nil {
		return ""
	}
	return line.SelectedCommand.FullCommand()
}

// failure marks an error that a command returned, as opposed to one of the command line.
type failure struct{ error }

// Unwrap returns the error that was marked.
func (f failure) Unwrap() error { return f.error }

// answered says whether err came from a command, which has said all there is to say.
func answered(err error) bool {
	_, ok := errors.AsType[failure](err)
	return ok
}

// A key or an argument that begins with @ is no file to read arguments from.
func init() { fisk.EnableFileExpansion = false }

// app builds the command line.
func (t *tool) app() *fisk.Application {
	app := fisk.New("election-cli", appHelp)
	app.UsageWriter(t.stdout).ErrorWriter(t.stderr)
	app.Author("The election authors")
	app.Version(version())
	app.HelpFlag.Short('h')
	t.conn.register(app)
	app.Flag("bucket", "Key-Value bucket that holds the elections").Envar("ELECTION_BUCKET").
		Default(defaultBucket).StringVar(&t.bucket)
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

// doubleSignal is within what time two signals count as one.
const doubleSignal = time.Second

// action adapts a command to fisk and gives it a context that ends with the first INT or TERM, or HUP when a terminal
// is closed. A second one kills the process, should winding up take longer than the user cares to wait, unless it comes
// with the first, as from timeout(1), which signals the process and its group.
func action(command func(context.Context) error) fisk.Action {
	return func(*fisk.ParseContext) error {
		signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
		if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
			signals = append(signals, syscall.SIGHUP)
		}
		ctx, stop := signal.NotifyContext(context.Background(), signals...)
		defer stop()
		context.AfterFunc(ctx, func() { time.AfterFunc(doubleSignal, stop) })
		// Once asked for, a reader that went away is an error of the write and no longer the end of the process.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		if err := command(ctx); err != nil {
			return failure{err}
		}
		return nil
	}
}

// version returns the version that the binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "development"
	}
	return info.Main.Version
}
