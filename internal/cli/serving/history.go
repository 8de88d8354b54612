package serving

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/wakeup"
	"github.com/natscampaign/election/observe"
)

const (
	// historyDuration is how long the history keeps an event or an ended term.
	historyDuration = time.Hour
	// historyLength is the maximum number of events, and of terms, where the page shows one election. The history keeps the latest ones.
	historyLength = 500
	// shortHistoryLength is the maximum where the page shows all elections of a bucket.
	shortHistoryLength = 50
)

// history is the recent history of one election. All text in it is printable.
type history struct {
	length int // the maximum number of events, and of terms

	mu             sync.Mutex
	clock          look.ServerClock // the clock of the server, which dates the events
	observedSince  time.Time        // when the page began to observe the election; zero before that
	events         []event          // oldest first
	terms          []observedTerm   // oldest first
	holder         *election.Leader // the holder of the key; nil if there is none
	leads          bool             // whether the leadership of the holder counts
	pause          *kv.Pause        // nil unless an operator has paused the election
	ended          *observe.Event   // the release of the last holder; nil if a candidate holds the key, or it ended otherwise
	standbys       *int             // how many candidates would take over from the holder; nil if that is not known
	counts         counts           // of the events since the page began to observe the election
	lastTransition time.Time        // when the last event but a renewal arrived, by this host's clock
	changed        wakeup.Signal    // wakes the readers of the election
}

// observedTerm is the time in which one candidate held the key.
type observedTerm struct {
	name, instance string
	heldFrom       time.Time
	ledFrom        time.Time // when leadership began to count; zero if it has not
	endedAt        time.Time // zero while the candidate holds the key
}

// until returns when the stand-down of the term ended, and when the term did; now for what lasts.
func (t observedTerm) until(now time.Time) (standDown, term time.Time) {
	if term = t.endedAt; term.IsZero() {
		term = now
	}
	if standDown = t.ledFrom; standDown.IsZero() {
		standDown = term
	}
	return standDown, term
}

// counts are numbers of events, by kind.
type counts map[observe.EventKind]uint64

// startObserving records that the history is complete from the given time on, by the given clock.
func (h *history) startObserving(clock look.ServerClock, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock, h.observedSince = clock, since
	h.changed.Broadcast()
}

// stopObserving records that nothing is known of the election from now on.
func (h *history) stopObserving() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endTerm(h.clock.Now())
	h.observedSince, h.holder, h.leads, h.standbys = time.Time{}, nil, false, nil
	h.changed.Broadcast()
}

// add adds an event, and reports whether it is a transition. A renewal only updates the holder, and notifies nothing.
func (h *history) add(e observe.Event) (transition bool) {
	e = look.PrintableEvent(e)
	leader := e.Leader
	h.mu.Lock()
	defer h.mu.Unlock()
	if !e.At.Before(h.observedSince) { // earlier events report the state that the page found
		h.counts[e.Kind]++
	} else if e.Kind == observe.Leading && !leader.Since.IsZero() && leader.Since.Before(e.At) {
		e.At = leader.Since // the event has the time of the last renewal
	}
	switch e.Kind {
	case observe.Elected:
		h.ended = nil
		h.endTerm(e.At)
		h.holder, h.leads, h.standbys = &leader, false, nil
		h.terms = append(h.terms, observedTerm{name: e.Leader.Name, instance: e.Leader.Instance, heldFrom: e.At})
	case observe.Leading:
		h.ended = nil
		h.startLeading(e)
		if h.holder == nil || h.holder.Instance != leader.Instance {
			h.standbys = nil
		}
		h.holder, h.leads = &leader, true
	case observe.Renewed:
		h.holder = &leader
		return false
	default:
		h.endTerm(e.At)
		h.holder, h.leads, h.standbys, h.ended = nil, false, nil, nil
		if e.Kind == observe.Released {
			h.ended = &e
		}
	}
	h.lastTransition = time.Now()
	h.events = insert(h.events, transitionEvent(e))
	h.prune(h.clock.Now())
	h.changed.Broadcast()
	return true
}

// setEnded records how the election had ended when the page began to observe it, unless a candidate holds the key by now.
func (h *history) setEnded(e observe.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder == nil && h.ended == nil {
		h.ended = &e
		h.changed.Broadcast()
	}
}

// setPause records whether the election is paused, and reports whether that is new. The pauses were last read at the given time; zero if never.
func (h *history) setPause(pause *kv.Pause, lastRead time.Time) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pause == h.pause || pause != nil && h.pause != nil && *pause == *h.pause {
		return false
	}
	change := resumedEvent(lastRead, h.clock.Now())
	if pause != nil {
		change = pausedEvent(*pause, h.clock.Now())
	}
	h.events = insert(h.events, change)
	h.pause = pause
	h.changed.Broadcast()
	return true
}

