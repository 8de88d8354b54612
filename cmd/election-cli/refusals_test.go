package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/cli/supervise"
	"github.com/natscampaign/election/internal/test/clitest"
)

// refusal is a command line that is refused, what the error says, and the same command line after that was done, in each way that the error names.
// TEXT stands for a file that cannot be run, PROGRAM for one that can, PATH for a path where nothing is. None of them needs a server.
type refusal struct {
	line string
	says []string
	done []string
}

// says returns texts of an error.
func says(texts ...string) []string { return texts }

// refusals has the errors about command lines. Where the way out is a command for a bucket, see fixes.
var refusals = []refusal{
	{"nonsense", says("nonsense", "--help"), nil},
	{"lss", says(`election-cli: unknown command "lss": did you mean "ls"?`), []string{"ls"}},
	{"help cand", says(`election-cli: unknown command "cand": did you mean "candidates"?`), nil},
	{"drill-pro", says(`election-cli: unknown command "drill-pro"` + "\n"), nil},
	{"status", says(`did you mean "info"?`), nil},
	{"stauts", says(`did you mean "info"?`), nil},

	{"ls --jsn", says("election-cli: unknown flag --jsn: did you mean --json?"), nil},
	{"ls -s http://h", says(`election-cli: --server or NATS_URL: the server URL "http://h"`), nil},
	{"ls --server ,", says(`--server or NATS_URL: "," names no server`, "nats://HOST:PORT"), nil},
	{"ls --timeout abc", says(`--timeout or NATS_TIMEOUT: "abc" is not a duration`, "give one such as 5s"), nil},
	{"ls --timeout 0s", says("give a positive duration such as 5s"), []string{"ls --timeout 5s"}},
	{"ls --password x", says("--password needs --user"), []string{"ls --user u --password x"}},
	{"ls --tlscert PROGRAM", says("give both or neither"), []string{"ls"}},
	{"ls --js-domain d --js-api-prefix p", says("give one of them"), []string{"ls --js-domain d", "ls --js-api-prefix p"}},
	{"ls --context c --no-context", says("give one of them"), []string{"ls --no-context"}},

	{"info 'a b'", says(`"a b"`), nil},
	{"info '*'", says(`"*"`), nil},

	{"watch a*", says(`"a*"`, "any one part"), nil},
	{"watch --count=-1", says("--count -1"), nil},
	{"watch k --count 0", says("--count 0: give a positive number, or leave out --count"), []string{"watch k --count 1", "watch k"}},

	{"wait", says("key", "--help"), nil},
	{"wait 'a b'", says(`"a b"`), nil},
	{"wait k --max", says("election-cli: unknown flag --max: did you mean --max-wait?"), nil},
	{"wait k --max-wait 5", says(`--max-wait: "5" is not a duration`), nil},
	{"wait k --max-wait -3s", says("'--max-wait': give it a value, after a = if that begins with -", "--help"), nil},
	{"wait k --max-wait=-3s", says("--max-wait -3s: give a positive duration"), nil},
	{"wait k --max-wait 0s", says("--max-wait 0s: give a positive duration such as 30s, or leave out --max-wait"), []string{"wait k --max-wait 30s", "wait k"}},
	{"wait k --leader a --vacant", says("--leader and --vacant exclude each other: give one of them"), []string{"wait k --leader a", "wait k --vacant"}},
	{"wait k --leader ''", says("--leader is empty"), nil},

	{"check --bogus", says("--bogus"), nil},
	{"check 'a b'", says(`"a b"`), nil},
	{"check --format y", says(`election-cli: --format: "y" is unknown: give text, nagios, json or prometheus`), nil},
	{"check --json --format nagios", says("--json and --format nagios exclude each other: give one of them"), []string{"check --json", "check --format nagios"}},
	{"check --grace=-1s", says("give a positive duration such as 5s"), []string{"check --grace 5s"}},
	{"check k --overdue 0s", says("give a positive duration such as 25s, or leave it out"), []string{"check k --overdue 25s", "check"}},
	{"check k --expect k", says("KEY and --expect exclude each other"), []string{"check k", "check --expect k"}},
	{"check --expect 'a b'", says("separated by commas"), nil},
	{"check --ignore nosuchcode", says(`--ignore: unknown code "nosuchcode" (`), nil},
	{"check --ignore no-leaders", says(`did you mean "no-leader"?`), []string{"check --ignore no-leader"}},
	{"check --ignore No-Standby", says(`did you mean "no-standby"?`), []string{"check --ignore no-standby --ignore expect-crash"}},
	{"check --ignore 'no-standby '", says(`did you mean "no-standby"?`), nil},

	{"evict", says("key", "--help"), nil},
	{"evict 'a b'", says(`"a b"`), nil},
	{"evict k --revision 0", says("--revision 0", "info"), nil},

	{"campaign", says("key", "--help"), nil},
	{"campaign 'a b'", says(`"a b"`), nil},
	{"campaign k --name 'a\nb'", says(`"a\nb"`), nil},
	{"campaign k --name " + strings.Repeat("a", 300), says("300 bytes: use at most 255\n"), nil},
	{"campaign k --embedded --context c", says("--embedded", "--context"), nil},
	{"campaign k --ttl 3s", says("--ttl", "add --embedded, or leave them out"), []string{"campaign k"}},
	{"campaign k --embedded --ttl 1ms", says("--ttl 1ms"), nil},
	{"campaign k --embedded --port abc", says("give one such as 4222"), nil},
	{"campaign k --embedded --port 70000", says("--port 70000", "65535"), nil},
	{"campaign k --embedded --bucket 'a b'", says(`"a b"`), nil},
	{"campaign k --interval 5ms", says(`--interval or ELECTION_INTERVAL: "5ms"`, "10ms to 53m59.9s", "leave it out for a quarter of the TTL"), []string{"campaign k --interval 10ms", "campaign k"}},
	{"campaign k --connect-timeout 0s", says("give a positive duration such as 30s, or leave it out"), []string{"campaign k --connect-timeout 30s", "campaign k"}},
	{"campaign k --metrics nowhere", says("--metrics nowhere", ":9222"), nil},
	{"campaign k --metrics :0 --metrics-namespace '9 a'", says(`--metrics-namespace "9 a" begins no name`, "digits", "shop"), nil},
	{"campaign k --metrics-namespace shop", says("--metrics-namespace", "add --metrics"), nil},
	{"campaign k --metrics-choria", says("--metrics-choria", "add --metrics, or leave them out"), []string{"campaign k --metrics-choria --metrics 127.0.0.1:0", "campaign k"}},
	{"campaign k --web-config w", says("add one of them, or leave it out"), []string{"campaign k"}},
	{"campaign k --health-failures 3", says("give --health-url, --health-file or --health-command too, or leave it out"), []string{"campaign k --health-failures 3 --health-file PROGRAM", "campaign k"}},
	{"campaign k --health-max-age 3s", says("give that flag too, or leave it out"), []string{"campaign k --health-max-age 3s --health-file PROGRAM", "campaign k"}},
	{"campaign k --health-url nohost", says("give a URL such as http://127.0.0.1:8080/healthz"), []string{"campaign k --health-url http://127.0.0.1:8080/healthz"}},
	{"campaign k --health-command /nowhere", says("give the path of a program"), []string{"campaign k --health-command PROGRAM"}},
	{"campaign k --health-failures 0 --health-file PROGRAM", says("give a number from 1 to 1000"), []string{"campaign k --health-failures 1 --health-file PROGRAM"}},

	{"file k", says("give election-cli file KEY PATH, or election-cli file --check PATH"), []string{"file k PATH", "file --check PATH"}},
	{"file k --check x", says("--check takes a path, and neither a key nor --name"), nil},
	{"file 'a b' PATH", says(`"a b"`), nil},
	{"file k PATH/x", says("there is no folder"), nil},
	{"file k x --interval 1h", says(`--interval or ELECTION_INTERVAL: "1h"`, "10ms to 53m59.9s"), nil},

	{"bucket ad", says(`election-cli: unknown command "ad": did you mean "add"?`), nil},
	{"bucket delete", says(`did you mean "bucket rm"?`), nil},
	{"bucket add --ttl 500ms", says("--ttl 500ms", "give at least 1s, better 2s"), []string{"bucket add --ttl 1s", "bucket add --ttl 2s"}},
	{"bucket add --ttl 2h", says("give at most 1h"), []string{"bucket add --ttl 1h"}},
	{"bucket add --replicas 2", says("--replicas 2: give 1, 3 or 5"), []string{"bucket add --replicas 3"}},
	{"bucket add --storage paper", says("paper"), nil},
	{"bucket edit --ttl 0s", says("--ttl 0s", "at least 1s"), nil},
	{"bucket edit --replicas 0", says("--replicas 0", "1, 3 or 5"), nil},
	{"bucket prune --older-than=-1s --force", says("--older-than -1s", "give a positive duration, such as 720h"), []string{"bucket prune --older-than 720h --force"}},

	{"server --port abc", says(`--port: "abc" is not a number: give one such as 4222`), nil},
	{"server --port 70000", says("--port 70000", "65535"), nil},
	{"server -s h:1", says("--server", "--port"), nil},

	{"dashboard --election 'a b'", says(`"a b" is not a key`), nil},
	{"dashboard --web-config w.yml", says("election-cli: --web-config is for --serve: add it, or leave --web-config out"), []string{"dashboard"}},
	{"dashboard --serve :0 --namespace shop", says("election-cli: --namespace is for the file that is printed: leave it out"), nil},
	{"dashboard --expect k", says("--expect is for --serve", "add --serve, or leave --expect out"), []string{"dashboard", "rules --expect k"}},
	{"dashboard --serve :0 --election k --expect k", says("--election and --expect exclude each other"), nil},
	{"rules --expect 'a b'", says("separated by commas"), nil},
	{"rules --election jobs --expect reports", says(`"reports" is expected`), nil},
	{"rules --namespace 1-2", says(`"1-2" is no prefix`), nil},
	{"rules -j", says("election-cli: unknown flag -j\n"), nil},

	{"witness", says("--socket"), nil},
	{"witness --socket w.sock", says(`--socket "w.sock" is no absolute path: give one that begins with /`), []string{"witness --socket PATH"}},
	{"witness --socket /" + strings.Repeat("x", maxSocketPath), says(fmt.Sprintf(" has %d bytes: give a path of at most %d", maxSocketPath+1, maxSocketPath)), nil},
	{"witness --socket PATH/w.sock", says("the folder must exist"), nil},
	{"witness --socket PATH --socket-mode rw", says(`--socket-mode "rw" is no mode: give one in octal, such as 0600, 0660 or 0666`), []string{"witness --socket PATH --socket-mode 0660"}},
	{"witness --socket PATH --socket-mode 0100666", says(`--socket-mode "0100666" is no mode`), nil},
	{"witness --socket PATH --creds /no/such/file.creds", says("--creds /no/such/file.creds: there is no such file"), nil},
	{"witness --socket PATH -s http://h", says(`the server URL "http://h"`), nil},

	{"run k", says("as in 'election-cli run [<flags>] <key> -- <program> [<args>...]'"), []string{"run k -- PROGRAM"}},
	{"run k --", says("as in 'election-cli run [<flags>] <key> -- <program> [<args>...]'"), []string{"run k -- PROGRAM"}},
	{"run -- PROGRAM", says("program"), nil},
	{"run 'a b' -- PROGRAM", says(`"a b"`), nil},
	{"run k true", says("put -- before the program"), nil},
	{"run k PROGRAM --flag", says("-- is missing before the program"), []string{"run k -- PROGRAM --flag"}},
	{"run k PROGRAM -x", says("-- is missing before the program"), nil},
	{"run k PROGRAM --name", says("-- is missing before the program"), nil},
	{"run k PROGRAM --grace x", says("-- is missing before the program"), nil},
	{"run k PROGRAM --flag -- x", says("-- is missing before the program"), nil},
	{"run k ./prog -- x", says(`"./prog" is before --, and the program "x" after it: give all of the program after the first --`), []string{"run k -- PROGRAM x"}},
	{"run k -- no-such-program", says(`"no-such-program" is not found`), nil},
	{"run k -- /no/such\x1bprogram", says(`"/no/such\x1bprogram" is not found`), nil},
	{"run k -- TEXT", says("cannot be executed: permission denied"), nil},
	{"run k -- /", says("cannot be executed"), nil},
	{"run --nonsense", says("election-cli: unknown flag --nonsense\n"), nil},
	{"run k --bogus -- PROGRAM", says("--bogus"), nil},
	{"run k --grace x -- PROGRAM", says(`--grace: "x" is not a duration`), nil},
	{"run k --grace=-1s -- PROGRAM", says("--grace -1s"), nil},
	{"run --lost-hook no-such-hook k -- PROGRAM", says(`--lost-hook: program "no-such-hook" is not found`), nil},
	{"run --lost-hook TEXT k -- PROGRAM", says("--lost-hook: program"), nil},
	{"run k --no-wait --max-wait 1s -- PROGRAM", says("--no-wait and --max-wait exclude each other: give only one of them"), []string{"run k --no-wait -- PROGRAM", "run k --max-wait 1s -- PROGRAM"}},
	{"run k --on-lost signal --no-wait -- PROGRAM", says("leave out --no-wait and --max-wait"), []string{"run k --on-lost signal -- PROGRAM"}},
	{"run k --won USR1 -- PROGRAM", says("--won and --lost need --on-lost=signal"), []string{"run k --won USR1 --on-lost signal -- PROGRAM", "run k -- PROGRAM"}},
	{"run k --won NOPE --on-lost signal -- PROGRAM", says(`--won "NOPE"`, "give one such as USR1 or HUP"), []string{"run k --won HUP --on-lost signal -- PROGRAM"}},
	{"run k --won KILL --on-lost signal -- PROGRAM", says(`--won "KILL"`), nil},
	{"run k --lost FOO --on-lost signal -- PROGRAM", says(`--lost "FOO"`), nil},
	{"run k -E 3 -- PROGRAM", says("--conflict-exit-code needs --no-wait: give that flag too, or leave it out"), []string{"run k -E 3 --no-wait -- PROGRAM", "run k -- PROGRAM"}},
	{"run k -E 300 --no-wait -- PROGRAM", says("300", "give a number from 0 to 255"), []string{"run k -E 255 --no-wait -- PROGRAM"}},
	{"run k --hold-at-least=-1s -- PROGRAM", says("--hold-at-least -1s is negative"), nil},
	{"run k --hold-at-least 1s --on-lost=signal -- PROGRAM", says("leave out --on-lost=signal and --restart"), nil},
	{"run k --hold-at-least 1s --restart always -- PROGRAM", says("leave out --on-lost=signal and --restart, or --hold-at-least"), []string{"run k --hold-at-least 1s -- PROGRAM", "run k --restart always -- PROGRAM"}},
	{"run k --on-exit keep -- PROGRAM", says("--on-exit needs --restart: give that flag too, or leave it out"), []string{"run k --on-exit keep --restart always -- PROGRAM", "run k -- PROGRAM"}},
	{"run k --verbose --quiet -- PROGRAM", says("--quiet", "give only one of them"), []string{"run k --verbose -- PROGRAM", "run k --quiet -- PROGRAM"}},

	{"drill --bogus", says("--bogus", "--help"), nil},
	{"drill --candidates many", says(`election-cli: --candidates: "many" is not a number`), nil},
	{"drill --candidates 1", says("--candidates 1: give 2 to 50"), nil},
	{"drill --candidates 1 --ttl 1ms", says("--candidates 1", "--ttl 1ms"), nil},
	{"drill --rounds 0", says("--rounds 0: give 1 to 1000"), nil},
	{"drill --replicas 2", says("--replicas 2: give 1, 3 or 5"), nil},
	{"drill --ttl 500ms", says("--ttl 500ms", "at least 1s"), nil},
	{"drill --ttl 2h", says("--ttl 2h0m0s", "at most 1h"), nil},
	{"drill --svg PATH/x.svg", says("--svg", "there is no folder"), nil},
	{"drill --embedded -s h:1", says("--embedded", "--server"), nil},
	{"drill -s nats://127.0.0.1:1", says("cannot connect to nats://127.0.0.1:1"), nil},
	{"drill --alert ElectionNoLeader", says("--alert requires --alerts: give both, or leave --alert out"), nil},
	{"drill --alerts :0 --alert None", says("--alert"), nil},
	{"drill --alerts nowhere", says("--alert"), nil},
	{"drill --alerts :0 --rounds 1", says("--alert"), nil},
	{"drill --alerts :0 --processes", says("--alert"), nil},
	{"drill --every 1s", says("--every requires --processes: give both, or leave --every out"), nil},
	{"drill --for 1m", says("--for", "--processes"), nil},
	{"drill --seed 1 --keep", says("--seed", "--keep", "--processes"), nil},
	{"drill --nats-server nats-server", says("--nats-server", "--processes"), nil},
	{"drill --processes --every 1ms", says("--every 1ms: give at least 500ms, or leave it out"), nil},
	{"drill --processes --for 3s", says("--for 3s", "10s to 24h"), nil},
	{"drill --processes --for 30s --ttl 10s", says("--for 30s", "4 times", "10s"), nil},
	{"drill --processes --fault bogus", says("bogus"), nil},
	{"drill --processes --lose-replies 101%", says("--lose-replies 101%", "50%"), nil},
	{"drill --processes --lose-replies NaN", says("--lose-replies NaN"), nil},
	{"drill --processes --stand-down=-1s", says("--stand-down -1s"), nil},
	{"drill --processes --ttl 1ms", says("--ttl 1ms"), nil},
	{"drill --processes --candidates 1", says("--candidates 1"), nil},
	{"drill --processes --fault rewind", says("--fault rewind", "--replicas 1"), nil},
	{"drill --processes --fault step-down --replicas 1", says("--fault step-down", "--replicas 3"), nil},
	{"drill --processes --sessions 9999", says("--sessions 9999", "200"), nil},
	{"drill --processes --sessions 5 --fault revoke --stand-down 1s", says("--fault revoke is not for sessions", "--stand-down 1s"), nil},
	{"drill --processes --fault transfer", says("--fault transfer is for sessions: give --sessions"), nil},
	{"drill --sessions 5", says("--sessions requires --processes"), nil},
	{"drill --processes --replicas 5", says("--replicas 5"), nil},
	{"drill --processes --nats-server /no/nats-server", says("--nats-server /no/nats-server", "leave it out"), nil},
	{"drill --processes --rounds 2", says("leave out --server, --context, --embedded and --rounds"), nil},
	{"drill --processes -s h:1", says("--processes", "--server"), nil},
}

