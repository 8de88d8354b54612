package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/control"
	"github.com/natscampaign/election/internal/kv"
	"github.com/natscampaign/election/internal/timeutil"
	"github.com/natscampaign/election/internal/validate"
)

const (
	// maxChanges is how often a change of the stream's metadata is made again that other changes of the stream undo.
	maxChanges = 10
	// changeCheckDelay is the least time after which the change is verified.
	changeCheckDelay = 50 * time.Millisecond
	// pauseTimeout is how long candidates are waited for that would still take the key.
	pauseTimeout = 10 * time.Second
)

// Pause keeps all candidates of the key from campaigning until [Admin.Resume], those too that start meanwhile. The leader leads on; if it
// stops or fails, nobody takes its place. Pause returns when the candidates that answer do not campaign any more, and an error that says so
// if one still does after 10 s. An error that wraps nats.ErrPermissionViolation may mean that the election is paused, and candidates could not be
// notified; it says so.
//
// Candidates that do not know their connection learn of the pause when they have won the key, and release it without having led. A
// candidate that knows its connection, but is not permitted to subscribe to election-control.<bucket>.*.>, cannot be notified: if it
// started before the pause, it may still take over a release.
//
// Elections of sessions are paused by [election.Election.Pause] in their processes only: in a bucket for sessions the error wraps
// [election.ErrBucketUnsuitable].
func (a *Admin) Pause(ctx context.Context, key string) error {
	began := time.Now()
	err := a.changeMetadata(ctx, key, func(metadata map[string]string) {
		if metadata[kv.PausedPrefix+key] == "" {
			metadata[kv.PausedPrefix+key] = kv.Pause{Since: time.Now(), By: control.Operator()}.String()
		}
	})
	for ; err == nil; err = a.refresh(ctx, key) { // requests are lost now and then, and so are the answers to those of a candidate
		candidates, _ := a.Candidates(ctx, key) // an operator who may not ask learns no more
		ready := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Ready })
		if ready < 0 {
			return ctx.Err()
		}
		if time.Since(began) > pauseTimeout {
			return fmt.Errorf("election %q is paused, but the candidate %q has not read that from the server yet, and would still take over: pause it again", key, candidates[ready].Name)
		}
	}
	return err
}

// Resume undoes [Admin.Pause].
func (a *Admin) Resume(ctx context.Context, key string) error {
	return a.changeMetadata(ctx, key, func(metadata map[string]string) { delete(metadata, kv.PausedPrefix+key) })
}

// Paused returns the keys of the elections that are paused by [Admin.Pause], sorted.
func (a *Admin) Paused(ctx context.Context) ([]string, error) {
	info, err := a.bucket.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("paused elections of %q: %w", a.bucket.Bucket(), err)
	}
	return slices.Sorted(maps.Keys(info.Paused)), nil
}

// changeMetadata changes the metadata of the stream behind the bucket, and has the candidates of the key read it.
func (a *Admin) changeMetadata(ctx context.Context, key string, change func(map[string]string)) error {
	if err := validate.Key(key); err != nil {
		return err
	}
	// It ends when there is nothing left to change some time later: another program that read the metadata before may undo the change.
	for changes := 0; ; changes++ {
		info, err := a.bucket.LoadUntilRefused(ctx)
		if err != nil {
			return fmt.Errorf("election %q: %w", key, err)
		}
		if info.SessionTTL > 0 {
			return fmt.Errorf("%w: election %q is not changed: %q is made for sessions, whose elections only their processes pause: call Election.Pause there, or run 'election-cli transfer %s --to NAME --bucket %s' to have another process lead",
				election.ErrBucketUnsuitable, key, info.Bucket, key, info.Bucket)
		}
		config := info.Stream.Config
		before := maps.Clone(config.Metadata)
		if config.Metadata == nil {
			config.Metadata = map[string]string{}
		}
		if change(config.Metadata); maps.Equal(before, config.Metadata) {
			break
		}
		if changes == maxChanges {
			return fmt.Errorf("election %q: other programs keep changing the stream %s: try again", key, a.bucket.Stream())
		}
		err = kv.UntilRefused(ctx, a.bucket.Conn(), a.bucket.ToChange(), func(ctx context.Context) error {
			_, err := a.bucket.JetStream().UpdateStream(ctx, config)
			return err
		})
		if err != nil {
			return fmt.Errorf("election %q is not changed: %w", key, err)
		}
		timeutil.Sleep(ctx, changeCheckDelay+timeutil.Random(changeCheckDelay))
	}
	return a.refresh(ctx, key)
}

// refresh has the candidates of the key read the metadata of the stream.
func (a *Admin) refresh(ctx context.Context, key string) error {
	err := control.Client{Bucket: a.bucket}.Refresh(ctx, key)
	switch {
	case errors.Is(err, nats.ErrNoResponders): // there is no candidate to notify
		return nil
	case errors.Is(err, nats.ErrPermissionViolation):
		return fmt.Errorf("election %q is changed, but candidates may learn of it later: %w", key, err)
	}
	return err
}
