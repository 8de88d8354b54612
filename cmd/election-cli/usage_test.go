package main

import (
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/embedded"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestWrongUsageExits2AndNamesAFix(t *testing.T) {
	natstest.SkipIfShort(t)
	for _, c := range []struct {
		args  []string
		texts []string
	}{
		{[]string{"ls", "--timeout", "abc"}, []string{`--timeout or NATS_TIMEOUT: "abc" is not a duration`, "give one such as 5s"}},
		{[]string{"wait", "jobs", "--max-wait", "5"}, []string{`--max-wait: "5" is not a duration`}},
		{[]string{"wait", "jobs", "--max-wait", "-3s"}, []string{"'--max-wait': give it a value, after a = if that begins with -", "--help"}},
		{[]string{"wait", "jobs", "--max-wait=-3s"}, []string{"--max-wait -3s: give a positive duration"}},
		{[]string{"nonsense"}, []string{"nonsense", "--help"}},
		{[]string{"status"}, []string{`did you mean "info"?`}},
		{[]string{"stauts"}, []string{`did you mean "info"?`}},
		{[]string{"bucket", "delete"}, []string{`did you mean "bucket rm"?`}},
		{[]string{"ls", "--server", ","}, []string{`--server or NATS_URL: "," names no server`, "nats://HOST:PORT"}},
		{[]string{"server", "--port", "abc"}, []string{`--port: "abc" is not a number: give one such as 4222`}},
		{[]string{"campaign", "k", "--embedded", "--port", "abc"}, []string{"give one such as 4222"}},
		{[]string{"drill", "--bogus"}, []string{"--bogus", "--help"}},
		{[]string{"campaign"}, []string{"key", "--help"}},
		{[]string{"drill", "--candidates", "1"}, []string{"--candidates 1", "2 to 50"}},
		{[]string{"drill", "--candidates", "many"}, []string{"many"}},
		{[]string{"drill", "--rounds", "0"}, []string{"--rounds 0", "1 to 1000"}},
		{[]string{"drill", "--replicas", "9"}, []string{"--replicas 9"}},
		{[]string{"drill", "--ttl", "500ms"}, []string{"--ttl 500ms", "at least 1s"}},
		{[]string{"drill", "--ttl", "2h"}, []string{"--ttl 2h0m0s", "at most 1h"}},
		{[]string{"drill", "--candidates", "1", "--ttl", "1ms"}, []string{"--candidates 1", "--ttl 1ms"}},
		{[]string{"drill", "--svg", filepath.Join(t.TempDir(), "no", "x.svg")}, []string{"--svg", "there is no folder"}},
		{[]string{"drill", "--embedded", "-s", "h:1"}, []string{"--embedded", "--server"}},
		{[]string{"drill", "-s", "nats://127.0.0.1:1"}, []string{"cannot connect to nats://127.0.0.1:1"}},
		{[]string{"campaign", "a b"}, []string{`"a b"`}},
		{[]string{"campaign", "k", "--name", "a\nb"}, []string{`"a\nb"`}},
		{[]string{"campaign", "k", "--name", strings.Repeat("a", 300)}, []string{"300 bytes: use at most 255\n"}},
		{[]string{"campaign", "k", "--embedded", "--context", "c"}, []string{"--embedded", "--context"}},
		{[]string{"campaign", "k", "--ttl", "3s"}, []string{"--ttl", "--embedded"}},
		{[]string{"campaign", "k", "--embedded", "--ttl", "1ms"}, []string{"--ttl 1ms"}},
		{[]string{"campaign", "k", "--embedded", "--port", "70000"}, []string{"--port 70000", "65535"}},
		{[]string{"campaign", "k", "--embedded", "--bucket", "a b"}, []string{`"a b"`}},
		{[]string{"campaign", "k", "--interval", "5ms"}, []string{`--interval or ELECTION_INTERVAL: "5ms"`, "10ms to 53m59.9s", "leave it out for a quarter of the TTL"}},
		{[]string{"file", "k", "x", "--interval", "1h"}, []string{`--interval or ELECTION_INTERVAL: "1h"`, "10ms to 53m59.9s"}},
		{[]string{"file", "k"}, []string{"election-cli file KEY PATH", "--check PATH"}},
		{[]string{"file", "k", "--check", "x"}, []string{"--check takes a path, and neither a key nor --name"}},
		{[]string{"file", "a b", filepath.Join(t.TempDir(), "x")}, []string{`"a b"`}},
		{[]string{"file", "k", filepath.Join(t.TempDir(), "no", "x")}, []string{"there is no folder"}},
		{[]string{"bucket", "add", "--ttl", "1ms"}, []string{"--ttl 1ms", "at least 1s"}},
		{[]string{"bucket", "add", "--replicas", "2"}, []string{"--replicas 2", "1, 3 or 5"}},
		{[]string{"bucket", "edit", "--ttl", "0s"}, []string{"--ttl 0s", "at least 1s"}},
		{[]string{"bucket", "edit", "--replicas", "0"}, []string{"--replicas 0", "1, 3 or 5"}},
		{[]string{"bucket", "add", "--storage", "paper"}, []string{"paper"}},
		{[]string{"server", "--port", "70000"}, []string{"--port 70000", "65535"}},
		{[]string{"server", "-s", "h:1"}, []string{"--server", "--port"}},
		{[]string{"campaign", "k", "--metrics", "nowhere"}, []string{"--metrics nowhere", ":9222"}},
		{[]string{"campaign", "k", "--metrics", ":0", "--metrics-namespace", "9 a"}, []string{`--metrics-namespace "9 a" begins no name`, "digits", "shop"}},
		{[]string{"campaign", "k", "--metrics-namespace", "shop"}, []string{"--metrics-namespace", "add --metrics"}},
		{[]string{"campaign", "k", "--metrics-choria"}, []string{"--metrics-choria", "add --metrics"}},
		{[]string{"info", "a b"}, []string{`"a b"`}},
		{[]string{"info", "*"}, []string{`"*"`}},
		{[]string{"watch", "a*"}, []string{`"a*"`, "any one part"}},
		{[]string{"watch", "--count=-1"}, []string{"--count -1"}},
		{[]string{"watch", "--count", "0"}, []string{"--count 0"}},
		{[]string{"wait"}, []string{"key", "--help"}},
		{[]string{"wait", "a b"}, []string{`"a b"`}},
		{[]string{"wait", "k", "--leader", "a", "--vacant"}, []string{"--leader", "--vacant"}},
		{[]string{"wait", "k", "--leader", ""}, []string{"--leader is empty"}},
		{[]string{"wait", "k", "--max-wait", "0s"}, []string{"--max-wait 0s", "30s"}},
		{[]string{"dashboard", "--election", "a b"}, []string{`"a b" is not a key`}},
		{[]string{"rules", "--namespace", "1-2"}, []string{`"1-2" is no prefix`}},
		{[]string{"evict"}, []string{"key", "--help"}},
		{[]string{"evict", "a b"}, []string{`"a b"`}},
		{[]string{"evict", "k", "--revision", "0"}, []string{"--revision 0", "info"}},
	} {
		g := NewWithT(t)
		code, stdout, stderr := runInProcess(c.args...)
		g.Expect(code).To(Equal(cli.ExitFailure), "%q", c.args)
		g.Expect(stdout).To(BeEmpty(), "%q", c.args)
		for _, text := range c.texts {
			g.Expect(stderr).To(ContainSubstring(text), "%q", c.args)
		}
		g.Expect(stderr).NotTo(ContainSubstring("With"), "%q: that is an option of the library", c.args)
	}
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
