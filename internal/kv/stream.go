package kv

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// maxDuplicates is the longest time for which the stream behind a bucket recognises duplicates, as nats.go makes it.
const maxDuplicates = 2 * time.Minute

// newStream returns the configuration of the stream behind a new bucket, as nats.go makes it, but without roll-ups: nats.go offers no way
// to leave them out.
func newStream(bucket string, storage jetstream.StorageType) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: StreamName(bucket), Description: "leader elections", Subjects: []string{Subject(bucket, ">")}, Storage: storage,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1, MaxMsgsPerSubject: 1, Duplicates: maxDuplicates,
		Discard: jetstream.DiscardNew, DenyDelete: true, AllowDirect: true,
	}
}

// ServerVersion is the name of the metadata by which a server says its version when it describes a stream. Servers before 2.11 do not.
const ServerVersion = "_nats.ver"

// CompareVersion compares the version of a server with a known one, such as 2, 11, 7, up to the last number of the known one. It is not ok
// if the version cannot be read. A version that precedes a release counts as that release.
func CompareVersion(version string, known ...int) (order int, ok bool) {
	numbers := make([]int, 3)
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &numbers[0], &numbers[1], &numbers[2]); n < len(known) {
		return 0, false
	}
	return slices.Compare(numbers[:len(known)], known), true
}

// WritesMarkers reports whether the server of a stream knows expiry markers; servers before 2.11 leave out what a configuration says of them.
func WritesMarkers(info *jetstream.StreamInfo) bool { return info.Config.Metadata[ServerVersion] != "" }

// Holder is the candidate that holds a key.
type Holder struct{ Key, Name string }

// FindHolder returns a candidate that holds a key of the bucket, if there is one.
func (b *Bucket) FindHolder(ctx context.Context, info Info) (h Holder, found bool, err error) {
	keys, err := b.StoredKeys(ctx, ">")
	if err != nil {
		return h, false, err
	}
	for _, key := range keys {
		s, err := b.readUntilRefused(ctx, key)
		if err != nil {
			return h, false, err
		}
		if s.Held() && !IsOtherData(key, s.Record.Instance, s.Record.Name, s.Record.Interval()) && info.Stream.TimeStamp.Sub(s.Written) < info.longestLease() {
			return Holder{key, s.Record.Name}, true, nil
		}
	}
	return h, false, nil
}

// longestLease returns how long the lease of a record in the bucket may be. Without a TTL keys outlive their leases.
func (i Info) longestLease() time.Duration {
	if i.TTL <= 0 {
		return timing.MaxTTL
	}
	return i.TTL + timing.ExpiryLateness
}

// StoredKeys returns the keys of a pattern under which something is stored, if only a marker, in order.
func (b *Bucket) StoredKeys(ctx context.Context, pattern string) (keys []string, err error) {
	stream, err := b.backing(ctx)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(b.Subject(pattern)))
	if err != nil {
		return nil, err
	}
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		keys = append(keys, strings.TrimPrefix(subject, b.Subject("")))
	}
	return keys, nil
}

// readUntilRefused is [Bucket.Read], and ends as soon as the server refuses the request.
func (b *Bucket) readUntilRefused(ctx context.Context, key string) (s record.State, err error) {
	err = UntilRefused(ctx, b.Conn(), b.ToRead(key), func(ctx context.Context) (err error) {
		s, err = b.Read(ctx, key)
		return err
	})
	return s, err
}

// IsOtherData reports whether the value under a key, which reads as a leader's record with the given instance, name and interval, is other data of a
// group. A plan or a list is a JSON object that is no record; no bare name begins like that. A presence has the fields of a record that a witness
// needs, and no interval.
func IsOtherData(key, instance, name string, interval time.Duration) bool {
	if instance == "" {
		return strings.HasPrefix(name, `{"`)
	}
	return interval == 0 && strings.HasSuffix(key, ".members."+name)
}
