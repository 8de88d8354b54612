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
	"github.com/natscampaign/election/internal/clitest"
	"github.com/natscampaign/election/internal/look"
)

func TestLsDistinguishesLeadersLeaderElectsAndBareNames(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("leads", clitest.Leading("web-1", nil))
	a.Put("elect", clitest.Leading("web-2", clitest.Fields{"term": 0}))
	a.Put("choria", "puppet.example.net")
	a.Put("gone", clitest.Leading("web-3", clitest.Fields{"released": time.Now()}))
	a.Put("shards.plan", clitest.Fields{"plan": 1, "members": []string{"web-1"}}) // as a group keeps it
	a.Put("large.plan", clitest.Fields{"plan": 1, "members": slices.Repeat([]string{"web-1"}, 100)})

	var all []look.Holder
	a.read(cli.ExitOK, &all, "ls")
	a.Expect(all).To(HaveLen(3), "a candidate that released its key does not lead, and a plan is no leader")
	a.Expect([]string{all[0].Key, all[0].Name, all[0].State, all[0].Token}).To(Equal([]string{"choria", "puppet.example.net", look.StatePlain, ""}))
	a.Expect([]string{all[1].Key, all[1].Name, all[1].State, all[1].Token}).To(Equal([]string{"elect", "web-2", look.StateLeaderElect, ""}))
	a.Expect([]string{all[2].Key, all[2].Name, all[2].State}).To(Equal([]string{"leads", "web-1", look.StateLeader}))
	a.Expect(all[2].Host).To(Equal("host-of-web-1"))
	a.Expect(all[2].ExpiresInS).To(And(BeNumerically(">", 0), BeNumerically("<=", 60)))

	code, stdout, stderr := a.run("ls")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(stdout).To(MatchRegexp(`(?m)^choria\tpuppet\.example\.net\tplain\t-\t-\t\S+ ago\t\S+\t-$`))
	a.Expect(stdout).To(MatchRegexp(`(?m)^leads\tweb-1\tleader\t\S+ \S+ \(\d+h\S+ ago\)\t7\t\S+ ago\t\S+\thost-of-web-1$`))
}

func TestLsOfAnEmptyBucketIsAnEmptyListAndNoError(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	code, stdout, stderr := a.run("ls")
	a.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitOK, ""}))
	a.Expect(stderr).To(ContainSubstring("Nobody leads in bucket LEADER_ELECTION"))
	code, stdout, stderr = a.run("list", "--json")
	a.Expect([]any{code, stdout, stderr}).To(Equal([]any{cli.ExitOK, "[]\n", ""}))
}

func TestTheFieldsOfAnElectionStayAsTheyAreDocumented(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("jobs", clitest.Leading("web-1", clitest.Fields{"bucket": clitest.Born, "started": clitest.Born, "priority": 3}))
	var raw []map[string]any
	a.read(cli.ExitOK, &raw, "ls")
	a.Expect(raw[0]).To(HaveLen(17))
	for name := range raw[0] {
		a.Expect(look.HolderHelp).To(ContainSubstring(`"`+name+`"`), "in the help")
	}
	_, stdout, stderr := a.run("watch", "--count", "1", "--json")
	var event map[string]any
	a.Expect(json.Unmarshal([]byte(stdout), &event)).To(Succeed(), stderr)
	leader, _ := event["leader"].(map[string]any)
	a.Expect(leader).To(HaveLen(15))
	for name := range leader {
		a.Expect(watchHelp).To(ContainSubstring(`"`+name+`"`), "in the help")
	}
}

func TestInfoOfAnElectionHasTheTokenOfItsLeader(t *testing.T) {
	t.Parallel()
	a := newArena(t, 10*time.Second)
	e, err := election.NewElection("web-1", "jobs", a.Bucket, election.WithSplay(0), election.WithCampaignInterval(time.Second),
		election.WithMetadata(map[string]string{"zone": "b"}))
	a.Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- e.Start(t.Context()) }()
	a.Eventually(e.IsLeader).WithTimeout(clitest.Patience).Should(BeTrue())
	term, _ := e.Term()

	var f look.Election
	a.read(cli.ExitOK, &f, "info", "jobs")
	a.Expect(f.Key).To(Equal("jobs"))
	a.Expect(f.Leader.Token).To(Equal(term.Token()))
	a.Expect(f.Leader.Metadata).To(Equal(map[string]string{"zone": "b"}))
	code, stdout, stderr := a.run("info", "jobs")
	a.Expect(code).To(Equal(cli.ExitOK), stderr)
	a.Expect(stdout).To(And(ContainSubstring("Leader: web-1\n"), ContainSubstring("State: leader\n"), ContainSubstring("Token: "+term.Token()),
		ContainSubstring("Metadata: zone=b"), MatchRegexp(`Expires: .* \(in \S+\)`)))
	a.Expect(stdout).NotTo(ContainSubstring("\x1b"), "this is no terminal")
	clitest.ShutDown(t, e)
	a.Eventually(ended).WithTimeout(clitest.Patience).Should(Receive(BeNil()))
}

