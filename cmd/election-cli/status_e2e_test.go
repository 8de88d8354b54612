package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/dashboards"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/test/clitest"
)

func TestACampaignServesItsStatusPage(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	s := startServing(t, "campaign", "jobs", "--name", "web-1", "--embedded", "--ttl", "10s", "--interval", "500ms", "--status", ":0", "--metrics", "127.0.0.1:0")
	metrics, url := s.url("Metrics are served"), s.url("Serving the status page")
	s.g.Expect(url).To(HavePrefix("http://127.0.0.1:"))
	s.g.Eventually(fetch(url + "leader")).Should(And(HavePrefix("200"), ContainSubstring(`"is_leader":true`)))
	s.g.Eventually(fetch(url)).Should(And(
		ContainSubstring("web-1 leads"), MatchRegexp(`<i class="c0"></i>web-1</td><td class="leader">leader</td>`), ContainSubstring("<dt>Term</dt><dd>1</dd>"),
	))
	s.g.Expect(fetch(url + "healthz")()).To(And(HavePrefix("200"), ContainSubstring(`"healthy":true`)))
	expectReasons(s.g, metrics)
	events, err := http.Get(url + "events")
	s.g.Expect(err).NotTo(HaveOccurred())
	defer events.Body.Close()
	s.interrupt()
	_, _ = io.Copy(io.Discard, events.Body) // returns, because the server closes the connection
}

func TestRunServesTheMetricsAndThePageOfItsCandidate(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	s := startServing(t, "run", "-s", f.Server.URL(), "--name", "web-1", "--stand-down", "0s", "--status", ":0", "--metrics", "127.0.0.1:0", "jobs", "--", "sleep", "60")
	metrics, url := s.url("Metrics are served"), s.url("Serving the status page")
	f.Eventually(fetch(url)).Should(And(ContainSubstring("web-1 leads"), ContainSubstring("This candidate")))
	f.Expect(fetch(url + "leader")()).To(HavePrefix("200"))
	f.Expect(fetch(metrics)()).To(MatchRegexp(`(?m)^election_leader{bucket="\w+",election="jobs",identity="web-1"} 1$`))
	f.Expect(s.cmd.Process.Signal(os.Interrupt)).To(Succeed())
	f.Expect(s.cmd.Wait()).To(MatchError("exit status 130"), "sleep dies of INT")
}

// feed reads the server-sent events at a URL.
type feed struct {
	g     Gomega
	lines *bufio.Reader
}

// openFeed opens the server-sent events at a URL, until the test ends.
func openFeed(t *testing.T, g Gomega, url string) *feed {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*clitest.Timeout)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = response.Body.Close() })
	return &feed{g, bufio.NewReader(response.Body)}
}

// next returns the next message that is not a comment.
func (f *feed) next() string {
	var b strings.Builder
	for {
		line, err := f.lines.ReadString('\n')
		f.g.Expect(err).NotTo(HaveOccurred())
		switch {
		case line == "\n" && b.Len() > 0:
			return b.String()
		case line != "\n" && !strings.HasPrefix(line, ":"):
			b.WriteString(line)
		}
	}
}

func TestTheDashboardListsAllElectionsOfTheBucketAndSendsOnlyChanges(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	f := newFixture(t, 5*clitest.LongTTL) // a busy host takes long for all these writes
	key := func(i int) string { return fmt.Sprintf("job-%03d", i) }
	for i := range 500 {
		f.Put(key(i), clitest.LeaderRecord("web-1", nil))
	}
	f.ok("pause", key(8))
	s := startServing(t, "dashboard", "--serve", ":0", "-s", f.Server.URL())
	url := s.url("Serving the status page")
	f.Eventually(fetch(url)).Should(And(
		ContainSubstring("500 elections, and all have a leader"), ContainSubstring("1 paused"), MatchRegexp(`title="Paused since \S+ \S+ by \S+@\S+"`),
		ContainSubstring(`<a href="?key=job-000">`), ContainSubstring(`<a href="?key=job-499">`)))
	f.Expect(fetch(url + "?key=job-042")()).To(And(ContainSubstring("web-1 leads</p>"), ContainSubstring("No candidate answers")))
	f.Expect(fetch(url + "healthz")()).To(Equal("200 OK\n{\"healthy\":true}\n"))

	feed := openFeed(t, f, url+"events")
	f.Expect(strings.Count(feed.next(), "<tr data-key")).To(Equal(500))
	for i := range 500 { // renewals, which send nothing
		f.Put(key(i), clitest.LeaderRecord("web-1", nil))
	}
	f.ok("evict", key(7), "--force")
	update := feed.next()
	f.Expect(update).To(And(HavePrefix("data: <header"), ContainSubstring("499 of 500"), MatchRegexp(`evicted \(deleted\) by \S+@\S+</span>`)))
	f.Expect(strings.Count(update, "<tr data-key")).To(Equal(1))
	f.Expect(len(update)).To(BeNumerically("<", 1200))

	text := fetch(url + "metrics")()
	families := clitest.ParseMetrics(f, strings.TrimPrefix(text, "200 OK\n"))
	f.Expect(families).NotTo(HaveKey("election_leader"), "the rules would count an observer as a second leader")
	f.Expect(clitest.MetricValue(families, "election_observed_leaders", key(6))).To(Equal(1.0))
	f.Expect(clitest.MetricValue(families, "election_observed_leaders", key(7))).To(BeZero())
	f.Expect(clitest.MetricValue(families, "election_observed_paused", key(8))).To(Equal(1.0))
	f.Expect(clitest.MetricValue(families, "go_memstats_heap_inuse_bytes", "")).To(BeNumerically("<", 64<<20))
	s.interrupt()
}

