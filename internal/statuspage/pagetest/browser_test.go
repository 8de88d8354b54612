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

var screenshots = flag.String("screenshots", "", "put pictures of the page in this `folder`")

// look is how often a test looks again at what it waits for.
const look = 100 * time.Millisecond

// tab is a tab of a browser.
type tab struct {
	*WithT
	t   *testing.T
	ctx context.Context
}

// newTab starts a Chromium that has never been used, and notes what a page tries that it must not. It ends with the test.
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
	options := append(chromedp.DefaultExecAllocatorOptions[:], // headless, on its first run, and quiet
		chromedp.ExecPath(program), chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which it cannot have then
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, closed := chromedp.NewContext(ctx)
	t.Cleanup(closed)
	b := &tab{NewWithT(t), t, ctx}
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		window.wrongs = [];
		window.alert = (what) => window.wrongs.push("alert " + what);
		addEventListener("error", (e) => window.wrongs.push("error " + e.message));
		addEventListener("securitypolicyviolation", (e) => window.wrongs.push("violation " + e.violatedDirective + " " + e.blockedURI));`})
	return b
}

// call gives the browser a command.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	b.Expect(err).NotTo(HaveOccurred())
	return result
}

// evaluate returns what an expression of JavaScript is on the page.
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

// text returns what is to be read where a selector of CSS points at.
func (b *tab) text(selector string) func() string {
	return func() string {
		return evaluate[string](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.innerText.trim()).join("\n")`, selector))
	}
}

// soon waits for what the page should come to say.
func (b *tab) soon(selector string) AsyncAssertion {
	return b.Eventually(b.text(selector)).WithTimeout(patience).WithPolling(look)
}

// harmless expects that the page did nothing that it must not.
func (b *tab) harmless() {
	b.t.Helper()
	b.Expect(evaluate[[]string](b, "window.wrongs")).To(BeEmpty())
}

// wear has the browser prefer a colour scheme, and be so wide.
func (b *tab) wear(scheme string, width int64) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.Expect(chromedp.Do(b.ctx, chromedp.EmulateViewport(width, 800))).To(Succeed())
}

// fits expects that nothing has to be scrolled sideways.
func (b *tab) fits(what string) {
	b.t.Helper()
	b.Expect(evaluate[[]string](b, `[...document.querySelectorAll("html, body, main, section, table")]
		.filter((e) => e.scrollWidth > document.documentElement.clientWidth || e.getBoundingClientRect().right > document.documentElement.clientWidth)
		.map((e) => e.localName + " " + e.className + " is " + e.scrollWidth + " wide")`)).To(BeEmpty(), what)
	b.Expect(evaluate[float64](b, `document.querySelector(".scale").offsetHeight`)).To(BeNumerically("<", 32), "%s: one line", what)
}

// legible expects of all text that it stands out from what is behind it, as WCAG 2 has it for level AA.
func (b *tab) legible(what string) {
	b.t.Helper()
	b.Expect(evaluate[[]string](b, `(() => {
		const light = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map((c) => c / 255)
			.map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
			.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
		const paper = light(getComputedStyle(document.body).backgroundColor);
		return [...document.querySelectorAll("body, body *")]
			.filter((e) => [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()))
			.filter((e) => {
				const ink = light(getComputedStyle(e).color);
				return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) < 4.5;
			})
			.map((e) => e.outerHTML);
	})()`)).To(BeEmpty(), what)
}

// brightness returns how bright the paper is, from 0 to 255.
func (b *tab) brightness() float64 {
	return evaluate[float64](b, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).reduce((sum, c) => sum + c / 3, 0)`)
}

// picture puts a picture of the whole page where pictures are asked for.
func (b *tab) picture(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(os.MkdirAll(*screenshots, 0o755)).To(Succeed())
	b.Expect(os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o600)).To(Succeed())
}
