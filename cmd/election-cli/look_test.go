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
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/observe"
)

func TestLsDistinguishesLeadersLeaderElectsAndBareNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("leads", clitest.LeaderRecord("web-1", nil))
	f.Put("elect", clitest.LeaderRecord("web-2", clitest.Record{"term": 0}))
	f.Put("choria", "puppet.example.net")
	f.Put("gone", clitest.LeaderRecord("web-3", clitest.Record{"released": time.Now()}))
	f.Put("shards.plan", clitest.Record{"plan": 1, "members": []string{"web-1"}}) // the plan of a group
	f.Put("large.plan", clitest.Record{"plan": 1, "members": slices.Repeat([]string{"web-1"}, 100)})

	var all []look.Holder
	f.read(cli.ExitOK, &all, "ls")
	f.Expect(all).To(HaveLen(3), "a candidate that released its key does not lead, and a plan is not a leader")
	f.Expect([]string{all[0].Key, all[0].Name, all[0].State, all[0].Token}).To(Equal([]string{"choria", "puppet.example.net", look.StatePlain, ""}))
	f.Expect([]string{all[1].Key, all[1].Name, all[1].State, all[1].Token}).To(Equal([]string{"elect", "web-2", look.StateLeaderElect, ""}))
	f.Expect([]string{all[2].Key, all[2].Name, all[2].State}).To(Equal([]string{"leads", "web-1", look.StateLeader}))
	f.Expect(all[2].Host).To(Equal("host-of-web-1"))
	f.Expect(all[2].ExpiresInS).To(And(BeNumerically(">", 0), BeNumerically("<=", 60)))

	stdout := f.ok("ls")
	f.Expect(stdout).To(MatchRegexp(`(?m)^choria\tpuppet\.example\.net\tplain\t-\t-\t\S+ ago\t\S+\t-\t-$`))
	f.Expect(stdout).To(MatchRegexp(`(?m)^leads\tweb-1\tleader\t\S+ \S+ \(\d+h\S+ ago\)\t7\t\S+ ago\t\S+\thost-of-web-1\t-$`))
}

func TestLsPutsHost2BeforeHost10(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	for _, key := range []string{"host-10", "host-2", "host-1"} {
		f.Put(key, clitest.LeaderRecord("web-1", nil))
	}
	_, stdout, _ := f.run("ls")
	f.Expect(stdout).To(MatchRegexp(`(?s)^host-1\t.*\nhost-2\t.*\nhost-10\t`))
}

func TestLsOfAnEmptyBucketPrintsAnEmptyList(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	code, stdout, stderr := f.run("ls")
	f.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitOK, ""}))
	f.Expect(stderr).To(ContainSubstring(`Nobody leads in bucket "LEADER_ELECTION"`))
	code, stdout, stderr = f.run("list", "--json")
	f.Expect([]any{code, stdout, stderr}).To(Equal([]any{cli.ExitOK, "[]\n", ""}))
}

func TestTheHelpDocumentsTheJSONFieldsOfAnElection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", clitest.Record{"bucket": clitest.ElectedAt, "started": clitest.ElectedAt, "priority": 3}))
	var raw []map[string]any
	f.read(cli.ExitOK, &raw, "ls")
	f.Expect(raw[0]).To(HaveLen(18))
	for name := range raw[0] {
		f.Expect(look.HolderHelp).To(ContainSubstring(`"`+name+`"`), "documented in the help")
	}
	_, stdout, stderr := f.run("watch", "--count", "1", "--json")
	var event map[string]any
	f.Expect(json.Unmarshal([]byte(stdout), &event)).To(Succeed(), stderr)
	leader, _ := event["leader"].(map[string]any)
	f.Expect(leader).To(HaveLen(16))
	for name := range leader {
		f.Expect(watchHelp).To(ContainSubstring(`"`+name+`"`), "documented in the help")
	}
}

func TestInfoOfAnElectionShowsTheTokenOfItsLeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	term, _ := clitest.Lead(t, f.Bucket, "web-1", "jobs", election.WithMetadata(map[string]string{"zone": "b"})).Term()

	var found look.ElectionInfo
	f.read(cli.ExitOK, &found, "info", "jobs")
	f.Expect(found.Key).To(Equal("jobs"))
	f.Expect(found.Leader.Token).To(Equal(term.Token()))
	f.Expect(found.Leader.Metadata).To(Equal(map[string]string{"zone": "b"}))
	stdout := f.ok("info", "jobs")
	f.Expect(stdout).To(And(ContainSubstring("Leader: web-1\n"), ContainSubstring("State: leader\n"), ContainSubstring("Token: "+term.Token()),
		ContainSubstring("Metadata: zone=b"), MatchRegexp(`Expires: .* \(in \S+\)`)))
	f.Expect(stdout).NotTo(ContainSubstring("\x1b"), "stdout is not a terminal")
}

func TestInfoOfAVacantElectionExits1(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("gone", clitest.LeaderRecord("web-3", clitest.Record{"released": time.Now()}))
	for _, key := range []string{"never", "gone"} {
		code, stdout, stderr := f.run("info", key)
		f.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitNegative, ""}))
		f.Expect(stderr).To(ContainSubstring(`nobody leads "` + key + `" in bucket "LEADER_ELECTION"`))
		var raw map[string]any
		f.read(cli.ExitNegative, &raw, "info", key)
		f.Expect(raw).To(And(HaveKeyWithValue("key", key), HaveKeyWithValue("bucket", "LEADER_ELECTION"), HaveKeyWithValue("leader", BeNil())))
	}
}

