// Package examples_test builds the examples and runs them as a user does: as processes.
package examples_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	// The examples are built by a command that go test does not see: with these imports it runs the tests again when the library changed.
	_ "github.com/natscampaign/election/connect"
	_ "github.com/natscampaign/election/examples/internal/demo"
	_ "github.com/natscampaign/election/fence"
	_ "github.com/natscampaign/election/group"
	_ "github.com/natscampaign/election/mutex"
)

const patience = 60 * time.Second

var folder string // with the programs

func TestMain(m *testing.M) {
	if !flag.Parsed() { // so that -parallel counts if it is given
		_ = flag.Set("test.parallel", "16") // the tests mostly wait
	}
	var err error
	if folder, err = os.MkdirTemp("", "election-examples-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// build builds the examples and the command, once.
var build = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", folder+string(filepath.Separator), "./...", "../cmd/election-cli").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

// start starts a program with more variables in an environment that configures nothing else. The program ends with the test.
func start(t *testing.T, environment []string, program string, args ...string) *gexec.Session {
	t.Helper()
	g := NewWithT(t)
	g.Expect(build()).To(Succeed())
	cmd := exec.Command(filepath.Join(folder, program), args...)
	if runtime.GOOS == "windows" {
		cmd = exec.Command(filepath.Join(folder, program+".exe"), args...)
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "NATS_") && !strings.HasPrefix(v, "ELECTION_") && !strings.HasPrefix(v, "POD_NAME=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, environment...)
	s, err := gexec.Start(cmd, nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { <-s.Kill().Exited })
	return s
}

// server starts a NATS server as a process, and returns its URL.
func server(t *testing.T) string {
	t.Helper()
	s := start(t, nil, "election-cli", "server", "--port", "0")
	NewWithT(t).Eventually(s.Out, patience).Should(gbytes.Say(`nats://[0-9.:]+\n`))
	return strings.TrimSpace(string(s.Out.Contents()))
}

// outlasted matches what an example logs when the host has stood still for about as long as its leases of two seconds last.
var outlasted = regexp.MustCompile(`msg="(Renewal failed|Leader has not renewed|Bucket cannot be used yet)|State changed" .*reason=deadline`)

// alone runs an example without a server of its user until it ends by itself, and returns what it wrote. It runs the example again, up to three times and
// for longer with longer leases, if those did not outlast what the host was busy with, or too little happened meanwhile: the group of an expression has less
// than so many different matches.
func alone(t *testing.T, program string, least int, expression string) string {
	t.Helper()
	return repeated(t, program, func(text string) bool {
		different := values(text, expression)
		slices.Sort(different)
		return len(slices.Compact(different)) >= least
	})
}

// repeated is alone, with a function that reports whether enough happened by what the example wrote.
func repeated(t *testing.T, program string, enough func(text string) bool) string {
	t.Helper()
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	t.Parallel()
	for again := 0; ; again++ {
		var environment, args []string
		if again > 0 {
			environment, args = []string{fmt.Sprintf("ELECTION_TTL=%ds", 2*(again+1))}, []string{fmt.Sprintf("-for=%ds", 10*(again+1))}
		}
		s := start(t, environment, program, args...)
		NewWithT(t).Eventually(s, 2*patience).Should(gexec.Exit())
		text := string(s.Err.Contents())
		if again < 3 && (outlasted.MatchString(text) || !enough(text)) {
			continue
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(text)
			}
		})
		NewWithT(t).Expect(s).To(gexec.Exit(0))
		return text
	}
}

// values returns what the group of an expression matched, in order, without repetitions that follow each other.
func values(text, expression string) (found []string) {
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		if len(found) == 0 || found[len(found)-1] != m[1] {
			found = append(found, m[1])
		}
	}
	return found
}

// It also has go test run the tests again when an example changed.
func TestExamplesAreListed(t *testing.T) {
	g := NewWithT(t)
	index, err := os.ReadFile("README.md")
	g.Expect(err).NotTo(HaveOccurred())
	programs, err := filepath.Glob("*/main.go")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(programs).To(HaveLen(8))
	for _, path := range programs {
		name := filepath.Dir(path)
		g.Expect(string(index)).To(ContainSubstring("[%s](%s/main.go)", name, name))
	}
}

