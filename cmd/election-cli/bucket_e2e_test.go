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
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/internal/test/natstest"
)

func TestBucketAddCreatesABucketForElections(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	code, stdout, stderr := f.run("bucket", "add", "--ttl", "4s")
	f.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.Expect(stdout).To(And(ContainSubstring("LEADER_ELECTION"), ContainSubstring("4s"), ContainSubstring("file")))
	f.Expect(stderr).To(Equal("Bucket \"LEADER_ELECTION\" created\n"), "there are no warnings")
	bucket, err := f.Client.OpenBucket(t.Context(), cli.DefaultBucket)
	f.Expect(err).NotTo(HaveOccurred())
	v, err := look.New(t.Context(), f.Client, bucket)
	f.Expect(err).NotTo(HaveOccurred())
	findings, err := v.Findings(t.Context(), admin.RoleCandidate, "", nil)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(findings).To(HaveEach(HaveField("Severity", admin.SeverityInfo)))

	code, stdout, stderr = f.run("bucket", "add", "--ttl", "1s", "--storage", "memory", "--choria-compatible", "--bucket", "OTHER", "--json")
	f.Expect(code).To(Equal(cli.ExitOK), stderr)
	f.Expect(stderr).To(And(ContainSubstring("ttl-short"), ContainSubstring("memory")), "warnings go to stderr")
	var made bucketAddReport
	f.Expect(json.Unmarshal([]byte(stdout), &made)).To(Succeed(), stdout)
	f.Expect([]any{made.Made, made.Bucket, made.Storage, float64(made.MarkersTTL)}).To(Equal([]any{true, "OTHER", "memory", 0.0}))
	config := clitest.BucketConfig(t, f.Client, "OTHER")
	f.Expect([]any{config.TTL, config.Storage}).To(Equal([]any{time.Second, jetstream.MemoryStorage}))

	r := &repair{f}
	r.follow(stderr[:strings.Index(stderr, "memory:")])
	f.Expect(codes(r.findings("--bucket", "OTHER"))).To(Equal([]string{"memory"}))
	config = clitest.BucketConfig(t, f.Client, "OTHER")
	f.Expect(config.LimitMarkerTTL).To(BeZero(), "candidates of Choria still can campaign")
	f.Expect(config.TTL).To(Equal(5 * time.Second))
}

func TestBucketAddNeverChangesAnExistingBucket(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	for _, created := range []bool{true, false} {
		var result bucketAddReport
		f.read(cli.ExitOK, &result, "bucket", "add")
		f.Expect(result.Made).To(Equal(created))
	}
	before := clitest.BucketConfig(t, f.Client, cli.DefaultBucket)
	code, stdout, stderr := f.run("bucket", "add", "--ttl", "5s", "--storage", "memory", "--replicas", "3", "--choria-compatible")
	f.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitFailure, ""}))
	for _, text := range []string{
		"TTL: 15s instead of 5s", "storage: file instead of memory", "replicas: 1 instead of 3",
		"TTL of expiry markers: 1s instead of none", "nothing was changed", "election-cli bucket rm",
	} {
		f.Expect(stderr).To(ContainSubstring(text))
	}
	f.Expect(stderr).NotTo(ContainSubstring("history"), "the history is as wanted")
	f.Expect(clitest.BucketConfig(t, f.Client, cli.DefaultBucket)).To(Equal(before))
}

func TestBucketInfoExits1IfElectionsDoNotWorkInTheBucket(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	code, _, stderr := f.run("bucket", "info", "--bucket", "SOME")
	f.Expect(code).To(Equal(cli.ExitFailure))
	f.Expect(stderr).To(ContainSubstring("election-cli bucket add --bucket SOME"))

	_, err := election.CreateBucket(t.Context(), f.Client.JetStream, election.BucketConfig{Name: "SOME", TTL: 4 * time.Second})
	f.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr := f.run("bucket", "info", "--bucket", "SOME", "--json")
	f.Expect([]any{code, stderr}).To(Equal([]any{cli.ExitOK, ""}))
	var fields map[string]any
	f.Expect(json.Unmarshal([]byte(stdout), &fields)).To(Succeed())
	for field, value := range map[string]any{"bucket": "SOME", "ttl_s": 4.0, "replicas": 1.0, "storage": "file", "history": 1.0, "markers_ttl_s": 1.0, "elections": []any{}} {
		f.Expect(fields).To(HaveKeyWithValue(field, value))
	}
	f.Expect(fields["republish"]).To(HavePrefix("election.SOME."))
	f.Expect(stdout).NotTo(ContainSubstring(`"reconnect`), "no candidate uses this connection")

	_, err = f.Client.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "BAD"})
	f.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr = f.run("bucket", "info", "--bucket", "BAD")
	f.Expect(code).To(Equal(cli.ExitNegative), stderr)
	f.Expect(stdout).To(And(ContainSubstring("critical  no-ttl: the bucket has no TTL"), ContainSubstring("Fix:"), Not(ContainSubstring("\x1b"))))
}

