package serving

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
)

// listData is what the page shows about all elections of a bucket: the summary, and those elections that changed.
type listData struct {
	Title, Bucket           string
	Headline, HeadlineClass string
	Notice                  string // why the page may be out of date; empty if it is not
	Summary                 string
	About                   string // the TTL and the replicas; empty while they are not known
	Now                     string // by the server's clock, for JavaScript
	Epoch                   string // of the lines of time
	Rows                    []listRow
	Interval                int // after how many seconds the page reloads without JavaScript

	whole   bool // Rows are all elections
	version uint64
}

// listRow is one election of the list. All text in it is printable, and the template escapes it.
type listRow struct {
	Key, Leader  string
	Rank         int // rows of the lowest rank come first, and these by key
	State, Class string
	Since        *moment
	Pause        string // empty unless an operator has paused the election
	Standbys     string // how many candidates would take over; empty if that is not known
	Alone        bool   // none would
	Change, Kind string // the last event
	ChangeTime   *moment
	Eviction     *eviction // nil if there was none
	Strip        strip
}

// The ranks of rows: what needs an operator comes first.
const (
	rankVacant = iota
	rankElect
	rankAlone
	rankPaused
	rankWell
)

// totals are the numbers of elections in each state.
type totals struct{ all, led, elect, paused, alone int }

// list returns the elections that changed since the given version of the list, and a channel that is closed when one changes.
func (p *statusPage) list(ctx context.Context, since uint64, wait bool) (listData, <-chan struct{}) {
	p.readPauses(ctx, wait)
	p.countStandbys()
	l := p.elections
	l.mu.Lock()
	defer l.mu.Unlock()
	d := listData{Title: "elections", Bucket: p.bucketName(), Interval: 30, whole: since == 0 || since < l.removed, version: l.version}
	now := l.clock.Now()
	d.About, d.Now, d.Epoch = p.describeBucket(), momentOf(now).DateTime, momentOf(l.epoch).DateTime
	var t totals
	for key, e := range l.byKey {
		e.mu.Lock()
		if e.holder != nil || e.pause != nil || len(e.events) > 0 || l.expected[key] {
			t.add(e.history)
			if d.whole || e.version > since {
				d.Rows = append(d.Rows, e.row(key, l.epoch, now))
			}
		}
		e.mu.Unlock()
	}
	slices.SortFunc(d.Rows, func(a, b listRow) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), strings.Compare(a.Key, b.Key)) })
	d.Summary, d.Notice = t.summary(l.full), p.notice()
	d.setHeadline(t, !l.observedSince.IsZero(), p.observeError.Load())
	return d, l.changed.Wait()
}

// add counts an election. The caller holds its lock.
func (t *totals) add(h *history) {
	t.all++
	switch {
	case h.holder != nil && h.leads:
		t.led++
	case h.holder != nil:
		t.elect++
	}
	if h.pause != nil {
		t.paused++
	} else if h.isAlone() {
		t.alone++
	}
}

// summary says what the headline does not.
func (t totals) summary(full bool) string {
	var parts []string
	if t.elect > 0 {
		parts = append(parts, fmt.Sprintf("%d with a leader-elect", t.elect))
	}
	if vacant := t.all - t.led - t.elect; vacant > 0 {
		parts = append(parts, fmt.Sprintf("%d without a leader", vacant))
	}
	if t.alone > 0 {
		parts = append(parts, fmt.Sprintf("%d with nobody who would take over", t.alone))
	}
	if t.paused > 0 {
		parts = append(parts, fmt.Sprintf("%d paused", t.paused))
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
		d.Summary = "An election is listed here once a candidate has won it."
	case t.led == t.all && t.all == 1:
		d.Headline, d.HeadlineClass = "1 election, and it has a leader", "leads"
	case t.led == t.all:
		d.Headline, d.HeadlineClass = fmt.Sprintf("%d elections, and all have a leader", t.all), "leads"
	default:
		d.Headline, d.HeadlineClass = fmt.Sprintf("%d of %s have a leader", t.led, terminal.Plural(t.all, "election")), "vacant"
	}
}

// row returns the row of an election. The caller holds the lock of the history.
func (h *history) row(key string, epoch, now time.Time) listRow {
	h.prune(now)
	r := listRow{Key: terminal.Printable(key), Rank: rankVacant, State: "no leader", Class: "vacant", Eviction: latestEviction(h.events), Strip: h.newStrip(epoch, now)}
	if h.holder != nil {
		r.Leader, r.State, r.Class, r.Rank = h.holder.Name, "leader-elect", "waits", rankElect
		if h.leads {
			r.State, r.Class, r.Rank = "leader", "leads", rankWell
		}
		if !h.holder.Since.IsZero() {
			r.Since = new(momentOf(h.holder.Since))
		}
	}
	r.Pause = describePause(h.pause)
	if r.Alone = h.isAlone(); r.Alone {
		r.Standbys = "none"
	} else if h.standbys != nil {
		r.Standbys = strconv.Itoa(*h.standbys)
	}
	if r.Rank == rankWell {
		switch {
		case h.pause != nil:
			r.Rank = rankPaused
		case r.Alone:
			r.Rank = rankAlone
		}
	}
	if len(h.events) > 0 {
		e := h.events[len(h.events)-1]
		r.Kind, r.Change, r.ChangeTime = e.Kind.String(), look.DescribeChange(e), new(momentOf(e.At))
	} else if h.holder == nil {
		r.Change = neverLed
	}
	return r
}

// neverLed says of an expected election why the page has nothing to say of it.
const neverLed = "expected, and nobody has led it lately"

// isAlone reports whether it is known that nobody would take over from the holder. The caller holds the lock of the history.
func (h *history) isAlone() bool { return h.holder != nil && h.standbys != nil && *h.standbys == 0 }

// describePause says since when and by whom an election is paused; empty if it is not.
func describePause(p *kv.Pause) string {
	if p == nil {
		return ""
	}
	return "Paused" + look.OriginOf(*p)
}
