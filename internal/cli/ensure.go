package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

// EnsureBucket makes a bucket, or returns the one there is if it is as asked for. It changes none.
func (s *Session) EnsureBucket(ctx context.Context, want election.BucketConfig) (bucket *election.Bucket, made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.Timeout)
	defer cancel()
	bucket, err = election.OpenBucket(ctx, s.JetStream, want.Name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = election.CreateBucket(ctx, s.JetStream, want)
		return bucket, err == nil, InFlags(err)
	}
	if err != nil {
		if explained := s.Permanent(want.Name, err); explained != nil {
			err = explained
		}
		return nil, false, err
	}
	status, err := bucket.Status(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("bucket %q on %s cannot be read: %w", want.Name, s.ServerURL(), err)
	}
	markers := time.Second
	if want.ChoriaCompatible || !s.knowsMarkers(ctx) {
		markers = 0
	}
	if odd := differences(status.Config(), want, markers); odd != nil {
		return nil, false, fmt.Errorf("bucket %q on %s exists and is not as asked for; nothing was changed:\n%s\nGive the flags that fit it, remove it with '%s', or name another with --bucket",
			want.Name, s.ServerURL(), strings.Join(odd, "\n"), CommandOn("bucket rm", want.Name))
	}
	return bucket, false, nil
}

// knowsMarkers says whether the server can announce expiries, as it does from 2.11 on.
func (s *Session) knowsMarkers(ctx context.Context) bool {
	info, err := s.JetStream.AccountInfo(ctx)
	return err != nil || info.API.Level >= 1
}

// differences names all in which a bucket is not as it would have been made.
func differences(has jetstream.KeyValueConfig, want election.BucketConfig, markers time.Duration) (odd []string) {
	republishes := func(whole bool) string {
		if whole {
			return "republished"
		}
		return "not republished"
	}
	for _, d := range []struct{ what, has, want string }{
		{"TTL", has.TTL.String(), want.TTL.String()},
		{"replicas", fmt.Sprint(has.Replicas), fmt.Sprint(want.Replicas)},
		{"storage", storageName(has.Storage), storageName(want.Storage)},
		{"history", fmt.Sprint(has.History), "1"},
		{"expiry markers", markersText(has.LimitMarkerTTL), markersText(markers)},
		{"changes", republishes(has.RePublish != nil && !has.RePublish.HeadersOnly), republishes(true)},
	} {
		if d.has != d.want {
			odd = append(odd, fmt.Sprintf("  %s: %s, where %s was asked for", d.what, d.has, d.want))
		}
	}
	return odd
}

func markersText(last time.Duration) string {
	if last <= 0 {
		return "none"
	}
	return "for " + last.String()
}

func storageName(t jetstream.StorageType) string { return strings.ToLower(t.String()) }
