package kv

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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

// StoredKeys returns the keys of a pattern under which something is stored, if only a marker, in order.
func (b *Bucket) StoredKeys(ctx context.Context, pattern string) (keys []string, err error) {
	subjects, err := b.storedSubjects(ctx, b.Subject(pattern))
	for _, subject := range subjects {
		keys = append(keys, strings.TrimPrefix(subject, b.Subject("")))
	}
	return keys, err
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
