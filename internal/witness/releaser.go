package witness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timeutil"
)

// Dial connects to the server that has the buckets. The context ends when the connection is not needed any more.
type Dial func(ctx context.Context) (*nats.Conn, error)

const (
	// releasesAtOnce bounds the releases that are under way at the same time.
	releasesAtOnce = 64
	// requestTimeout is how long one request may take.
	requestTimeout = time.Second
	// minRetryDelay and maxRetryDelay are the first and the longest pause after a request that failed.
	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = time.Second
	// redialDelay is the pause after a connection that could not be made.
	redialDelay = 250 * time.Millisecond
	// refusedDelay is the pause after a release that the server refused, the first refusedAtOnce times: a stream without a majority of its servers may refuse
	// all of them.
	refusedDelay  = time.Millisecond
	refusedAtOnce = 8
)

// rereadDelays are the pauses before each further read of a key that seems to be somebody else's: the read may have been answered by a replica
// that does not have the term yet.
var rereadDelays = []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond}

// releaser writes the releases. It has a connection for as long as anybody holds terms, and opens their buckets before it needs them.
type releaser struct {
	dial Dial
	log  *slog.Logger

	mu     sync.Mutex
	users  int     // programs that hold terms
	client *client // nil while there are none
}

// client is a connection, from when it is needed until nobody needs it. A connection that is closed for good is followed by another.
type client struct {
	ctx    context.Context // ends when nobody needs it
	cancel context.CancelFunc

	mu      sync.Mutex
	current *session
	wanted  map[bucketID]int // by how many programs
}

// session is one connection with the buckets that are open on it.
type session struct {
	connected chan struct{} // closed when nc is set, or nobody needs it any more
	nc        *nats.Conn
	buckets   map[bucketID]*openBucket // the client's mutex guards it
}

func newSession() *session {
	return &session{connected: make(chan struct{}), buckets: map[bucketID]*openBucket{}}
}

// bucketID identifies a bucket: by the prefix of the API of its account or domain, and by its name.
type bucketID struct{ api, name string }

// openBucket is a bucket that is being opened, until ready is closed.
type openBucket struct {
	cancel context.CancelFunc
	ready  chan struct{}
	bucket *kv.Bucket
	err    error
}

// acquire connects in the background, unless there is a connection. Each call needs one of discard.
func (r *releaser) acquire() *client {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users++; r.users == 1 {
		c := &client{current: newSession(), wanted: map[bucketID]int{}}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		r.client = c
		go c.run(r.dial, r.log)
	}
	return r.client
}

// discard closes the connection if nobody else holds terms.
func (r *releaser) discard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users == 0 {
		r.client.cancel()
		r.client = nil
	}
}

// run keeps a connection until nobody needs it.
func (c *client) run(dial Dial, log *slog.Logger) {
	for c.ctx.Err() == nil {
		s := c.current // which only this goroutine changes
		s.nc = connect(c.ctx, dial, log)
		close(s.connected)
		if s.nc == nil {
			return
		}
		closed := s.nc.StatusChanged(nats.CLOSED)
		if !s.nc.IsClosed() { // else it was, before that could be told
			select {
			case <-closed:
			case <-c.ctx.Done():
				s.nc.Close()
				return
			}
		}
		log.Warn("Connection of the witness is closed, connecting again", "error", s.nc.LastError())
		c.renew()
	}
}

// connect connects, and tries again until ctx ends; then it returns nil.
func connect(ctx context.Context, dial Dial, log *slog.Logger) *nats.Conn {
	for warned := false; ctx.Err() == nil; warned = true {
		nc, err := dial(ctx)
		switch {
		case err == nil && nc != nil && !nc.IsClosed():
			return nc
		case err == nil:
			err = errors.New("the function that connects returned no connection and no error")
		}
		if !warned && ctx.Err() == nil {
			log.Warn("Witness cannot connect, and tries again: until then a leader that dies is replaced when its lease is over", "error", err)
		}
		_ = timeutil.Pause(ctx, redialDelay)
	}
	return nil
}

// renew begins with another connection, on which the same buckets are opened.
func (c *client) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = newSession()
	for id := range c.wanted {
		c.prepare(id)
	}
}

// want has a bucket opened, and kept until as many calls of unwant.
func (c *client) want(id bucketID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted[id]++
	c.prepare(id)
}

// unwant closes a bucket that no program needs any more.
func (c *client) unwant(id bucketID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wanted[id]--; c.wanted[id] > 0 {
		return
	}
	delete(c.wanted, id)
	if b := c.current.buckets[id]; b != nil {
		b.cancel()
		delete(c.current.buckets, id)
	}
}

