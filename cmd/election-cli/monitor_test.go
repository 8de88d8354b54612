package main

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

// startServerWithMonitor starts a server with two users: admin has all permissions, and monitor may read the bucket and its keys, and
// publish to the given subjects. It returns a client of admin.
func startServerWithMonitor(t *testing.T, publish ...string) (*server.Server, *cli.Client) {
	t.Helper()
	g := NewWithT(t)
	s := natstest.StartNode(t, "server", &server.Options{
		JetStream: true,
		Users: []*server.User{
			{Username: "admin", Password: "a"},
			{Username: "monitor", Password: "m", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: append(publish, "$JS.API.STREAM.INFO.KV_LEADER_ELECTION", "$JS.API.DIRECT.GET.KV_LEADER_ELECTION.>")},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", "election-answers.>"}},
			}},
		},
	})
	operator, err := (&cli.ConnectionFlags{Server: s.ClientURL(), User: "admin", Password: "a", Timeout: clitest.Timeout}).Connect()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(operator.Conn.Close)
	return s, operator
}

func TestCheckAndInfoNeedOnlyReadPermissions(t *testing.T) {
	if testing.Short() {
		t.Skip("a request without permission takes seconds")
	}
	t.Parallel()
	s, operator := startServerWithMonitor(t)
	f := &fixture{&clitest.Fixture{Gomega: NewWithT(t), T: t, Client: operator}}
	var err error
	f.Bucket, err = election.CreateBucket(t.Context(), operator.JetStream, election.BucketConfig{Name: "LEADER_ELECTION", TTL: healthyTTL})
	f.Expect(err).NotTo(HaveOccurred())
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	monitor := func(args ...string) (int, string, string) {
		return runBinary(t, append(args, "-s", s.ClientURL(), "--user", "monitor", "--password", "m")...)
	}
	code, stdout, stderr := monitor("check", "jobs", "--format", "nagios")
	f.Expect(code).To(Equal(2), stderr)
	f.Expect(stdout).To(ContainSubstring(`the key "jobs" cannot be written by this user: not permitted`))
	code, stdout, stderr = monitor("check", "jobs", "--format", "nagios", "--as", "observer")
	f.Expect(code).To(Equal(0), stdout+stderr)
	f.Expect(stdout).To(HavePrefix(`ELECTION OK - "web-1" leads "jobs"`))
	code, stdout, stderr = monitor("info", "jobs")
	f.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.Expect(stdout).To(ContainSubstring("Leader: web-1"))
	f.Put("gone", clitest.LeaderRecord("web-2", clitest.Record{"released": time.Now()}))
	f.Put("more", clitest.LeaderRecord("web-3", nil))
	code, stdout, stderr = monitor("ls")
	f.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.Expect(stdout).To(MatchRegexp(`^jobs\tweb-1\t.*\nmore\tweb-3\t.*\n$`), "without permission for a consumer the keys are read one by one")
}

func TestResignNeedsOnlyThePermissionToResign(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	s, operator := startServerWithMonitor(t, "election-control.LEADER_ELECTION.resign.jobs")
	g := NewWithT(t)
	bucket, err := election.CreateBucket(t.Context(), operator.JetStream, election.BucketConfig{Name: "LEADER_ELECTION", TTL: healthyTTL})
	g.Expect(err).NotTo(HaveOccurred())
	e, err := election.NewElection("web-1", "jobs", bucket, election.WithSplay(0), election.WithStandDown(0))
	g.Expect(err).NotTo(HaveOccurred())
	go func() { _ = e.Start(t.Context()) }()
	t.Cleanup(func() { clitest.Shutdown(t, e) })
	g.Eventually(e.IsLeader).WithTimeout(clitest.Timeout).Should(BeTrue())
	monitor := func(args ...string) (int, string, string) {
		return runInProcess(append(args, "-s", s.ClientURL(), "--user", "monitor", "--password", "m")...)
	}
	code, _, stderr := monitor("candidates", "jobs")
	g.Expect(code).To(Equal(cli.ExitFailure), stderr)
	g.Expect(stderr).To(ContainSubstring("not permitted: permit to publish to election-control.LEADER_ELECTION.candidates.jobs"))
	code, _, stderr = monitor("transfer", "jobs", "--to", "web-2")
	g.Expect(code).To(Equal(cli.ExitNegative), stderr)
	g.Expect(stderr).To(ContainSubstring("not permitted: permit to publish to election-control.LEADER_ELECTION.transfer.jobs"))
	code, stdout, stderr := monitor("resign", "jobs", "--force")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	g.Expect(stdout).To(ContainSubstring(`"web-1" has resigned`))
	g.Expect(e.IsLeader()).To(BeFalse())
}

func TestInfoAndCheckReportAnOfflineReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes seconds")
	}
	t.Parallel()
	g := NewWithT(t)
	c := natstest.StartCluster(t, 3)
	bucket := c.Bucket(t, c.Connect(t), healthyTTL)
	_, err := bucket.Put(t.Context(), "jobs", []byte("web-1"))
	g.Expect(err).NotTo(HaveOccurred())
	leader := c.StreamLeader(t, bucket.Bucket())
	var crashed string
	for _, s := range c.Servers() {
		if s.Name() != leader {
			crashed = s.Name()
		}
	}
	f := &fixture{&clitest.Fixture{Gomega: g, T: t}}
	peersNow := func() map[string]look.Peer {
		var b look.BucketInfo
		f.read(cli.ExitOK, &b, "info", "-s", c.URL(), "--bucket", bucket.Bucket())
		g.Expect(b.Replicas).To(Equal(3))
		peers := map[string]look.Peer{}
		for _, p := range b.Peers {
			peers[p.Name] = p
		}
		return peers
	}
	peers := peersNow()
	g.Expect(peers).To(HaveLen(3))
	g.Expect(peers[leader].Leader).To(BeTrue())
	g.Expect(peers[crashed].Leader).To(BeFalse())
	c.Crash(crashed)
	g.Eventually(func() bool {
		p := peersNow()[crashed]
		return p.Offline || !p.Current
	}).WithTimeout(2 * clitest.Timeout).WithPolling(time.Second).Should(BeTrue())
	g.Eventually(func() string {
		_, stdout, _ := runInProcess("check", "-s", c.URL(), "--bucket", bucket.Bucket(), "--format", "nagios")
		return stdout
	}).WithTimeout(2 * clitest.Timeout).Should(And(HavePrefix("ELECTION WARNING"), ContainSubstring("1 of 3 replicas are offline: "+crashed)))
}
