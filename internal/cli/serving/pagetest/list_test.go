package pagetest

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
)

// bucket returns a function that writes the record of a leader, or of a leader-elect if the term is 0.
func (f *fixture) bucket() func(key, name string, term int) {
	nc, err := nats.Connect(f.url)
	f.Expect(err).NotTo(HaveOccurred())
	f.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	return func(key, name string, term int) {
		f.t.Helper()
		record, err := json.Marshal(map[string]any{
			"name": name, "instance": "i-" + name, "attempt": name, "since": time.Now().Add(-time.Hour), "term": term, "host": "host-of-" + name, "won": "vacant",
		})
		f.Expect(err).NotTo(HaveOccurred())
		_, err = js.Publish(f.t.Context(), "$KV.LEADER_ELECTION."+key, record)
		f.Expect(err).NotTo(HaveOccurred())
	}
}

// look takes screenshots of the page in both colour schemes, and expects it to be legible.
func (b *tab) look(name string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 1100} {
			what := fmt.Sprintf("%s-%s-%d", name, scheme, width)
			b.emulate(scheme, width)
			b.expectNoHorizontalScrolling(what)
			b.expectWholeWords(what)
			b.expectLegible(what)
			b.expectAccessible(what)
			b.screenshot(what)
		}
	}
}

