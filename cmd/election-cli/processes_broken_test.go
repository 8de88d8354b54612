//go:build linux || darwin

package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill/chaos"
)

func TestADrillWhoseCandidateExitsUnexpectedlyReportsItsResultsAndKeepsItsHistories(t *testing.T) {
	skipWithoutProcesses(t)
	t.Parallel()
	g := NewWithT(t)
	temp := t.TempDir()
	p, stdout := drillThatLeads(t, temp, "--json")
	candidate := regexp.MustCompile(`(?m)^ *(\d+) +` + strconv.Itoa(p.cmd.Process.Pid) + ` .*drill-process candidate`).FindStringSubmatch(listProcesses())
	g.Expect(candidate).To(HaveLen(2))
	pid, err := strconv.Atoi(candidate[1])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(unix.Kill(pid, unix.SIGABRT)).To(Succeed())
	p.says("Histories and logs are in " + temp)
	p.says("ended by itself")
	g.Expect(p.cmd.Wait()).NotTo(Succeed())
	g.Expect(p.cmd.ProcessState.ExitCode()).To(BeElementOf(cli.ExitFailure, cli.ExitNegative))
	expectSchema(g, "drill-processes", stdout.String())
	var r chaos.Report
	g.Expect(json.Unmarshal(stdout.Bytes(), &r)).To(Succeed(), stdout.String())
	g.Expect(r.Samples).To(BeNumerically(">", 0))
	g.Expect(r.Overlap).To(BeZero())
	kept, err := filepath.Glob(filepath.Join(r.Kept, "*.history"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kept).To(HaveLen(2))
}
