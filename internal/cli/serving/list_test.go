package serving

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/test/clitest"
	"github.com/natscampaign/election/observe"
)

// bucketPage returns a page about all elections of a bucket, as it is once it observes them.
func bucketPage(events ...observe.Event) *statusPage {
	p := newBucketPage("", nil, slog.New(slog.DiscardHandler))
	now := time.Now()
	p.elections.startObserving(look.NewServerClock(now, now, now))
	for _, e := range events {
		p.elections.add(e)
	}
	return p
}

// in returns the event in another election.
func in(key string, e observe.Event) observe.Event {
	e.Key, e.Leader.Key = key, key
	return e
}

// message returns the next message of a feed.
func (f *feed) message(t *testing.T) string {
	t.Helper()
	text, _, err := f.next(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return text
}

func TestAnUpdateOfTheListHasOnlyTheElectionsThatChanged(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage()
	for i := range 500 {
		p.elections.add(in(fmt.Sprintf("job-%03d", i), eventOf(observe.Leading, "web-1", time.Minute)))
	}
	feed := newFeed(p, "")
	first := feed.message(t)
	g.Expect(strings.Count(first, "<tr data-key")).To(Equal(500))
	g.Expect(first).To(And(HavePrefix("data: <header"), ContainSubstring("500 elections, and all have a leader")))
	g.Expect(len(first)).To(BeNumerically("<", 400_000))

	p.elections.add(in("job-007", eventOf(observe.Renewed, "web-1", 0)))
	g.Expect(feed.message(t)).To(Equal(":\n\n"), "a renewal changes nothing that the list shows")

	e := in("job-007", eventOf(observe.Evicted, "web-1", 0))
	e.Reason, e.By = election.ReasonDeleted, "alice@ops-1"
	p.elections.add(e)
	update := feed.message(t)
	g.Expect(update).To(And(HavePrefix("data: <header"), ContainSubstring("499 of 500 elections have a leader"), ContainSubstring("1 without a leader")))
	g.Expect(strings.Count(update, "<tr")).To(Equal(1))
	g.Expect(update).To(And(ContainSubstring(`data-key="job-007"`), ContainSubstring("evicted (deleted) by alice@ops-1")))
	g.Expect(len(update)).To(BeNumerically("<", 1200))

	p.elections.setInfo(kv.Info{Paused: map[string]kv.Pause{"job-008": {Since: time.Now(), By: "bob"}, "new": {}}})
	update = feed.message(t)
	g.Expect(strings.Count(update, "<tr")).To(Equal(2))
	g.Expect(update).To(And(ContainSubstring("2 without a leader, 2 paused"), MatchRegexp(`title="Paused since [-0-9: ]+ by bob"`)))

	p.elections.setInfo(kv.Info{})
	update = feed.message(t)
	g.Expect(update).To(And(HavePrefix("data: <header"), MatchRegexp(`<tr data-key="new"[^>]*></tr>`)), "an election is forgotten, so its row is empty")
	g.Expect(strings.Count(update, "<tr data-key")).To(Equal(2))
	g.Expect(feed.message(t)).To(Equal(":\n\n"))
}

func TestThePageOfABucketLinksToEachElection(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage(in("a/b=c.d", eventOf(observe.Leading, "web-1", time.Minute)), in("jobs", eventOf(observe.Elected, "web-2", time.Minute)))
	get := func(path string) *httptest.ResponseRecorder { return request(p, http.MethodGet, path) }
	list := get("/").Body.String()
	g.Expect(list).To(And(ContainSubstring("1 of 2 elections have a leader"), ContainSubstring("1 with a leader-elect"), ContainSubstring(`<a href="?key=jobs">jobs</a>`)))
	g.Expect(list).To(ContainSubstring(`<a href="?key=a%2fb%3dc.d">a/b=c.d</a>`))
	g.Expect(get("/?key=a%2fb%3dc.d").Body.String()).To(And(ContainSubstring("web-1 leads</p>"), Not(ContainSubstring("This candidate"))))
	g.Expect(get("/?key=jobs").Body.String()).To(ContainSubstring("web-2 is leader-elect"))
	for _, path := range []string{"/?key=other", "/events?key=other"} {
		g.Expect(get(path).Code).To(Equal(http.StatusNotFound), path)
	}
	g.Expect(get("/leader").Code).To(Equal(http.StatusNotFound), "the page has no candidate")
	g.Expect(get("/healthz").Code).To(Equal(http.StatusServiceUnavailable), "it has no connection")
	g.Expect(p.elections.byKey).To(HaveLen(2), "a request adds no election")
}

func TestThePageOfABucketIsBounded(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage()
	for i := range maxElections + 10 {
		p.elections.add(in(fmt.Sprint("job-", i), eventOf(observe.Leading, "web-1", time.Minute)))
	}
	for range 2 * shortHistoryLength {
		p.elections.add(in("job-1", eventOf(observe.Elected, "web-1", 0)))
	}
	g.Expect(p.elections.byKey).To(HaveLen(maxElections))
	h := p.elections.byKey["job-1"]
	g.Expect(h.events).To(HaveLen(shortHistoryLength))
	g.Expect(h.terms).To(HaveLen(shortHistoryLength))
	d, _ := p.list(t.Context(), nil, false)
	g.Expect(d.Summary).To(Equal("1 with a leader-elect, more than 5000, which this page does not list"))
}

func TestTheListEscapesAllTextFromCandidates(t *testing.T) {
	g := NewWithT(t)
	const script = `<script>alert(1)</script>`
	for _, name := range []string{clitest.HostileText, script, `"><img src=x onerror=alert(1)>`, "a\ndata: b\n\nevent: c", "\r\r", strings.Repeat("<", 100_000)} {
		e := eventOf(observe.Evicted, name, 0)
		e.Reason, e.By = election.Reason(name), name
		p := bucketPage(in("jobs", eventOf(observe.Leading, name, time.Minute)), in("jobs", e), in("old", eventOf(observe.Leading, name, time.Minute)))
		p.elections.setInfo(kv.Info{Paused: map[string]kv.Pause{"jobs": {By: name}}})
		for _, page := range []string{read(p), newFeed(p, "").message(t)} {
			g.Expect(strings.Count(page, "<script")).To(BeNumerically("<=", 1), "only the script of the page")
			g.Expect(page).NotTo(ContainSubstring("<img"))
			g.Expect(strings.Count(page, "\nevent:")).To(BeZero())
			g.Expect(len(page)).To(BeNumerically("<", 20_000))
			clitest.ExpectPrintable(g, page, name)
		}
	}
}

func TestThePageSaysSinceWhenAndByWhomTheElectionIsPaused(t *testing.T) {
	g := NewWithT(t)
	p := pageWith("jobs", eventOf(observe.Leading, "web-1", time.Minute))
	p.elections.setInfo(kv.Info{Paused: map[string]kv.Pause{"jobs": {Since: time.Now(), By: "alice@ops-1"}, "other": {}}})
	g.Expect(read(p)).To(MatchRegexp(`<p class="pause">Paused since [-0-9: ]{19} by alice@ops-1\. No candidate campaigns`))
	g.Expect(p.elections.byKey).To(HaveLen(1))
	p.elections.setInfo(kv.Info{})
	g.Expect(read(p)).NotTo(ContainSubstring("Paused"))
}

func TestThePageSaysWhyNobodyLeads(t *testing.T) {
	g := NewWithT(t)
	e := eventOf(observe.Evicted, "web-1", 0)
	e.Reason, e.By = election.ReasonDeleted, "alice@ops-1"
	p := pageWith("jobs", eventOf(observe.Leading, "web-1", time.Minute), e)
	g.Expect(read(p)).To(ContainSubstring("&#34;web-1&#34; lost &#34;jobs&#34; (deleted), term 7: evicted by alice@ops-1</p>"))
}

func TestWhatAnObserverServesLooksLikeNoCandidate(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage(in("jobs", eventOf(observe.Leading, "web-1", time.Minute)), in("rest", eventOf(observe.Elected, "web-2", -time.Second)))
	long := strings.Repeat("x", 300)
	for _, key := range []string{long + "1", long + "2", "a\xff", "a b", "<b>"} { // as an attacker may write them
		p.elections.add(in(key, eventOf(observe.Leading, "web-1", time.Minute)))
	}
	g.Expect(p.elections.byKey).To(HaveLen(2))
	r := prometheus.NewPedanticRegistry()
	g.Expect(r.Register(observed{p})).To(Succeed())
	families, err := r.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		g.Expect(f.GetName()).To(HavePrefix("election_observed_"))
		for _, m := range f.GetMetric() {
			if f.GetName() == "election_observed_events_total" && m.GetCounter().GetValue() == 1 {
				g.Expect(m.GetLabel()[0].GetValue()+m.GetLabel()[1].GetValue()).To(Equal("restelected"), "what the page found is no change")
			}
		}
	}
	g.Expect(families).To(HaveLen(7))
}

