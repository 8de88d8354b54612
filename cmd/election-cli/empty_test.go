package main

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
)

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
