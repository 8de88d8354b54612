package fence

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/timeutil"
)

const (
	minPause = time.Millisecond // before a write that was refused is tried again
	maxPause = 50 * time.Millisecond
	maxTurn  = time.Second // for which one write keeps others waiting
)

// attempt is one try of a write, with the demand that it is given.
type attempt func(ctx context.Context, d *demand) error

// store publishes a message with the demand of the epoch, and returns its acknowledgement.
func (h *handle) store(ctx context.Context, m *nats.Msg) (ack *jetstream.PubAck, err error) {
	err = h.write(ctx, expects(m), h.foreign(m), func(ctx context.Context, d *demand) (err error) {
		ack, err = h.publishMsg(ctx, d.fenced(m))
		return err
	})
	return ack, err
}

// write tries a write until it is stored, or refused for good. Where the message makes a demand of its own, a refusal may be for that, and
// is then returned as it came. A write that names the stream is refused by other streams.
func (h *handle) write(ctx context.Context, own, naming bool, try attempt) error {
	ctx, cancel := limited(ctx, h.js)
	defer cancel()
	err := h.retry(ctx, own, naming, try)
	h.writes.count(err)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

func (h *handle) retry(ctx context.Context, own, naming bool, try attempt) error {
	var t *turn
	defer func() { t.end() }()
	for pause := minPause; ; pause = longer(pause) {
		if h.queue.Load() && !t.held() {
			var err error
			if t, err = h.nextTurn(ctx); err != nil {
				return err
			}
		}
		if err := h.check(); err != nil {
			return err
		}
		d := h.demand.Load()
		if h.unresolved.Load() > 0 {
			if err := h.renew(ctx); err != nil {
				return err
			}
			continue
		}
		if h.careful.Load() && !t.send() {
			continue
		}
		if naming {
			d = d.naming(h.stream)
		}
		err := try(ctx, d)
		switch conflictOf(err) {
		case noConflict:
			if h.careful.Load() && err != nil {
				h.unresolved.Add(1)
			}
			return err
		case passing:
			h.queue.Store(true)
		case moved:
			begun, beginErr := h.beginAgain(ctx, d.sequence)
			switch {
			case beginErr != nil:
				return beginErr
			case begun:
				continue
			case own:
				return err
			}
			naming = true // the demand holds: another stream refused the write, or a server that lags behind
		}
		if err := wait(ctx, pause, err); err != nil {
			return err
		}
	}
}

// turn is a write's turn in the queue. It ends by itself when the write takes long: on a replicated stream the queue only spares other
// writes a refusal, and in a careful epoch the write becomes unresolved.
type turn struct {
	release func() // once
	ended   atomic.Bool
	sent    atomic.Bool // the write may have been tried
	timer   *time.Timer
}

// nextTurn waits for a write's turn.
func (e *epoch) nextTurn(ctx context.Context) (*turn, error) {
	if err := e.writing.acquire(ctx); err != nil {
		return nil, fmt.Errorf("%w while the write waited for those before it", err)
	}
	t := &turn{release: sync.OnceFunc(e.writing.release)}
	t.timer = time.AfterFunc(maxTurn, func() {
		t.ended.Store(true) // first: the write is unresolved with the demand that it made, and makes no other
		if e.careful.Load() && t.sent.Load() {
			e.unresolved.Add(1)
		}
		t.release()
	})
	return t, nil
}

func (t *turn) held() bool { return t != nil && !t.ended.Load() }

// send reports whether a write may be tried with the demand that it has loaded: not once another write has its turn, which may make the
// same demand.
func (t *turn) send() bool {
	if t != nil {
		t.sent.Store(true)
	}
	return t.held()
}

func (t *turn) end() {
	if t != nil {
		t.timer.Stop()
		t.release()
	}
}

// conflict is why the server refused a write.
type conflict int

const (
	noConflict conflict = iota
	passing             // another message with the same demand, or that concerns it, is in flight
	moved               // the demand does not hold
)

// conflictOf is the only place that knows which refusals another try may not meet.
func conflictOf(err error) conflict {
	const atomicPublishTooManyInflight, batchPublishTooManyInflight jetstream.ErrorCode = 10210, 10211
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return moved
	}
	switch codeOf(err) {
	case jetstream.JSErrCodeStreamWrongLastSequence:
		return moved
	case jetstream.JSErrCodeStreamWrongLastSequenceConstant, atomicPublishTooManyInflight, batchPublishTooManyInflight:
		return passing
	}
	return noConflict
}

// wait pauses before another try of what was refused, and gives up with both reasons when ctx ends.
func wait(ctx context.Context, pause time.Duration, refusal error) error {
	if !timeutil.Sleep(ctx, pause/2+rand.N(pause)) {
		return fmt.Errorf("%w; the last try was refused: %w", ctx.Err(), refusal)
	}
	return nil
}

func longer(pause time.Duration) time.Duration { return min(2*pause, maxPause) }