func TestSchedulerRunsItsJobsOnOneLeaderAfterAnother(t *testing.T) {
	text := alone(t, "scheduler", 2, `msg=Leading name=(\S+)`)
	g := NewWithT(t)
	g.Expect(len(values(text, `msg=Leading name=(\S+)`))).To(BeNumerically(">=", 2), "a deployment restarts the leader")
	leader := ""
	for _, m := range regexp.MustCompile(`msg=(Leading|"Job report"|"Job cleanup") name=(\S+)`).FindAllStringSubmatch(text, -1) {
		if m[1] == "Leading" {
			leader = m[2]
		}
		g.Expect(m[2]).To(Equal(leader), m[1])
	}
	seconds := regexp.MustCompile(`msg="Job report" .*at=\S+:(\d\d) `).FindAllStringSubmatch(text, -1)
	g.Expect(len(seconds)).To(BeNumerically(">=", 4), "once a second")
	for i := range seconds[1:] {
		g.Expect(seconds[i+1][1]).NotTo(Equal(seconds[i][1]), "no run is made twice")
	}
}

func TestTheNextLeaderLeadsWarm(t *testing.T) {
	warm := `(?s)msg=Leading .*(msg=Leading name=\S+ term=\d+ warm=true items=2000)` // seldom, the leader names one that has just stopped
	NewWithT(t).Expect(alone(t, "warm", 1, warm)).To(MatchRegexp(warm))
}

func TestConsumerCountsEachOrderOnce(t *testing.T) {
	totals := func(text string) [][]string {
		return regexp.MustCompile(`msg="Counted so far" .*{Orders:(\d+) Last:(\d+) `).FindAllStringSubmatch(text, -1)
	}
	text := repeated(t, "consumer", func(text string) bool { // seldom, a leader is restarted before its first order
		return len(totals(text)) >= 2 && !strings.Contains(text, "{Orders:0 ")
	})
	g := NewWithT(t)
	g.Expect(len(totals(text))).To(BeNumerically(">=", 2), "a deployment restarts the leader")
	for _, total := range totals(text) {
		g.Expect(total[1]).To(Equal(total[2]))
		g.Expect(total[1]).NotTo(Equal("0"))
	}
}

func TestShardsAreWorkedOnByOneMemberAtATime(t *testing.T) {
	text := alone(t, "shards", 3, `msg=Working name=(\S+)`)
	g := NewWithT(t)
	at, members := map[string]string{}, map[string]bool{} // who works on a shard
	for _, m := range regexp.MustCompile(`msg=(Working|Worked) name=(\S+) shard=(\d)`).FindAllStringSubmatch(text, -1) {
		if event, name, shard := m[1], m[2], m[3]; event == "Working" {
			g.Expect(at[shard]).To(BeEmpty(), "shard %s, when %s began", shard, name)
			at[shard], members[name] = name, true
		} else {
			g.Expect(at[shard]).To(Equal(name))
			at[shard] = ""
		}
	}
	g.Expect(at).To(HaveLen(8))
	g.Expect(members).To(HaveLen(3))
}

func TestPartitionsAreConsumedByOneMemberAtATimeFromWhereTheLastStopped(t *testing.T) {
	text := alone(t, "partitions", 3, `msg=Consuming name=(\S+)`)
	g := NewWithT(t)
	type position struct{ at, orders string }
	consuming, stored, members := map[string]string{}, map[string]position{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`msg=(Consuming|Consumed) name=(\S+) partition=(\d) .*position=(\d+) orders=(\d+)`).FindAllStringSubmatch(text, -1) {
		event, name, partition, now := m[1], m[2], m[3], position{m[4], m[5]}
		if event == "Consuming" {
			g.Expect(consuming[partition]).To(BeEmpty(), "partition %s, when %s began", partition, name)
			if last, found := stored[partition]; found {
				g.Expect(now).To(Equal(last), "partition %s, where %s began", partition, name)
			}
			consuming[partition], members[name] = name, true
		} else {
			g.Expect(consuming[partition]).To(Equal(name))
			consuming[partition], stored[partition] = "", now
		}
	}
	g.Expect(stored).To(HaveLen(4))
	g.Expect(members).To(HaveLen(3))
	for partition, last := range stored {
		g.Expect(last.orders).NotTo(Equal("0"), partition)
	}
}

func TestMigrationIsAppliedOnceByThreeInOneProcess(t *testing.T) {
	text := alone(t, "migration", 3, `msg="Schema is current" name=(\S+)`)
	g := NewWithT(t)
	g.Expect(values(text, `msg="Step applied" .*version=(\d)`)).To(Equal([]string{"1", "2", "3"}))
	g.Expect(strings.Count(text, `msg="Schema is current"`)).To(Equal(3))
}

