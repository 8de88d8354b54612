package pagetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
)

// ttl is short, so that candidates soon notice a crash, and long enough for a busy host.
const ttl = 3 * time.Second

// headline is the CSS selector of the headline.
const headline = "h1 + p"

func TestThePageFollowsTheElectionWithoutAReload(t *testing.T) {
	b, f := newTab(t), newFixture(t, ttl)
	f.campaign("web-1")
	f.run("wait", "jobs", "--max-wait", timeout.String())
	second := f.campaign("web-2")
	third := f.campaign("web-3")
	b.open(second.page)
	b.eventually("#live").Should(Equal("live"))
	b.eventually(headline).Should(Equal("web-1 leads"))
	b.eventually(".candidates tbody").Should(And(
		MatchRegexp(`web-1\s+leader`), MatchRegexp(`web-2\s+candidate\s+ready`), MatchRegexp(`web-3\s+candidate\s+ready`)))
	evaluate[bool](b, "window.loadedOnce = true")

	f.run("transfer", "jobs", "--to", "web-3")
	b.eventually(headline).Should(Equal("web-3 leads"))
	b.Expect(evaluate[string](b, "document.title")).To(Equal("web-3 leads – jobs"))
	b.eventually(".candidates tbody").Should(And(MatchRegexp(`web-1\s+candidate`), MatchRegexp(`web-3\s+leader`)))
	b.Expect(b.text(".events")()).To(And(ContainSubstring(`"web-1" released "jobs"`), ContainSubstring(`"web-3" leads "jobs"`)))
	b.Expect(b.text(".legend")()).To(And(ContainSubstring("web-1"), ContainSubstring("web-3")))
	b.Expect(evaluate[int](b, `document.querySelectorAll(".timeline .c0, .timeline .c1").length`)).To(BeNumerically(">=", 2), "a bar for each")

	third.crash()
	b.eventually(".events").Should(ContainSubstring(`"web-3" did not renew "jobs" in time`))
	b.eventually(headline).Should(MatchRegexp("^web-[12] leads$"))
	b.eventually(".candidates tbody").ShouldNot(ContainSubstring("web-3"))
	b.Expect(evaluate[bool](b, "window.loadedOnce === true")).To(BeTrue(), "the page was not reloaded")

	second.stop()
	b.eventually("#live").Should(ContainSubstring("cannot be reached"))
	b.Expect(b.text(headline)()).NotTo(BeEmpty(), "the page shows the last known state")
	b.expectNoViolations()
}

func TestThePageWorksWithoutJavaScript(t *testing.T) {
	b, f := newTab(t), newFixture(t, ttl)
	first := f.campaign("web-1")
	f.run("wait", "jobs", "--max-wait", timeout.String())
	f.campaign("web-2")
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	page := func() (string, error) { // the document of the browser, read without JavaScript
		document, err := chromedp.Call(b.ctx, dom.GetDocument, dom.GetDocumentParams{})
		if err != nil {
			return "", err
		}
		html, err := chromedp.Call(b.ctx, dom.GetOuterHTML, dom.GetOuterHTMLParams{NodeID: document.Root.NodeID})
		return html.OuterHTML, err // the page may be reloading
	}
	b.open(first.page)
	b.Eventually(page).WithTimeout(timeout).WithPolling(pollInterval).Should(And(
		ContainSubstring("web-1 leads</p>"), MatchRegexp(`web-1</td><td class="leader">leader`), MatchRegexp(`web-2</td><td class="candidate">candidate</td><td>ready`),
		MatchRegexp(`(&#34;|")web-1(&#34;|") leads (&#34;|")jobs(&#34;|"), term 1`), ContainSubstring("<svg"),
		ContainSubstring(`hidden="">live`), ContainSubstring("<noscript>reloads every 5 s</noscript>"),
	))
	b.screenshot("without-javascript")
	f.run("transfer", "jobs", "--to", "web-2")
	b.Eventually(page).WithTimeout(timeout).WithPolling(pollInterval).Should(ContainSubstring("web-2 leads</p>"), "the page reloads itself")
}

