package kv

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/record"
)

// Evict deletes a key while its record has the given revision. The deletion names the operator and the leader, so that observers can tell who evicted
// whom; a handle whose connection is not known cannot write that. The errors are those of a deletion, and nats.ErrPermissionViolation.
func (b *Bucket) Evict(ctx context.Context, key string, revision uint64, e record.Eviction) error {
	if b.js == nil {
		return b.Delete(ctx, key, jetstream.LastRevision(revision))
	}
	return UntilRefused(ctx, b.Conn(), b.ToWrite(key), func(ctx context.Context) error {
		_, err := b.delete(ctx, key, revision, e.Encode(), "")
		return err
	})
}

// Release deletes a key while its record has the given revision. The deletion carries the release, and returns its revision. A client that only knows how to
// create a key creates it over the deletion. One that lasts never expires; the bucket must have expiry markers then. It is an error to
// release a key of a bucket that is not [Bucket.Direct]. The errors are those of a write.
func (b *Bucket) Release(ctx context.Context, key string, release []byte, revision uint64, lasts bool) (uint64, error) {
	ttl := ""
	if lasts {
		ttl = "never"
	}
	return b.delete(ctx, key, revision, release, ttl)
}

// Forget deletes the release of the given revision, so that nothing is known of the election any more. In a bucket that remembers releases the deletion itself
// is gone after a moment. The errors are those of a write, and nats.ErrPermissionViolation.
func (b *Bucket) Forget(ctx context.Context, key string, revision uint64, remembered bool) error {
	ttl := ""
	if remembered {
		ttl = MarkerTTL.String()
	}
	return UntilRefused(ctx, b.Conn(), b.ToWrite(key), func(ctx context.Context) error {
		_, err := b.delete(ctx, key, revision, nil, ttl)
		return err
	})
}

// delete deletes a key while its record has the given revision, by a deletion that has a value and a TTL of its own,
// if one is given.
func (b *Bucket) delete(ctx context.Context, key string, revision uint64, value []byte, ttl string) (uint64, error) {
	m := nats.NewMsg(SubjectToWrite(APIPrefix(b.js), b.Bucket(), key))
	m.Data = value
	m.Header.Set(HeaderOperation, operationDelete)
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(revision, 10))
	if ttl != "" {
		m.Header.Set(jetstream.MsgTTLHeader, ttl)
	}
	ack, err := b.js.PublishMsg(ctx, m)
	if err == nil {
		return ack.Sequence, nil
	}
	api := (*jetstream.APIError)(nil)
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		err = fmt.Errorf("%w: %w", jetstream.ErrKeyRevisionMismatch, err)
	}
	return 0, err
}