func TestHTTPSendsRequestsToOneLeaderAfterAnother(t *testing.T) {
	terms := func(text string) []string {
		return values(text, `msg="Request sent to the leader" status=200 body="\S+ leads term (\d+)"`)
	}
	leaders := func(text string) []string { return values(text, `msg=Leading .*term=(\d+)`) }
	text := repeated(t, "http", func(text string) bool { // seldom, a leader is restarted before it is sent any
		return len(terms(text)) >= 2 && slices.Equal(leaders(text), terms(text))
	})
	g := NewWithT(t)
	g.Expect(len(terms(text))).To(BeNumerically(">=", 2), "a deployment restarts the leader")
	g.Expect(leaders(text)).To(Equal(terms(text)), "every leader is sent requests")
}

func TestMigrationIsAppliedOnceByThreeProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("runs four processes")
	}
	t.Parallel()
	g, url := NewWithT(t), server(t)
	var processes []*gexec.Session
	for i := range 3 {
		environment := []string{"NATS_URL=" + url, "ELECTION_TTL=60s", "ELECTION_SPLAY=0s", "ELECTION_STAND_DOWN=0s", fmt.Sprint("ELECTION_NAME=web-", i)}
		processes = append(processes, start(t, environment, "migration"))
	}
	text := ""
	for _, p := range processes {
		g.Eventually(p, patience).Should(gexec.Exit(0))
		g.Expect(p.Err).To(gbytes.Say(`msg="Schema is current" .*version=3`))
		text += string(p.Err.Contents())
	}
	g.Expect(strings.Count(text, `msg="Step applied"`)).To(Equal(3), text)
}

// handover starts two processes of an example, has the first lead, and terminates it. The lease is so long that only a release explains
// that the second takes over.
func handover(t *testing.T, program string, args ...string) (a, b *gexec.Session, terminate func()) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs three processes")
	}
	if runtime.GOOS == "windows" {
		t.Skip("needs SIGTERM")
	}
	t.Parallel()
	g, url := NewWithT(t), server(t)
	environment := []string{"NATS_URL=" + url, "ELECTION_TTL=60s", "ELECTION_SPLAY=0s", "ELECTION_STAND_DOWN=0s"}
	a = start(t, append(environment, "ELECTION_NAME=a"), program, args...)
	g.Eventually(a.Err, patience).Should(gbytes.Say("msg=Leading name=a"))
	b = start(t, append(environment, "ELECTION_NAME=b"), program, args...)
	g.Eventually(b.Err, patience).Should(gbytes.Say("Leader seen.*leader=a"))
	return a, b, func() {
		t.Helper()
		sent := time.Now()
		a.Terminate()
		g.Eventually(b.Err, patience, time.Millisecond).Should(gbytes.Say("msg=Leading name=b"))
		t.Logf("b leads %v after SIGTERM to a", time.Since(sent).Round(time.Millisecond))
		g.Eventually(a, patience).Should(gexec.Exit(0))
	}
}

func TestNextSchedulerGoesOnWhenTheLeaderIsTerminated(t *testing.T) {
	a, b, terminate := handover(t, "scheduler")
	g := NewWithT(t)
	g.Eventually(a.Err, patience).Should(gbytes.Say("Job cleanup"))
	g.Expect(b.Err.Contents()).NotTo(ContainSubstring("Job"), "jobs run on the leader only")
	terminate()
	g.Eventually(b.Err, patience).Should(gbytes.Say("Job report"))
	g.Expect(a.Err.Contents()).To(ContainSubstring("Key released"))
	b.Terminate()
	g.Eventually(b, patience).Should(gexec.Exit(0))
}

func TestNextHTTPReplicaAnswersWhenTheLeaderIsTerminated(t *testing.T) {
	a, b, terminate := handover(t, "http", "-listen", "127.0.0.1:0")
	g := NewWithT(t)
	status := func(s *gexec.Session, path string) int {
		url := values(string(s.Err.Contents()), `msg=Serving .*url=(http://127\.0\.0\.1:\d+)`)
		g.Expect(url).To(HaveLen(1))
		answer, err := http.Get(url[0] + path)
		if err != nil {
			return 0
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	g.Expect([]int{status(a, "/leader"), status(a, "/healthz"), status(a, "/")}).To(Equal([]int{200, 200, 200}))
	g.Expect([]int{status(b, "/leader"), status(b, "/healthz"), status(b, "/")}).To(Equal([]int{503, 200, 503}))
	terminate()
	g.Expect([]int{status(b, "/leader"), status(b, "/healthz"), status(b, "/")}).To(Equal([]int{200, 200, 200}))
	g.Expect(status(a, "/healthz")).To(BeZero())
	b.Terminate()
	g.Eventually(b, patience).Should(gexec.Exit(0))
}
