package serving

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/natural"
)

// listData is what the page shows about all elections of a bucket: the summary, and those elections that a reader does not have as they are.
type listData struct {
	pageHead
	Summary string
	About   string // the TTL and the replicas; empty while they are not known
	Epoch   string // of the lines of time
	Rows    []*listRow
}

// listRow is one election of the list. All text in it is printable, and the template escapes it.
type listRow struct {
	Key, Leader  string
	Order        string // rows are in the order of this text: those of the lowest rank come first, and these in the natural order of the keys
	State, Class string
	Since        *moment
	Pause        string // empty unless an operator has paused the election
	Command      string // that resumes the election, or that says why nobody leads; empty if neither is so
	Standbys     string // how many candidates would take over; empty if that is not known
	Alone        bool   // none would
	Change, Kind string // the last event
	ChangeTime   *moment
	Eviction     *eviction // nil if there was none
	Strip        timeline
	Gone         bool // the page has forgotten the election
}

// The ranks of rows: what needs an operator comes first.
const (
	rankVacant = iota // or with a lease that is over
	rankElect
	rankAlone
	rankPaused
	rankWell
	rankEnded
)

// looks has how the list shows each condition.
var looks = [conditions]struct {
	state, class string
	rank         int
}{
	vacant:    {"no leader", "vacant", rankVacant},
	leaseOver: {"lease over", "vacant", rankVacant},
	elect:     {"leader-elect", "waits", rankElect},
	led:       {"leader", "leads", rankWell},
	ended:     {"ended", "ended", rankEnded},
}

// totals are the numbers of elections in each state.
type totals struct {
	all, paused, alone int
	by                 [conditions]int
	pausedVacant       int // paused, and without a leader
}

// list returns the list with the elections that are not among the given rows as they are, and a channel that is closed at the next change. With
// wait the pauses are up to date.
func (p *statusPage) list(ctx context.Context, sent map[string]*listRow, wait bool) (listData, <-chan struct{}) {
	p.askBucket(ctx, wait)
	p.askStandbys()
	l := p.elections
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	d := listData{pageHead: p.head(now, l.observedSince), Epoch: momentOf(l.epoch).DateTime}
	d.Title, d.Interval = "elections", 30
	if l.info != nil {
		d.About = describeTTL(*l.info) + ", " + look.DescribeReplicas(*l.info)
	}
	var t totals
	for key, e := range l.byKey {
		if e.isOver() && len(e.events) == 0 && !l.expected[key] {
			continue // nothing is left to say of it
		}
		if c := e.condition(now); e.row == nil || c != e.shown { // no event says that a lease is over
			e.shown = c
			e.prune(now, l.length)
			e.row = new(e.newRow(key, l.epoch, l.observedSince, now))
			e.row.Command = d.command(key, e.shown, e.pause)
		}
		t.add(e)
		if sent[e.row.Key] != e.row {
			d.Rows = append(d.Rows, e.row)
		}
	}
	for key := range sent {
		if l.byKey[key] == nil {
			d.Rows = append(d.Rows, &listRow{Key: key, Gone: true})
		}
	}
	slices.SortFunc(d.Rows, func(a, b *listRow) int { return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Key, b.Key)) })
	d.Summary = t.summary(l.full)
	d.setHeadline(t, !l.observedSince.IsZero(), p.observeError.Load())
	switch {
	case l.observedSince.IsZero():
	case t.by[vacant] > t.pausedVacant:
		d.Fix = fixVacancy
	case t.by[leaseOver] > 0:
		d.Fix = fixLeaseOver
	}
	return d, l.changed.Wait()
}

// add counts an election.
func (t *totals) add(e *entry) {
	t.by[e.shown]++
	if e.shown == ended {
		return
	}
	t.all++
	if e.pause != nil {
		t.paused++
		if e.shown == vacant {
			t.pausedVacant++
		}
	} else if e.isAlone() {
		t.alone++
	}
}

// summary says what the headline does not.
func (t totals) summary(full bool) string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{
		{t.by[elect], "with a leader-elect"}, {t.by[vacant], "without a leader"}, {t.by[leaseOver], "whose lease is over"},
		{t.alone, "with nobody who would take over"}, {t.paused, "paused"}, {t.by[ended], "ended"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	if full {
		parts = append(parts, fmt.Sprintf("more than %d, which this page does not list", maxElections))
	}
	return strings.Join(parts, ", ")
}

// setHeadline sets the headline, which says in how many elections a candidate leads.
func (d *listData) setHeadline(t totals, observed bool, observeError *string) {
	switch {
	case !observed && observeError != nil:
		d.Headline, d.HeadlineClass = "Cannot observe the elections: "+*observeError, "vacant"
	case !observed:
		d.Headline, d.HeadlineClass = "Waiting for the server", "waits"
	case t.all == 0:
		d.Headline, d.HeadlineClass = "No elections", "waits"
		if d.Summary == "" {
			d.Summary = "An election is listed here once a candidate has won it."
		}
	case t.by[led] == t.all && t.all == 1:
		d.Headline, d.HeadlineClass = "1 election, and it has a leader", "leads"
	case t.by[led] == t.all:
		d.Headline, d.HeadlineClass = fmt.Sprintf("%d elections, and all have a leader", t.all), "leads"
	case t.all == 1:
		d.Headline, d.HeadlineClass = "1 election, and it has no leader", "vacant"
	default:
		d.Headline, d.HeadlineClass = fmt.Sprintf("%d of %d elections have a leader", t.by[led], t.all), "vacant"
	}
}

// newRow returns the row of an election.
func (e *entry) newRow(key string, epoch, observedSince, now time.Time) listRow {
	as := looks[e.shown]
	r := listRow{
		Key: terminal.Printable(key), State: as.state, Class: as.class, Pause: describePause(e.pause), Alone: e.isAlone(),
		Eviction: latestEviction(e.events), Strip: newStrip(e, epoch, observedSince, now),
	}
	if e.holder != nil {
		r.Leader = e.holder.Name
		from := look.Since(*e.holder)
		if e.shown == leaseOver {
			from = e.holder.Expires
		}
		if !from.IsZero() {
			r.Since = new(momentOf(from))
		}
	}
	if e.standbys != nil {
		if r.Standbys = "none"; *e.standbys > 0 {
			r.Standbys = strconv.Itoa(*e.standbys)
		}
	}
	rank := as.rank
	switch {
	case e.shown == led && e.pause != nil:
		rank = rankPaused
	case e.shown == led && r.Alone:
		rank = rankAlone
	}
	r.Order = strconv.Itoa(rank) + " " + natural.Key(r.Key)
	if len(e.events) > 0 {
		last := e.events[len(e.events)-1]
		r.Kind, r.Change, r.ChangeTime = last.kind, last.change, new(momentOf(last.at))
	} else if e.ended != nil {
		r.Kind, r.Change, r.ChangeTime = "ended", terminal.Quote(e.ended.Leader.Name)+" led: "+look.EndCause(*e.ended), new(momentOf(e.ended.At))
	} else if e.holder == nil {
		r.Change = neverLed
	}
	return r
}

// neverLed says of an expected election why the page has nothing to say of it.
const neverLed = "expected, and nobody has led it lately"

// isAlone reports whether it is known that nobody would take over from the holder.
func (e *entry) isAlone() bool { return e.shown >= elect && e.standbys != nil && *e.standbys == 0 }

// describePause says since when and by whom an election is paused; empty if it is not.
func describePause(p *kv.Pause) string {
	if p == nil {
		return ""
	}
	return "Paused" + look.OriginOf(*p)
}
