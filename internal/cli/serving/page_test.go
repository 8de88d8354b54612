package serving

import (
	"bufio"
	"context"
	"encoding/xml"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natscampaign/election/internal/test/natstest"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/observe"
)

// request returns the answer of a page to a request of a browser.
func request(p *statusPage, method, path string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	p.Handler().ServeHTTP(w, r)
	return w
}

func TestProgramsAreToldTheNameOfTheLeader(t *testing.T) {
	g := NewWithT(t)
	name := func(events ...observe.Event) string {
		w := httptest.NewRecorder()
		pageWith("jobs", events...).Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		g.Expect(w.Code).To(Equal(http.StatusOK))
		g.Expect(w.Header().Get("Content-Type")).To(Equal("application/json"))
		return strings.TrimSpace(w.Body.String())
	}
	leader := election.Leader{Name: "web-2", Instance: "i", Expires: time.Now().Add(time.Minute)}
	const nobody = `{"name":""}`
	g.Expect(name()).To(Equal(nobody))
	g.Expect(name(observe.Event{Kind: observe.Elected, Leader: leader})).To(Equal(nobody), "its leadership does not count yet")
	g.Expect(name(observe.Event{Kind: observe.Leading, Leader: leader})).To(Equal(`{"name":"web-2"}`))
	g.Expect(name(observe.Event{Kind: observe.Leading, Leader: leader}, observe.Event{Kind: observe.Released})).To(Equal(nobody))
	leader.Expires = time.Now().Add(-time.Second)
	g.Expect(name(observe.Event{Kind: observe.Leading, Leader: leader})).To(Equal(nobody), "it has not renewed in time")
}

func TestThePageIsReadOnly(t *testing.T) {
	g := NewWithT(t)
	p, err := newStatusPage("web-1", "jobs", slog.New(slog.DiscardHandler))
	g.Expect(err).NotTo(HaveOccurred())
	for path, code := range map[string]int{
		"/": 200, "/status.css": 200, "/status.js": 200, "/healthz": 200, "/leader": 503, "/metrics": 404, "/x": 404, "/leader/": 404, "/page/status.html": 404,
	} {
		w := request(p, http.MethodGet, path)
		g.Expect(w.Code).To(Equal(code), path)
		g.Expect(request(p, http.MethodHead, path).Code).To(Equal(code), path)
		g.Expect(w.Header().Get("Content-Security-Policy")).To(HavePrefix("default-src 'none';"))
		g.Expect(w.Header().Get("X-Content-Type-Options")).To(Equal("nosniff"))
		g.Expect(w.Header().Get("Cache-Control")).To(Equal("no-store"))
		if code == 404 {
			continue
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			g.Expect(request(p, method, path).Code).To(Equal(http.StatusMethodNotAllowed), method+" "+path)
		}
	}
	g.Expect(request(p, http.MethodHead, "/events").Code).To(Equal(http.StatusOK))
	g.Expect(read(p)).To(ContainSubstring("Waiting for the server"))
}

// pageWith returns a page about key with the given events.
func pageWith(key string, events ...observe.Event) *statusPage {
	p, err := newStatusPage("web-1", "jobs", slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	p.elections = newElections(key, nil)
	now := time.Now()
	p.elections.startObserving(look.NewServerClock(now, now, now))
	for _, e := range events {
		p.own().add(e, p.elections.observedSince, now, historyLength)
	}
	return p
}

// own returns the only election of a page.
func (p *statusPage) own() *entry { return p.elections.byKey[p.elections.only] }

// eventOf returns an event of a candidate at some time before now.
func eventOf(kind observe.EventKind, name string, ago time.Duration) observe.Event {
	at := time.Now().Add(-ago)
	return observe.Event{Kind: kind, Key: "jobs", At: at, Leader: election.Leader{
		Key: "jobs", Name: name, Instance: "i-" + name, Host: "host-of-" + name, Term: 7, Since: at, Renewed: at, Expires: at.Add(time.Hour),
	}}
}

// read returns the page as a reader receives it.
func read(p *statusPage) string { return request(p, http.MethodGet, "/").Body.String() }

func TestThePageShowsTheEventsAndTermsOfTheLastHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		p := pageWith("jobs",
			eventOf(observe.Leading, "forgotten", 90*time.Minute), eventOf(observe.Released, "forgotten", 80*time.Minute),
			eventOf(observe.Leading, "web-1", 50*time.Minute), eventOf(observe.Expired, "web-1", 40*time.Minute),
			eventOf(observe.Elected, "web-2", 30*time.Minute), eventOf(observe.Leading, "web-2", 20*time.Minute), eventOf(observe.Renewed, "web-2", time.Minute),
		)
		p.elections.observedSince = p.elections.observedSince.Add(-55 * time.Minute)
		page := read(p)
		g.Expect(page).To(ContainSubstring("web-2 leads</p>"))
		g.Expect(page).To(And(ContainSubstring("<h2>The last hour</h2>"), ContainSubstring("<span>−60 min</span><span>−45</span>")))
		g.Expect(page).To(MatchRegexp(`<rect class="vacancy" x="(300|299)" y="0" width="(3300|3301)"`), "the page did not observe the election before")
		g.Expect(page).To(And(ContainSubstring("not observed</li>"), ContainSubstring("no leader</li>"), ContainSubstring("leader-elect</li>")))
		g.Expect(page).To(ContainSubstring(`<rect class="c0" x="600" y="0" width="600" height="40">`), "from 50 to 40 minutes ago")
		g.Expect(page).To(ContainSubstring(`<rect class="c1" x="1800" y="26" width="600" height="14">`), "the stand-down")
		g.Expect(page).To(MatchRegexp(`<rect class="c1" x="2400" y="0" width="(1200|1199)" height="40">`))
		g.Expect(page).NotTo(ContainSubstring("forgotten"))
		g.Expect(page).NotTo(ContainSubstring("renewed &#34;jobs&#34;"))
		g.Expect(strings.Index(page, "&#34;web-1&#34; did not renew")).To(BeNumerically(">", strings.Index(page, "&#34;web-2&#34; won &#34;jobs&#34;")), "the latest event is first")
		g.Expect(page).To(ContainSubstring(`<noscript><meta http-equiv="refresh"`))

		p.elections.add(eventOf(observe.Evicted, "web-2", 0))
		g.Expect(read(p)).To(ContainSubstring("No leader"))
	})
}

func TestTheChartCoversTheObservedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		for began, heading := range map[time.Duration]string{
			0: "The last 4 minutes", 3 * time.Minute: "The last 4 minutes", 5 * time.Minute: "The last 20 minutes", 19 * time.Minute: "The last 20 minutes",
			21 * time.Minute: "The last hour", 59 * time.Minute: "The last hour", 24 * time.Hour: "The last hour",
		} {
			p := pageWith("jobs", eventOf(observe.Leading, "web-1", 2*time.Minute))
			p.elections.observedSince = p.elections.observedSince.Add(-began)
			page := read(p)
			g.Expect(page).To(ContainSubstring("<h2>" + heading + "</h2>"))
			g.Expect(page).To(MatchRegexp(`<rect class="c0" x="\d+" y="0" width="(120|121)"`), "two minutes, on each scale")
		}
		page := read(pageWith("jobs"))
		g.Expect(page).To(ContainSubstring("<span>−4 min</span><span>−3</span><span>−2</span><span>−1</span><b>now</b>"))
	})
}

func TestTheHistoryIsBounded(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	p := pageWith("jobs")
	for range 2 * historyLength {
		p.elections.add(eventOf(observe.Elected, "web-1", 0))
	}
	h := p.own()
	g.Expect(h.events).To(HaveLen(historyLength))
	g.Expect(h.terms).To(HaveLen(historyLength))
}

func TestThePageEscapesAllTextFromOtherCandidates(t *testing.T) {
	natstest.SkipIfShort(t)
	g := NewWithT(t)
	const script = `<script>alert(1)</script>`
	for _, name := range []string{clitest.HostileText, script, `"><img src=x onerror=alert(1)>`, "a\ndata: b\n\nevent: c", "\r\r", "{{.Key}}", strings.Repeat("<", 100_000), "javascript:alert(1)"} {
		e := eventOf(observe.Leading, name, time.Minute)
		e.Leader.Metadata = map[string]string{name: name, "Term": "4711"}
		e.Leader.Host, e.Leader.Since = name, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		p := pageWith(name, e, eventOf(observe.Elected, name, 0))
		text := name + " and more"
		p.observeError.Store(&text)
		page := read(p)
		g.Expect(len(page)).To(BeNumerically("<", 50_000))
		g.Expect(strings.Count(page, "<script")).To(Equal(1), "only the script of the page")
		g.Expect(page).NotTo(ContainSubstring("<img"))
		g.Expect(page).NotTo(ContainSubstring("<dd>4711"), "metadata cannot add a fact")
		clitest.ExpectPrintable(g, page, name)
		d := xml.NewDecoder(strings.NewReader(page[strings.Index(page, "<svg"):strings.Index(page, "</svg>")]))
		for {
			token, err := d.Token()
			if err != nil {
				break
			}
			if el, ok := token.(xml.StartElement); ok {
				g.Expect(el.Name.Local).To(BeElementOf("svg", "rect", "title"))
			}
		}
	}
}

// stream is an answer whose reader receives what was flushed.
type stream struct {
	*httptest.ResponseRecorder
	reader io.Writer
}

func (s stream) Flush() { _, _ = s.Body.WriteTo(s.reader) }

func TestReadersReceiveEachChangeAtOnceAsOneWholeMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		p := pageWith("jobs", eventOf(observe.Leading, "web-1\n\ndata: x", time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), clitest.Timeout)
		defer cancel()
		received, sent := io.Pipe()
		defer received.Close()
		w := stream{httptest.NewRecorder(), sent}
		go func() {
			defer sent.Close()
			p.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil))
		}()
		lines := bufio.NewReader(received)
		message := func() string {
			var b strings.Builder
			for {
				line, err := lines.ReadString('\n')
				g.Expect(err).NotTo(HaveOccurred())
				if line == "\n" {
					return b.String()
				}
				g.Expect(line).To(HavePrefix("data: "))
				b.WriteString(strings.TrimPrefix(line, "data: "))
			}
		}
		g.Expect(message()).To(And(HavePrefix("<header"), ContainSubstring("leads</p>"), HaveSuffix("</section>\n")))
		g.Expect(w.Header().Get("Content-Type")).To(Equal("text/event-stream"))
		time.Sleep(refreshInterval / 2) // until the page waits for a change
		began := time.Now()
		p.elections.add(eventOf(observe.Released, "web-1\n\ndata: x", 0))
		g.Expect(message()).To(ContainSubstring("No leader"))
		g.Expect(time.Since(began)).To(BeZero(), "before the next refresh")
		cancel()
		synctest.Wait()
		g.Expect(p.readers).To(BeEmpty())
	})
}

func TestThePageLimitsTheReadersThatFollowTheEvents(t *testing.T) {
	g := NewWithT(t)
	p := pageWith("jobs")
	for range maxReaders {
		p.readers <- struct{}{}
	}
	g.Expect(request(p, http.MethodGet, "/events").Code).To(Equal(http.StatusServiceUnavailable))
	g.Expect(read(p)).To(ContainSubstring("No leader"), "the page itself has no limit")
}
