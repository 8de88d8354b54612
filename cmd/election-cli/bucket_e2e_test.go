package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestBucketAddCreatesABucketForElections(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, s := clitest.ServerWithoutBucket(t)
	code, stdout, stderr := runBinary(t, "bucket", "add", "-s", e.URL(), "--ttl", "4s")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	g.Expect(stdout).To(And(ContainSubstring("LEADER_ELECTION"), ContainSubstring("4s"), ContainSubstring("file")))
	g.Expect(stderr).To(Equal("Bucket \"LEADER_ELECTION\" created\n"), "there are no warnings")
	bucket, err := s.OpenBucket(t.Context(), cli.DefaultBucket)
	g.Expect(err).NotTo(HaveOccurred())
	v, err := look.New(t.Context(), s, bucket)
	g.Expect(err).NotTo(HaveOccurred())
	findings, err := v.Findings(t.Context(), admin.RoleCandidate, "", nil)
	g.Expect(err).NotTo(HaveOccurred())
	for _, f := range findings {
		g.Expect(f.Severity).To(Equal(admin.SeverityInfo), f.Message)
	}

	code, stdout, stderr = runBinary(t, "bucket", "add", "-s", e.URL(), "--ttl", "1s", "--storage", "memory", "--choria-compatible", "--bucket", "OTHER", "--json")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	g.Expect(stderr).To(And(ContainSubstring("ttl-short"), ContainSubstring("memory")), "warnings go to stderr")
	var made struct {
		Made bool
		look.BucketInfo
	}
	g.Expect(json.Unmarshal([]byte(stdout), &made)).To(Succeed(), stdout)
	g.Expect(made.Made).To(BeTrue())
	g.Expect(made.Bucket).To(Equal("OTHER"))
	g.Expect(made.Storage).To(Equal("memory"))
	g.Expect(made.MarkersTTL).To(BeZero())
	config := clitest.BucketConfig(t, s, "OTHER")
	g.Expect(config.TTL).To(Equal(time.Second))
	g.Expect(config.Storage).To(Equal(jetstream.MemoryStorage))

	r := &repair{t, g, e.URL()}
	r.follow(stderr[:strings.Index(stderr, "memory:")])
	g.Expect(codes(r.findings("--bucket", "OTHER"))).To(Equal([]string{"memory"}))
	g.Expect(clitest.BucketConfig(t, s, "OTHER").LimitMarkerTTL).To(BeZero(), "candidates of Choria still can campaign")
	g.Expect(clitest.BucketConfig(t, s, "OTHER").TTL).To(Equal(5 * time.Second))
}

func TestBucketAddNeverChangesAnExistingBucket(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, s := clitest.ServerWithoutBucket(t)
	for _, created := range []bool{true, false} {
		code, stdout, stderr := runBinary(t, "bucket", "add", "-s", e.URL(), "--json")
		g.Expect(code).To(Equal(cli.ExitOK), stderr)
		var result map[string]any
		g.Expect(json.Unmarshal([]byte(stdout), &result)).To(Succeed())
		g.Expect(result).To(HaveKeyWithValue("made", created))
	}
	before := clitest.BucketConfig(t, s, cli.DefaultBucket)
	code, stdout, stderr := runBinary(t, "bucket", "add", "-s", e.URL(), "--ttl", "5s", "--storage", "memory", "--replicas", "3", "--choria-compatible")
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stdout).To(BeEmpty())
	for _, text := range []string{
		"TTL: 15s instead of 5s", "storage: file instead of memory", "replicas: 1 instead of 3",
		"TTL of expiry markers: 1s instead of none", "nothing was changed", "election-cli bucket rm",
	} {
		g.Expect(stderr).To(ContainSubstring(text))
	}
	g.Expect(stderr).NotTo(ContainSubstring("history"), "the history is as wanted")
	g.Expect(clitest.BucketConfig(t, s, cli.DefaultBucket)).To(Equal(before))
}

func TestBucketInfoExits1IfElectionsDoNotWorkInTheBucket(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, s := clitest.ServerWithoutBucket(t)
	code, _, stderr := runBinary(t, "bucket", "info", "-s", e.URL(), "--bucket", "SOME")
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(ContainSubstring("election-cli bucket add --bucket SOME"))

	_, err := election.CreateBucket(t.Context(), s.JetStream, election.BucketConfig{Name: "SOME", TTL: 4 * time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr := runBinary(t, "bucket", "info", "-s", e.URL(), "--bucket", "SOME", "--json")
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	g.Expect(stderr).To(BeEmpty())
	var fields map[string]any
	g.Expect(json.Unmarshal([]byte(stdout), &fields)).To(Succeed())
	for field, value := range map[string]any{"bucket": "SOME", "ttl_s": 4.0, "replicas": 1.0, "storage": "file", "history": 1.0, "markers_ttl_s": 1.0, "elections": []any{}} {
		g.Expect(fields).To(HaveKeyWithValue(field, value))
	}
	g.Expect(fields["republish"]).To(HavePrefix("election.SOME."))
	for field := range fields {
		g.Expect(bucketInfoHelp).To(ContainSubstring(`"`+field+`"`), "documented in the help")
	}
	g.Expect(stdout).NotTo(ContainSubstring(`"reconnect`), "no candidate uses this connection")

	_, err = s.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "BAD"})
	g.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr = runBinary(t, "bucket", "info", "-s", e.URL(), "--bucket", "BAD")
	g.Expect(code).To(Equal(cli.ExitNegative), stderr)
	g.Expect(stdout).To(And(ContainSubstring("critical  no-ttl: the bucket has no TTL"), ContainSubstring("Fix:"), Not(ContainSubstring("\x1b"))))
}

