package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/fisk"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/checkup"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/leaderfile"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/drill"
	"github.com/natscampaign/election/internal/drill/chaos"
	"github.com/natscampaign/election/internal/test/natstest"
)

// words returns a text with single spaces, however its lines are broken.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// listed returns the commands that the help lists.
func listed() (list []*fisk.CmdModel) {
	for _, c := range app(&cli.Env{}).Model().FlattenedCommands() {
		if !c.Hidden && c.Name != "help" {
			list = append(list, c)
		}
	}
	return list
}

func TestHelpListsTheFlagsOfACommandAndHelpLongThoseOfTheConnectionToo(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	code, help, stderr := runBinary(t, "wait", "--help")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	g.Expect(help).To(And(HavePrefix("usage: election-cli wait [<flags>] <key>\n"), ContainSubstring("--max-wait=DURATION"), ContainSubstring("-j, --json"),
		HaveSuffix("\nFor the connection flags, run 'election-cli wait --help-long'.\n")))
	g.Expect(help).NotTo(Or(ContainSubstring("--server"), ContainSubstring("--bucket")))
	_, same, _ := runBinary(t, "help", "wait")
	g.Expect(same).To(Equal(help))
	code, long, stderr := runBinary(t, "wait", "--help-long")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	g.Expect(long).To(And(HavePrefix(strings.TrimSuffix(help, "For the connection flags, run 'election-cli wait --help-long'.\n")),
		ContainSubstring("-s, --server=URL"), ContainSubstring("--bucket=NAME")))
}

func TestTheHelpOfEveryCommandShowsTheDefaultsAndVariablesOfItsFlags(t *testing.T) {
	g := NewWithT(t)
	seen := 0
	for _, c := range listed() {
		code, help, stderr := runInProcess(append(strings.Fields(c.FullCommand), "--help-long")...)
		g.Expect(code).To(Equal(cli.ExitOK), stderr)
		for _, f := range append(app(&cli.Env{}).Model().Flags, c.Flags...) {
			for _, value := range f.Default {
				seen++
				g.Expect(words(help)).To(MatchRegexp(`--%s=[^(]* \((?:[^)]*)default %s[);]`, f.Name, value), c.FullCommand)
			}
			if f.Envar != "" {
				g.Expect(words(help)).To(ContainSubstring("($"+f.Envar+")"), c.FullCommand)
			}
		}
	}
	g.Expect(seen).To(BeNumerically(">", 2*len(listed())), "--timeout and --bucket of each, and more")
}

func TestAFlagHasTheSameShortFormEverywhereAsInNatscli(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	short := map[string]rune{"json": 'j', "force": 'f', "verbose": 'v', "quiet": 'q', "server": 's', "help": 'h'}
	for _, c := range listed() {
		for _, f := range append(app(&cli.Env{}).Model().Flags, c.Flags...) {
			if want, found := short[f.Name]; found {
				g.Expect(f.Short).To(Equal(want), "%s --%s", c.FullCommand, f.Name)
			}
		}
	}
}

func TestEveryFlagThatRefusesAValueNamesItself(t *testing.T) {
	g := NewWithT(t)
	refused := 0
	for _, c := range listed() {
		for _, f := range append(app(&cli.Env{}).Model().Flags, c.Flags...) {
			if f.IsBoolFlag() {
				continue
			}
			if err := f.Value.Set("no value"); err != nil {
				refused++
				g.Expect(err).To(MatchError(And(HavePrefix("--"+f.Name), ContainSubstring(`: "no value" is `), ContainSubstring("give "))), c.FullCommand)
			}
		}
	}
	g.Expect(refused).To(BeNumerically(">", 30), "durations, numbers and choices")
}

func TestVersionIsPrinted(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	code, stdout, _ := runBinary(t, "--version")
	g.Expect(code).To(Equal(cli.ExitOK))
	g.Expect(stdout).To(MatchRegexp(`^\d+\.\d+\.\d+\S*\n$`))
	_, help, _ := runBinary(t, "--help")
	g.Expect(help).To(ContainSubstring("election-cli --version"))
}

