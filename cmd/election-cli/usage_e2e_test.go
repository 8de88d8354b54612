package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/choria-io/fisk"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
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
	code, stdout, stderr := runBinary(t, "rules", "-j")
	g.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitFailure, ""}))
	g.Expect(stderr).To(HavePrefix("election-cli: unknown flag -j\n"))
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

func TestMistakesAreAnsweredInPlainWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"lss", 2, `unknown command "lss": did you mean "ls"?`},
		{"help cand", 2, `unknown command "cand": did you mean "candidates"?`},
		{"bucket ad", 2, `unknown command "ad": did you mean "add"?`},
		{"drill-pro", 2, `unknown command "drill-pro"` + "\n"},
		{"ls --jsn", 2, "unknown flag --jsn: did you mean --json?"},
		{"wait k --max", 2, "unknown flag --max: did you mean --max-wait?"},
		{"run --nonsense", 125, "unknown flag --nonsense\n"},
		{"check --format y", 3, `--format: "y" is unknown: give text, nagios, json or prometheus`},
		{"drill --candidates many", 2, `--candidates: "many" is not a number`},
		{"dashboard --web-config w.yml", 2, "--web-config is for --serve: add it"},
		{"dashboard --serve :0 --namespace shop", 2, "--namespace is for the file that is printed: leave it out"},
		{"ls -s http://h", 2, `--server or NATS_URL: the server URL "http://h"`},
	} {
		t.Run(c.line, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			code, stdout, stderr := runBinary(t, strings.Fields(c.line)...)
			g.Expect(code).To(Equal(c.code))
			g.Expect(stdout).To(BeEmpty())
			g.Expect(stderr).To(HavePrefix("election-cli: " + c.want))
		})
	}
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