// exitCodes are those of refusals that differ from those of other errors of their command.
var exitCodes = map[string]int{
	"run k -- no-such-program":                  supervise.ExitNotFound,
	"run k -- /no/such\x1bprogram":              supervise.ExitNotFound,
	"run k -- TEXT":                             supervise.ExitNotExecutable,
	"run k -- /":                                supervise.ExitNotExecutable,
	"run --lost-hook no-such-hook k -- PROGRAM": supervise.ExitNotFound,
	"run --lost-hook TEXT k -- PROGRAM":         supervise.ExitNotExecutable,
}

// exitCode returns the exit code of the refusal.
func (r refusal) exitCode() int {
	if code, found := exitCodes[r.line]; found {
		return code
	}
	switch name, _, _ := strings.Cut(r.line, " "); name {
	case "check":
		return int(checkup.StatusUnknown)
	case "run":
		return supervise.ExitOwnError
	}
	return cli.ExitFailure
}

// argsOf returns the arguments of a command line, with the files that it names, in a folder.
func argsOf(g Gomega, line, folder string) []string {
	text := filepath.Join(folder, "text")
	g.Expect(os.WriteFile(text, []byte("text"), 0o600)).To(Succeed())
	line = strings.NewReplacer("TEXT", text, "PROGRAM", "/bin/true", "PATH", filepath.Join(folder, "x")).Replace(line)
	return clitest.Span{Text: "election-cli " + line}.Commands()[0].Args[1:]
}