func TestBucketHasThreeReplicasWhereThereIsRoomForThem(t *testing.T) {
	f := newServer(t)
	add := func(url string, args ...string) (made bucketAddReport, stderr string) {
		f.url = url
		code, stdout, stderr := runAnswered(f.run, append([]string{"bucket", "add", "--json"}, args...)...)
		f.Expect(code).To(Equal(cli.ExitOK), stderr)
		f.Expect(json.Unmarshal([]byte(stdout), &made)).To(Succeed())
		return made, stderr
	}
	const refused = "It has one replica"
	three := natstest.StartCluster(t, 3).Servers()[0].URL()
	made, stderr := add(three)
	f.Expect(made.Replicas).To(Equal(3))
	f.Expect(stderr).NotTo(ContainSubstring(refused))
	f.Expect(made.Cluster).NotTo(BeEmpty())
	f.Expect(made.Peers).To(HaveLen(3))
	f.Eventually(func(g Gomega) { // the servers may elect another leader meanwhile
		made, _ = add(three) // which finds the bucket
		g.Expect(made.Replicas).To(Equal(3))
		leader := slices.IndexFunc(made.Peers, func(p look.Peer) bool { return p.Leader })
		g.Expect(leader).NotTo(Equal(-1))
		stdout := f.ok("bucket", "info")
		g.Expect(stdout).To(And(ContainSubstring(made.Peers[leader].Name+": leads"), MatchRegexp(`: (not )?current`)))
	}).Should(Succeed())
	made, stderr = add(three, "--bucket", "OTHER", "--replicas", "1")
	f.Expect(made.Replicas).To(Equal(1))
	f.Expect(stderr).NotTo(ContainSubstring(refused))
	_, stderr = add(three, "--bucket", "OTHER") // with its one replica
	f.Expect(stderr).To(ContainSubstring("exists with this configuration"))

	made, stderr = add(natstest.StartCluster(t, 2).Servers()[0].URL())
	f.Expect(made.Replicas).To(Equal(1))
	f.Expect(stderr).To(And(ContainSubstring(refused), ContainSubstring("Three were refused")))

	made, stderr = add(natstest.StartTCP(t).URL())
	f.Expect(made.Replicas).To(Equal(1))
	f.Expect(stderr).NotTo(ContainSubstring(refused))
}

func TestReplicasOnASingleServerAreRefusedWithAFixThatWorks(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	code, _, stderr := f.run("bucket", "add", "--replicas", "3")
	f.Expect(code).To(Equal(cli.ExitFailure))
	f.Expect(stderr).To(ContainSubstring("cannot have 3 replicas, because the server belongs to no cluster: give 1 replica, or leave their number out"))
	for _, fix := range [][]string{{"--bucket", "ONE", "--replicas", "1"}, {"--bucket", "LEFT_OUT"}} {
		f.ok(append([]string{"bucket", "add"}, fix...)...)
	}
}

func TestBucketRmNeedsConfirmation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1\u200b", nil))
	code, stdout, stderr := f.run("bucket", "rm")
	f.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitFailure, ""}))
	f.Expect(stderr).To(And(ContainSubstring("1 election is led right now: \"jobs\" by \"web-1\\u200b\""), ContainSubstring("--force")))
	_, err := f.Client.OpenBucket(t.Context(), cli.DefaultBucket)
	f.Expect(err).NotTo(HaveOccurred())

	code, stdout, stderr = f.run("bucket", "rm", "--force")
	f.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitOK, ""}), stderr)
	f.Expect(stderr).To(And(ContainSubstring("1 election is led right now"), ContainSubstring("removed")))
	_, err = f.Client.OpenBucket(t.Context(), cli.DefaultBucket)
	f.Expect(err).To(MatchError(jetstream.ErrBucketNotFound))

	code, _, stderr = f.run("bucket", "rm", "--force")
	f.Expect(code).To(Equal(cli.ExitNegative))
	f.Expect(stderr).To(ContainSubstring("nothing was removed"))
}

func TestBucketRmRefusesABucketWithoutATTL(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	_, err := f.Client.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "PRECIOUS"})
	f.Expect(err).NotTo(HaveOccurred())
	code, _, stderr := f.run("bucket", "rm", "--force", "--bucket", "PRECIOUS")
	f.Expect(code).To(Equal(cli.ExitFailure))
	f.Expect(stderr).To(ContainSubstring("has no TTL"))
	_, err = f.Client.OpenBucket(t.Context(), "PRECIOUS")
	f.Expect(err).NotTo(HaveOccurred())
}
