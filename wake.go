package election

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// removal is how a key came to be free.
type removal int

const (
	kept             removal = iota // it is not: a record was written
	removed                         // by somebody
	expired                         // by the server, at the end of the TTL
	removedOrExpired                // the source does not tell
)

// change is one committed write to a key.
type change struct {
	revision uint64
	written  time.Time // by the server's clock
	removal  removal
	value    []byte
	record   record    // what was written or, if the key was removed, what had stood there
	before   uint64    // the revision of that, if the key was removed
	answer   time.Time // when to answer the vacancy, if it is one
}

// ear is what one election hears of its key.
type ear struct {
	hub  *hub
	key  string
	ttl  time.Duration
	news chan struct{} // receives after each change, at least once

	mu       sync.Mutex
	last     change    // the latest; meaningless while heard is zero
	heard    time.Time // when it came; zero if nothing was heard since the source was made
	done     uint64    // the revision of the vacancy that was last answered
	guessed  int       // how many candidates stand, unless the leader knows better; 0 for no idea
	found    uint64    // the revision that a campaign last found under the key
	foundAt  time.Time // and when
	counting bool
	others   map[string]time.Time // instances whose attempts were heard, while counting
}

// hear takes in a change.
func (a *ear) hear(c change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := !a.heard.IsZero()
	switch {
	case c.removal == kept:
	case known && a.last.removal != kept:
		c.removal = a.last.removal // the mark of an earlier removal has itself expired: nothing new
		c.record, c.before, c.answer = a.last.record, 0, a.last.answer
	default:
		if c.removal == removedOrExpired {
			c.removal = removed
			if known && c.written.Sub(a.last.written) >= a.ttl {
				c.removal = expired // servers are late to expire a key, never early
			}
		}
		if known {
			c.record, c.before = a.last.record, a.last.revision
		}
	}
	a.heard = time.Now()
	if c.answer.IsZero() && c.vacant() {
		c.answer = a.heard.Add(randomBelow(spread(cmp.Or(c.record.Candidates, a.guessed, unknownCandidates))))
	}
	a.last = c
	a.notify()
}

// doubt forgets what was heard: changes may have been missed.
func (a *ear) doubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = time.Time{}
	a.notify()
}

func (a *ear) notify() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// vacancy returns the vacancy that is known of and was not answered yet, nil if there is none.
func (a *ear) vacancy() *change {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard.IsZero() || !a.last.vacant() || a.last.revision == a.done {
		return nil
	}
	c := a.last
	return &c
}

// answered notes that the vacancy need not be answered again.
func (a *ear) answered(c *change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = c.revision
}

// renewed returns when somebody else than self was last heard to hold the key.
func (a *ear) renewed(self string) (heard time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heard, !a.heard.IsZero() && !a.last.vacant() && a.last.record.Instance != self
}

// read takes note of what a campaign found under the key, and reports the source deaf if the key was written since the
// last time without a word of it.
func (a *ear) read(revision uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.found != 0 && revision != a.found && !a.heard.After(a.foundAt) {
		a.hub.suspect()
	}
	a.found, a.foundAt = revision, time.Now()
}

// guess takes note of how many processes watch the bucket; in each as many stand, it is supposed, as in this.
func (a *ear) guess(watchers int) {
	a.hub.mu.Lock()
	each := len(a.hub.ears[a.key])
	a.hub.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guessed = watchers * each
}

// latest returns the latest change and when it was heard; false if nothing was since the source was made.
func (a *ear) latest() (change, time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.heard, !a.heard.IsZero()
}

const (
	// expiryLateness is how late a server may be to expire a key.
	expiryLateness = 400 * time.Millisecond
	// answerSpacing is how far apart the answers to a vacancy come on average. It is about the time after which
	// everybody has seen the first of them, so that few more are made.
	answerSpacing = time.Millisecond
	// unknownCandidates is how many are thought to stand where nobody counted.
	unknownCandidates = 50
	// netInterval is after how many TTLs on average a candidate campaigns that hears others renew.
	netInterval = 40
	// openingCampaigns is how many campaigns a candidate makes in any case, before it relies on what it hears: in the
	// course of these the leader gets to count it.
	openingCampaigns = 2
)

// await waits for the next campaign, which is due at the given time unless there is word of the key: of a vacancy, which
// is then returned, to be answered; or of a holder, whose renewals are reason to wait on.
func (e *Election) await(ctx context.Context, due time.Time, lost int) *change {
	ear, ttl := e.ear.Load(), e.facts.Load().ttl
	net := time.Now().Add(ttl*netInterval/2 + randomBelow(ttl*netInterval))
	for {
		at, vacancy := due, ear.vacancy()
		if vacancy != nil {
			at = vacancy.answer
		} else if heard, ok := ear.renewed(e.instance); ok && lost >= openingCampaigns {
			// It would lose. When renewals fail to come the key will have expired.
			at = later(due, earlier(net, heard.Add(ttl+expiryLateness)))
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-ear.news:
			timer.Stop()
		case <-timer.C:
			if vacancy != nil {
				ear.answered(vacancy)
			}
			return vacancy
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// vacant says whether the key may be taken after the change.
func (c change) vacant() bool {
	_, released := c.record.released()
	return c.removal != kept || released
}

// spread returns the time over which so many candidates, one of which led, spread their answers to a vacancy. What is left
// to chance is who comes first: one answerSpacing after the vacancy on average, however many they are.
func spread(candidates int) time.Duration {
	return time.Duration(max(candidates-2, 0)) * answerSpacing
}

// win returns what a candidate wins that takes the key over the change.
func (c *change) win() win {
	w := win{over: c.revision, reason: reasonVacant, removed: c.removal == removed, candidates: c.record.Candidates}
	left, released := c.record.released()
	if released && (c.removal == kept || c.removal == removed && c.revision == c.before+1) {
		// A release that was removed at once was cleared away by its writer; later, who knows who had taken it.
		w.reason, w.removed, w.left, w.bucket = reasonReleased, false, left, c.record.Bucket
	}
	return w
}

// count starts or ends the counting of those that stand, by the attempts that are heard on the subject of the key itself.
// Only a leader counts, and only with a connection of its own to hear by.
func (a *ear) count(on bool) {
	a.mu.Lock()
	was := a.counting
	a.counting, a.others = on, map[string]time.Time{}
	a.mu.Unlock()
	if on != was && a.hub.conn != nil {
		a.hub.countAttempts(on)
	}
}

// attempted notes an attempt to write the key, by whomever.
func (a *ear) attempted(r record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counting && r.Instance != "" && len(a.others) < maxCounted {
		a.others[r.Instance] = time.Now()
	}
}

// maxCounted bounds the memory for counting.
const maxCounted = 20_000

// candidates returns roughly how many stand, this one included: those whose attempts were heard, and at least as many as
// are known from before, until all must have made themselves heard. It is 0, not known, if not even this one is heard.
func (a *ear) candidates(self string, before int, since time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	window := a.ttl * netInterval * 2
	for instance, at := range a.others {
		if time.Since(at) > window {
			delete(a.others, instance)
		}
	}
	if time.Since(since) > window {
		before = 0
	}
	if _, heard := a.others[self]; !heard {
		return before
	}
	return max(len(a.others), before)
}
