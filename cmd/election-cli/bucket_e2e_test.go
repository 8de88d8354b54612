package main

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/natstest"
)

// emptyServer runs a server without a bucket.
func emptyServer(t *testing.T) (*embedded, *session) {
	t.Helper()
	g := NewWithT(t)
	e, err := startEmbedded(embeddedConfig{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(e.stop)
	s, err := (&connFlags{server: e.url(), timeout: patience}).connect()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.nc.Close)
	return e, s
}

// serverWithBucket runs a server that has the default bucket, with that TTL.
func serverWithBucket(t *testing.T, ttl time.Duration) (*embedded, *session) {
	t.Helper()
	e, s := emptyServer(t)
	_, err := election.CreateBucket(t.Context(), s.js, election.BucketConfig{Name: defaultBucket, TTL: ttl})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return e, s
}

// configOf returns how a bucket is configured.
func configOf(t *testing.T, s *session, name string) jetstream.KeyValueConfig {
	t.Helper()
	g := NewWithT(t)
	bucket, err := s.findBucket(t.Context(), name)
	g.Expect(err).NotTo(HaveOccurred())
	status, err := bucket.Status(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	return status.Config()
}

// runs runs the built binary to its end, which a test does not wait for in vain.
func runs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd, out, errs := command(t, args...)
	NewWithT(t).Expect(cmd.Start()).To(Succeed())
	defer time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() }).Stop()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestABucketThatIsAddedIsFitForElections(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, s := emptyServer(t)
	code, stdout, stderr := runs(t, "bucket", "add", "-s", e.url(), "--ttl", "4s")
	g.Expect(code).To(Equal(exitOK), stderr)
	g.Expect(stdout).To(And(ContainSubstring("LEADER_ELECTION"), ContainSubstring("4s"), ContainSubstring("file")))
	g.Expect(stderr).To(Equal("Bucket LEADER_ELECTION is made\n"), "there is nothing to complain about")
	bucket, err := s.findBucket(t.Context(), defaultBucket)
	g.Expect(err).NotTo(HaveOccurred())
	v, err := s.view(t.Context(), bucket)
	g.Expect(err).NotTo(HaveOccurred())
	findings, err := v.findings(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	for _, f := range findings {
		g.Expect(f.Severity).To(Equal(admin.SeverityInfo), f.Message)
	}

	code, stdout, stderr = runs(t, "bucket", "add", "-s", e.url(), "--ttl", "1s", "--storage", "memory", "--choria-compatible", "--bucket", "OTHER", "--json")
	g.Expect(code).To(Equal(exitOK), stderr)
	g.Expect(stderr).To(And(ContainSubstring("ttl-short"), ContainSubstring("memory")), "what is unfit is said")
	var made struct {
		Made bool
		bucketInfo
	}
	g.Expect(json.Unmarshal([]byte(stdout), &made)).To(Succeed(), stdout)
	g.Expect(made.Made).To(BeTrue())
	g.Expect(made.Bucket).To(Equal("OTHER"))
	g.Expect(made.Storage).To(Equal("memory"))
	g.Expect(made.MarkersTTL).To(BeZero())
	config := configOf(t, s, "OTHER")
	g.Expect(config.TTL).To(Equal(time.Second))
	g.Expect(config.Storage).To(Equal(jetstream.MemoryStorage))
}

func TestABucketIsAddedOnceAndNeverChanged(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, s := emptyServer(t)
	for _, made := range []bool{true, false} {
		code, stdout, stderr := runs(t, "bucket", "add", "-s", e.url(), "--json")
		g.Expect(code).To(Equal(exitOK), stderr)
		var said map[string]any
		g.Expect(json.Unmarshal([]byte(stdout), &said)).To(Succeed())
		g.Expect(said).To(HaveKeyWithValue("made", made))
	}
	before := configOf(t, s, defaultBucket)
	code, stdout, stderr := runs(t, "bucket", "add", "-s", e.url(), "--ttl", "5s", "--storage", "memory", "--replicas", "3", "--choria-compatible")
	g.Expect(code).To(Equal(exitError))
	g.Expect(stdout).To(BeEmpty())
	for _, text := range []string{
		"TTL: 30s, where 5s was asked for", "storage: file, where memory", "replicas: 1, where 3",
		"expiry markers: for 1s, where none", "nothing was changed", "election-cli bucket rm",
	} {
		g.Expect(stderr).To(ContainSubstring(text))
	}
	g.Expect(stderr).NotTo(ContainSubstring("history"), "that is no difference")
	g.Expect(configOf(t, s, defaultBucket)).To(Equal(before))
}

func TestABucketThatWasMadeOtherwiseIsNoneThatIsAskedFor(t *testing.T) {
	g := NewWithT(t)
	odd := differences(jetstream.KeyValueConfig{TTL: time.Minute, History: 5, Replicas: 1, LimitMarkerTTL: time.Minute},
		election.BucketConfig{TTL: time.Minute, Replicas: 1}, time.Second)
	g.Expect(odd).To(ConsistOf(
		ContainSubstring("history: 5, where 1"), ContainSubstring("expiry markers: for 1m0s, where for 1s"), ContainSubstring("changes: not republished"),
	))
}

func TestBucketInfoShowsWhatThereIsAndExits1WhereElectionsDoNotWork(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, s := emptyServer(t)
	code, _, stderr := runs(t, "bucket", "info", "-s", e.url(), "--bucket", "SOME")
	g.Expect(code).To(Equal(exitError))
	g.Expect(stderr).To(ContainSubstring("election-cli bucket add --bucket SOME"))

	_, err := election.CreateBucket(t.Context(), s.js, election.BucketConfig{Name: "SOME", TTL: 4 * time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr := runs(t, "bucket", "info", "-s", e.url(), "--bucket", "SOME", "--json")
	g.Expect(code).To(Equal(exitOK), stderr)
	g.Expect(stderr).To(BeEmpty())
	var fields map[string]any
	g.Expect(json.Unmarshal([]byte(stdout), &fields)).To(Succeed())
	for field, value := range map[string]any{"bucket": "SOME", "ttl_s": 4.0, "replicas": 1.0, "storage": "file", "history": 1.0, "markers_ttl_s": 1.0, "elections": []any{}} {
		g.Expect(fields).To(HaveKeyWithValue(field, value))
	}
	g.Expect(fields["republish"]).To(HavePrefix("election.SOME."))
	for field := range fields {
		g.Expect(infoHelp).To(ContainSubstring(`"`+field+`"`), "documented in the help")
	}
	g.Expect(stdout).NotTo(ContainSubstring("reconnect"), "nobody stands on this connection")

	_, err = s.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "BAD"})
	g.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr = runs(t, "bucket", "info", "-s", e.url(), "--bucket", "BAD")
	g.Expect(code).To(Equal(exitNegative), stderr)
	g.Expect(stdout).To(And(ContainSubstring("critical  no-ttl: the bucket has no TTL"), ContainSubstring("Fix:"), Not(ContainSubstring("\x1b"))))
}

func TestBucketInfoShowsTheReplicasOfACluster(t *testing.T) {
	g := NewWithT(t)
	c := natstest.StartCluster(t, 3)
	url := c.Servers()[0].URL()
	code, stdout, stderr := runs(t, "bucket", "add", "-s", url, "--replicas", "3", "--json", "--timeout", patience.String())
	g.Expect(code).To(Equal(exitOK), stderr)
	var r bucketInfo
	g.Expect(json.Unmarshal([]byte(stdout), &r)).To(Succeed())
	g.Expect(r.Replicas).To(Equal(3))
	g.Expect(r.Cluster).NotTo(BeEmpty())
	g.Expect(r.Peers).To(HaveLen(3))
	leader := r.Peers[slices.IndexFunc(r.Peers, func(p peer) bool { return p.Leader })].Name
	code, stdout, stderr = runs(t, "bucket", "info", "-s", url, "--timeout", patience.String())
	g.Expect(code).To(Equal(exitOK), stderr)
	g.Expect(stdout).To(And(ContainSubstring(leader+": leads"), MatchRegexp(`: (not )?current`)))
}

func TestABucketIsRemovedOnlyWhenThatIsConfirmed(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, s := serverWithBucket(t, 2*time.Second)
	leads := startCampaign(t, "-s", e.url(), "--name", "web-1\u200b")
	leads.next(eventStarted)
	leads.next(eventElected)

	code, stdout, stderr := runs(t, "bucket", "rm", "-s", e.url())
	g.Expect(code).To(Equal(exitError))
	g.Expect(stdout).To(BeEmpty())
	g.Expect(stderr).To(And(ContainSubstring("1 election has a leader right now (jobs: web-1\\u200b)"), ContainSubstring("--force")))
	_, err := s.findBucket(t.Context(), defaultBucket)
	g.Expect(err).NotTo(HaveOccurred())

	code, stdout, stderr = runs(t, "bucket", "rm", "--force", "-s", e.url())
	g.Expect(code).To(Equal(exitOK), stderr)
	g.Expect(stdout).To(BeEmpty())
	g.Expect(stderr).To(And(ContainSubstring("1 election has a leader right now"), ContainSubstring("is removed")))
	_, err = s.findBucket(t.Context(), defaultBucket)
	g.Expect(err).To(MatchError(jetstream.ErrBucketNotFound))

	code, _, stderr = runs(t, "bucket", "rm", "--force", "-s", e.url())
	g.Expect(code).To(Equal(exitNegative))
	g.Expect(stderr).To(ContainSubstring("nothing was removed"))
}

func TestABucketThatHoldsNoElectionsIsNotRemoved(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	e, s := emptyServer(t)
	_, err := s.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "PRECIOUS"})
	g.Expect(err).NotTo(HaveOccurred())
	code, _, stderr := runs(t, "bucket", "rm", "--force", "--bucket", "PRECIOUS", "-s", e.url())
	g.Expect(code).To(Equal(exitError))
	g.Expect(stderr).To(ContainSubstring("has no TTL"))
	_, err = s.findBucket(t.Context(), "PRECIOUS")
	g.Expect(err).NotTo(HaveOccurred())
}
