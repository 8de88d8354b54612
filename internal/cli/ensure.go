package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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
// the pinned time of creation, and that roll-ups are refused. Without a number of replicas, those of an existing bucket are as wanted.
func (c *Client) EnsureBucket(ctx context.Context, want election.BucketConfig) (ensured EnsuredBucket, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.Timeout)
	defer cancel()
	bucket, err := c.OpenBucket(ctx, want.Name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if err := kv.Config(want).Validate(); err != nil {
			return ensured, AsFlagError(err)
		}
		err = c.untilRefused(ctx, kv.ToCreate(kv.APIPrefix(c.JetStream), want.Name), func(ctx context.Context) (err error) {
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
	status, err := bucket.Status(ctx)
	if err != nil {
		return EnsuredBucket{}, fmt.Errorf("bucket %q on %s cannot be read: %w", want.Name, c.ServerURL(), err)
	}
	want.Replicas = cmp.Or(want.Replicas, status.Config().Replicas)
	markers := time.Second
	if info := kv.InfoOf(status); want.ChoriaCompatible || info.Stream != nil && !kv.WritesMarkers(info.Stream) {
		markers = 0
	}
	if found := differences(status.Config(), want, markers); found != nil {
		return EnsuredBucket{}, fmt.Errorf("bucket %q on %s exists with a different configuration; nothing was changed:\n%s\nChange the flags to match the bucket, remove the bucket with '%s', or name another bucket with --bucket",
			want.Name, c.ServerURL(), strings.Join(found, "\n"), CommandForBucket("bucket rm", want.Name))
	}
	return ensured, c.untilRefused(ctx, kv.ToChange(kv.APIPrefix(c.JetStream), want.Name), func(ctx context.Context) error {
		_, err := election.CreateBucket(ctx, c.JetStream, want)
		return err
	})
}

// untilRefused makes a request that needs a permission, and ends it as soon as the server refuses the permission.
func (c *Client) untilRefused(ctx context.Context, p kv.Permission, request func(context.Context) error) error {
	return AsFlagError(kv.UntilRefused(ctx, c.Conn, p, request))
}

// differences lists each setting of a bucket that differs from the wanted configuration, one line for each.
func differences(has jetstream.KeyValueConfig, want election.BucketConfig, markers time.Duration) (found []string) {
	republish := func(on bool) string {
		if on {
			return "republished"
		}
		return "not republished"
	}
	for _, d := range []struct{ setting, has, want string }{
		{"TTL", has.TTL.String(), want.TTL.String()},
		{"replicas", fmt.Sprint(has.Replicas), fmt.Sprint(want.Replicas)},
		{"storage", storageName(has.Storage), storageName(want.Storage)},
		{"max bytes", maxBytesText(has.MaxBytes), maxBytesText(cmp.Or(want.MaxBytes, has.MaxBytes))},
		{"history", fmt.Sprint(has.History), "1"},
		{"TTL of expiry markers", markersText(has.LimitMarkerTTL), markersText(markers)},
		{"changes", republish(has.RePublish != nil && !has.RePublish.HeadersOnly), republish(true)},
	} {
		if d.has != d.want {
			found = append(found, fmt.Sprintf("  %s: %s instead of %s", d.setting, d.has, d.want))
		}
	}
	return found
}

func maxBytesText(limit int64) string {
	if limit <= 0 {
		return "no limit"
	}
	return fmt.Sprint(limit)
}

func markersText(ttl time.Duration) string {
	if ttl <= 0 {
		return "none"
	}
	return ttl.String()
}

func storageName(t jetstream.StorageType) string { return strings.ToLower(t.String()) }
