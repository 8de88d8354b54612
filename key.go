package election

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// removal is how a key came to be free.
type removal int

const (
	kept             removal = iota // the key is not free: a record was written
	removed                         // by somebody
	expired                         // by the server, at the end of the TTL
	removedOrExpired                // the source does not tell which
	gone                            // nothing is stored under the key, which does not tell why
)

// keyState is what is stored under the key, as this candidate has read it from the bucket. Only what was read is believed:
// a notification is a reason to read, and no more.
type keyState struct {
	read     time.Time // just before the request was sent; zero if the key has not been read
	revision uint64    // 0 if nothing is stored there
	written  time.Time // by the server's clock
	removal  removal
	record   record // empty unless a record is stored
}

// vacant says whether the key may be taken.
func (s keyState) vacant() bool {
	_, released := s.record.released()
	return s.removal != kept || released
}

// held says whether a candidate holds the key.
func (s keyState) held() bool { return !s.read.IsZero() && !s.vacant() }

// follows says whether the state differs from the one before by renewals alone.
func (s keyState) follows(before keyState) bool {
	switch {
	case before.read.IsZero():
		return false
	case s.held() && before.held():
		return s.record.renews(before.record)
	case s.held() != before.held():
		return false
	}
	return s.revision == before.revision
}

// renews says whether a record may be a renewal of the term that the one before was written in.
func (r record) renews(before record) bool {
	return r.Instance == before.Instance && r.Name == before.Name && r.Since.Equal(before.Since) && r.Term == before.Term &&
		r.Priority == before.Priority && maps.Equal(r.Metadata, before.Metadata)
}

// stateOf returns the state that a message of the bucket's stream makes.
func stateOf(header nats.Header, revision uint64, written time.Time, value []byte) keyState {
	s := keyState{revision: revision, written: written, removal: removalBy(header)}
	if s.removal == kept {
		s.record = parseRecord(value)
	}
	return s
}

// removalBy returns what a message of the bucket's stream with that header says about a removal.
func removalBy(header nats.Header) removal {
	switch {
	case header.Get("Nats-Marker-Reason") == "MaxAge":
		return expired
	case header.Get("Nats-Marker-Reason") != "", header.Get("KV-Operation") != "":
		return removed
	}
	return kept
}

// errUnreadable is returned in place of reading for as long as reading is known not to be permitted.
var errUnreadable = errors.New("the key cannot be read: the server does not answer, as when it is not permitted")

// blindness is what a candidate knows of its permission to read the key. It belongs to the loop.
type blindness struct {
	answered   bool          // whether a read was ever answered
	suspected  bool          // whether the last read was not answered
	unanswered int           // reads in a row that were not answered though the write that followed was
	until      time.Time     // no read before this
	rest       time.Duration // for how long it did not read the last time
}

const (
	// unansweredReads is how many reads must be unanswered, each with an answered write after it, until reading counts as not
	// permitted, where the connection does not tell. After a time without reading one is enough.
	unansweredReads = 2
	// maxBlindTime is for how many TTLs a candidate that cannot read does not try to, at most; minBlindTime is where it begins if the
	// connection does not tell that reading is not permitted. It doubles each time.
	minBlindTime, maxBlindTime = 4, 80
)

// readKey reads what is stored under the key. With a JetStream context it sees the markers of expiries and deletions too; without
// one it only sees that there is no record. The error is errUnreadable if reading is not permitted.
func (e *Election) readKey(ctx context.Context) (s keyState, err error) {
	b := &e.blind
	asked := time.Now()
	if asked.Before(b.until) {
		return keyState{}, errUnreadable
	}
	ear := e.ear.Load()
	before := ear.hub.lastError()
	s, err = ear.hub.read(ctx, e.key)
	if err == nil && s.removal == gone && ear.watchesUnnotified() {
		s = ear.hub.readMarker(ctx, e.key, s)
	}
	switch {
	case err == nil:
		s.read = asked
		*b = blindness{answered: true}
		e.unreadable.Store(false)
	case failure(err) != "timeout":
		b.suspected = false
	case ear.hub.refusedToRead(e.key, before):
		e.cannotRead(maxBlindTime, err)
	default:
		b.suspected = true
	}
	return s, err
}

