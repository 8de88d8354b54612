package serving

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/observe"
)

func TestAPauseAndItsEndAreEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		now := time.Now()
		p := pageWith("jobs", eventOf(observe.Leading, "web-1", 30*time.Minute), eventOf(observe.Released, "web-1", 10*time.Minute))
		pause := kv.Pause{Since: now.Add(-20 * time.Minute), By: "alice@ops-1"}
		p.elections.setInfo(kv.Info{Paused: map[string]kv.Pause{"jobs": pause}})
		page := read(p)
		g.Expect(page).To(MatchRegexp(`(?s)released</td>.*<td class="kind paused">paused</td><td class="text">alice@ops-1 paused the election</td>.*leading</td>`), "at the time of the pause")
		g.Expect(page).To(ContainSubstring("&#34;web-1&#34; released &#34;jobs&#34;, term 7</p>"), "the headline says why nobody leads")

		p.elections.setInfo(kv.Info{Paused: map[string]kv.Pause{"jobs": pause}})
		p.elections.setInfo(kv.Info{})
		p.elections.setInfo(kv.Info{})
		g.Expect(read(p)).To(MatchRegexp(`(?s)<tbody>\s*<tr><td [^>]*>[^/]*</time> <time [^>]*></time></td><td class="kind resumed">resumed</td><td class="text">An operator resumed the election</td></tr>\s*<tr>[^\n]*released</td>`))
		h := p.own()
		g.Expect(h.events).To(HaveLen(4), "each is one event")

		p.elections.setInfo(kv.Info{Paused: map[string]kv.Pause{"jobs": {}}})
		p.elections.pausesRead = p.elections.pausesRead.Add(-time.Minute)
		p.elections.setInfo(kv.Info{})
		g.Expect(read(p)).To(And(ContainSubstring("An operator paused the election"), ContainSubstring("An operator resumed the election, up to 1m0s earlier")), "nobody read the pauses for a minute")
	})
}

func TestAPauseIsTheLastEventInTheListAndHidesNoEviction(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage(eventOf(observe.Leading, "web-1", time.Minute), eventOf(observe.Evicted, "web-1", 30*time.Second))
	p.elections.setInfo(kv.Info{Paused: map[string]kv.Pause{"jobs": {Since: time.Now(), By: "bob"}, "typo": {}}})
	feed := newFeed(p, "")
	g.Expect(feed.message(t)).To(And(MatchRegexp(`<span class="paused">paused by bob</span> <time class="ago"`), MatchRegexp(`<b class="evicted">evicted <time`)))
	p.elections.setInfo(kv.Info{})
	g.Expect(feed.message(t)).To(And(ContainSubstring(`<span class="resumed">resumed</span>`), MatchRegexp(`<tr data-key="typo"[^>]*></tr>`)), "a key that nobody ever led is forgotten")
	page := request(p, http.MethodGet, "/?key=jobs").Body.String()
	g.Expect(page).NotTo(ContainSubstring(">Evicted <time"), "the headline says so")
}

func TestWhereNobodyLeadsThePageNamesACommand(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage(in("led", eventOf(observe.Leading, "web-1", time.Minute)), in("gone", eventOf(observe.Leading, "web-1", time.Minute)), in("gone", eventOf(observe.Expired, "web-1", 0)))
	p.elections.setInfo(kv.Info{Paused: map[string]kv.Pause{"held": {}}})
	list := read(p)
	for key, command := range map[string]string{"gone": "election-cli check gone", "held": "election-cli resume held"} {
		g.Expect(list).To(MatchRegexp(`data-key="` + key + `".*<code>` + command + `</code>`))
		g.Expect(request(p, http.MethodGet, "/?key="+key).Body.String()).To(ContainSubstring("<code>" + command + "</code>"))
	}
	const fix = "Fix: start the program that campaigns, or read its log."
	g.Expect(list).To(And(ContainSubstring(fix), Not(MatchRegexp(`data-key="led".*<code>`))))
	g.Expect(request(p, http.MethodGet, "/?key=gone").Body.String()).To(ContainSubstring(fix + " <code>election-cli check gone</code> says more."))
	g.Expect(request(p, http.MethodGet, "/?key=held").Body.String()).NotTo(ContainSubstring(fix), "nobody is meant to lead")
	g.Expect(request(p, http.MethodGet, "/?key=led").Body.String()).NotTo(ContainSubstring("<code>"))

	p.elections.setInfo(kv.Info{})
	p.elections.add(in("gone", eventOf(observe.Leading, "web-2", 0)))
	g.Expect(read(p)).NotTo(Or(ContainSubstring(fix), ContainSubstring("<code>")))
	g.Expect((&pageHead{Bucket: "OTHER"}).command("jobs", vacant, nil)).To(Equal("election-cli check jobs --bucket OTHER"))
}

