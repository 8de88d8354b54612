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

// Evict deletes a key while its record has the given revision. The deletion names the operator, so that observers can tell who evicted
// the leader; a handle whose connection is not known cannot write that. The errors are those of a deletion, and nats.ErrPermissionViolation.
func (b *Bucket) Evict(ctx context.Context, key string, revision uint64, by string) error {
	if b.js == nil {
		return b.Delete(ctx, key, jetstream.LastRevision(revision))
	}
	subject := b.Subject(key)
	if prefix := APIPrefix(b.js); prefix != jetstream.DefaultAPIPrefix {
		subject = prefix + subject // as nats.go writes keys
	}
	m := nats.NewMsg(subject)
	m.Header.Set(HeaderOperation, "DEL")
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(revision, 10))
	m.Data = record.Eviction{By: by}.Encode()
	err := UntilRefused(ctx, b.Conn(), b.ToWrite(key), func(ctx context.Context) error {
		_, err := b.js.PublishMsg(ctx, m)
		return err
	})
	api := (*jetstream.APIError)(nil)
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return fmt.Errorf("%w: %w", jetstream.ErrKeyRevisionMismatch, err)
	}
	return err
}
