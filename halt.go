package election

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// An operator pauses a whole election by a mark in the metadata of the stream behind the bucket: unlike a key it does not
// expire, and whoever surveys the bucket reads it. Candidates that were given a connection are told to look at once;
// others learn of it at the latest when they have won, and give the key back.
const haltPrefix = "election.paused."

const (
	// markTries is how often a mark is set that somebody else's change of the stream undoes.
	markTries = 10
	// markSpacing is the least time after which is looked whether it stands.
	markSpacing = 50 * time.Millisecond
)

// halted returns the keys of the elections of a bucket that are paused; none if the bucket does not tell.
func halted(status jetstream.KeyValueStatus) map[string]bool {
	info := streamInfo(status)
	if info == nil {
		return nil
	}
	paused := map[string]bool{}
	for name := range info.Config.Metadata {
		if key, ok := strings.CutPrefix(name, haltPrefix); ok {
			paused[key] = true
		}
	}
	return paused
}

// heed takes note of whether an operator has paused the election.
func (e *Election) heed(paused bool) {
	if !e.gate.set(shutByOperator, paused) {
		return
	}
	if paused {
		e.log.Info("Election paused by an operator")
	} else {
		e.log.Info("Election resumed by an operator")
	}
}

// heed has all elections of a hub take note of whether they are paused.
func (h *hub) heed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxTry)
	defer cancel()
	status, err := h.bucket.Status(ctx)
	if err != nil {
		return // whoever wins looks again
	}
	h.heedBy(status)
}

// heedBy does so for a bucket that was just looked at.
func (h *hub) heedBy(status jetstream.KeyValueStatus) {
	paused := halted(status)
	for _, a := range h.all() {
		a.election.heed(paused[a.key])
	}
	h.pauseKnown.Store(true)
}

// Pause has nobody new campaign in the election of the key until [Observer.Resume], whoever starts meanwhile: its leader
// leads on, and if that one stops or fails nobody takes its place. It returns when those candidates that answer have taken
// note. It needs permission to update the stream behind the bucket, and the observer needs [WithJetStream]. An error that wraps
// nats.ErrPermissionViolation means that the election is paused, and that the observer may not tell candidates of it.
//
// Candidates without WithJetStream learn of the pause when they have won the key, and give it back without having led. Those
// that have it, but no permission to subscribe to election-control.<bucket>.*.>, cannot be told: one that started before may
// still take over from a leader that lets go.
func (o *Observer) Pause(ctx context.Context, key string) error {
	return o.mark(ctx, "Pause", key, func(metadata map[string]string) {
		if metadata[haltPrefix+key] == "" {
			metadata[haltPrefix+key] = time.Now().UTC().Format(time.RFC3339)
		}
	})
}

// Resume undoes [Observer.Pause].
func (o *Observer) Resume(ctx context.Context, key string) error {
	return o.mark(ctx, "Resume", key, func(metadata map[string]string) { delete(metadata, haltPrefix+key) })
}

// Paused returns the keys of the elections that are paused by [Observer.Pause], sorted.
func (o *Observer) Paused(ctx context.Context) ([]string, error) {
	status, err := o.bucket.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("paused elections of %q: %w", o.bucket.Bucket(), err)
	}
	return slices.Sorted(maps.Keys(halted(status))), nil
}

// mark changes the metadata of the stream behind the bucket, and has candidates look.
func (o *Observer) mark(ctx context.Context, method, key string, change func(map[string]string)) error {
	nc, err := o.asks(method, key)
	if err != nil {
		return err
	}
	for tries := 0; ; tries++ { // until nothing is to be changed some time after: others may undo it who had read before
		s, err := o.opts.js.Stream(ctx, "KV_"+o.bucket.Bucket())
		if err != nil {
			return fmt.Errorf("election %q: %w", key, err)
		}
		config := s.CachedInfo().Config
		before := maps.Clone(config.Metadata)
		if config.Metadata == nil {
			config.Metadata = map[string]string{}
		}
		if change(config.Metadata); maps.Equal(before, config.Metadata) {
			break
		}
		if tries == markTries {
			return fmt.Errorf("election %q: others keep changing the stream behind the bucket: try again", key)
		}
		if _, err := o.opts.js.UpdateStream(ctx, config); err != nil {
			return fmt.Errorf("election %q: %w", key, err)
		}
		pause(ctx, markSpacing+randomBelow(markSpacing))
	}
	err = ask(ctx, nc, o.bucket.Bucket(), verbLook, question{Key: key}, func(*nats.Msg) time.Duration { return askQuiet })
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil // nobody stands who could be told
	case errors.Is(err, nats.ErrPermissionViolation):
		return fmt.Errorf("election %q is changed, but candidates were not told and learn of it later: %w", key, err)
	}
	return err
}