func TestAnElectionThatThePageDoesNotKnowHasAPage(t *testing.T) {
	g := NewWithT(t)
	get := func(p *statusPage, path string) string {
		w := request(p, http.MethodGet, path)
		g.Expect(w.Code).To(Equal(http.StatusNotFound))
		g.Expect(w.Header().Get("Content-Type")).To(Equal("text/html; charset=utf-8"))
		g.Expect(w.Body.String()).To(And(HavePrefix("<!doctype html>"), HaveSuffix("</html>\n"), ContainSubstring(`<a href="./">`), ContainSubstring("status.css"), Not(ContainSubstring("<script"))))
		return w.Body.String()
	}
	p := bucketPage(eventOf(observe.Leading, "web-1", time.Minute))
	g.Expect(get(p, "/?key=nope")).To(And(ContainSubstring("No election &#34;nope&#34; is known here"), ContainSubstring("<code>election-cli check nope</code>"),
		ContainSubstring(`http-equiv="refresh"`)), "it appears once it has a leader")
	g.Expect(get(p, "/?key=%3Cscript%3E%20x")).To(And(ContainSubstring("is not a key"), Not(ContainSubstring("<code>"))))
	g.Expect(get(pageWith("jobs"), "/?key=other")).To(And(ContainSubstring("about another election"), Not(ContainSubstring("<code>"))))
}

func TestElectionsAreInNaturalOrder(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage()
	for _, key := range []string{"host-10", "host-2", "host-1", "a.10", "a.9"} {
		p.elections.add(in(key, eventOf(observe.Leading, "web-1", time.Minute)))
	}
	d, _ := p.list(t.Context(), nil, false)
	var keys, orders []string
	for _, r := range d.Rows {
		keys, orders = append(keys, r.Key), append(orders, r.Order)
	}
	g.Expect(keys).To(Equal([]string{"a.9", "a.10", "host-1", "host-2", "host-10"}))
	for i := range orders[1:] {
		g.Expect(orders[i] < orders[i+1]).To(BeTrue(), "JavaScript compares %q with %q as text", orders[i], orders[i+1])
	}
}

func TestAPageThatIsNotUpToDateIsNotLive(t *testing.T) {
	g := NewWithT(t)
	const stale = `<header id="header" class="stale">`
	p := bucketPage(eventOf(observe.Leading, "web-1", time.Minute))
	for _, path := range []string{"/", "/?key=jobs"} {
		g.Expect(request(p, http.MethodGet, path).Body.String()).NotTo(ContainSubstring(stale))
	}
	p.elections.stopObserving()
	for _, path := range []string{"/", "/?key=jobs"} {
		g.Expect(request(p, http.MethodGet, path).Body.String()).To(ContainSubstring(stale), "nothing is observed any more")
	}
}

func TestThePageSaysForHowLongACandidateHasHeldTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		e := eventOf(observe.Leading, "web-1", 8*time.Minute)
		p := pageWith("jobs", e)
		g.Expect(read(p)).To(MatchRegexp(fmt.Sprintf(`<dt>Since</dt><dd>%s <small>for 8m0s</small>`, e.Leader.Since.Local().Format(pageTime))))
		list := bucketPage(e)
		g.Expect(read(list)).To(MatchRegexp(`<td class="time"><time class="for" datetime="[^"]+">since [-0-9]+ [0-9:]+ \w+</time></td>`), "without JavaScript")
	})
}