func TestExpectedElectionsStayOnThePageThoughNobodyLeadsThem(t *testing.T) {
	g := NewWithT(t)
	p := newBucketPage("", []string{"reports", "jobs"}, slog.New(slog.DiscardHandler))
	now := time.Now()
	p.elections.startObserving(look.NewServerClock(now, now, now))
	p.elections.add(in("jobs", eventOf(observe.Leading, "web-1", time.Minute)))
	p.elections.setInfo(kv.Info{})
	text := newFeed(p, "").message(t)
	g.Expect(text).To(And(ContainSubstring("1 of 2 elections have a leader"), ContainSubstring("1 without a leader"), ContainSubstring("expected, and nobody has led it lately")))
	g.Expect(text).NotTo(ContainSubstring("all have a leader"))
	g.Expect(request(p, http.MethodGet, "/?key=reports").Body.String()).To(And(ContainSubstring("No leader"), ContainSubstring("expected, and nobody has led it lately")))

	p.elections.add(in("reports", eventOf(observe.Leading, "web-1", time.Minute)))
	g.Expect(newFeed(p, "").message(t)).To(ContainSubstring("2 elections, and all have a leader"))
}

func TestTheListShowsHowManyWouldTakeOverFromEachLeader(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage(in("a", eventOf(observe.Leading, "web-1", time.Minute)), in("b", eventOf(observe.Leading, "web-1", time.Minute)), in("c", eventOf(observe.Leading, "web-1", time.Minute)))
	holders := p.elections.longestUnasked(3, 0)
	g.Expect(holders).To(HaveLen(3))
	for i := range holders {
		n := map[string]int{"a": 0, "b": 2}
		if of, known := n[holders[i].Key]; known {
			holders[i].Standbys = &of
		}
	}
	p.elections.setStandbys(holders)
	feed := newFeed(p, "")
	g.Expect(feed.message(t)).To(And(
		MatchRegexp(`data-key="a".*<td class="standbys waits"><span class="unit">standbys </span>none<`), MatchRegexp(`data-key="b".*<td class="standbys"><span class="unit">standbys </span>2<`), MatchRegexp(`data-key="c".*<td class="standbys"></td>`),
		ContainSubstring("1 with nobody who would take over")))
	p.elections.setInfo(kv.Info{Paused: map[string]kv.Pause{"a": {}}})
	g.Expect(feed.message(t)).NotTo(ContainSubstring("nobody who would take over"), "a pause is wanted")
	p.elections.add(in("b", eventOf(observe.Leading, "web-2", 0)))
	g.Expect(feed.message(t)).To(MatchRegexp(`data-key="b".*<td class="standbys"></td>`), "nobody knows of the new leader yet")
	p.elections.setStandbys(holders)
	g.Expect(p.elections.byKey["b"].standbys).To(BeNil(), "the answer is about the leader before")
}