func TestTheDashboardFollows500ElectionsWithoutAReload(t *testing.T) {
	b, f := newTab(t), newFixture(t, 10*time.Minute)
	write := f.bucket()
	dashboard, _ := f.serve("dashboard", "--serve", ":0")
	b.open(dashboard.page)
	b.eventually("#live").Should(Equal("live"))
	b.eventually(headline).Should(Equal("No elections"))
	evaluate[bool](b, "window.loadedOnce = true")
	b.look("elections-0")

	write("job-250", "web-1.eu-central", 7)
	b.eventually(headline).Should(Equal("1 election, and it has a leader"))
	b.look("elections-1")

	for i := range 500 {
		if i != 250 {
			write(fmt.Sprintf("job-%03d", i), fmt.Sprintf("web-%d.eu-central", i%7), 7)
		}
	}
	b.eventually(headline).Should(Equal("500 elections, and all have a leader"))
	b.Expect(evaluate[[]string](b, `[...document.querySelectorAll("tbody .name")].map((e) => e.textContent)`)).To(And(HaveLen(500), HaveEach(HavePrefix("job-"))))
	b.Expect(evaluate[bool](b, `(() => { const keys = [...document.querySelectorAll("tbody .name")].map((e) => e.textContent); return keys.every((k, i) => i === 0 || keys[i - 1] < k); })()`)).To(BeTrue(), "sorted")

	f.run("evict", "job-003", "--force")
	f.run("evict", "job-005", "--force")
	write("job-005", "web-9.eu-central", 0)
	f.run("pause", "job-003", "--force")
	f.run("pause", "job-004")
	b.eventually(headline).Should(Equal("498 of 500 elections have a leader"))
	b.eventually("header .note").Should(Equal("1 with a leader-elect, 1 without a leader, 2 paused"))
	b.eventually(`[data-key="job-003"]`).Should(And(MatchRegexp(`evicted .* by .*@`), ContainSubstring("paused by")))
	first := `[...document.querySelectorAll("tbody .name")].slice(0, 4).map((e) => e.textContent)`
	b.Expect(evaluate[[]string](b, first)).To(Equal([]string{"job-003", "job-005", "job-004", "job-000"}), "problems are first")
	b.Expect(b.text(`[data-key="job-003"] .change`)()).To(MatchRegexp(`(?s)^paused by .*@\S+ (just now|\d+ s ago).*election-cli resume job-003.*evicted .* by .*@`))
	b.Expect(b.text(`[data-key="job-250"] .time`)()).To(MatchRegexp(`^for \d+ min$`))
	b.Expect(evaluate[string](b, `document.querySelector('[data-key="job-250"] .time time').title`)).To(MatchRegexp(`^since \d+-\d\d-\d\d \d\d:\d\d:\d\d \w+$`), "the exact time")
	b.Expect(b.text("h1 small")()).To(Equal("TTL 10m0s, 1 replica"))
	b.look("elections-500")
	f.follow(b.text(`[data-key="job-003"] code`)())
	b.eventually(`[data-key="job-003"] .change`).Should(MatchRegexp(`(?s)^resumed .*election-cli check job-003`), "the command ended the pause")
	b.eventually("header .note").Should(ContainSubstring("Fix: start the program that campaigns"))
	write("job-003", "web-5.eu-central", 8)
	b.eventually(`[data-key="job-003"] .evicted`).Should(MatchRegexp(`^evicted .* ago by .*@|^evicted just now by .*@`), "the eviction stays visible")
	b.Eventually(func() []string { return evaluate[[]string](b, first) }).WithTimeout(timeout).WithPolling(pollInterval).
		Should(Equal([]string{"job-005", "job-004", "job-000", "job-001"}), "it is well again")
	b.look("elections-after-an-eviction")
	b.Expect(evaluate[int](b, `document.querySelectorAll('[data-key="job-003"] .strip .mark').length`)).To(Equal(1))
	f.run("evict", "job-003", "--force")
	b.eventually(headline).Should(Equal("498 of 500 elections have a leader"))

	evaluate[bool](b, `(() => { const i = document.querySelector(".filter input"); i.value = "job-00"; return i.dispatchEvent(new Event("input", {bubbles: true})); })()`)
	b.Expect(evaluate[int](b, `[...document.querySelectorAll("tbody tr")].filter((r) => r.offsetHeight > 0).length`)).To(Equal(10))
	write("job-007", "web-8.eu-central", 7)
	b.eventually(`[data-key="job-007"]`).Should(ContainSubstring("web-8.eu-central"))
	b.Expect(evaluate[int](b, `[...document.querySelectorAll("tbody tr")].filter((r) => r.offsetHeight > 0).length`)).To(Equal(10), "the filter stays")
	b.look("elections-filtered")
	b.Expect(evaluate[bool](b, "window.loadedOnce === true")).To(BeTrue(), "the page was not reloaded")

	b.open(dashboard.page + "?key=job-004")
	b.eventually(headline).Should(Equal("web-4.eu-central leads"))
	b.eventually("header .pause").Should(MatchRegexp("^Paused since .* by .*@.*No candidate campaigns"))
	b.look("election-paused")
	b.open(evaluate[string](b, `document.querySelector("h1 a").href`))
	b.eventually("tbody .name").Should(ContainSubstring("job-499"))
	b.open(dashboard.page + "?key=job-003")
	b.eventually(headline).Should(Equal("No leader"))
	b.eventually("header .note").Should(MatchRegexp(`"web-5.eu-central" lost "job-003" \(deleted\).*evicted by .*@`))
	b.look("election-evicted")
	b.expectNoViolations()
}

func TestTheListIsLegibleWithFewAndManyElectionsAndLongNames(t *testing.T) {
	b, f := newTab(t), newFixture(t, 10*time.Minute)
	write := f.bucket()
	dashboard, _ := f.serve("dashboard", "--serve", ":0", "--expect", "reports")
	b.open(dashboard.page)
	b.eventually(headline).Should(Equal("1 election, and it has no leader"))
	b.eventually("header").Should(ContainSubstring("Fix: start the program that campaigns, or read its log."))
	b.Expect(b.text(`[data-key="reports"] code`)()).To(Equal("election-cli check reports"))
	b.look("list-1-vacant")
	for _, n := range []int{12, 300} {
		for i := range n {
			write(fmt.Sprintf("host-%d", i), fmt.Sprintf("scheduler-7d9f8b6c5d-%d.batch-processing.production.svc.eu-central-1.example.internal", i), 7)
		}
		f.run("pause", "host-3")
		f.run("evict", "host-5", "--force")
		b.eventually(headline).Should(Equal(fmt.Sprintf("%d of %d elections have a leader", n-1, n+1)))
		b.eventually(`[data-key="host-3"] .change`).Should(ContainSubstring("election-cli resume host-3"))
		var keys []string
		for i := range n {
			if i != 3 && i != 5 {
				keys = append(keys, fmt.Sprint("host-", i))
			}
		}
		b.Expect(evaluate[[]string](b, `[...document.querySelectorAll("tbody .name")].map((e) => e.textContent)`)).To(Equal(append([]string{"host-5", "reports", "host-3"}, keys...)))
		b.look(fmt.Sprint("list-", n))
	}
	b.expectNoViolations()
}

