package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli/checkup"
)

func TestEveryCodeThatIsDocumentedCanBeIgnoredAndNoOther(t *testing.T) {
	g := NewWithT(t)
	source, err := os.ReadFile("../../admin/check.go")
	g.Expect(err).NotTo(HaveOccurred())
	_, table, _ := strings.Cut(string(source), "// Finding is one result of [Check].")
	table, _, _ = strings.Cut(table, "type Finding struct")
	_, own, _ := strings.Cut(checkup.Help, "those of the Go package admin, and\n")
	own, _, _ = strings.Cut(own, "The codes that begin with expect-")
	var documented []string
	for line := range strings.Lines(strings.ReplaceAll(table, "//\t", "    ") + own) {
		if codes := regexp.MustCompile(`^ {4}([a-z, -]+?) +(critical|warning|info)`).FindStringSubmatch(line); codes != nil {
			documented = append(documented, strings.Split(codes[1], ", ")...)
		}
	}
	g.Expect(findingCodes).To(ConsistOf(documented))
}

func TestAnUnknownCodeToIgnoreIsRefusedWithTheNearestOne(t *testing.T) {
	g := NewWithT(t)
	for code, says := range map[string]string{
		"nosuchcode": `--ignore: unknown code "nosuchcode" (`, "no-leaders": `did you mean "no-leader"?`, "No-Standby": `did you mean "no-standby"?`, "no-standby ": `did you mean "no-standby"?`,
	} {
		exit, _, stderr := runInProcess("check", "-s", "127.0.0.1:1", "--ignore", code)
		g.Expect(exit).To(Equal(int(checkup.StatusUnknown)))
		g.Expect(stderr).To(ContainSubstring(says))
	}
	_, _, stderr := runInProcess("check", "-s", "127.0.0.1:1", "--ignore", "no-standby", "--ignore", "expect-crash")
	g.Expect(stderr).To(ContainSubstring("cannot connect"))
}
