package election

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/watch"
)

const (
	// settlePatience is how long the first campaign waits for word of the key, even if it is due.
	settlePatience = 100 * time.Millisecond
	// settleTrips is for how many answers of the server it waits in any case: it takes two of them, and servers hesitate.
	settleTrips = 4
	// maxSettle is how long it does at most: meanwhile it hears of no vacancy.
	maxSettle = time.Second
	// maxAsking is how many watchers of a process ask for the state of one key at a time.
	maxAsking = 4
)

// settle waits a moment for the first source and for word of what stands under the key, so that the first campaign knows
// all that can be told: whether somebody removed the key, and who holds it or let go of it. The server is known to take the
// given time for an answer.
func (a *ear) settle(ctx context.Context, due time.Time, trip time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, min(max(settlePatience, settleTrips*trip, time.Until(due)), maxSettle))
	defer cancel()
	select {
	case <-ctx.Done():
		return
	case <-a.hub.settled:
	}
	if a.hub.js != nil {
		a.readLast(ctx)
	} else if a.joined && a.hub.inUse() == sourceWatch { // what the watcher told when it was made was told to others
		a.watchLast(ctx)
	}
}

// readLast reads the last message under the key, if the stream is that of the bucket.
func (a *ear) readLast(ctx context.Context) {
	s, err := a.hub.backing(ctx)
	if err != nil || !a.hub.knows(s.CachedInfo().Created) {
		return
	}
	m, err := s.GetLastMsgForSubject(ctx, a.hub.subject(a.key))
	if err != nil {
		return
	}
	if c := changeOf(m.Header, m.Sequence, m.Time); a.hub.admits(&c, m.Data) {
		a.replay(c)
	}
}

// backing returns the stream behind the bucket. It is asked for again only when the bucket was made again.
func (h *hub) backing(ctx context.Context) (jetstream.Stream, error) {
	if s := h.stream.Load(); s != nil && h.knows((*s).CachedInfo().Created) {
		return *s, nil
	}
	s, err := h.js.Stream(ctx, "KV_"+h.bucket.Bucket())
	if err == nil {
		h.stream.Store(&s)
	}
	return s, err
}

// watchLast has a watcher of its own tell what stands under the key. A process with many elections has but a few at a time.
func (a *ear) watchLast(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case a.hub.asking <- struct{}{}:
		defer func() { <-a.hub.asking }()
	}
	w, err := a.hub.bucket.Watch(ctx, a.key)
	if err != nil {
		return
	}
	defer watch.Stop(w)
	select {
	case <-ctx.Done():
	case entry := <-w.Updates():
		if entry == nil {
			return
		}
		if c := changeBy(entry); a.hub.admits(&c, entry.Value()) {
			a.replay(c)
		}
	}
}

// settle lets those campaign that wait for the first source.
func (h *hub) settle() {
	select {
	case <-h.settled:
	default:
		close(h.settled)
	}
}