func TestBucketInfoListsTheReplicasOfACluster(t *testing.T) {
	g := NewWithT(t)
	c := natstest.StartCluster(t, 3)
	url := c.Servers()[0].URL()
	code, stdout, stderr := runBinary(t, "bucket", "add", "-s", url, "--replicas", "3", "--json", "--timeout", clitest.Timeout.String())
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	var r look.BucketInfo
	g.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed())
	g.Expect(r.Replicas).To(Equal(3))
	g.Expect(r.Cluster).NotTo(BeEmpty())
	g.Expect(r.Peers).To(HaveLen(3))
	leader := r.Peers[slices.IndexFunc(r.Peers, func(p look.Peer) bool { return p.Leader })].Name
	code, stdout, stderr = runBinary(t, "bucket", "info", "-s", url, "--timeout", clitest.Timeout.String())
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	g.Expect(stdout).To(And(ContainSubstring(leader+": leads"), MatchRegexp(`: (not )?current`)))
}

func TestBucketHasThreeReplicasWhereThereIsRoomForThem(t *testing.T) {
	g := NewWithT(t)
	add := func(url string, args ...string) (replicas int, stderr string) {
		code, stdout, stderr := runBinary(t, append([]string{"bucket", "add", "-s", url, "--json", "--timeout", clitest.Timeout.String()}, args...)...)
		g.Expect(code).To(Equal(cli.ExitOK), stderr)
		var r look.BucketInfo
		g.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed())
		return r.Replicas, stderr
	}
	const refused = "It has one replica"
	three := natstest.StartCluster(t, 3).Servers()[0].URL()
	replicas, stderr := add(three)
	g.Expect(replicas).To(Equal(3))
	g.Expect(stderr).NotTo(ContainSubstring(refused))
	replicas, _ = add(three) // which finds the bucket
	g.Expect(replicas).To(Equal(3))
	replicas, stderr = add(three, "--bucket", "OTHER", "--replicas", "1")
	g.Expect(replicas).To(Equal(1))
	g.Expect(stderr).NotTo(ContainSubstring(refused))
	_, stderr = add(three, "--bucket", "OTHER") // with its one replica
	g.Expect(stderr).To(ContainSubstring("exists with this configuration"))

	replicas, stderr = add(natstest.StartCluster(t, 2).Servers()[0].URL())
	g.Expect(replicas).To(Equal(1))
	g.Expect(stderr).To(And(ContainSubstring(refused), ContainSubstring("Three were refused")))

	replicas, stderr = add(natstest.StartTCP(t).URL())
	g.Expect(replicas).To(Equal(1))
	g.Expect(stderr).NotTo(ContainSubstring(refused))
}

func TestBucketRmNeedsConfirmation(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, s := clitest.ServerWithBucket(t, 15*time.Second)
	leader := startCampaign(t, "-s", e.URL(), "--name", "web-1\u200b", "--interval", "500ms")
	leader.next(events.Started)
	leader.next(events.Elected)

	code, stdout, stderr := runBinary(t, "bucket", "rm", "-s", e.URL())
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stdout).To(BeEmpty())
	g.Expect(stderr).To(And(ContainSubstring("1 election is led right now: \"jobs\" by \"web-1\\u200b\""), ContainSubstring("--force")))
	_, err := s.OpenBucket(t.Context(), cli.DefaultBucket)
	g.Expect(err).NotTo(HaveOccurred())

	code, stdout, stderr = runBinary(t, "bucket", "rm", "--force", "-s", e.URL())
	g.Expect(code).To(Equal(cli.ExitOK), stderr)
	g.Expect(stdout).To(BeEmpty())
	g.Expect(stderr).To(And(ContainSubstring("1 election is led right now"), ContainSubstring("removed")))
	_, err = s.OpenBucket(t.Context(), cli.DefaultBucket)
	g.Expect(err).To(MatchError(jetstream.ErrBucketNotFound))

	code, _, stderr = runBinary(t, "bucket", "rm", "--force", "-s", e.URL())
	g.Expect(code).To(Equal(cli.ExitNegative))
	g.Expect(stderr).To(ContainSubstring("nothing was removed"))
}

func TestBucketRmRefusesABucketWithoutATTL(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, s := clitest.ServerWithoutBucket(t)
	_, err := s.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "PRECIOUS"})
	g.Expect(err).NotTo(HaveOccurred())
	code, _, stderr := runBinary(t, "bucket", "rm", "--force", "--bucket", "PRECIOUS", "-s", e.URL())
	g.Expect(code).To(Equal(cli.ExitFailure))
	g.Expect(stderr).To(ContainSubstring("has no TTL"))
	_, err = s.OpenBucket(t.Context(), "PRECIOUS")
	g.Expect(err).NotTo(HaveOccurred())
}