// setStandbys records how many candidates would take over from the holder of the given instance, and reports whether that is new.
func (h *history) setStandbys(instance string, n *int) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder == nil || h.holder.Instance != instance || n == h.standbys || n != nil && h.standbys != nil && *n == *h.standbys {
		return false
	}
	h.standbys = n
	h.changed.Broadcast()
	return true
}

// currentHolder returns the holder of the key; nil if there is none. It never changes.
func (h *history) currentHolder() *election.Leader {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holder
}

// isPaused reports whether an operator has paused the election.
func (h *history) isPaused() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pause != nil
}

// isOver reports whether the page has nothing to say about the election any more.
func (h *history) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prune(h.clock.Now())
	return h.holder == nil && h.pause == nil && h.ended == nil && lastTransition(h.events) == nil
}

// startLeading records that the leadership of a candidate counts. If the page did not observe the candidate's election, the term begins
// when the record says that the candidate was elected. The caller holds mu.
func (h *history) startLeading(e observe.Event) {
	if h.holder != nil && h.holder.Instance == e.Leader.Instance && h.holder.Name == e.Leader.Name {
		if last := len(h.terms) - 1; last >= 0 && h.terms[last].ledFrom.IsZero() {
			h.terms[last].ledFrom = e.At
		}
		return
	}
	h.endTerm(e.At)
	from := e.At
	if !e.Leader.Since.IsZero() && e.Leader.Since.Before(from) {
		from = e.Leader.Since
	}
	h.terms = append(h.terms, observedTerm{name: e.Leader.Name, instance: e.Leader.Instance, heldFrom: from, ledFrom: from})
}

// endTerm ends the term of the current holder, if there is one. The caller holds mu.
func (h *history) endTerm(at time.Time) {
	if last := len(h.terms) - 1; last >= 0 && h.terms[last].endedAt.IsZero() {
		h.terms[last].endedAt = at
	}
}

// prune removes events and terms that are too old or too many. The caller holds mu.
func (h *history) prune(now time.Time) {
	oldest := now.Add(-historyDuration)
	h.events = slices.DeleteFunc(h.events, func(e event) bool { return e.at.Before(oldest) })
	h.terms = slices.DeleteFunc(h.terms, func(t observedTerm) bool { return !t.endedAt.IsZero() && t.endedAt.Before(oldest) })
	h.events = slices.Clone(h.events[max(0, len(h.events)-h.length):])
	h.terms = slices.Clone(h.terms[max(0, len(h.terms)-h.length):])
}

// transitionTime returns when the last event but a renewal arrived, by this host's clock.
func (h *history) transitionTime() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastTransition
}

// notify wakes the readers of the election.
func (h *history) notify() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed.Broadcast()
}

// condition is whether an election has a leader.
type condition int

const (
	vacant    condition = iota // nobody holds the key
	leaseOver                  // the holder has not renewed in time, as far as the page knows: no event says so while nobody reaches the server
	elect                      // the leadership of the holder does not count yet
	led
	ended      // nobody holds the key: the last holder released it, longer ago than the history goes
	conditions // how many there are
)

// condition returns whether the election has a leader. The caller holds mu.
func (h *history) condition(now time.Time) condition {
	switch l := h.holder; {
	case l == nil && h.ended != nil && len(h.events) == 0:
		return ended
	case l == nil:
		return vacant
	case l.Expires.After(l.Renewed) && !now.Before(l.Expires): // a bucket without a TTL does not say when a lease is over
		return leaseOver
	case h.leads:
		return led
	}
	return elect
}

// shownTerms returns the terms; that of a holder whose lease is over ends with the lease. The caller holds mu.
func (h *history) shownTerms(now time.Time) []observedTerm {
	terms := slices.Clone(h.terms)
	if last := len(terms) - 1; last >= 0 && h.condition(now) == leaseOver {
		terms[last].endedAt = h.holder.Expires
	}
	return terms
}

// snapshot is a history at one instant.
type snapshot struct {
	now           time.Time // by the server's clock
	observedSince time.Time
	events        []event
	terms         []observedTerm
	holder        *election.Leader
	condition     condition
	ended         *observe.Event // see history
	pause         *kv.Pause
}

// snapshot returns the current history, and a channel that is closed at the next change.
func (h *history) snapshot() (snapshot, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	h.prune(now)
	return snapshot{now, h.observedSince, slices.Clone(h.events), h.shownTerms(now), h.holder, h.condition(now), h.ended, h.pause}, h.changed.Wait()
}

// since returns the time from which the page counts how long a candidate has led.
func since(l *election.Leader) time.Time { return cmp.Or(l.LeadsSince, l.Since) }
