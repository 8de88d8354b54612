package serving

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/validate"
	"github.com/natscampaign/election/internal/wakeup"
	"github.com/natscampaign/election/observe"
)

// maxElections is the maximum number of elections that a page keeps.
const maxElections = 5000

// elections are the elections that the page observes: what events, queries and operators tell of them, behind one lock. Pages and metrics read
// them, and keep no copy.
type elections struct {
	only     string          // the only key that the page observes; empty for all keys of the bucket
	expected map[string]bool // the keys of the elections that the page keeps, though nobody leads them
	length   int             // of the history of each election
	epoch    time.Time       // the origin of the lines of time in the list

	mu            sync.Mutex
	clock         look.ServerClock // this host's until the bucket is observed
	info          *kv.Info         // what the server last said about the bucket; nil until then
	pausesRead    time.Time        // when that was; zero if never
	observedSince time.Time        // the histories are complete since then; zero while the bucket is not observed
	byKey         map[string]*entry
	full          bool          // elections were left out, because the page keeps too many
	changed       wakeup.Signal // wakes the readers of the list
}

// newElections returns the elections of a bucket with those that are expected, or the only one of the key unless that is empty.
func newElections(only string, expected []string) *elections {
	now := time.Now()
	l := &elections{only: only, expected: map[string]bool{}, length: shortHistoryLength, epoch: now, clock: look.NewServerClock(time.Time{}, now, now), byKey: map[string]*entry{}}
	for _, key := range expected {
		l.expected[key] = true
		l.ensure(key)
	}
	if only != "" {
		l.length = historyLength
		l.ensure(only)
	}
	return l
}

// startObserving records that the histories are complete from now on.
func (l *elections) startObserving(clock look.ServerClock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock, l.observedSince = clock, clock.Now()
	for _, e := range l.byKey {
		l.touch(e)
	}
	l.changed.Broadcast()
}

// stopObserving records that nothing is known of the elections from now on.
func (l *elections) stopObserving() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observedSince = time.Time{}
	for _, e := range l.byKey {
		e.stopObserving(l.clock.Now())
		l.touch(e)
	}
	l.changed.Broadcast()
}

// touch tells the readers that an election has changed. The caller holds mu.
func (l *elections) touch(e *entry) {
	e.row = nil
	e.changed.Broadcast()
	l.changed.Broadcast()
}

// has reports whether the page knows an election.
func (l *elections) has(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byKey[key] != nil
}

// ensure returns the election of a key, and adds it if need be; nil if the page keeps too many. The caller holds mu.
func (l *elections) ensure(key string) *entry {
	e := l.byKey[key]
	switch {
	case e != nil:
	case len(l.byKey) >= maxElections:
		l.full = true
	default:
		e = &entry{counts: counts{}}
		l.byKey[strings.Clone(key)] = e
	}
	return e
}

// add adds an event. Keys that no candidate can campaign for are left out, and so are those with other data.
func (l *elections) add(event observe.Event) {
	if validate.Key(event.Key) != nil || look.IsOtherData(event.Leader) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.info != nil && l.info.HasTTL() { // the observer knows that of its start
		event.Leader.Expires = event.Leader.Renewed.Add(l.info.TTL)
	}
	if e := l.ensure(event.Key); e != nil && e.add(event, l.observedSince, l.clock.Now(), l.length) {
		l.touch(e)
	}
}

// maxEnded limits the elections that ended in order more than an hour ago, or before the page began to observe them: the latest are kept.
const maxEnded = 500

// setEnded records how elections had ended when the page began to observe them, unless a candidate holds the key by now.
func (l *elections) setEnded(ended []observe.Event) {
	slices.SortFunc(ended, func(a, b observe.Event) int { return b.At.Compare(a.At) })
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, event := range ended[:min(len(ended), maxEnded)] {
		if event.Kind != observe.Released || validate.Key(event.Key) != nil {
			continue
		}
		if e := l.ensure(event.Key); e != nil && e.holder == nil && e.ended == nil {
			e.ended = &event
			l.touch(e)
		}
	}
}

// setInfo records what the server says about the bucket: its TTL, and which elections are paused. It forgets the elections without a leader,
// a pause or an event.
func (l *elections) setInfo(info kv.Info) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info.Stream != nil {
		l.clock = look.ServerClockOf(info) // which may have been set, and this host suspended
	}
	now := l.clock.Now()
	for key := range info.Paused {
		if key == l.only || l.only == "" && validate.Key(key) == nil {
			l.ensure(key)
		}
	}
	var ended []string
	for key, e := range l.byKey {
		var pause *kv.Pause
		if p, paused := info.Paused[key]; paused {
			p.By = terminal.Printable(p.By)
			pause = &p
		}
		if e.setPause(pause, l.pausesRead, now) {
			l.touch(e)
		}
		e.prune(now, l.length)
		switch {
		case key == l.only, l.expected[key], !e.isIdle():
		case e.isOver():
			l.forget(key)
		default:
			ended = append(ended, key)
		}
	}
	slices.SortFunc(ended, func(a, b string) int { return l.byKey[b].ended.At.Compare(l.byKey[a].ended.At) })
	for _, key := range ended[min(len(ended), maxEnded):] { // locks and jobs may each have a key of their own
		l.forget(key)
	}
	l.full = l.full && len(l.byKey) >= maxElections
	l.info, l.pausesRead = &info, now
}

// forget forgets an election. The caller holds mu.
func (l *elections) forget(key string) {
	e := l.byKey[key]
	delete(l.byKey, key)
	l.touch(e)
}

// setCandidates records what the candidates of an election answered.
func (l *elections) setCandidates(e *entry, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.err != nil {
		a.list = e.candidates.list
	}
	e.candidates = a
	e.changed.Broadcast()
}

// longestUnasked returns the holders of at most n elections, those whose candidates were asked the longest ago, and records that they are asked.
// It leaves out elections whose candidates were asked within the given time, or, if these did not answer, just now.
func (l *elections) longestUnasked(n int, within time.Duration) []look.Holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	var held []*entry
	for _, e := range l.byKey {
		wait := within
		if e.unanswered > 0 && e.unanswered <= maxUnanswered {
			wait = min(within, queryInterval)
		}
		if e.holder != nil && time.Since(e.asked) >= wait {
			held = append(held, e)
		}
	}
	slices.SortFunc(held, func(a, b *entry) int { return a.asked.Compare(b.asked) })
	var holders []look.Holder
	for _, e := range held[:min(n, len(held))] {
		e.asked = time.Now()
		holders = append(holders, look.Holder{Leader: *e.holder, Paused: e.pause != nil})
	}
	return holders
}

// setStandbys records how many candidates would take over from each holder. Where that is not known, the page shows what it last knew, until
// the candidates have not answered several times: after an outage some are back sooner than others.
func (l *elections) setStandbys(holders []look.Holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range holders {
		e := l.byKey[h.Key]
		if e == nil {
			continue
		}
		if e.unanswered++; h.Standbys != nil {
			e.unanswered = 0
		}
		if (h.Standbys != nil || e.unanswered > maxUnanswered) && e.setStandbys(h.Instance, h.Standbys) {
			l.touch(e)
		}
	}
}
