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
)

func TestLsDistinguishesLeadersLeaderElectsAndBareNames(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	a.put("leads", leading("web-1", nil))
	a.put("elect", leading("web-2", fields{"term": 0}))
	a.put("choria", "puppet.example.net")
	a.put("gone", leading("web-3", fields{"released": time.Now()}))
	a.put("shards.plan", fields{"plan": 1, "members": []string{"web-1"}}) // as a group keeps it
	a.put("large.plan", fields{"plan": 1, "members": slices.Repeat([]string{"web-1"}, 100)})

	var all []holder
	a.read(exitOK, &all, "ls")
	a.Expect(all).To(HaveLen(3), "a candidate that released its key does not lead, and a plan is no leader")
	a.Expect([]string{all[0].Key, all[0].Name, all[0].State, all[0].Token}).To(Equal([]string{"choria", "puppet.example.net", standingPlain, ""}))
	a.Expect([]string{all[1].Key, all[1].Name, all[1].State, all[1].Token}).To(Equal([]string{"elect", "web-2", standingLeaderElect, ""}))
	a.Expect([]string{all[2].Key, all[2].Name, all[2].State}).To(Equal([]string{"leads", "web-1", standingLeader}))
	a.Expect(all[2].Host).To(Equal("host-of-web-1"))
	a.Expect(all[2].ExpiresInS).To(And(BeNumerically(">", 0), BeNumerically("<=", 60)))

	code, stdout, stderr := a.run("ls")
	a.Expect(code).To(Equal(exitOK), stderr)
	a.Expect(stdout).To(MatchRegexp(`(?m)^choria\tpuppet\.example\.net\tplain\t-\t-\t\S+ ago\t\S+\t-$`))
	a.Expect(stdout).To(MatchRegexp(`(?m)^leads\tweb-1\tleader\t\S+ \S+ \(\d+h\S+ ago\)\t7\t\S+ ago\t\S+\thost-of-web-1$`))
}

func TestLsOfAnEmptyBucketIsAnEmptyListAndNoError(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	code, stdout, stderr := a.run("ls")
	a.Expect([]any{code, stdout}).To(Equal([]any{exitOK, ""}))
	a.Expect(stderr).To(ContainSubstring("Nobody leads in bucket LEADER_ELECTION"))
	code, stdout, stderr = a.run("list", "--json")
	a.Expect([]any{code, stdout, stderr}).To(Equal([]any{exitOK, "[]\n", ""}))
}

func TestTheFieldsOfAnElectionStayAsTheyAreDocumented(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	a.put("jobs", leading("web-1", fields{"bucket": born, "started": born, "priority": 3}))
	var raw []map[string]any
	a.read(exitOK, &raw, "ls")
	a.Expect(raw[0]).To(HaveLen(17))
	for name := range raw[0] {
		a.Expect(holderHelp).To(ContainSubstring(`"`+name+`"`), "in the help")
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
	e, err := election.NewElection("web-1", "jobs", a.bucket, election.WithSplay(0), election.WithCampaignInterval(time.Second),
		election.WithMetadata(map[string]string{"zone": "b"}))
	a.Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- e.Start(t.Context()) }()
	a.Eventually(e.IsLeader).WithTimeout(patience).Should(BeTrue())
	term, _ := e.Term()

	var f found
	a.read(exitOK, &f, "info", "jobs")
	a.Expect(f.Key).To(Equal("jobs"))
	a.Expect(f.Leader.Token).To(Equal(term.Token()))
	a.Expect(f.Leader.Metadata).To(Equal(map[string]string{"zone": "b"}))
	code, stdout, stderr := a.run("info", "jobs")
	a.Expect(code).To(Equal(exitOK), stderr)
	a.Expect(stdout).To(And(ContainSubstring("Leader: web-1\n"), ContainSubstring("State: leader\n"), ContainSubstring("Token: "+term.Token()),
		ContainSubstring("Metadata: zone=b"), MatchRegexp(`Expires: .* \(in \S+\)`)))
	a.Expect(stdout).NotTo(ContainSubstring("\x1b"), "this is no terminal")
	shutDown(t, e)
	a.Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
}

func TestInfoOfAnElectionThatNobodyLeadsExits1(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	a.put("gone", leading("web-3", fields{"released": time.Now()}))
	for _, key := range []string{"never", "gone"} {
		code, stdout, stderr := a.run("info", key)
		a.Expect([]any{code, stdout}).To(Equal([]any{exitNegative, ""}))
		a.Expect(stderr).To(ContainSubstring("nobody leads " + key + " in bucket LEADER_ELECTION"))
		var raw map[string]any
		a.read(exitNegative, &raw, "info", key)
		a.Expect(raw).To(Equal(map[string]any{"key": key, "bucket": "LEADER_ELECTION", "leader": nil}))
	}
}

func TestInfoOfTheBucketSaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	_, err := a.s.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "ODD", History: 3, TTL: 2 * time.Minute, Storage: jetstream.MemoryStorage})
	a.Expect(err).NotTo(HaveOccurred())
	var b bucketInfo
	a.read(exitNegative, &b, "info", "--bucket", "ODD")
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
	a.put("jobs", leading("web-1", nil))
	var b bucketInfo
	a.read(exitOK, &b, "info")
	a.Expect(b.Elections).To(HaveLen(1))
	a.Expect(b.MarkersTTL).To(Equal(1.0))
	_, stdout, _ := a.run("info")
	a.Expect(stdout).To(And(ContainSubstring("Elections: 1\n"), MatchRegexp(`(?m)^jobs\tweb-1\tleader\t`), ContainSubstring("republished on election.LEADER_ELECTION.")))
	a.Expect(stdout).NotTo(ContainSubstring("warning"))
}

func TestAReplicaIsDescribedAsItIs(t *testing.T) {
	g := NewWithT(t)
	seen := 61.0
	for want, p := range map[string]peer{
		"n1: leads":                           {Name: "n1", Leader: true, Current: true},
		"n2: current, 2 operations behind":    {Name: "n2", Current: true, Lag: 2},
		"n3: offline, seen 1m1s ago":          {Name: "n3", Offline: true, Current: true, SeenS: &seen},
		"n4: not current, 1 operation behind": {Name: "n4", Lag: 1},
	} {
		g.Expect(p.String()).To(Equal(want))
	}
}

func TestWithoutServerOrBucketThereIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	a := newArena(t, quiet)
	for _, args := range [][]string{{"ls"}, {"info"}, {"info", "k"}} {
		code, stdout, stderr := a.run(append(args, "--bucket", "NONE")...)
		a.Expect([]any{code, stdout}).To(Equal([]any{exitError, ""}), "%q", args)
		a.Expect(stderr).To(And(ContainSubstring(`no bucket "NONE"`), ContainSubstring("election-cli bucket add --bucket NONE")), "%q", args)
		code, _, stderr = try(append(args, "-s", "nats://127.0.0.1:1")...)
		a.Expect(code).To(Equal(exitError), "%q", args)
		a.Expect(stderr).To(ContainSubstring("cannot connect to nats://127.0.0.1:1"), "%q", args)
	}
}

func TestTimesAreToldByTheServersClock(t *testing.T) {
	g := NewWithT(t)
	sent := time.Now()
	received := sent.Add(100 * time.Millisecond)
	c := readServerTime(sent.Add(40*time.Millisecond-time.Hour), sent, received)
	g.Expect(c.ahead()).To(BeNumerically("~", time.Hour, 20*time.Millisecond))
	g.Expect(c.now()).To(BeTemporally("~", time.Now().Add(-time.Hour), time.Minute))
	g.Expect(c.differs(time.Hour)).To(BeFalse(), "the answer took too long to be certain")
	g.Expect(c.differs(59 * time.Minute)).To(BeTrue())

	v := &view{clock: c}
	seen := v.sight(election.Leader{Name: "a", Renewed: sent.Add(-time.Hour - 10*time.Second), Expires: sent.Add(-time.Hour + 20*time.Second)})
	g.Expect(seen.age).To(BeNumerically("~", 10*time.Second, 5*time.Second))
	g.Expect(seen.left).To(BeNumerically("~", 20*time.Second, 5*time.Second))
}

func TestAServerThatDoesNotTellTheTimeIsTakenToAgree(t *testing.T) {
	g := NewWithT(t)
	sent := time.Now()
	c := readServerTime(time.Time{}, sent, sent)
	g.Expect(c.ahead()).To(BeZero())
	g.Expect(c.differs(0)).To(BeFalse())
}

func TestAKeyThatIsOverIsNotSaidToLast(t *testing.T) {
	g := NewWithT(t)
	h := &holder{left: -120 * time.Millisecond}
	g.Expect(h.remaining()).To(Equal("over for 120ms"))
	b, err := json.Marshal(holder{ExpiresInS: -0.12})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(b)).To(ContainSubstring(`"expires_in_s":-0.12`))
}
