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

// ttl is short, so that a crash is soon noticed, and long enough for a host that is busy.
const ttl = 3 * time.Second

const headline = "header p"

func TestThePageFollowsTheElectionWithoutBeingLoadedAgain(t *testing.T) {
	b, r := newTab(t), newRace(t, ttl)
	r.stand("web-1")
	r.run("wait", "jobs", "--max-wait", patience.String())
	second := r.stand("web-2")
	third := r.stand("web-3")
	b.open(second.page)
	b.soon("#live").Should(Equal("live"))
	b.soon(headline).Should(Equal("web-1 leads"))
	b.soon(".candidates tbody").Should(And(
		MatchRegexp(`web-1\s+leader`), MatchRegexp(`web-2\s+candidate\s+ready`), MatchRegexp(`web-3\s+candidate\s+ready`)))
	evaluate[bool](b, "window.loadedOnce = true")

	r.run("transfer", "jobs", "--to", "web-3")
	b.soon(headline).Should(Equal("web-3 leads"))
	b.Expect(evaluate[string](b, "document.title")).To(Equal("web-3 leads – jobs"))
	b.soon(".candidates tbody").Should(And(MatchRegexp(`web-1\s+candidate`), MatchRegexp(`web-3\s+leader`)))
	b.Expect(b.text(".events")()).To(And(ContainSubstring("web-1 released jobs"), ContainSubstring("web-3 leads jobs")))
	b.Expect(b.text(".legend")()).To(And(ContainSubstring("web-1"), ContainSubstring("web-3")))
	b.Expect(evaluate[int](b, `document.querySelectorAll(".timeline .c0, .timeline .c1").length`)).To(BeNumerically(">=", 2), "a bar for each")

	third.crash()
	b.soon(".events").Should(ContainSubstring("web-3 did not renew jobs in time"))
	b.soon(headline).Should(MatchRegexp("^web-[12] leads$"))
	b.soon(".candidates tbody").ShouldNot(ContainSubstring("web-3"))
	b.Expect(evaluate[bool](b, "window.loadedOnce === true")).To(BeTrue(), "it was not loaded again")

	second.stop()
	b.soon("#live").Should(ContainSubstring("cannot be reached"))
	b.Expect(b.text(headline)()).NotTo(BeEmpty(), "what it said last is there")
	b.harmless()
}

func TestThePageIsReadWithoutJavaScript(t *testing.T) {
	b, r := newTab(t), newRace(t, ttl)
	first := r.stand("web-1")
	r.run("wait", "jobs", "--max-wait", patience.String())
	r.stand("web-2")
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	page := func() (string, error) { // as the browser has it, asked for without any script
		document, err := chromedp.Call(b.ctx, dom.GetDocument, dom.GetDocumentParams{})
		if err != nil {
			return "", err
		}
		html, err := chromedp.Call(b.ctx, dom.GetOuterHTML, dom.GetOuterHTMLParams{NodeID: document.Root.NodeID})
		return html.OuterHTML, err // it may just be read again
	}
	b.open(first.page)
	b.Eventually(page).WithTimeout(patience).WithPolling(look).Should(And(
		ContainSubstring("web-1 leads</p>"), MatchRegexp(`web-1</td><td class="leader">leader`), MatchRegexp(`web-2</td><td class="candidate">candidate</td><td>ready`),
		ContainSubstring("web-1 leads jobs, term 1"), ContainSubstring("<svg"),
		ContainSubstring(`hidden="">live`), ContainSubstring("<noscript>read again every 5 s</noscript>"),
	))
	b.picture("without-javascript")
	r.run("transfer", "jobs", "--to", "web-2")
	b.Eventually(page).WithTimeout(patience).WithPolling(look).Should(ContainSubstring("web-2 leads</p>"), "it reads itself again")
}