func TestInfoOfAnElectionThatNobodyLeadsExits1(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	a.Put("gone", clitest.Leading("web-3", clitest.Fields{"released": time.Now()}))
	for _, key := range []string{"never", "gone"} {
		code, stdout, stderr := a.run("info", key)
		a.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitNegative, ""}))
		a.Expect(stderr).To(ContainSubstring("nobody leads " + key + " in bucket LEADER_ELECTION"))
		var raw map[string]any
		a.read(cli.ExitNegative, &raw, "info", key)
		a.Expect(raw).To(Equal(map[string]any{"key": key, "bucket": "LEADER_ELECTION", "leader": nil}))
	}
}

func TestInfoOfTheBucketSaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	_, err := a.S.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "ODD", History: 3, TTL: 2 * time.Minute, Storage: jetstream.MemoryStorage})
	a.Expect(err).NotTo(HaveOccurred())
	var b look.BucketInfo
	a.read(cli.ExitNegative, &b, "info", "--bucket", "ODD")
	a.Expect([]any{b.Bucket, b.TTLS, b.History, b.Storage, b.Replicas}).To(Equal([]any{"ODD", 120.0, int64(3), "memory", 1}))
	codes := map[string]admin.Severity{}
	for _, f := range b.Findings {
		codes[f.Code] = f.Severity
	}
	a.Expect(codes).To(HaveKeyWithValue("history", admin.SeverityCritical))
	a.Expect(codes).To(HaveKeyWithValue("ttl-long", admin.SeverityWarning))
	a.Expect(codes).NotTo(HaveKey("reconnect-buffer"), "nobody stands on this connection")
	_, stdout, _ := a.run("info", "--bucket", "ODD")
	a.Expect(stdout).To(And(ContainSubstring("critical  history: "), ContainSubstring("Fix: "), ContainSubstring("Storage: memory")))
	a.Expect(stdout).NotTo(ContainSubstring("expect-crash"), "only what is wrong is said here")
}

func TestInfoOfTheBucketListsItsElections(t *testing.T) {
	t.Parallel()
	a := newArena(t, 30*time.Second)
	a.Put("jobs", clitest.Leading("web-1", nil))
	var b look.BucketInfo
	a.read(cli.ExitOK, &b, "info")
	a.Expect(b.Elections).To(HaveLen(1))
	a.Expect(b.MarkersTTL).To(Equal(1.0))
	_, stdout, _ := a.run("info")
	a.Expect(stdout).To(And(ContainSubstring("Elections: 1\n"), MatchRegexp(`(?m)^jobs\tweb-1\tleader\t`), ContainSubstring("republished on election.LEADER_ELECTION.")))
	a.Expect(stdout).NotTo(ContainSubstring("warning"))
}

func TestWithoutServerOrBucketThereIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	a := newArena(t, clitest.Quiet)
	for _, args := range [][]string{{"ls"}, {"info"}, {"info", "k"}} {
		code, stdout, stderr := a.run(append(args, "--bucket", "NONE")...)
		a.Expect([]any{code, stdout}).To(Equal([]any{cli.ExitFailure, ""}), "%q", args)
		a.Expect(stderr).To(And(ContainSubstring(`no bucket "NONE"`), ContainSubstring("election-cli bucket add --bucket NONE")), "%q", args)
		code, _, stderr = try(append(args, "-s", "nats://127.0.0.1:1")...)
		a.Expect(code).To(Equal(cli.ExitFailure), "%q", args)
		a.Expect(stderr).To(ContainSubstring("cannot connect to nats://127.0.0.1:1"), "%q", args)
	}
}