func TestInfoOfTheBucketShowsProblemsAndFixes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	_, err := f.Client.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "ODD", History: 3, TTL: 2 * time.Minute, Storage: jetstream.MemoryStorage})
	f.Expect(err).NotTo(HaveOccurred())
	var b look.BucketInfo
	f.read(cli.ExitNegative, &b, "info", "--bucket", "ODD")
	f.Expect([]any{b.Bucket, b.TTLS, b.History, b.Storage, b.Replicas}).To(Equal([]any{"ODD", 120.0, int64(3), "memory", 1}))
	codes := map[string]admin.Severity{}
	for _, found := range b.Findings {
		codes[found.Code] = found.Severity
	}
	f.Expect(codes).To(HaveKeyWithValue("history", admin.SeverityCritical))
	f.Expect(codes).To(HaveKeyWithValue("ttl-long", admin.SeverityWarning))
	f.Expect(codes).NotTo(HaveKey("reconnect-buffer"), "no candidate uses this connection")
	_, stdout, _ := f.run("info", "--bucket", "ODD")
	f.Expect(stdout).To(And(ContainSubstring("critical  history: "), ContainSubstring("Fix: "), ContainSubstring("Storage: memory")))
	f.Expect(stdout).NotTo(ContainSubstring("expect-crash"), "findings of severity info are left out")
}

func TestInfoOfTheBucketListsItsElections(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 30*time.Second)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	var b look.BucketInfo
	f.read(cli.ExitOK, &b, "info")
	f.Expect(b.Elections).To(HaveLen(1))
	f.Expect(b.MarkersTTL).To(Equal(1.0))
	_, stdout, _ := f.run("info")
	f.Expect(stdout).To(And(ContainSubstring("Elections: 1\n"), MatchRegexp(`(?m)^jobs\tweb-1\tleader\t`), ContainSubstring("republished on election.LEADER_ELECTION.")))
	f.Expect(stdout).NotTo(ContainSubstring("warning"))
}

// endedElection returns a fixture with an election whose leader was stopped.
func endedElection(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", clitest.Record{"released": time.Now(), "reason": "stopped"}))
	return f
}

func TestNobodyLeadsSaysWhoLedLastUntilWhenAndWhy(t *testing.T) {
	t.Parallel()
	f := endedElection(t)
	const last = `"web-1" led until \S+ \S+ \(\S+ ago\), term 7: it was stopped`
	for _, args := range [][]string{{"info", "jobs"}, {"resign", "jobs", "--force"}, {"evict", "jobs", "--force"}} {
		code, _, stderr := f.run(args...)
		f.Expect(code).To(Equal(cli.ExitNegative))
		f.Expect(stderr).To(MatchRegexp(`nobody leads "jobs".*` + last))
	}
	_, stdout, _ := f.run("check", "jobs")
	f.Expect(stdout).To(MatchRegexp(`no-leader: nobody leads "jobs": no candidate answers; ` + last))
	f.Expect(stdout).NotTo(ContainSubstring("spelt"), "as this key is right")
	var info look.ElectionInfo
	f.read(cli.ExitNegative, &info, "info", "jobs")
	f.Expect(info.Leader).To(BeNil())
	f.Expect([]any{info.Ended.Kind, info.Ended.Leader.Name, string(info.Ended.Reason)}).To(Equal([]any{observe.Released, "web-1", "stopped"}))
}

func TestEndedElectionsAreListed(t *testing.T) {
	t.Parallel()
	f := endedElection(t)
	_, stdout, stderr := f.run("ls")
	f.Expect(stdout).To(BeEmpty())
	f.Expect(stderr).To(ContainSubstring("'election-cli ls --ended' lists 1 ended election"))
	_, stdout, _ = f.run("ls", "--ended")
	f.Expect(stdout).To(MatchRegexp(`^jobs\tweb-1\t\S+ \S+ \(\S+ ago\)\twas stopped\t7\thost-of-web-1\n$`))
	var ended []observe.Event
	f.read(cli.ExitOK, &ended, "ls", "--ended")
	f.Expect(ended).To(HaveLen(1))
}

func TestPruneForgetsOnlyWhatEndedLongAgoAndAsks(t *testing.T) {
	t.Parallel()
	f := endedElection(t)
	f.Put("leads", clitest.LeaderRecord("web-2", nil))
	ended := func() (all []observe.Event) {
		f.read(cli.ExitOK, &all, "ls", "--ended")
		return all
	}
	prune := func(code int, flags ...string) string {
		t.Helper()
		got, _, stderr := f.run(append([]string{"bucket", "prune"}, flags...)...)
		f.Expect(got).To(Equal(code), stderr)
		return stderr
	}
	f.Expect(prune(cli.ExitOK, "--older-than", "1h", "--force")).To(ContainSubstring("ended longer ago than 1h0m0s: nothing was forgotten"))
	f.Expect(prune(cli.ExitOK, "--older-than", "0s", "--dry-run")).To(ContainSubstring("1 ended election would be forgotten"))
	f.Expect(prune(cli.ExitFailure, "--force")).To(ContainSubstring("--older-than"))
	f.Expect(prune(cli.ExitFailure, "--older-than", "0s")).To(ContainSubstring("--force"), "nobody can answer")
	f.Expect(ended()).To(HaveLen(1))
	var report bucketPruneReport
	f.read(cli.ExitOK, &report, "bucket", "prune", "--older-than", "0s", "--force")
	f.Expect(report.Forgotten).To(HaveLen(1))
	f.Expect(ended()).To(BeEmpty())
	f.Expect(f.HasRecord("leads")).To(BeTrue())
}
