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

// EnsureBucket creates the bucket, or opens an existing bucket if its configuration is as wanted. Otherwise the error lists
// each difference, and nothing is changed. Of an existing bucket EnsureBucket changes only what no flag says and CreateBucket adds:
// the pinned time of creation, and that roll-ups are refused.
func (c *Client) EnsureBucket(ctx context.Context, want election.BucketConfig) (bucket *election.Bucket, created bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.Timeout)
	defer cancel()
	bucket, err = c.OpenBucket(ctx, want.Name)
	create := func(permission kv.Permission) error {
		return AsFlagError(kv.UntilRefused(ctx, c.Conn, permission, func(ctx context.Context) (err error) {
			bucket, err = election.CreateBucket(ctx, c.JetStream, want)
			return err
		}))
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		err = create(kv.ToCreate(kv.APIPrefix(c.JetStream), want.Name))
		return bucket, err == nil, err
	}
	if err != nil {
		return nil, false, err
	}
	status, err := bucket.Status(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("bucket %q on %s cannot be read: %w", want.Name, c.ServerURL(), err)
	}
	markers := time.Second
	if info := kv.InfoOf(status); want.ChoriaCompatible || info.Stream != nil && !kv.WritesMarkers(info.Stream) {
		markers = 0
	}
	if found := differences(status.Config(), want, markers); found != nil {
		return nil, false, fmt.Errorf("bucket %q on %s exists with a different configuration; nothing was changed:\n%s\nChange the flags to match the bucket, remove the bucket with '%s', or name another bucket with --bucket",
			want.Name, c.ServerURL(), strings.Join(found, "\n"), CommandForBucket("bucket rm", want.Name))
	}
	return bucket, false, create(kv.ToChange(kv.APIPrefix(c.JetStream), want.Name))
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