func TestWhatOthersWroteIsShownAndNeverRun(t *testing.T) {
	const (
		script = `<script>alert("script")</script>`
		image  = `"><img src=x onerror=alert("image")>`
		closed = `</small></dd></main><iframe srcdoc="<script>alert(1)</script>"></iframe>`
	)
	b, r := newTab(t), newRace(t, time.Minute)
	nc, err := nats.Connect(r.url)
	r.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	r.Expect(err).NotTo(HaveOccurred())
	write := func(name string) { // as somebody does who may write in the bucket and wishes no good
		record, err := json.Marshal(map[string]any{
			"name": name, "instance": "i", "attempt": "i.1", "since": time.Now(), "term": 7, "host": image,
			"metadata": map[string]string{script: closed, "Term": "4711"},
		})
		r.Expect(err).NotTo(HaveOccurred())
		_, err = js.Publish(t.Context(), "$KV.LEADER_ELECTION.jobs", record)
		r.Expect(err).NotTo(HaveOccurred())
	}
	nothingElse := func() {
		t.Helper()
		b.Expect(evaluate[[]string](b, `[...document.querySelectorAll("script, img, iframe, object, [onerror], [onload], [style]")].map((e) => e.outerHTML)`)).
			To(Equal([]string{`<script src="status.js" defer=""></script>`}), "our own")
		b.harmless()
	}

	write(script)
	r.stand(image)
	b.open(r.stand("web-1").page)
	b.soon("#live").Should(Equal("live"))
	b.soon(headline).Should(Equal(script + " leads"))
	b.Expect(b.text("dd")()).To(And(ContainSubstring(image), ContainSubstring(script+"="+closed)))
	b.soon(".candidates").Should(ContainSubstring(image), "it stands")
	nothingElse()
	b.open(evaluate[string](b, "location.href"))
	b.soon(headline).Should(Equal(script+" leads"), "also where the server renders it")
	nothingElse()

	long := strings.Repeat("W", 200)
	for _, name := range []string{closed, image, long} { // which the page is told of by events
		write(name)
		b.soon(headline).Should(Equal(name + " leads"))
		b.soon(".events").Should(ContainSubstring(name + " leads jobs"))
		b.Expect(evaluate[string](b, "document.title")).To(Equal(name + " leads – jobs"))
		nothingElse()
	}
	b.wear("light", 320)
	b.fits("names that are too long")
	b.picture("hostile")
}

func TestThePageLooksWellInBothColourSchemesAndOnNarrowScreens(t *testing.T) {
	b, r := newTab(t), newRace(t, ttl)
	first := r.stand("web-1.eu-central")
	r.run("wait", "jobs", "--max-wait", patience.String())
	second, third := r.stand("web-2.eu-central"), r.stand("web-3.eu-central")
	b.open(first.page)
	r.run("transfer", "jobs", "--to", "web-2.eu-central")
	b.soon(headline).Should(Equal("web-2.eu-central leads"))
	second.crash()
	b.soon(headline).Should(MatchRegexp("^web-[13].* leads$"))
	r.run("transfer", "jobs", "--to", "web-1.eu-central")
	b.soon(headline).Should(Equal("web-1.eu-central leads"))
	b.soon(".candidates").Should(MatchRegexp(`web-3.eu-central\s+candidate\s+ready`))

	var paper []float64
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{320, 360, 640, 1100} {
			name := fmt.Sprintf("%s-%d", scheme, width)
			b.wear(scheme, width)
			b.fits(name)
			b.legible(name)
			b.picture(name)
		}
		paper = append(paper, b.brightness())
	}
	b.Expect(paper[0]).To(BeNumerically(">", 200), "light")
	b.Expect(paper[1]).To(BeNumerically("<", 50), "dark")

	third.stop()
	first.stop()
	b.soon("#live").Should(ContainSubstring("cannot be reached"))
	b.legible("what is said of a candidate that is gone")
	b.fits("what is said of a candidate that is gone")
	b.picture("gone")
	b.harmless()
}
