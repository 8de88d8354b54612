package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// facts is what an election knows of its bucket, and the durations that follow from it.
type facts struct {
	timing
	created   time.Time // when the stream behind the bucket was created; zero if the bucket does not say
	markers   bool      // whether the server announces expiries by markers
	republish string    // the subject on which the server repeats every change, whole; empty if it does not
	consumers int       // of the bucket's stream: one for each process that watches it

	took time.Duration // how long the server took to tell
}

// survey reads the facts of the bucket, and waits while the server cannot be reached.
func (e *Election) survey(ctx context.Context) error {
	for try := 0; ; try++ {
		e.busy("looking at the bucket")
		f, err := e.inspect(ctx)
		if classify(err) == unusable {
			err = fmt.Errorf("%w: %q cannot be used: %w", ErrBucketUnsuitable, e.bucket.Bucket(), err)
		}
		switch {
		case err == nil:
			if try > 0 {
				e.log.Info("Bucket reached", "tries", try+1)
			}
			e.log.Debug("Bucket surveyed", "bucket", e.bucket.Bucket(), "ttl", f.ttl, "interval", f.interval, "stand-down", f.standDown)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrBucketUnsuitable), errors.Is(err, ErrInvalidOption):
			return err
		case try == 0:
			e.log.Warn("Bucket cannot be reached, waiting for it", "bucket", e.bucket.Bucket(), "error", err)
		default:
			e.log.Debug("Bucket still cannot be reached", "bucket", e.bucket.Bucket(), "error", err)
		}
		pause(ctx, 250*time.Millisecond+randomBelow(250*time.Millisecond))
	}
}

// inspect reads the facts of the bucket once.
func (e *Election) inspect(ctx context.Context) (*facts, error) {
	ctx, cancel := context.WithTimeout(ctx, maxTry)
	defer cancel()
	asked := time.Now()
	status, err := e.bucket.Status(ctx)
	if err == nil {
		var f *facts
		if f, err = e.opts.fit(status); err == nil {
			f.took = time.Since(asked)
			e.heed(halted(status)[e.key])
			e.facts.Store(f)
			e.lastError.Store(nil)
			return f, nil
		}
	}
	e.failed(err)
	return nil, err
}

// fit works out what a bucket means for these options, or names all that is wrong with it.
func (o *options) fit(status jetstream.KeyValueStatus) (*facts, error) {
	ttl := status.TTL()
	var problems []error
	unsuitable := func(format string, a ...any) {
		problems = append(problems, fmt.Errorf("%w: %q "+format, append([]any{ErrBucketUnsuitable, status.Bucket()}, a...)...))
	}
	switch {
	case ttl <= 0:
		unsuitable("has no TTL, so that the key of a leader that crashed would stay for ever: give it one between %v and %v", minTTL, maxTTL)
	case ttl < minTTL || ttl > maxTTL:
		unsuitable("has a TTL of %v: give it one between %v and %v", ttl, minTTL, maxTTL)
	}
	if status.History() != 1 {
		unsuitable("keeps a history of %d: set it to 1, elections have no use for more", status.History())
	}
	f := &facts{}
	if len(problems) == 0 {
		tm, err := o.timing(ttl)
		problems = append(problems, err)
		f.timing = tm
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	f.markers = status.LimitMarkerTTL() > 0
	f.created, f.republish, f.consumers = describe(status)
	return f, nil
}

// describe returns what only the stream behind a bucket tells: when it was created, where it republishes whole messages,
// and how many consumers it has. All is zero if the bucket does not say.
func describe(status jetstream.KeyValueStatus) (created time.Time, republish string, consumers int) {
	info := streamInfo(status)
	if info == nil {
		return time.Time{}, "", 0
	}
	if r := info.Config.RePublish; r != nil && !r.HeadersOnly {
		republish = r.Destination
	}
	return info.Created, republish, info.State.Consumers
}

// streamInfo returns what is known of the stream behind a bucket; nil if the bucket does not tell.
func streamInfo(status jetstream.KeyValueStatus) *jetstream.StreamInfo {
	if s, ok := status.(interface{ StreamInfo() *jetstream.StreamInfo }); ok {
		return s.StreamInfo()
	}
	return nil
}

// randomBelow returns a random duration from 0 to just below d.
func randomBelow(d time.Duration) time.Duration { return rand.N(max(d, 1)) }

// pause waits and says whether ctx is still alive then.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