func TestThePageShowsTextFromOtherCandidatesAndNeverExecutesIt(t *testing.T) {
	const (
		script = `<script>alert("script")</script>`
		image  = `"><img src=x onerror=alert("image")>`
		closed = `</small></dd></main><iframe srcdoc="<script>alert(1)</script>"></iframe>`
	)
	b, f := newTab(t), newFixture(t, time.Minute)
	nc, err := nats.Connect(f.url)
	f.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	f.Expect(err).NotTo(HaveOccurred())
	write := func(name string) { // as an attacker with permission to write in the bucket
		record, err := json.Marshal(map[string]any{
			"name": name, "instance": "i", "attempt": "i.1", "since": time.Now(), "term": 7, "host": image,
			"metadata": map[string]string{script: closed, "Term": "4711"},
		})
		f.Expect(err).NotTo(HaveOccurred())
		_, err = js.Publish(t.Context(), "$KV.LEADER_ELECTION.jobs", record)
		f.Expect(err).NotTo(HaveOccurred())
	}
	expectNoForeignElements := func() {
		t.Helper()
		b.Expect(evaluate[[]string](b, `[...document.querySelectorAll("script, img, iframe, object, [onerror], [onload], [style]")].map((e) => e.outerHTML)`)).
			To(Equal([]string{`<script src="status.js" defer=""></script>`}), "only the script of the page")
		b.expectNoViolations()
	}

	write(script)
	f.campaign(image)
	b.open(f.campaign("web-1").page)
	b.eventually("#live").Should(Equal("live"))
	b.eventually(headline).Should(Equal(script + " leads"))
	b.Expect(b.text("dd")()).To(And(ContainSubstring(image), ContainSubstring(script+"="+closed)))
	b.eventually(".candidates").Should(ContainSubstring(image), "the candidate is listed")
	expectNoForeignElements()
	b.open(evaluate[string](b, "location.href"))
	b.eventually(headline).Should(Equal(script+" leads"), "the page that the server renders is escaped too")
	expectNoForeignElements()

	long := strings.Repeat("W", 200)
	for _, name := range []string{closed, image, long} { // the page receives these names by server-sent events
		write(name)
		b.eventually(headline).Should(Equal(name + " leads"))
		b.eventually(".events").Should(ContainSubstring(`"` + strings.ReplaceAll(name, `"`, `\"`) + `" leads "jobs"`))
		b.Expect(evaluate[string](b, "document.title")).To(Equal(name + " leads – jobs"))
		expectNoForeignElements()
	}
	b.emulate("light", 320)
	b.expectNoHorizontalScrolling("names that are too long")
	b.screenshot("hostile")
}

func TestThePageIsLegibleInBothColourSchemesAndOnNarrowScreens(t *testing.T) {
	b, f := newTab(t), newFixture(t, ttl)
	first := f.campaign("web-1.eu-central")
	f.run("wait", "jobs", "--max-wait", timeout.String())
	second, third := f.campaign("web-2.eu-central"), f.campaign("web-3.eu-central")
	b.open(first.page)
	b.eventually(".candidates").Should(MatchRegexp(`web-2.eu-central\s+candidate\s+ready`))
	f.run("transfer", "jobs", "--to", "web-2.eu-central")
	b.eventually(headline).Should(Equal("web-2.eu-central leads"))
	second.crash()
	b.eventually(headline).Should(MatchRegexp("^web-[13].* leads$"))
	b.eventually(".candidates").Should(MatchRegexp(`web-1.eu-central\s+(leader|candidate\s+ready)`))
	f.run("transfer", "jobs", "--to", "web-1.eu-central")
	b.eventually(headline).Should(Equal("web-1.eu-central leads"))
	b.eventually(".candidates").Should(MatchRegexp(`web-3.eu-central\s+candidate\s+ready`))

	var background []float64
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{320, 360, 640, 1100} {
			name := fmt.Sprintf("%s-%d", scheme, width)
			b.emulate(scheme, width)
			b.expectNoHorizontalScrolling(name)
			b.expectLegible(name)
			b.expectAccessible(name)
			b.screenshot(name)
		}
		background = append(background, b.brightness())
	}
	b.Expect(background[0]).To(BeNumerically(">", 200), "light")
	b.Expect(background[1]).To(BeNumerically("<", 50), "dark")

	third.stop()
	first.stop()
	b.eventually("#live").Should(ContainSubstring("cannot be reached"))
	b.expectLegible("after the candidate has stopped")
	b.expectNoHorizontalScrolling("after the candidate has stopped")
	b.screenshot("stopped")
	b.expectNoViolations()
}
