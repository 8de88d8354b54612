package serving

import (
	"context"
	_ "embed" // the files of the page
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/observe"
)

var (
	//go:embed page/status.html
	pageHTML string
	//go:embed page/list.html
	listHTML string
	//go:embed page/status.css
	pageCSS string
	//go:embed page/status.js
	pageJS string

	pageTemplate = template.Must(template.Must(template.New("page").Parse(pageHTML)).Parse(listHTML))
)

// maxEventRows is the maximum number of events on the page.
const maxEventRows = 100

// pageHead is what both pages show: that of one election, and that of all. All text in it is printable, and the template escapes it.
type pageHead struct {
	Title                   string // of the browser's tab
	Bucket                  string // of the elections; empty while it is not known
	Headline, HeadlineClass string
	Notice                  string // why the page may be out of date; empty if it is not
	Stale                   bool   // the page does not show the present state
	Fix                     string // what to do where nobody leads; empty if somebody does
	Now                     string // by the server's clock, for JavaScript
	Interval                int    // after how many seconds the page reloads without JavaScript
	Fixed                   bool   // no events follow the page
}

// pageData is what the page template shows about one election.
type pageData struct {
	pageHead
	Key      string
	Linked   bool      // the page links to the list of elections
	Pause    string    // since when and by whom the election is paused; empty if it is not
	Command  string    // that ends the pause, or that says why nobody leads; empty if neither is so
	Eviction *eviction // the latest one of the last hour; nil if there was none, or if it is why nobody leads
	Why      string    // how the last leader lost the key, while nobody holds it
	Facts    []fact

	Chart          chart
	Candidates     []candidateRow
	ShowPriorities bool // whether a candidate has a priority
	CandidatesNote string
	TimeZone       string // of the times of the events
	Events         []eventRow
}

// fact is one labelled fact about the leader or about this candidate.
type fact struct{ Label, Value, Note string }

// candidateRow is a candidate that answered, and the CSS class of its colour in the chart; "" if it is not in the chart.
type candidateRow struct {
	admin.Candidate
	ColourClass string
}

type eventRow struct{ Time, ExactTime, Kind, Text string }

// moment is a time on the page. JavaScript replaces the text by how long ago that was, or for how long something has lasted.
type moment struct {
	Exact    string // for people
	DateTime string // for JavaScript
}

func momentOf(t time.Time) moment {
	t = t.Local()
	return moment{t.Format(pageTime + " MST"), t.Format(time.RFC3339)}
}

// eviction is an eviction within the last hour. The page shows it although somebody leads again.
type eviction struct {
	moment
	By string // empty if that is not known
}

// evicted is the kind of the events that are evictions.
var evicted = observe.Evicted.String()

// latestEviction returns the latest eviction, unless it is the last event, which the page shows anyway; nil if there is none.
func latestEviction(events []event) *eviction {
	latest := -1
	for i, e := range events {
		if e.kind == evicted {
			latest = i
		}
	}
	if latest < 0 || latest == len(events)-1 {
		return nil
	}
	return &eviction{momentOf(events[latest].at), events[latest].by}
}

// exactTime is the layout of the times of events, for JavaScript.
const exactTime = "2006-01-02T15:04:05.000Z07:00"

// pageTime is the layout of times on the page.
const pageTime = "2006-01-02 15:04:05"

// data returns the content of the page about an election, and a channel that is closed at the next change; nil if the page does not know the
// election. With wait the list of candidates is up to date, and so is the pause.
func (p *statusPage) data(ctx context.Context, key string, wait bool) (*pageData, <-chan struct{}) {
	p.askBucket(ctx, wait)
	p.askCandidates(ctx, key, wait)
	l := p.elections
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byKey[key]
	if e == nil {
		return nil, nil
	}
	now := l.clock.Now()
	e.prune(now, l.length)
	d := &pageData{pageHead: p.head(now, l.observedSince), Key: terminal.Printable(key), Linked: l.only == "", Pause: describePause(e.pause), Eviction: latestEviction(e.events)}
	d.Title, d.Interval = d.Key, 5
	d.Chart = newChart(e, l.observedSince, now)
	condition, observed := e.condition(now), !l.observedSince.IsZero()
	d.setHeadline(e, condition, observed, p.observeError.Load(), l.expected[key])
	if observed {
		d.Command = d.command(key, condition, e.pause)
	}
	d.addLeaderFacts(e.holder, condition, now)
	d.addStandbysFact(e)
	if l.info != nil {
		d.Facts = append(d.Facts, fact{"Bucket", describeTTL(*l.info), look.DescribeReplicas(*l.info)})
	}
	if candidate := p.candidate.Load(); candidate != nil {
		d.addCandidateFact(candidate.Status())
	}
	d.setCandidates(e.candidates, observed)
	d.TimeZone = now.Local().Format("MST")
	for _, e := range slices.Backward(e.events[max(0, len(e.events)-maxEventRows):]) {
		at := e.at.Local()
		d.Events = append(d.Events, eventRow{at.Format("15:04:05.000"), at.Format(exactTime), e.kind, e.text})
	}
	return d, e.changed.Wait()
}