func TestTheManualPageHasEverySectionCommandAndFlag(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	code, page, stderr := runBinary(t, "--help-man")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	at := 0
	for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "GLOBAL FLAGS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES", "SEE ALSO"} {
		next := strings.Index(page, "\n.SH \""+section+"\"\n")
		g.Expect(next).To(BeNumerically(">", at), section)
		at = next
	}
	examples := strings.ReplaceAll(page[strings.Index(page, `.SH "EXAMPLES"`):], `\-`, "-")
	for _, c := range listed() {
		g.Expect(page).To(ContainSubstring("\n.SS \"election\\-cli "+strings.ReplaceAll(c.FullCommand, "-", `\-`)), c.FullCommand)
		g.Expect(examples).To(MatchRegexp(`(?m)^election-cli %s`, c.FullCommand), "an example of %s", c.FullCommand)
		for _, f := range c.Flags {
			g.Expect(page).To(MatchRegexp(`(?m)^\\fB.*\\-\\-%s`, strings.ReplaceAll(f.Name, "-", `\\-`)), "%s --%s", c.FullCommand, f.Name)
		}
	}
	for line := range strings.Lines(examples) {
		if line, found := strings.CutPrefix(line, "election-cli "); found {
			g.Expect(parseOnly(strings.Fields(regexp.MustCompile(` (&&|>) .*`).ReplaceAllString(line, "")))).To(Succeed(), line)
		}
	}
	g.Expect(page).To(ContainSubstring(`\fBELECTION_BUCKET\fR`))
}

func TestManReadsTheManualPageWithoutWarnings(t *testing.T) {
	t.Parallel()
	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("there is no man")
	}
	g := NewWithT(t)
	_, text, _ := runBinary(t, "--help-man")
	file := filepath.Join(t.TempDir(), "election-cli.1")
	g.Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	cmd := exec.Command(man, "--warnings", "-l", file)
	cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8")
	var warnings strings.Builder
	cmd.Stderr = &warnings
	page, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred(), warnings.String())
	g.Expect(warnings.String()).To(BeEmpty())
	g.Expect(words(string(page))).To(And(ContainSubstring("election-cli run [<flags>] <key> -- <program> [<args>...]"),
		ContainSubstring("--server=URL"), ContainSubstring("'election-cli resume KEY'")), "a shell takes these quotes and hyphens")
}

func TestFishCompletesCommandsFlagsAndValues(t *testing.T) {
	t.Parallel()
	fish, err := exec.LookPath("fish")
	if err != nil {
		t.Skip("there is no fish")
	}
	skipIfShort(t)
	g := NewWithT(t)
	path, err := binary()
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	g.Expect(os.Symlink(path, filepath.Join(dir, "election-cli"))).To(Succeed())
	cmd := exec.Command(fish, "--no-config", "-c", `election-cli --completion-script-fish | source
for line in 'election-cli ca' 'election-cli wait --v' 'election-cli check --format ' 'election-cli ls --creds web'
    complete -C $line
end`)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
	g.Expect(os.WriteFile(filepath.Join(dir, "web.creds"), nil, 0o600)).To(Succeed())
	out, err := cmd.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(strings.Fields(string(out))).To(ContainElements("campaign", "candidates", "--vacant", "text", "nagios", "web.creds"))
	g.Expect(string(out)).NotTo(ContainSubstring("transfer"))
}

// TestEveryFlagAndArgumentRefusesToBeEmpty tests what an unset variable of a shell leaves behind.
func TestEveryFlagAndArgumentRefusesToBeEmpty(t *testing.T) {
	g := NewWithT(t)
	seen := 0
	for _, c := range listed() {
		words := strings.Fields(c.FullCommand)
		for _, f := range append(app(&cli.Env{}).Model().Flags, c.Flags...) {
			if f.IsBoolFlag() || strings.HasPrefix(f.Name, "completion-") {
				continue
			}
			for _, value := range []string{"", " "} {
				seen++
				code, stdout, stderr := runInProcess(append(words[:len(words):len(words)], "--"+f.Name+"="+value)...)
				g.Expect(code).NotTo(Equal(cli.ExitOK), "%s --%s", c.FullCommand, f.Name)
				g.Expect(stdout).To(BeEmpty())
				g.Expect(stderr).To(ContainSubstring("--"+f.Name+" is empty, as of a shell variable that is not set"), "%s --%s", c.FullCommand, f.Name)
			}
		}
		if len(c.Args) == 0 {
			continue
		}
		args := words[:len(words):len(words)]
		for range c.Args {
			args = append(args, "")
		}
		_, _, stderr := runInProcess(args...)
		for _, a := range c.Args {
			if c.FullCommand != "run" || a.Name == "key" { // a program without -- is reported first
				g.Expect(stderr).To(Or(ContainSubstring(strings.ToUpper(a.Name)+" is empty"), ContainSubstring("-- is missing")), c.FullCommand)
			}
		}
	}
	g.Expect(seen).To(BeNumerically(">", 300))
}

