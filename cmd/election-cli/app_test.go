package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/natscampaign/election/internal/test/natstest"

	"github.com/choria-io/fisk"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
)

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