// prepare begins to open a bucket, unless it is open. The caller holds mu.
func (c *client) prepare(id bucketID) *openBucket {
	s := c.current
	b := s.buckets[id]
	if b == nil {
		ctx, cancel := context.WithCancel(c.ctx)
		b = &openBucket{cancel: cancel, ready: make(chan struct{})}
		s.buckets[id] = b
		go func() {
			defer cancel()
			defer close(b.ready)
			if b.bucket, b.err = s.open(ctx, id); b.err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				if s.buckets[id] == b {
					delete(s.buckets, id) // the next that needs it tries again
				}
			}
		}()
	}
	return b
}

// open opens a bucket, once there is a connection.
func (s *session) open(ctx context.Context, id bucketID) (*kv.Bucket, error) {
	select {
	case <-s.connected:
	case <-ctx.Done():
	}
	if ctx.Err() != nil || s.nc == nil {
		return nil, nats.ErrConnectionClosed
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	js, err := jetstream.NewWithAPIPrefix(s.nc, id.api)
	if err != nil {
		return nil, err
	}
	bucket, err := js.KeyValue(ctx, id.name)
	if err != nil {
		return nil, err
	}
	b := kv.With(bucket, js)
	info, err := b.Load(ctx)
	if err != nil {
		return nil, err
	}
	return b, checkOwn(id.name, info.Stream)
}

// bucket returns a bucket, once it is open.
func (c *client) bucket(ctx context.Context, id bucketID) (*kv.Bucket, error) {
	c.mu.Lock()
	b := c.prepare(id)
	c.mu.Unlock()
	select {
	case <-b.ready:
		return b.bucket, b.err
	case <-ctx.Done():
		return nil, fmt.Errorf("there is no connection: %w", ctx.Err())
	}
}

// releaseAll releases the terms of a program that died at the given time, those first whose leases end first. It returns when all of them are
// released, over or lost, or when ctx ends.
func (r *releaser) releaseAll(ctx context.Context, c *client, terms []Term, died time.Time) {
	slices.SortStableFunc(terms, func(a, b Term) int { return cmp.Compare(a.LeaseMs, b.LeaseMs) })
	var releasing sync.WaitGroup
	places := make(chan struct{}, releasesAtOnce)
	for i := range terms {
		places <- struct{}{}
		releasing.Go(func() {
			defer func() { <-places }()
			r.release(ctx, c, &terms[i], died)
		})
	}
	releasing.Wait()
}

// release releases a term. It tries for as long as the lease may last.
func (r *releaser) release(ctx context.Context, c *client, t *Term, died time.Time) {
	ctx, cancel := context.WithDeadline(ctx, died.Add(t.lease()))
	defer cancel()
	log := r.log.With("bucket", t.Bucket, "election", t.Key, "name", t.Name)
	rereads, refused, bare := rereadDelays, 0, false
	for delay := minRetryDelay; ; delay = min(2*delay, maxRetryDelay) {
		err := c.release(ctx, t, bare)
		pause := delay
		switch {
		case err == nil, errors.Is(err, errReleased):
			log.Info("Released the key of a leader that has died", "took", time.Since(died).Round(100*time.Microsecond))
			return
		case isNotHeld(err) && len(rereads) == 0:
			log.Info("Leader has died, and did not hold the key any more")
			return
		case isForeign(err):
			log.Warn("Leader has died, and its key was not released: it is left to expire", "error", err)
			return
		case isNotHeld(err):
			pause, rereads = rereads[0], rereads[1:]
		case kv.Classify(err) == kv.Refused && refused < refusedAtOnce: // a renewal arrived meanwhile, or what was read was not the last
			refused, pause = refused+1, refusedDelay
		case kv.IsTooLarge(err) && !bare:
			bare, pause = true, 0
		default:
			log.Debug("Release failed", "error", err)
		}
		if timeutil.Pause(ctx, pause) != nil {
			log.Warn("Leader has died, and its key was not released: it is left to expire", "error", err)
			return
		}
	}
}

var (
	errNotHeld  = errors.New("the term does not hold the key") // as far as a read shows
	errReleased = errors.New("the term has been released")     // by a write whose answer was lost, or by the program itself
)

// isNotHeld reports whether an error says that the term does not hold its key; nobody holds one of a bucket that there is not.
func isNotHeld(err error) bool { return errors.Is(err, errNotHeld) || kv.IsGone(err) }

// release reads the key, and writes the release over what it read, if that is the term's. A bare release has no metadata.
func (c *client) release(ctx context.Context, t *Term, bare bool) error {
	bucket, err := c.bucket(ctx, t.bucketID())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	state, err := bucket.Read(ctx, t.Key)
	switch {
	case err != nil:
		return err
	case state.Removal != record.Kept, !t.wrote(&state.Record):
		return errNotHeld
	case !state.Record.Released.IsZero():
		return errReleased
	}
	release := t.releaseOf(&state.Record, time.Now())
	if bare {
		release.Metadata = nil
	}
	_, err = bucket.Update(ctx, t.Key, release.Encode(), state.Revision)
	return err
}