func TestThePageAsksAboutTheElectionsInTurn(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage()
	for i := range 250 {
		p.elections.add(in(fmt.Sprintf("job-%03d", i), eventOf(observe.Leading, "web-1", time.Minute)))
	}
	asked := map[string]bool{}
	for _, n := range []int{100, 200, 250} {
		holders := p.elections.longestUnasked(maxStandbyQueries, 0)
		g.Expect(holders).To(HaveLen(maxStandbyQueries))
		for _, h := range holders {
			asked[h.Key] = true
		}
		g.Expect(asked).To(HaveLen(n))
	}
	g.Expect(p.elections.longestUnasked(maxStandbyQueries, time.Minute)).To(BeEmpty(), "all were asked just now")
	p.elections.add(in("job-007", eventOf(observe.Leading, "web-2", 0)))
	again := p.elections.longestUnasked(maxStandbyQueries, time.Minute)
	g.Expect(again).To(HaveLen(1))
	g.Expect(again[0].Name).To(Equal("web-2"), "a new leader is asked about at once")
}

func TestTheLastEventOfALeaderThatThePageFoundIsAsOldAsItsTerm(t *testing.T) {
	g := NewWithT(t)
	found := eventOf(observe.Leading, "web-1", 2*time.Second) // when it had last renewed
	found.Leader.Since = time.Now().Add(-9 * time.Minute)
	d, _ := bucketPage(found).list(t.Context(), nil, false)
	g.Expect(d.Rows[0].Change).To(Equal("leading"))
	g.Expect(d.Rows[0].ChangeTime).To(Equal(d.Rows[0].Since))
}

