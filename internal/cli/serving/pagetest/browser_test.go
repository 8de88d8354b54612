package pagetest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/gomega"
)

var (
	screenshots = flag.String("screenshots", "", "save screenshots of the page in this `folder`")
	axe         = flag.String("axe", "", "examine the page with axe, given its `file` axe.min.js: npm install axe-core")
)

// pollInterval is how often a test checks a condition that it waits for.
const pollInterval = 100 * time.Millisecond

// tab is a tab of a browser.
type tab struct {
	*WithT
	t   *testing.T
	ctx context.Context
}

// newTab starts Chromium with an empty profile, and opens a tab that records alerts, errors and violations of the content security policy.
// The browser ends with the test.
func newTab(t *testing.T) *tab {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("chromium is not installed: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], // headless, without first-run dialogs
		chromedp.ExecPath(program), chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to run as root with a sandbox
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*timeout)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, closed := chromedp.NewContext(ctx)
	t.Cleanup(closed)
	b := &tab{NewWithT(t), t, ctx}
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		window.violations = [];
		window.alert = (text) => window.violations.push("alert " + text);
		addEventListener("error", (e) => window.violations.push("error " + e.message));
		addEventListener("securitypolicyviolation", (e) => window.violations.push("violation " + e.violatedDirective + " " + e.blockedURI));`})
	return b
}

// call sends a command to the browser.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	b.Expect(err).NotTo(HaveOccurred())
	return result
}

// evaluate returns the value of a JavaScript expression on the page.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	b.Expect(err).NotTo(HaveOccurred(), expression)
	return result
}

// open loads the page.
func (b *tab) open(url string) {
	b.t.Helper()
	b.Expect(chromedp.Do(b.ctx, chromedp.Navigate(url))).To(Succeed())
}

// text returns a function that reads the text of the elements that a CSS selector matches.
func (b *tab) text(selector string) func() string {
	return func() string {
		return evaluate[string](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.innerText.trim()).join("\n")`, selector))
	}
}

// eventually waits for the text of the elements that a CSS selector matches.
func (b *tab) eventually(selector string) AsyncAssertion {
	return b.Eventually(b.text(selector)).WithTimeout(timeout).WithPolling(pollInterval)
}

// expectNoViolations expects no alert, error or violation of the content security policy so far.
func (b *tab) expectNoViolations() {
	b.t.Helper()
	b.Expect(evaluate[[]string](b, "window.violations")).To(BeEmpty())
}

// emulate sets the preferred colour scheme and the width of the browser.
func (b *tab) emulate(scheme string, width int64) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.Expect(chromedp.Do(b.ctx, chromedp.EmulateViewport(width, 800))).To(Succeed())
}

// expectNoHorizontalScrolling expects that the page is not wider than the browser.
func (b *tab) expectNoHorizontalScrolling(what string) {
	b.t.Helper()
	b.Expect(evaluate[[]string](b, `[...document.querySelectorAll("html, body, main, section, table")]
		.filter((e) => e.scrollWidth > document.documentElement.clientWidth || e.getBoundingClientRect().right > document.documentElement.clientWidth)
		.map((e) => e.localName + " " + e.className + " is " + e.scrollWidth + " wide")`)).To(BeEmpty(), what)
	b.Expect(evaluate[float64](b, `document.querySelector(".scale")?.offsetHeight ?? 0`)).To(BeNumerically("<", 32), "%s: the scale needs one line", what)
}

// expectWholeWords expects that no word is broken in the cells of the list that have a few words, whatever is in the others.
func (b *tab) expectWholeWords(what string) {
	b.t.Helper()
	b.Expect(evaluate[[]string](b, `[...document.querySelectorAll(".state, .standbys, .time, th")].flatMap((cell) => {
		const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = [];
		while (texts.nextNode()) {
			for (const word of texts.currentNode.data.matchAll(/\S+/g)) {
				const range = document.createRange();
				range.setStart(texts.currentNode, word.index);
				range.setEnd(texts.currentNode, word.index + word[0].length);
				if (new Set([...range.getClientRects()].map((r) => r.top)).size > 1) broken.push(word[0]);
			}
		}
		return broken;
	})`)).To(BeEmpty(), what)
}

// expectLegible expects that all text has the minimum contrast of WCAG 2, level AA.
func (b *tab) expectLegible(what string) {
	b.t.Helper()
	b.Expect(evaluate[[]string](b, `(() => {
		const luminance = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map((c) => c / 255)
			.map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
			.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
		const background = luminance(getComputedStyle(document.body).backgroundColor);
		return [...document.querySelectorAll("body, body *")]
			.filter((e) => [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()))
			.filter((e) => {
				const text = luminance(getComputedStyle(e).color);
				return (Math.max(text, background) + 0.05) / (Math.min(text, background) + 0.05) < 4.5;
			})
			.map((e) => e.outerHTML);
	})()`)).To(BeEmpty(), what)
}

// expectAccessible expects that axe has no finding, if the flag -axe is set.
func (b *tab) expectAccessible(what string) {
	b.t.Helper()
	if *axe == "" {
		return
	}
	script, err := os.ReadFile(*axe)
	b.Expect(err).NotTo(HaveOccurred())
	evaluate[bool](b, "(() => { const module = undefined; "+string(script)+"; return true; })()")
	found, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](`axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + n.failureSummary).join(" | ")))`, chromedp.EvalAwaitPromise))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(found).To(BeEmpty(), what)
}

// brightness returns the brightness of the background, from 0 to 255.
func (b *tab) brightness() float64 {
	return evaluate[float64](b, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).reduce((sum, c) => sum + c / 3, 0)`)
}

// screenshot saves a picture of the whole page if the flag -screenshots is set.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(os.MkdirAll(*screenshots, 0o755)).To(Succeed())
	b.Expect(os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o600)).To(Succeed())
}
