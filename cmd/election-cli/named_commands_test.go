package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/clitest"
)

// The server has no bucket of the default name, so that a command without --bucket would say that there is none.
func TestACommandThatATextNamesWorksInTheBucketOfTheUser(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state string
		args  []string
	}{
		"info without a leader":         {"", []string{"info", "jobs"}},
		"check without a leader":        {"", []string{"check", "jobs"}},
		"wait without a leader":         {"", []string{"wait", "jobs", "--max-wait", longEnough}},
		"resign without a leader":       {"", []string{"resign", "jobs"}},
		"candidates without candidates": {"", []string{"candidates", "jobs"}},
		"info of a pause":               {"paused", []string{"info", "jobs"}},
		"check of a pause":              {"paused", []string{"check", "jobs"}},
		"wait during a pause":           {"paused", []string{"wait", "jobs", "--max-wait", longEnough}},
		"transfer during a pause":       {"paused", []string{"transfer", "jobs", "--to", "web-2"}},
		"evict":                         {"led", []string{"evict", "jobs"}},
		"evict revision 0":              {"led", []string{"evict", "jobs", "--revision", "0"}},
		"transfer to nobody":            {"led", []string{"transfer", "jobs", "--to", "web-2"}},
		"resign without a successor":    {"led", []string{"resign", "jobs", "--force"}},
		"a leader that is paused":       {"led, paused", []string{"info", "jobs"}},
		"its resignation is asked for":  {"led, paused", []string{"resign", "jobs"}},
		"its resignation":               {"led, paused", []string{"resign", "jobs", "--force"}},
		"its transfer":                  {"led, paused", []string{"transfer", "jobs", "--to", "web-2"}},
		"it is checked":                 {"led, paused", []string{"check", "jobs"}},
		"a leader that does not answer": {"silent", []string{"resign", "jobs", "--force"}},
		"it is silent during a pause":   {"silent, paused", []string{"resign", "jobs", "--force"}},
		"no candidate is ready":         {"held back", []string{"check", "jobs"}},
		"a leader-elect":                {"won", []string{"check", "jobs"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fixing{fixture: newFixture(t, clitest.LongTTL), ttl: 20 * time.Second}
			f.RemoveBucket()
			f.Bucket = f.otherBucket("OTHER", election.BucketConfig{})
			switch state, _, _ := strings.Cut(c.state, ", "); state {
			case "led":
				f.leads(f.campaign("web-1"))
			case "held back":
				f.heldBack("web-1")
			case "won":
				f.campaign("web-1", election.WithStandDown(15*time.Second))
				f.Eventually(f.candidates[0].State).Should(Equal(election.LeaderElectState))
			case "silent":
				body, err := json.Marshal(clitest.LeaderRecord("web-1", nil))
				f.must(err)
				_, err = f.Client.JetStream.Publish(t.Context(), "$KV.OTHER.jobs", body)
				f.must(err)
			}
			if strings.HasSuffix(c.state, "paused") {
				f.ok("pause", "jobs", "--force", "--bucket", "OTHER")
			}
			_, stdout, stderr := runAnswered(f.run, append([]string{c.args[0], c.args[1], "--bucket", "OTHER"}, c.args[2:]...)...)
			t.Log(stdout + stderr)
			named := commands(stdout + stderr)
			f.Expect(named).NotTo(BeEmpty())
			for _, command := range named {
				if command[0] == "wait" {
					command = append(command, "--max-wait", "10ms")
				}
				_, stdout, stderr := f.run(command...)
				f.Expect(stdout+stderr).NotTo(Or(ContainSubstring("there is no bucket"), ContainSubstring("no-bucket")), "%q", command)
				f.Expect(command).To(ContainElements("--bucket", "OTHER"))
			}
		})
	}
}