func TestProblemsAreFirstOnTheList(t *testing.T) {
	g := NewWithT(t)
	well := func(key string) observe.Event { return in(key, eventOf(observe.Leading, "web-1", time.Minute)) }
	p := bucketPage(well("a-well"), well("b-paused"), well("c-alone"), in("d-elect", eventOf(observe.Elected, "web-1", 0)), well("e-vacant"), in("e-vacant", eventOf(observe.Released, "web-1", 0)))
	holders := p.elections.longestUnasked(5, 0)
	for i := range holders {
		holders[i].Standbys = new(1)
		if holders[i].Key == "c-alone" {
			holders[i].Standbys = new(0)
		}
	}
	p.elections.setStandbys(holders)
	p.elections.setInfo(kv.Info{Paused: map[string]kv.Pause{"b-paused": {}}})
	var keys []string
	d, _ := p.list(t.Context(), nil, false)
	for _, r := range d.Rows {
		keys = append(keys, r.Key)
	}
	g.Expect(keys).To(Equal([]string{"e-vacant", "d-elect", "c-alone", "b-paused", "a-well"}))
}

func TestAnEvictionStaysVisibleForAnHourAlthoughSomebodyLeadsAgain(t *testing.T) {
	g := NewWithT(t)
	evicted := func(ago time.Duration) observe.Event {
		e := eventOf(observe.Evicted, "web-1", ago)
		e.Reason, e.By = election.ReasonDeleted, "alice@ops-1"
		return e
	}
	p := bucketPage(eventOf(observe.Leading, "web-1", 50*time.Minute), evicted(40*time.Minute), eventOf(observe.Leading, "web-2", 30*time.Minute),
		in("old", eventOf(observe.Leading, "web-1", 90*time.Minute)), in("old", in("old", evicted(80*time.Minute))), in("old", eventOf(observe.Leading, "web-2", 70*time.Minute)))
	row := func(key string) string {
		text := newFeed(p, "").message(t)
		_, text, _ = strings.Cut(text, `data-key="`+key+`"`)
		text, _, _ = strings.Cut(text, "</tr>")
		return text
	}
	g.Expect(row("jobs")).To(And(MatchRegexp(`evicted <time [^>]*>[-0-9: ]+ \w+</time> by alice@ops-1`), ContainSubstring(`class="mark"`), ContainSubstring(`>leading<`)))
	g.Expect(row("old")).NotTo(Or(ContainSubstring("evicted"), ContainSubstring(`class="mark"`)))
	g.Expect(request(p, http.MethodGet, "/?key=jobs").Body.String()).To(And(MatchRegexp(`Evicted <time .* by alice@ops-1</p>`), Not(ContainSubstring(`<rect class="mark"`))), "the chart begins later")
	p.elections.add(evicted(0))
	g.Expect(request(p, http.MethodGet, "/?key=jobs").Body.String()).To(MatchRegexp(`<rect class="mark" x="2[34]\d"`))
	g.Expect(row("jobs")).NotTo(ContainSubstring("evicted <time"), "the last event says so already")
}

func TestEachElectionHasALineOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		now := time.Now()
		leads := eventOf(observe.Leading, "web-2", 10*time.Minute)
		leads.Leader.Expires = now.Add(57 * time.Minute)
		p := bucketPage(eventOf(observe.Elected, "web-1", 50*time.Minute), eventOf(observe.Leading, "web-1", 40*time.Minute), eventOf(observe.Released, "web-1", 20*time.Minute), leads)
		e := p.elections.byKey["jobs"]
		s := newStrip(e, now.Add(-2*time.Hour), now, now) // it is 7200 s old, and shows the time from 3600 s on
		g.Expect(s.Left).To(Equal(3600))
		at := func(b bar) []any { return []any{b.ColourClass, b.Open, b.X, b.Width, b.Height} }
		g.Expect(s.Bars).To(HaveLen(3))
		g.Expect(at(s.Bars[0])).To(Equal([]any{"c0", false, 4200, 600, standDownHeight}), "the stand-down")
		g.Expect(at(s.Bars[1])).To(Equal([]any{"c0", false, 4800, 1200, barHeight}))
		g.Expect(at(s.Bars[2])).To(Equal([]any{"c1", true, 6600, 600, barHeight}), "its end moves with the time")
		g.Expect(s.Label()).To(Equal("in the last hour: web-1, web-2"))
		later := newStrip(e, now.Add(-2*time.Hour), now, now.Add(55*time.Minute))
		g.Expect(later.Bars).To(HaveLen(1), "what is more than an hour ago is gone")
		g.Expect(at(later.Bars[0])).To(Equal([]any{"c0", true, 6900, int(historyDuration / time.Second), barHeight}))
		over := newStrip(e, now.Add(-2*time.Hour), now, now.Add(58*time.Minute))
		g.Expect(at(over.Bars[0])).To(Equal([]any{"c0", false, 7080, 3540, barHeight}), "nobody is known to lead once the lease is over")
	})
}

func TestInABucketWithoutATTLNoLeaseIsOver(t *testing.T) {
	g := NewWithT(t)
	e := eventOf(observe.Leading, "web-1", time.Minute)
	e.Leader.Expires = e.Leader.Renewed
	p := bucketPage(e)
	g.Expect(newFeed(p, "").message(t)).To(ContainSubstring(`<td class="state leads">leader<`))
	g.Expect(request(p, http.MethodGet, "/?key=jobs").Body.String()).To(ContainSubstring("web-1 leads</p>"))
}

// As where each job has a lock of its own.
func TestThePageForgetsTheElectionsThatEndedInOrderFirstIfTheyAreTooMany(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage()
	for i := range maxElections {
		p.elections.add(in(fmt.Sprintf("job-%d", i), eventOf(observe.Released, "web-1", 2*time.Hour-time.Duration(i)*time.Second)))
	}
	p.elections.add(in("late", eventOf(observe.Leading, "web-2", 0)))
	g.Expect(p.elections.has("late")).To(BeFalse())
	p.elections.setInfo(kv.Info{})
	g.Expect(len(p.elections.byKey)).To(BeNumerically("<", maxElections))
	g.Expect(p.elections.has("job-0")).To(BeFalse())
	g.Expect(p.elections.has(fmt.Sprintf("job-%d", maxElections-1))).To(BeTrue())
	p.elections.add(in("late", eventOf(observe.Renewed, "web-2", 0)))
	g.Expect(p.elections.byKey["late"].condition(time.Now())).To(Equal(led), "it was won while there was no room for it")
}

func TestAnElectionThatEndedInOrderIsListedLastAndIsNoVacancy(t *testing.T) {
	g := NewWithT(t)
	p := bucketPage(in("leads", eventOf(observe.Leading, "web-1", time.Minute)))
	end := in("ended", eventOf(observe.Released, "web-2", 0))
	end.At, end.Reason, end.Leader.Term = time.Now().Add(-24*time.Hour), election.ReasonStopped, 7
	p.elections.setEnded([]observe.Event{end})
	d, _ := p.list(t.Context(), nil, false)
	g.Expect(d.Headline).To(Equal("1 election, and it has a leader"))
	g.Expect(d.Summary).To(Equal("1 ended"))
	g.Expect(d.Fix).To(BeEmpty())
	g.Expect(d.Rows).To(HaveLen(2))
	g.Expect([]string{d.Rows[1].Key, d.Rows[1].State, d.Rows[1].Change, d.Rows[1].Command}).To(Equal([]string{"ended", "ended", `"web-2" led: it was stopped`, ""}))
	p.elections.setInfo(kv.Info{})
	g.Expect(p.elections.byKey["ended"]).NotTo(BeNil(), "it is not forgotten")

	p.elections.add(in("ended", eventOf(observe.Leading, "web-3", 0)))
	d, _ = p.list(t.Context(), nil, false)
	g.Expect(d.Headline).To(Equal("2 elections, and all have a leader"))
	p.elections.add(in("ended", eventOf(observe.Released, "web-3", 0)))
	d, _ = p.list(t.Context(), nil, false)
	g.Expect(d.Headline).To(Equal("1 of 2 elections have a leader"), "it has just ended, and may want a leader")
}
