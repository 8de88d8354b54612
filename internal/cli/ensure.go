package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
)

// EnsuredBucket is a bucket that is as wanted.
type EnsuredBucket struct {
	*election.Bucket
	Created bool  // it did not exist
	Refusal error // why it was not created with three replicas, if nobody said how many
}

// EnsureBucket creates the bucket, or opens an existing bucket if its configuration is as wanted. Otherwise the error lists
// each difference, and nothing is changed. Of an existing bucket EnsureBucket changes only what no flag says and CreateBucket adds:
// the pinned time of creation, direct reads, and that roll-ups are refused. Without a number of replicas, those of an existing bucket are as wanted.
func (c *Client) EnsureBucket(ctx context.Context, want election.BucketConfig) (ensured EnsuredBucket, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.Timeout)
	defer cancel()
	bucket, err := c.OpenBucket(ctx, want.Name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if err := kv.Config(want).Validate(); err != nil {
			return ensured, err
		}
		err = c.UntilRefused(ctx, kv.ToCreate, want.Name, func(ctx context.Context) (err error) {
			_, ensured.Refusal, err = kv.Config(want).CreateReplicated(ctx, c.JetStream)
			return err
		})
		ensured.Created = err == nil
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) {
			bucket, err = c.OpenBucket(ctx, want.Name)
		}
	}
	if err != nil {
		return EnsuredBucket{}, err
	}
	ensured.Bucket = bucket
	if ensured.Created {
		return ensured, nil
	}
	info, err := c.LoadInfo(ctx, bucket)
	if err != nil {
		return EnsuredBucket{}, err
	}
	if info.SessionTTL > 0 {
		return EnsuredBucket{}, fmt.Errorf("bucket %q on %s exists and is made for sessions, not for elections; nothing was changed: name another bucket with --bucket", want.Name, c.ServerURL())
	}
	var found []string
	change := fmt.Sprintf("Change it with '%s'", editCommand(want))
	for _, d := range kv.Config(want).Differences(info) {
		if !d.Minor {
			found = append(found, fmt.Sprintf("  %s: %s instead of %s", d.Setting, d.Has, d.Want))
		}
		if d.Fixed {
			change = fmt.Sprintf("Stop all candidates and remove it with %s", NameCommand("bucket rm", want.Name))
		}
	}
	if found != nil {
		return EnsuredBucket{}, fmt.Errorf("bucket %q on %s exists with a different configuration; nothing was changed:\n%s\n%s, change the flags to match the bucket, or name another bucket with --bucket",
			want.Name, c.ServerURL(), strings.Join(found, "\n"), change)
	}
	return ensured, c.change(ctx, want)
}

// change gives an existing bucket the wanted configuration.
func (c *Client) change(ctx context.Context, want election.BucketConfig) error {
	return c.UntilRefused(ctx, kv.ToChange, want.Name, func(ctx context.Context) error {
		_, err := election.CreateBucket(ctx, c.JetStream, want)
		return err
	})
}

// editCommand returns the command line that gives an existing bucket this configuration.
func editCommand(want election.BucketConfig) string {
	command := CommandForBucket("bucket edit", want.Name) + fmt.Sprintf(" --ttl %v", want.TTL)
	if want.Replicas > 0 {
		command += fmt.Sprintf(" --replicas %d", want.Replicas)
	}
	if want.MaxBytes > 0 {
		command += fmt.Sprintf(" --max-bytes %d", want.MaxBytes)
	}
	if want.ChoriaCompatible {
		command += " --choria-compatible"
	}
	return command
}

// EditBucket changes an existing bucket into one that is as wanted and fit for elections, and returns what it changes. It changes nothing if dry is set. The
// storage of the wanted configuration is ignored, and a TTL of 0 is the one that the bucket has or has had.
func (c *Client) EditBucket(ctx context.Context, want election.BucketConfig, dry bool) (bucket *election.Bucket, changes []kv.Difference, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.Timeout)
	defer cancel()
	if bucket, err = c.OpenBucket(ctx, want.Name); err != nil {
		return nil, nil, err
	}
	info, err := c.LoadInfo(ctx, bucket)
	if err != nil {
		return nil, nil, err
	}
	known := kv.With(bucket, nil)
	want.Storage, want.ChoriaCompatible = info.Stream.Config.Storage, want.ChoriaCompatible || info.Choria
	if want.TTL == 0 {
		if want.TTL, err = known.SuitableTTL(ctx, info); err != nil {
			return nil, nil, fmt.Errorf("the keys of bucket %q on %s cannot be read: %w", want.Name, c.ServerURL(), kv.Describe(err))
		}
	}
	if err := kv.Config(want).Validate(); err != nil {
		return nil, nil, err
	}
	if changes, err = kv.Config(want).Plan(ctx, known, info); err != nil || dry || len(changes) == 0 {
		return bucket, changes, err
	}
	return bucket, changes, c.change(ctx, want)
}

// IsForElections returns an error if nothing shows that the bucket is for elections.
func (c *Client) IsForElections(ctx context.Context, bucket *election.Bucket) error {
	info, err := c.LoadInfo(ctx, bucket)
	if err != nil {
		return err
	}
	doubt, err := kv.With(bucket, nil).Doubt(ctx, info)
	switch {
	case err != nil:
		return fmt.Errorf("the keys of bucket %q on %s cannot be read: %w", bucket.Bucket(), c.ServerURL(), kv.Describe(err))
	case doubt != "":
		return fmt.Errorf("bucket %q on %s %s: to remove it anyway, run 'nats kv del %s'", bucket.Bucket(), c.ServerURL(), doubt, bucket.Bucket())
	}
	return nil
}
