package main

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/look"
)

func TestWaitEndsWhenItIsSo(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	var f look.Election
	a.Put("jobs", clitest.Leading("web-1", nil))
	a.read(cli.ExitOK, &f, "wait", "jobs")
	a.Expect([]string{f.Key, f.Bucket, f.Leader.Name, f.Leader.State}).To(Equal([]string{"jobs", "LEADER_ELECTION", "web-1", look.StateLeader}))
	code, stdout, _ := a.run("wait", "jobs", "--leader", "web-1", "--max-wait", "1m")
	a.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitOK, "web-1 leads jobs, term 7\n"}))

	f = look.Election{}
	a.read(cli.ExitOK, &f, "wait", "free", "--vacant")
	a.Expect(f).To(Equal(look.Election{Key: "free", Bucket: "LEADER_ELECTION"}))
	code, stdout, _ = a.run("wait", "free", "--vacant")
	a.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitOK, "free is vacant\n"}))
}

func TestWaitEndsWhenItBecomesSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		change func(*arena)
	}{
		"somebody leads whose leadership did not count": {nil, func(a *arena) { a.Put("jobs", clitest.Leading("web-2", nil)) }},
		"the one leads who was named": {[]string{"--leader", "web-2"}, func(a *arena) {
			a.Put("jobs", clitest.Leading("web-3", nil))
			a.Put("jobs", clitest.Leading("web-2", nil))
		}},
		"the key was released and is taken already": {[]string{"--vacant"}, func(a *arena) { a.Put("jobs", clitest.Leading("web-2", clitest.Fields{"won": "released"})) }},
		"the key is deleted":                        {[]string{"--vacant"}, func(a *arena) { a.Expect(a.Bucket.Delete(a.T.Context(), "jobs")).To(Succeed()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, clitest.Quiet)
			a.Put("jobs", clitest.Leading("web-1", clitest.Fields{"term": 0}))
			cmd, stdout, stderr := a.command(append([]string{"wait", "jobs"}, c.args...)...)
			a.Expect(cmd.Start()).To(Succeed())
			a.isWatched()
			c.change(a)
			a.Expect(cmd.Wait()).To(Succeed(), stderr.String())
			a.Expect(stdout.String()).To(Or(HavePrefix("web-2 leads jobs"), Equal("jobs is vacant\n")))
		})
	}
}

// isWatched waits until somebody watches the bucket, and has been told what stands in it.
func (a *arena) isWatched() {
	a.T.Helper()
	stream, err := a.S.JetStream.Stream(a.T.Context(), "KV_LEADER_ELECTION")
	a.Expect(err).NotTo(HaveOccurred())
	a.Eventually(func() (told bool) {
		for c := range stream.ListConsumers(a.T.Context()).Info() {
			told = c.NumPending == 0 && c.Delivered.Consumer > 0
		}
		return told
	}).WithTimeout(clitest.Patience).Should(BeTrue())
}

func TestWaitExits124WhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", clitest.Fields{"term": 0}))
	for want, args := range map[string][]string{
		"jobs did not get a leader within 300ms":               {"jobs"},
		`jobs did not get "web-2" for its leader within 300ms`: {"jobs", "--leader", "web-2"},
		"jobs did not become vacant within 300ms":              {"jobs", "--vacant"},
		"nobody-there did not get a leader within 300ms":       {"nobody-there"},
	} {
		code, stdout, stderr := a.run(append([]string{"wait", "--max-wait", "300ms"}, args...)...)
		a.Expect([]any{code, stdout}).To(Equal([]any{exitTimeout, ""}), stderr)
		a.Expect(stderr).To(ContainSubstring(want))
	}
	code, _, stderr := try("wait", "jobs", "--max-wait", "300ms", "-s", "nats://127.0.0.1:1")
	a.Expect(code).To(Equal(exitTimeout), stderr)
}

func TestWaitExits130WhenInterrupted(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("other", clitest.Leading("x", nil))
	a.Put("jobs", clitest.Leading("web-1", clitest.Fields{"term": 0}))
	cmd, stdout, _ := a.command("wait", "jobs")
	a.Expect(cmd.Start()).To(Succeed())
	a.isWatched()
	a.Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
	a.Expect(cmd.Wait()).NotTo(Succeed())
	a.Expect(cmd.ProcessState.ExitCode()).To(Equal(cli.ExitInterrupted))
	a.Expect(stdout.String()).To(BeEmpty())
}

func TestABareNameLeadsFromItsRenewal(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", "puppet")
	cmd, stdout, stderr := a.command("wait", "jobs")
	a.Expect(cmd.Start()).To(Succeed())
	a.isWatched()
	a.Put("jobs", "puppet")
	a.Expect(cmd.Wait()).To(Succeed(), stderr.String())
	a.Expect(stdout.String()).To(Equal("puppet leads jobs\n"))
}