func TestWrongCommandLinesAreRefusedInPlainWordsBeforeAnythingIsDone(t *testing.T) {
	g, folder := NewWithT(t), t.TempDir()
	for _, r := range refusals {
		args := argsOf(g, r.line, folder)
		code, stdout, stderr := runInProcess(args...)
		g.Expect(code).To(Equal(r.exitCode()), "%s: %s", r.line, stderr)
		if slices.Contains(args, "--json") {
			expectOutput(g, args, stdout)
		} else {
			g.Expect(stdout).To(BeEmpty(), r.line)
		}
		for _, text := range r.says {
			g.Expect(stderr).To(ContainSubstring(text), r.line)
		}
		g.Expect(filepath.Join(folder, "x")).NotTo(BeAnExistingFile(), r.line)
		g.Expect(stderr).NotTo(MatchRegexp(`\bWith[A-Z]`), "%s: that is an option of the library", r.line)
	}
}

func TestWhatAnErrorAboutACommandLineSaysToDoIsAccepted(t *testing.T) {
	skipIfShort(t)
	for _, r := range refusals {
		for _, line := range r.done {
			t.Run(line, func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				first := firstLine(t, argsOf(g, line, t.TempDir())...)
				for _, text := range r.says {
					g.Expect(first).NotTo(ContainSubstring(text))
				}
			})
		}
	}
}

// firstLine runs a command line where no server is, and returns the first line that it writes to stderr.
func firstLine(t *testing.T, args ...string) string {
	t.Helper()
	cmd, _, _ := command(t, args...)
	cmd.Env = append(os.Environ(), "NATS_URL=nats://127.0.0.1:1")
	p := followLog(NewWithT(t), cmd)
	defer time.AfterFunc(clitest.Timeout, func() { _ = cmd.Process.Kill() }).Stop()
	return <-p.lines
}

func TestAPortInUseIsReported(t *testing.T) {
	g := NewWithT(t)
	e, err := embedded.Start(embedded.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	defer e.Stop()
	port := e.URL()[strings.LastIndex(e.URL(), ":")+1:]
	for _, args := range [][]string{{"campaign", "k", "--embedded", "--port", port}, {"server", "--port", port}} {
		code, _, stderr := runInProcess(args...)
		g.Expect(code).To(Equal(cli.ExitFailure))
		g.Expect(stderr).To(And(ContainSubstring("--port "+port), ContainSubstring("in use")))
	}
}
