package main

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/embedded"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/natstest"
)

// guarded is a server with a user who may do anything, and a monitor who may read the state of the bucket and its keys, and publish
// to the given subjects.
func guarded(t *testing.T, publish ...string) (*server.Server, *cli.Session) {
	t.Helper()
	g := NewWithT(t)
	s, err := server.NewServer(&server.Options{
		Host: embedded.Loopback, Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		Users: []*server.User{
			{Username: "admin", Password: "a"},
			{Username: "monitor", Password: "m", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: append(publish, "$JS.API.STREAM.INFO.KV_LEADER_ELECTION", "$JS.API.DIRECT.GET.KV_LEADER_ELECTION.>")},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}},
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	g.Expect(s.ReadyForConnections(clitest.Patience)).To(BeTrue())
	operator, err := (&cli.ConnFlags{Server: s.ClientURL(), User: "admin", Password: "a", Timeout: clitest.Patience}).Connect()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(operator.Conn.Close)
	return s, operator
}

func TestAMonitorThatMayOnlyReadCanCheckAndInform(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds to find out what is not permitted")
	}
	t.Parallel()
	s, operator := guarded(t)
	a := &arena{&clitest.Site{Gomega: NewWithT(t), T: t, S: operator}}
	var err error
	a.Bucket, err = election.CreateBucket(t.Context(), operator.JetStream, election.BucketConfig{Name: "LEADER_ELECTION", TTL: monitored})
	a.Expect(err).NotTo(HaveOccurred())
	a.Put("jobs", clitest.Leading("web-1", nil))
	try := func(args ...string) (int, string, string) {
		cmd, stdout, stderr := command(t, append(args, "-s", s.ClientURL(), "--user", "monitor", "--password", "m")...)
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	code, stdout, stderr := try("check", "jobs", "--format", "nagios")
	a.Expect(code).To(Equal(2), stderr)
	a.Expect(stdout).To(ContainSubstring("the key election-check cannot be written"))
	code, stdout, stderr = try("check", "jobs", "--format", "nagios", "--ignore", "write-refused", "--ignore", "watch-refused", "--ignore", "subscribe-refused")
	a.Expect(code).To(Equal(0), stdout+stderr)
	a.Expect(stdout).To(HavePrefix("ELECTION OK - web-1 leads jobs"))
	code, stdout, stderr = try("info", "jobs")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(stdout).To(ContainSubstring("Leader: web-1"))
	a.Put("gone", clitest.Leading("web-2", clitest.Fields{"released": time.Now()}))
	a.Put("more", clitest.Leading("web-3", nil))
	code, stdout, stderr = try("ls")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(stdout).To(MatchRegexp(`^jobs\tweb-1\t.*\nmore\tweb-3\t.*\n$`), "without permission for a consumer they are read one by one")
}

func TestPermissionForResignAloneIsEnoughToResign(t *testing.T) {
	t.Parallel()
	s, operator := guarded(t, "election-control.LEADER_ELECTION.resign.jobs")
	g := NewWithT(t)
	bucket, err := election.CreateBucket(t.Context(), operator.JetStream, election.BucketConfig{Name: "LEADER_ELECTION", TTL: monitored})
	g.Expect(err).NotTo(HaveOccurred())
	e, err := election.NewElection("web-1", "jobs", bucket, election.WithSplay(0), election.WithStandDown(0))
	g.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(t.Context()) }()
	t.Cleanup(func() { clitest.ShutDown(t, e) })
	g.Eventually(e.IsLeader).WithTimeout(clitest.Patience).Should(BeTrue())
	monitor := func(args ...string) (int, string, string) {
		return try(append(args, "-s", s.ClientURL(), "--user", "monitor", "--password", "m")...)
	}
	code, _, stderr := monitor("candidates", "jobs")
	g.Expect(code).To(Equal(cli.ExitFailure), stderr)
	g.Expect(stderr).To(ContainSubstring("not permitted: permit to publish to election-control.LEADER_ELECTION.candidates.jobs"))
	code, _, stderr = monitor("transfer", "jobs", "--to", "web-2")
	g.Expect(code).To(Equal(cli.ExitNegative), stderr)
	g.Expect(stderr).To(ContainSubstring("not permitted: permit to publish to election-control.LEADER_ELECTION.transfer.jobs"))
	code, stdout, stderr := monitor("resign", "jobs", "--force")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	g.Expect(stdout).To(ContainSubstring("web-1 has resigned"))
	g.Expect(e.IsLeader()).To(BeFalse())
}

func TestInfoDescribesEachReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes seconds")
	}
	t.Parallel()
	g := NewWithT(t)
	c := natstest.StartCluster(t, 3)
	bucket := c.Bucket(t, c.Connect(t), monitored)
	_, err := bucket.Put(t.Context(), "jobs", []byte("web-1"))
	g.Expect(err).NotTo(HaveOccurred())
	leader := c.StreamLeader(t, bucket.Bucket())
	var away string
	for _, s := range c.Servers() {
		if s.Name() != leader {
			away = s.Name()
		}
	}
	a := &arena{&clitest.Site{Gomega: g, T: t}}
	look := func() map[string]look.Peer {
		var b look.BucketInfo
		a.read(cli.ExitOK, &b, "info", "-s", c.URL(), "--bucket", bucket.Bucket())
		g.Expect(b.Replicas).To(Equal(3))
		peers := map[string]look.Peer{}
		for _, p := range b.Peers {
			peers[p.Name] = p
		}
		return peers
	}
	peers := look()
	g.Expect(peers).To(HaveLen(3))
	g.Expect(peers[leader].Leader).To(BeTrue())
	g.Expect(peers[away].Leader).To(BeFalse())
	c.Crash(away)
	g.Eventually(func() bool {
		p := look()[away]
		return p.Offline || !p.Current
	}).WithTimeout(2 * clitest.Patience).WithPolling(time.Second).Should(BeTrue())
	g.Eventually(func() string {
		_, stdout, _ := try("check", "-s", c.URL(), "--bucket", bucket.Bucket(), "--format", "nagios")
		return stdout
	}).WithTimeout(2 * clitest.Patience).Should(And(HavePrefix("ELECTION WARNING"), ContainSubstring("1 of 3 replicas are offline: "+away)))
}