// wroteBlindly takes note that the server answered a write after a read that it had not answered.
func (e *Election) wroteBlindly() {
	b := &e.blind
	if !b.suspected {
		return
	}
	b.suspected = false
	if b.unanswered++; b.unanswered >= unansweredReads || b.rest > 0 {
		e.cannotRead(minBlindTime, errUnreadable)
	}
}

// cannotRead has the candidate do without reading for a while, of so many TTLs at least.
func (e *Election) cannotRead(least time.Duration, err error) {
	ttl := e.facts.Load().ttl
	rest := min(max(least*ttl, 2*e.blind.rest), maxBlindTime*ttl)
	e.blind = blindness{answered: e.blind.answered, rest: rest, until: time.Now().Add(rest)}
	e.unreadable.Store(true)
	e.log.Warn("Key cannot be read, campaigning without", "for", rest, "error", err)
}

// read reads what is stored under a key.
func (h *hub) read(ctx context.Context, key string) (keyState, error) {
	if h.js != nil {
		stream, err := h.backing(ctx)
		if err != nil {
			return keyState{}, err
		}
		m, err := stream.GetLastMsgForSubject(ctx, h.subject(key))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return keyState{removal: gone}, nil
		case err != nil:
			if failure(err) == "no-stream" {
				h.stream.Store(nil) // an operator may have changed how the stream can be read
			}
			return keyState{}, err
		}
		return stateOf(m.Header, m.Sequence, m.Time, m.Data), nil
	}
	entry, err := h.bucket.Get(ctx, key)
	switch {
	case classify(err) == absent:
		return keyState{removal: gone}, nil
	case err != nil:
		return keyState{}, err
	}
	return keyState{revision: entry.Revision(), written: entry.Created(), record: parseRecord(entry.Value())}, nil
}

// maxMarkerReads is how many watchers of a process read a marker at a time.
const maxMarkerReads = 4

// readMarker has a watcher of its own tell what marker is stored under a key where no record is, for a bucket that otherwise does not
// show markers. It returns s if the watcher tells nothing.
func (h *hub) readMarker(ctx context.Context, key string, s keyState) keyState {
	select {
	case <-ctx.Done():
		return s
	case h.reading <- struct{}{}:
		defer func() { <-h.reading }()
	}
	w, err := watcher(h.bucket.Watch(ctx, key))
	if err != nil {
		return s
	}
	defer dismiss(w)
	select {
	case <-ctx.Done():
	case entry := <-w.Updates():
		if entry != nil && entry.Operation() != jetstream.KeyValuePut {
			s.revision, s.written, s.removal = entry.Revision(), entry.Created(), removed // or expired: it cannot tell
		}
	}
	return s
}

// refusedToRead says whether the last that the server said on the connection is that reading the key is not permitted; before is what it
// had said last when the read was sent.
func (h *hub) refusedToRead(key string, before error) bool {
	last := h.lastError()
	if !errors.Is(last, nats.ErrPermissionViolation) || errors.Is(last, before) {
		return false
	}
	stream := "GET.KV_" + h.bucket.Bucket()
	return strings.Contains(last.Error(), stream+`"`) || strings.Contains(last.Error(), stream+"."+h.subject(key)+`"`)
}

// lastError returns the last error of the connection, if that is known and had one.
func (h *hub) lastError() error {
	if h.conn == nil {
		return nil
	}
	return h.conn.LastError()
}

// backing returns the stream behind the bucket. It is asked for once, and again when nobody answers a read: what is read through it is
// read by the stream's name.
func (h *hub) backing(ctx context.Context) (jetstream.Stream, error) {
	if s := h.stream.Load(); s != nil {
		return *s, nil
	}
	s, err := h.js.Stream(ctx, "KV_"+h.bucket.Bucket())
	if err == nil {
		h.stream.Store(&s)
	}
	return s, err
}