func TestTheDashboardOfOneElectionShowsItAtOnce(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	f := newFixture(t, clitest.LongTTL)
	f.Put("jobs", clitest.LeaderRecord("web-1", nil))
	f.Put("other", clitest.LeaderRecord("db-1", nil))
	s := startServing(t, "dashboard", "--serve", ":0", "--election", "jobs", "-s", f.Server.URL())
	url := s.url("Serving the status page")
	f.Eventually(fetch(url)).Should(And(ContainSubstring("web-1 leads</p>"), Not(ContainSubstring("This candidate"))))
	f.Expect(fetch(url + "metrics")()).NotTo(ContainSubstring(`election="other"`))
	s.interrupt()
}

func TestTheDashboardSaysWhenItsServerCannotBeReached(t *testing.T) {
	skipWithoutInterrupts(t)
	t.Parallel()
	g := NewWithT(t)
	n, bucket := stoppedServer(t)
	s := startServing(t, "dashboard", "--serve", ":0", "-s", n.URL(), "--bucket", bucket)
	url := s.url("Serving the status page")
	g.Eventually(fetch(url)).Should(ContainSubstring("Waiting for the server"))
	g.Expect(fetch(url + "healthz")()).To(HavePrefix("503"))
	g.Expect(fetch(url + "metrics")()).To(MatchRegexp(`election_observed_up\{bucket="\w+"\} 0`))
	n.Resume(t)
	g.Eventually(fetch(url)).Should(ContainSubstring(`<a href="?key=jobs">`))
	n.Stop()
	g.Eventually(fetch(url)).Should(ContainSubstring("The NATS server cannot be reached: this is the last known state"))
	s.interrupt()
}

func TestDashboardAndRulesArePrintedWithoutAServer(t *testing.T) {
	g := NewWithT(t)
	for name, generate := range map[string]func(...dashboards.Option) ([]byte, error){"dashboard": dashboards.Grafana, "rules": dashboards.Rules} {
		for _, c := range []struct {
			args []string
			opts []dashboards.Option
		}{
			{[]string{name}, nil},
			{[]string{name, "--election", "jobs", "--namespace", "choria"}, []dashboards.Option{dashboards.WithElection("jobs"), dashboards.WithNamespace("choria")}},
		} {
			want, err := generate(c.opts...)
			g.Expect(err).NotTo(HaveOccurred())
			code, stdout, stderr := runInProcess(append(c.args, "-s", "nats://127.0.0.1:1")...)
			g.Expect(code).To(Equal(cli.ExitOK), stderr)
			g.Expect(stderr).To(BeEmpty())
			g.Expect(stdout).To(Equal(string(want)))
		}
	}
	_, stdout, _ := runInProcess("dashboard", "--election", "jobs")
	g.Expect(json.Valid([]byte(stdout))).To(BeTrue())
}

func TestExpectedElectionsAreForTheRulesAndForThePage(t *testing.T) {
	g := NewWithT(t)
	want, err := dashboards.Rules(dashboards.WithExpected("jobs", "reports"))
	g.Expect(err).NotTo(HaveOccurred())
	code, stdout, stderr := runInProcess("rules", "--expect", "reports,jobs")
	g.Expect([]any{code, stderr, stdout}).To(Equal([]any{cli.ExitOK, "", string(want)}))
}
