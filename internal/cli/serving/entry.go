package serving

import (
	"slices"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/admin"
	"github.com/natscampaign/election/internal/cli/look"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/wakeup"
	"github.com/natscampaign/election/observe"
)

const (
	// historyDuration is how long an entry keeps an event or an ended term.
	historyDuration = time.Hour
	// historyLength is the maximum number of events, and of terms, where the page shows one election. An entry keeps the latest ones.
	historyLength = 500
	// shortHistoryLength is the maximum where the page shows all elections of a bucket.
	shortHistoryLength = 50
)

// entry is what the page knows of one election. It belongs to elections, whose lock guards it. All text in it is printable.
type entry struct {
	events         []event          // oldest first
	terms          []observedTerm   // oldest first
	holder         *election.Leader // the holder of the key; nil if there is none
	leads          bool             // whether the leadership of the holder counts
	pause          *kv.Pause        // nil unless an operator has paused the election
	ended          *observe.Event   // the release of the last holder; nil if a candidate holds the key, or it ended otherwise
	standbys       *int             // how many candidates would take over from the holder; nil if that is not known
	counts         counts           // of the events since the page began to observe the election
	lastTransition time.Time        // when the last event but a renewal arrived, by this host's clock
	candidates     answer           // of the candidates
	query          poll             // asks the candidates

	asked      time.Time // when the candidates were last asked how many would take over
	unanswered int       // how often they have not answered that since they last did

	shown   condition     // on the list
	row     *listRow      // on the list; nil if the election has changed since
	changed wakeup.Signal // wakes the readers of the page of this election
}

// answer is the last answer of the candidates of an election, and why the last query failed.
type answer struct {
	list []admin.Candidate
	err  error
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

// stopObserving records that nothing is known of the election from now on.
func (e *entry) stopObserving(now time.Time) {
	e.endTerm(now)
	e.holder, e.leads, e.standbys = nil, false, nil
}

// add adds an event, and reports whether it is a transition. A renewal only updates the holder.
func (e *entry) add(o observe.Event, observedSince, now time.Time, length int) (transition bool) {
	o = look.PrintableEvent(o)
	leader := o.Leader
	if !o.At.Before(observedSince) { // earlier events report the state that the page found
		e.counts[o.Kind]++
	} else if o.Kind == observe.Leading && !leader.Since.IsZero() && leader.Since.Before(o.At) {
		o.At = leader.Since // the event has the time of the last renewal
	}
	if o.Kind == observe.Renewed && e.holder == nil { // the page had no room for the election when it was won
		if o.Kind = observe.Elected; leader.Term != 0 {
			o.Kind = observe.Leading
		}
	}
	switch o.Kind {
	case observe.Elected:
		e.ended = nil
		e.endTerm(o.At)
		e.holder, e.leads, e.standbys = &leader, false, nil
		e.terms = append(e.terms, observedTerm{name: leader.Name, instance: leader.Instance, heldFrom: o.At})
	case observe.Leading:
		e.ended = nil
		e.startLeading(o)
		if e.holder == nil || e.holder.Instance != leader.Instance {
			e.standbys = nil
		}
		e.holder, e.leads = &leader, true
	case observe.Renewed:
		e.holder = &leader
		return false
	default:
		e.endTerm(o.At)
		e.holder, e.leads, e.standbys, e.ended = nil, false, nil, nil
		if o.Kind == observe.Released {
			e.ended = &o
		}
	}
	e.lastTransition = time.Now()
	e.asked, e.unanswered = time.Time{}, 0 // what the candidates answered is out of date
	e.events = insert(e.events, transitionEvent(o))
	e.prune(now, length)
	return true
}

// setPause records whether the election is paused, and reports whether that is new. The pauses were last read at the given time; zero if never.
func (e *entry) setPause(pause *kv.Pause, lastRead, now time.Time) (changed bool) {
	if pause == e.pause || pause != nil && e.pause != nil && *pause == *e.pause {
		return false
	}
	change := resumedEvent(lastRead, now)
	if pause != nil {
		change = pausedEvent(*pause, now)
	}
	e.events = insert(e.events, change)
	e.pause = pause
	return true
}

// setStandbys records how many candidates would take over from the holder of the given instance, and reports whether that is new.
func (e *entry) setStandbys(instance string, n *int) (changed bool) {
	if e.holder == nil || e.holder.Instance != instance || n == e.standbys || n != nil && e.standbys != nil && *n == *e.standbys {
		return false
	}
	e.standbys = n
	return true
}

// isOver reports whether the page has nothing to say about the election any more.
func (e *entry) isOver() bool { return e.isIdle() && e.ended == nil }

// isIdle reports whether the page has nothing to say about the election, but how it ended long ago.
func (e *entry) isIdle() bool {
	return e.holder == nil && e.pause == nil && lastTransition(e.events) == nil
}

// startLeading records that the leadership of a candidate counts. If the page did not observe the candidate's election, the term begins
// when the record says that the candidate was elected.
func (e *entry) startLeading(o observe.Event) {
	if e.holder != nil && e.holder.Instance == o.Leader.Instance && e.holder.Name == o.Leader.Name {
		if last := len(e.terms) - 1; last >= 0 && e.terms[last].ledFrom.IsZero() {
			e.terms[last].ledFrom = o.At
		}
		return
	}
	e.endTerm(o.At)
	from := o.At
	if !o.Leader.Since.IsZero() && o.Leader.Since.Before(from) {
		from = o.Leader.Since
	}
	e.terms = append(e.terms, observedTerm{name: o.Leader.Name, instance: o.Leader.Instance, heldFrom: from, ledFrom: from})
}

// endTerm ends the term of the current holder, if there is one.
func (e *entry) endTerm(at time.Time) {
	if last := len(e.terms) - 1; last >= 0 && e.terms[last].endedAt.IsZero() {
		e.terms[last].endedAt = at
	}
}

// prune removes events and terms that are too old or too many.
func (e *entry) prune(now time.Time, length int) {
	oldest := now.Add(-historyDuration)
	e.events = slices.DeleteFunc(e.events, func(e event) bool { return e.at.Before(oldest) })
	e.terms = slices.DeleteFunc(e.terms, func(t observedTerm) bool { return !t.endedAt.IsZero() && t.endedAt.Before(oldest) })
	e.events = slices.Clone(e.events[max(0, len(e.events)-length):])
	e.terms = slices.Clone(e.terms[max(0, len(e.terms)-length):])
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

// condition returns whether the election has a leader.
func (e *entry) condition(now time.Time) condition {
	switch l := e.holder; {
	case l == nil && e.ended != nil && len(e.events) == 0:
		return ended
	case l == nil:
		return vacant
	case look.KeyExpires(*l) && !now.Before(l.Expires):
		return leaseOver
	case e.leads:
		return led
	}
	return elect
}

// shownTerms returns the terms; that of a holder whose lease is over ends with the lease.
func (e *entry) shownTerms(now time.Time) []observedTerm {
	terms := slices.Clone(e.terms)
	if last := len(terms) - 1; last >= 0 && e.condition(now) == leaseOver {
		terms[last].endedAt = e.holder.Expires
	}
	return terms
}