func TestAnEmptyVariableOfTheEnvironmentCountsAsNotSet(t *testing.T) {
	g := NewWithT(t)
	for _, f := range app(&cli.Env{}).Model().Flags {
		if f.Envar != "" {
			t.Setenv(f.Envar, "")
		}
	}
	_, _, stderr := runInProcess("ls", "-s", "127.0.0.1:1")
	g.Expect(stderr).To(ContainSubstring("cannot connect to nats://127.0.0.1:1: connection refused"))
}

// commandsWithoutData have no result, or print a file in a foreign format.
var commandsWithoutData = []string{"help", "bucket rm", "pause", "resume", "run", "witness", "dashboard", "rules"}

func TestEveryCommandThatPrintsDataHasJSON(t *testing.T) {
	g := NewWithT(t)
	seen := 0
	for _, cmd := range app((&cli.Env{})).Model().FlattenedCommands() {
		if cmd.Hidden || slices.Contains(commandsWithoutData, cmd.FullCommand) {
			continue
		}
		seen++
		g.Expect(slices.ContainsFunc(cmd.Flags, func(f *fisk.FlagModel) bool { return f.Name == "json" && f.IsBoolFlag() })).To(BeTrue(), cmd.FullCommand)
		g.Expect(outputs).To(HaveKey(outputOf(strings.Fields(cmd.FullCommand))), "its output has a schema")
		g.Expect(cmd.HelpLong).To(ContainSubstring("--json"), "%s documents its output", cmd.FullCommand)
	}
	g.Expect(seen).To(BeNumerically(">=", 8))
}

func TestCompletionAndManualAreBuiltIn(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	for flag, texts := range map[string][]string{
		"--completion-script-bash": {"complete -F", "election-cli"},
		"--completion-script-zsh":  {"#compdef", "election-cli"},
		"--completion-script-fish": {"complete -c", "election-cli"},
		"--help-man":               {".TH \"election\\-cli\"", "evict", "max\\-wait"},
	} {
		cmd, stdout, stderr := command(t, flag)
		g.Expect(cmd.Run()).To(Succeed(), stderr.String())
		for _, text := range texts {
			g.Expect(stdout.String()).To(ContainSubstring(text), flag)
		}
		g.Expect(appHelp).To(ContainSubstring(flag), "the help mentions the flag")
	}
	cmd, stdout, stderr := command(t, "--completion-bash", "wait", "--")
	g.Expect(cmd.Run()).To(Succeed(), stderr.String())
	g.Expect(stdout.String()).To(And(ContainSubstring("--max-wait"), ContainSubstring("--vacant"), ContainSubstring("--server")))
	cmd, stdout, stderr = command(t, "--completion-bash")
	g.Expect(cmd.Run()).To(Succeed(), stderr.String())
	g.Expect(stdout.String()).To(And(ContainSubstring("ls\n"), ContainSubstring("check")))
}

func TestBashAcceptsTheCompletionScript(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	g := NewWithT(t)
	path, err := binary()
	g.Expect(err).NotTo(HaveOccurred())
	out, err := exec.Command(bash, "-c", `source <("$1" --completion-script-bash) && complete -p`, "bash", path).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(string(out)).To(ContainSubstring("election-cli"))
}

// jsonFields returns the JSON names of all fields of a type, including the fields of nested types.
func jsonFields(t reflect.Type) (names []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return jsonFields(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return nil
		}
	default:
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
		if f.IsExported() || f.Anonymous {
			names = append(names, jsonFields(f.Type)...)
		}
	}
	return names
}

func TestTheHelpDocumentsEveryJSONField(t *testing.T) {
	for _, c := range []struct {
		help string
		of   any
	}{
		{drillHelp, drill.Report{}}, {chaos.Help, chaos.Report{}}, {campaignHelp, events.Event{}}, {candidatesHelp, look.Candidate{}},
		{checkup.Help, checkup.Result{}}, {infoHelp, look.BucketInfo{}}, {bucketInfoHelp, look.BucketInfo{}}, {fileHelp, leaderfile.Content{}}, {fileHelp, leaderfile.CheckResult{}}, {resignHelp, handoverReport{}},
	} {
		t.Run(fmt.Sprintf("%T", c.of), func(t *testing.T) {
			g := NewWithT(t)
			for _, name := range jsonFields(reflect.TypeOf(c.of)) {
				g.Expect(c.help + look.HolderHelp).To(ContainSubstring(`"` + name + `"`))
			}
		})
	}
	g := NewWithT(t)
	for _, name := range []string{events.Started, events.Following, events.Elected, events.Leading, events.Lost, events.Released, events.Stopped, events.Dropped} {
		g.Expect(campaignHelp).To(ContainSubstring("    " + name))
	}
}
