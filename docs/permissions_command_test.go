package docs_test

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestEachRoleCanGiveItsCommands(t *testing.T) {
	natstest.SkipIfShort(t)
	t.Parallel()
	g, dir := NewWithT(t), t.TempDir()
	command := filepath.Join(dir, "election-cli")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", command, "../cmd/election-cli").CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))

	opts := &server.Options{JetStream: true}
	g.Expect(opts.ProcessConfigString(configOf(blocks(t)))).To(Succeed())
	s := natstest.StartNode(t, "page", opts)

	as := func(user string, args ...string) (output string, exit int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, command, append(args, "-s", s.ClientURL(), "--user", user, "--password", password, "--inbox-prefix", "_INBOX_"+user, "--bucket", bucketName)...)
		c.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir)
		b, _ := c.CombinedOutput()
		return string(b), c.ProcessState.ExitCode()
	}
	succeeds := func(user string, args ...string) string {
		t.Helper()
		output, exit := as(user, args...)
		for tries := 1; tries < 3 && strings.Contains(output, "no answer"); tries++ { // a busy host was too late
			output, exit = as(user, args...)
		}
		g.Expect(exit).To(BeZero(), "%s: %s: %s", user, strings.Join(args, " "), output)
		return output
	}
	var refusals sync.WaitGroup
	refused := func(user string, args ...string) {
		refusals.Go(func() {
			if output, exit := as(user, args...); exit == 0 {
				t.Errorf("%s: %s: %s", user, strings.Join(args, " "), output)
			}
		})
	}

	succeeds("setup", "bucket", "add", "--ttl", "20s")
	g.Expect(succeeds("setup", "bucket", "edit", "--ttl", "15s", "--max-bytes", "1M")).To(ContainSubstring("TTL: 20s -> 15s"))
	candidates := map[string]*election.Election{}
	start := func(name string) {
		u, err := url.Parse(s.ClientURL())
		g.Expect(err).NotTo(HaveOccurred())
		nc, err := nats.Connect(u.String(), nats.UserInfo("web", password), inboxOf("web"), nats.ReconnectBufSize(-1), nats.Timeout(20*time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		g.Expect(err).NotTo(HaveOccurred())
		bucket, err := election.OpenBucket(t.Context(), js, bucketName)
		g.Expect(err).NotTo(HaveOccurred())
		e, err := election.NewElection(name, key, bucket, election.WithSplay(0), election.WithCampaignInterval(time.Second), election.WithStandDown(2*time.Second))
		g.Expect(err).NotTo(HaveOccurred())
		go func() { _ = e.Start(context.Background()) }()
		t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
		candidates[name] = e
	}
	start("web-1")
	g.Eventually(candidates["web-1"].IsLeader, 20*time.Second).Should(BeTrue())
	start("web-2")

	g.Eventually(func() string { output, _ := as("ops", "candidates", key); return output }, 20*time.Second).Should(And(ContainSubstring("web-1"), ContainSubstring("web-2")))
	g.Eventually(func() int { _, exit := as("ops", "transfer", key, "--to", "web-2"); return exit }, 20*time.Second).Should(BeZero())
	g.Expect(candidates["web-2"].IsLeader()).To(BeTrue())
	succeeds("ops", "resign", key)
	g.Eventually(candidates["web-1"].IsLeader, 20*time.Second).Should(BeTrue())
	succeeds("ops", "pause", key)
	succeeds("ops", "resume", key)
	g.Expect(succeeds("ops", "info", key)).To(ContainSubstring("web-1"))
	g.Expect(succeeds("dashboard", "info", key)).To(ContainSubstring("web-1"))
	g.Expect(succeeds("dashboard", "wait", key)).To(ContainSubstring("web-1"))
	g.Expect(succeeds("nagios", "ls")).To(ContainSubstring("web-1"))
	for user, role := range map[string]string{"nagios": "observer", "dashboard": "observer", "ops": "operator", "web": "candidate"} {
		if output, exit := as(user, "check", key, "--as", role, "--ignore", "no-standby", "--format", "nagios"); exit != 0 {
			t.Errorf("%s as %s: %s", user, role, output)
		}
	}
	for _, user := range []string{"web", "dashboard", "nagios"} {
		refused(user, "resign", key)
		refused(user, "transfer", key, "--to", "web-2")
		refused(user, "pause", key)
	}
	for _, user := range []string{"dashboard", "nagios", "setup"} {
		refused(user, "evict", key, "--force")
	}
	for _, user := range []string{"web", "dashboard", "ops", "nagios"} {
		refused(user, "bucket", "rm", "--force")
	}
	refusals.Wait()
	g.Expect(candidates["web-1"].IsLeader()).To(BeTrue())
	succeeds("ops", "evict", key, "--force")
	g.Eventually(candidates["web-1"].IsLeader, 10*time.Second, time.Millisecond).Should(BeFalse())
	for _, e := range candidates {
		g.Expect(e.Shutdown(t.Context())).To(Succeed())
	}
	succeeds("setup", "bucket", "rm", "--force")
}