func TestAnUnknownElectionAndALostServerAreSaid(t *testing.T) {
	b, f := newTab(t), newFixture(t, ttl)
	dashboard, _ := f.serve("dashboard", "--serve", ":0")
	b.open(dashboard.page + "?key=nope")
	b.eventually(headline).Should(Equal(`No election "nope" is known here`))
	b.Expect(b.text("header")()).To(ContainSubstring("Fix: start the program that campaigns, or read its log."))
	b.look("unknown")
	check := f.command(strings.Fields(b.text("code")())[1:]...)
	out, _ := check.CombinedOutput()
	f.Expect(check.ProcessState.ExitCode()).To(Equal(2), string(out))
	f.Expect(string(out)).To(ContainSubstring("no-leader"))
	f.serve("campaign", "nope", "--name", "web-1", "--status", ":0")
	f.run("wait", "nope", "--max-wait", timeout.String())
	b.open(dashboard.page + "?key=nope")
	b.eventually(headline).Should(Equal("web-1 leads"), "the trouble is over")
	b.Expect(b.text("header")()).NotTo(ContainSubstring("Fix:"))
	f.bucket()("jobs", "web-1", 7)
	for _, path := range []string{"", "?key=jobs"} {
		b.open(dashboard.page + path)
		b.eventually("#live").Should(Equal("live"))
	}
	f.stop()
	b.eventually("header .notice").Should(Equal("The NATS server cannot be reached: this is the last known state"))
	b.eventually("#live").Should(Equal("not up to date"))
	b.Expect(evaluate[string](b, `getComputedStyle(document.querySelector("#live"), "::before").backgroundColor === getComputedStyle(document.querySelector("header .notice")).color ? "red" : "green"`)).To(Equal("red"), "the dot")
	b.look("server-lost")
	b.expectNoViolations()
}

func TestALeaseThatIsOverIsSaidThoughNoEventComes(t *testing.T) {
	b, f := newTab(t), newFixture(t, ttl)
	signal := func(name string) { // freezes the server: no connection closes
		f.t.Helper()
		f.Expect(exec.Command("kill", "-"+name, fmt.Sprint(f.server.Process.Pid)).Run()).To(Succeed())
	}
	dashboard, _ := f.serve("dashboard", "--serve", ":0")
	f.campaign("web-1")
	f.run("wait", "jobs", "--max-wait", timeout.String())
	b.open(dashboard.page)
	b.eventually(`[data-key="jobs"] .state`).Should(Equal("leader"))
	signal("STOP")
	t.Cleanup(func() { signal("CONT") })
	b.eventually(`[data-key="jobs"] .state`).Should(Equal("lease over"))
	b.eventually(headline).Should(Equal("1 election, and it has no leader"))
	b.Expect(b.text("header")()).To(And(ContainSubstring("1 whose lease is over"), ContainSubstring("Fix: check the leader's host, and its connection to the server.")))
	b.Expect(b.text(`[data-key="jobs"] code`)()).To(Equal("election-cli check jobs"))
	b.Expect(evaluate[int](b, `document.querySelectorAll('[data-key="jobs"] .strip .c0.open').length`)).To(BeZero(), "the bar of the leader grows no more")
	b.look("lease-over")
	b.open(dashboard.page + "?key=jobs")
	b.eventually(headline).Should(Equal("web-1 has not renewed in time"))
	b.Expect(b.text("header")()).To(And(ContainSubstring("Its lease is over."), ContainSubstring("election-cli check jobs says more.")))
	b.look("election-lease-over")
	signal("CONT")
	b.eventually(headline).Should(Equal("web-1 leads"), "the trouble is over")
	b.expectNoViolations()
}
