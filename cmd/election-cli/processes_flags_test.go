package main

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
)

func TestInvalidFlagsOfADrillOnProcessesAreRefused(t *testing.T) {
	for _, c := range []struct {
		args     []string
		messages []string
	}{
		{[]string{"--for", "1m"}, []string{"--for", "--processes"}},
		{[]string{"--seed", "1", "--keep"}, []string{"--seed", "--keep", "--processes"}},
		{[]string{"--processes", "--for", "3s"}, []string{"--for 3s", "10s to 24h"}},
		{[]string{"--processes", "--for", "30s", "--ttl", "10s"}, []string{"--for 30s", "4 times", "10s"}},
		{[]string{"--processes", "--every", "1ms"}, []string{"--every 1ms", "500ms"}},
		{[]string{"--processes", "--fault", "bogus"}, []string{"bogus"}},
		{[]string{"--processes", "--lose-replies", "101%"}, []string{"--lose-replies 101%", "50%"}},
		{[]string{"--processes", "--lose-replies", "NaN"}, []string{"--lose-replies NaN"}},
		{[]string{"--processes", "--stand-down=-1s"}, []string{"--stand-down -1s"}},
		{[]string{"--processes", "--ttl", "1ms"}, []string{"--ttl 1ms"}},
		{[]string{"--processes", "--candidates", "1"}, []string{"--candidates 1"}},
		{[]string{"--processes", "--fault", "rewind"}, []string{"--fault rewind", "--replicas 1"}},
		{[]string{"--processes", "--fault", "step-down", "--replicas", "1"}, []string{"--fault step-down", "--replicas 3"}},
		{[]string{"--processes", "--replicas", "5"}, []string{"--replicas 5"}},
		{[]string{"--nats-server", "nats-server"}, []string{"--nats-server", "--processes"}},
		{[]string{"--processes", "--nats-server", "/no/nats-server"}, []string{"--nats-server /no/nats-server", "leave it out"}},
		{[]string{"--processes", "--rounds", "2"}, []string{"--processes", "--rounds"}},
		{[]string{"--processes", "-s", "h:1"}, []string{"--processes", "--server"}},
	} {
		g := NewWithT(t)
		code, stdout, stderr := runInProcess(append([]string{"drill"}, c.args...)...)
		g.Expect(code).To(Equal(cli.ExitFailure), "%q", c.args)
		g.Expect(stdout).To(BeEmpty(), "%q", c.args)
		for _, text := range c.messages {
			g.Expect(stderr).To(ContainSubstring(text), "%q", c.args)
		}
	}
}

func TestARateIsAFractionOrAPercentage(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]float64{"0": 0, "0%": 0, "1%": 0.01, "0.01": 0.01, "2.5%": 0.025, "50%": 0.5} {
		g.Expect(parseRate(text)).To(BeNumerically("~", want, 1e-9), text)
	}
	for _, text := range []string{"", "%", "-1%", "51%", "x", "1%%", "NaN", "Inf"} {
		_, err := parseRate(text)
		g.Expect(err).To(HaveOccurred(), text)
	}
}
