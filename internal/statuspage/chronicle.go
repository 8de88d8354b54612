package statuspage

import (
	"slices"
	"sync"
	"time"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/look"
	"github.com/natscampaign/election/internal/terminal"
	"github.com/natscampaign/election/observe"
)

const (
	// chronicleSpan is how far back a chronicle reaches.
	chronicleSpan = time.Hour
	// chronicleLength is how many changes and how many reigns it has at most: the latest.
	chronicleLength = 500
)

// chronicle is what happened in one election of late. All that others wrote in it is printable.
type chronicle struct {
	mu      sync.Mutex
	clock   look.ServerTime  // of the server, by which events are dated
	began   time.Time        // when it was first told anything
	events  []observe.Event  // changes, oldest first
	reigns  []reign          // oldest first
	leader  *election.Leader // who holds the key; nil if nobody does
	leads   bool             // whether leadership counts
	last    time.Time        // when it was told of the last change, by this host's clock
	changed chan struct{}    // closed at the next change; nil if nobody waits for one
}

// reign is a time in which one candidate held the key.
type reign struct {
	name, instance string
	from, to       time.Time // to is zero while it lasts
	led            time.Time // since when leadership counted; zero if it did not
}

// told takes in an event.
func (c *chronicle) told(e observe.Event) {
	e.Key, e.Leader = terminal.Printable(e.Key), look.Shown(e.Leader)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case observe.Elected:
		c.end(e.At)
		c.leader, c.leads = &e.Leader, false
		c.reigns = append(c.reigns, reign{name: e.Leader.Name, instance: e.Leader.Instance, from: e.At})
	case observe.Leading:
		if c.leader == nil || c.leader.Instance != e.Leader.Instance || c.leader.Name != e.Leader.Name { // the first that was seen
			c.end(e.At)
			from := e.At
			if !e.Leader.Since.IsZero() && e.Leader.Since.Before(from) {
				from = e.Leader.Since
			}
			c.reigns = append(c.reigns, reign{name: e.Leader.Name, instance: e.Leader.Instance, from: from, led: from})
		} else if last := len(c.reigns) - 1; last >= 0 && c.reigns[last].led.IsZero() {
			c.reigns[last].led = e.At
		}
		c.leader, c.leads = &e.Leader, true
	case observe.Renewed:
		c.leader = &e.Leader
		return // which is no change
	default:
		c.end(e.At)
		c.leader, c.leads = nil, false
	}
	c.last = time.Now()
	c.events = append(c.events, e)
	c.prune(c.clock.Now())
	c.touch()
}

// newChronicle returns one that goes by this host's clock, until the server's is known.
func newChronicle() *chronicle {
	now := time.Now()
	return &chronicle{clock: look.ReadServerTime(time.Time{}, now, now)}
}

// begin says that from now on everything is told.
func (c *chronicle) begin(clock look.ServerTime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock, c.began = clock, clock.Now()
	c.touch()
}

// lastChange returns when the last change was told.
func (c *chronicle) lastChange() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// tell lets those know who wait for a change.
func (c *chronicle) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touch()
}

// end ends the reign that lasts. The caller holds mu, as for all that follow.
func (c *chronicle) end(at time.Time) {
	if last := len(c.reigns) - 1; last >= 0 && c.reigns[last].to.IsZero() {
		c.reigns[last].to = at
	}
}

// prune forgets what is past or too much.
func (c *chronicle) prune(now time.Time) {
	oldest := now.Add(-chronicleSpan)
	c.events = slices.DeleteFunc(c.events, func(e observe.Event) bool { return e.At.Before(oldest) })
	c.reigns = slices.DeleteFunc(c.reigns, func(s reign) bool { return !s.to.IsZero() && s.to.Before(oldest) })
	c.events = slices.Clone(c.events[max(0, len(c.events)-chronicleLength):])
	c.reigns = slices.Clone(c.reigns[max(0, len(c.reigns)-chronicleLength):])
}

func (c *chronicle) touch() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// glance is a chronicle at one instant.
type glance struct {
	now    time.Time // by the server's clock
	began  time.Time
	events []observe.Event
	reigns []reign
	leader *election.Leader
	leads  bool
}

// look returns the chronicle as it is now, and a channel that is closed at the next change.
func (c *chronicle) look() (glance, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	c.prune(now)
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return glance{now, c.began, slices.Clone(c.events), slices.Clone(c.reigns), c.leader, c.leads}, c.changed
}