// setCandidates adds the candidates that answered, and says what the list lacks.
func (d *pageData) setCandidates(a answer, observed bool) {
	for _, c := range a.list {
		c.Name, c.Host = terminal.Printable(c.Name), terminal.Printable(c.Host)
		d.ShowPriorities = d.ShowPriorities || c.Priority != 0
		d.Candidates = append(d.Candidates, candidateRow{c, d.Chart.Legend.find(c.Name)})
	}
	switch {
	case a.err != nil:
		d.CandidatesNote = "Cannot query the candidates: " + terminal.Printable(a.err.Error())
		if len(a.list) > 0 {
			d.CandidatesNote += ". The list is their last answer."
		}
	case len(a.list) == 0 && observed:
		d.CandidatesNote = "No candidate answers."
	default:
		d.CandidatesNote = "This list contains only candidates that answer. Choria candidates do not answer."
	}
}

// fixVacancy says what to do where nobody leads an election, beside a command that says more.
const fixVacancy = "Fix: start the program that campaigns, or read its log."

// fixLeaseOver says what to do where a leader has not renewed in time.
const fixLeaseOver = "Fix: check the leader's host, and its connection to the server."

// head returns what both pages show of the state at a time by the server's clock.
func (p *statusPage) head(now, observedSince time.Time) pageHead {
	d := pageHead{Bucket: p.bucketName(), Notice: p.notice(), Now: momentOf(now).DateTime}
	d.Stale = d.Notice != "" || observedSince.IsZero()
	return d
}

// command returns the command for an election that is paused, or that has neither a leader nor a leader-elect; empty for another one.
func (d *pageHead) command(key string, c condition, pause *kv.Pause) string {
	command := "check"
	switch {
	case pause != nil:
		command = "resume"
	case c >= elect:
		return ""
	}
	return cli.CommandForBucket(command+" "+terminal.Printable(key), d.Bucket)
}

// addStandbysFact adds the fact how many candidates would take over, where their answers tell.
func (d *pageData) addStandbysFact(e *entry) {
	if e.holder == nil {
		return
	}
	names, known := look.Answers{Candidates: e.candidates.list}.Standbys(&look.Holder{Leader: *e.holder})
	switch {
	case known && len(names) == 0:
		d.Facts = append(d.Facts, fact{"Standbys", "none", "nobody would take over"})
	case known:
		d.Facts = append(d.Facts, fact{"Standbys", strconv.Itoa(len(names)), ""})
	}
}

// describeTTL returns the TTL of a bucket in words.
func describeTTL(info kv.Info) string { return "TTL " + terminal.FormatDuration(info.LeaseTTL()) }

// addCandidateFact adds the fact about the candidate that serves the page.
func (d *pageData) addCandidateFact(own election.Status) {
	source := ""
	if own.Notifications != "" {
		source = ", notified by " + own.Notifications
	}
	d.Facts = append(d.Facts, fact{"This candidate", terminal.Printable(own.Name), own.State.String() + source})
}

// setHeadline sets the headline, which says whether a candidate leads.
func (d *pageData) setHeadline(e *entry, c condition, observed bool, observeError *string, expected bool) {
	switch {
	case !observed && observeError != nil:
		d.Headline, d.HeadlineClass = "Cannot observe the election: "+*observeError, "vacant"
	case !observed:
		d.Headline, d.HeadlineClass = "Waiting for the server", "waits"
	case c == vacant:
		d.Headline, d.HeadlineClass = "No leader", "vacant"
		if expected {
			d.Why = "This election is " + neverLed + "."
		}
		if last := lastTransition(e.events); last != nil {
			d.Why = last.text
			if last.kind == evicted {
				d.Eviction = nil
			}
		}
		if e.pause == nil {
			d.Fix = fixVacancy
		}
	case c == ended:
		d.Headline, d.HeadlineClass, d.Why = "Ended", "waits", look.DescribeEvent(*e.ended)+"."
	case c == leaseOver:
		d.Headline, d.HeadlineClass = e.holder.Name+" has not renewed in time", "vacant"
		d.Why, d.Fix = "Its lease is over.", fixLeaseOver
	case c == led:
		d.Headline, d.HeadlineClass = e.holder.Name+" leads", "leads"
	default:
		d.Headline, d.HeadlineClass = e.holder.Name+" is leader-elect", "waits"
	}
}

// addLeaderFacts adds the facts about the holder of the key.
func (d *pageData) addLeaderFacts(l *election.Leader, c condition, now time.Time) {
	if l == nil {
		return
	}
	if from := look.Since(*l); !from.IsZero() {
		note := "for " + terminal.FormatDuration(max(0, now.Sub(from)).Round(time.Second))
		if c == leaseOver {
			note = ""
		}
		d.Facts = append(d.Facts, fact{"Since", from.Local().Format(pageTime), note})
	}
	if l.Term != 0 {
		d.Facts = append(d.Facts, fact{"Term", strconv.FormatUint(l.Term, 10), ""})
	}
	d.Facts = append(d.Facts, fact{"Lease left", look.TimeLeftText(*l, l.Expires.Sub(now).Round(100*time.Millisecond)), ""})
	if l.Host != "" {
		d.Facts = append(d.Facts, fact{"Host", l.Host, ""})
	}
	var metadata []string
	for _, k := range slices.Sorted(maps.Keys(l.Metadata)) {
		metadata = append(metadata, k+"="+l.Metadata[k])
	}
	if len(metadata) > 0 {
		d.Facts = append(d.Facts, fact{"Metadata", terminal.Printable(strings.Join(metadata, ", ")), ""})
	}
}
