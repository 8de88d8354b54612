package serving

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/cli/terminal"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/validate"
	"github.com/natscampaign/election/internal/wakeup"
	"github.com/natscampaign/election/observe"
)

// maxElections is the maximum number of elections that a page keeps.
const maxElections = 5000

// elections are the elections that the page observes. A reader of the list asks for what changed since a version, so that an update has
// only the elections that changed.
type elections struct {
	only     string          // the only key that the page observes; empty for all keys of the bucket
	expected map[string]bool // the keys of the elections that the page keeps, though nobody leads them
	length   int             // of the history of each election
	epoch    time.Time       // the origin of the lines of time in the list

	mu            sync.Mutex
	clock         look.ServerClock // this host's until the bucket is observed
	ttl           time.Duration    // of the bucket, as it was last read; zero until then, or if candidates do not go by it
	pausesRead    time.Time        // when the pauses were last read; zero if never
	observedSince time.Time        // zero while the bucket is not observed
	byKey         map[string]*entry
	full          bool          // elections were left out, because the page keeps too many
	version       uint64        // of the list: grows with each change
	removed       uint64        // the version at which an election was last removed
	changed       wakeup.Signal // wakes the readers of the list
}

// entry is one election of the list.
type entry struct {
	*history
	candidates poll[[]admin.Candidate]
	version    uint64    // of the list, when the election last changed
	shown      condition // on the list
	asked      time.Time // when its candidates were last asked how many would take over
	unanswered int       // how often they have not answered that since they last did
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
		e.startObserving(clock, l.observedSince)
	}
	l.touchAll()
}

// stopObserving records that nothing is known of the elections from now on.
func (l *elections) stopObserving() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observedSince = time.Time{}
	for _, e := range l.byKey {
		e.stopObserving()
	}
	l.touchAll()
}

// touchAll has each reader receive the whole list. The caller holds mu.
func (l *elections) touchAll() {
	l.version++
	l.removed = l.version
	l.changed.Broadcast()
}

// touch records a change of an election. The caller holds mu.
func (l *elections) touch(e *entry) {
	l.version++
	e.version = l.version
	l.changed.Broadcast()
}

// election returns the election of a key; nil if the page does not know it.
func (l *elections) election(key string) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byKey[key]
}

// ensure returns the election of a key, and adds it if need be; nil if the page keeps too many. The caller holds mu.
func (l *elections) ensure(key string) *entry {
	e := l.byKey[key]
	switch {
	case e != nil:
	case len(l.byKey) >= maxElections:
		l.full = true
	default:
		e = &entry{history: &history{length: l.length, clock: l.clock, observedSince: l.observedSince, counts: counts{}}}
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
	if l.ttl > 0 { // the observer knows that of its start
		event.Leader.Expires = event.Leader.Renewed.Add(l.ttl)
	}
	if e := l.ensure(event.Key); e != nil && e.add(event) {
		e.asked, e.unanswered = time.Time{}, 0 // what its candidates answered is out of date
		l.touch(e)
	}
}

// setTTL records the TTL of the bucket.
func (l *elections) setTTL(info kv.Info) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ttl = 0; info.HasTTL() {
		l.ttl = info.TTL
	}
}

// maxEnded limits the elections that had ended when the page began to observe them: the latest are kept.
const maxEnded = 500

// setEnded records how elections had ended when the page began to observe them.
func (l *elections) setEnded(ended []observe.Event) {
	slices.SortFunc(ended, func(a, b observe.Event) int { return b.At.Compare(a.At) })
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, event := range ended[:min(len(ended), maxEnded)] {
		if event.Kind != observe.Released || validate.Key(event.Key) != nil {
			continue
		}
		if e := l.ensure(event.Key); e != nil {
			e.setEnded(event)
			l.touch(e)
		}
	}
}

// setPauses records which elections are paused, and forgets the elections without a leader, a pause or an event.
func (l *elections) setPauses(pauses map[string]kv.Pause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range pauses {
		if key == l.only || l.only == "" && validate.Key(key) == nil {
			l.ensure(key)
		}
	}
	for key, e := range l.byKey {
		var pause *kv.Pause
		if p, paused := pauses[key]; paused {
			p.By = terminal.Printable(p.By)
			pause = &p
		}
		if e.setPause(pause, l.pausesRead) {
			l.touch(e)
		}
		if key != l.only && !l.expected[key] && e.isOver() {
			delete(l.byKey, key)
			l.touchAll()
		}
	}
	l.pausesRead = l.clock.Now()
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
		if e.currentHolder() != nil && time.Since(e.asked) >= wait {
			held = append(held, e)
		}
	}
	slices.SortFunc(held, func(a, b *entry) int { return a.asked.Compare(b.asked) })
	var holders []look.Holder
	for _, e := range held[:min(n, len(held))] {
		if h := e.currentHolder(); h != nil {
			e.asked = time.Now()
			holders = append(holders, look.Holder{Leader: *h, Paused: e.isPaused()})
		}
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
