package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/natscampaign/election/internal/kv"
)

// publishMsg stores one message.
func (on *target) publishMsg(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	ack, err := on.js.PublishMsg(ctx, m)
	if err == nil {
		err = on.checkAck(m.Subject, ack.Stream, ack.Domain)
	}
	if err != nil {
		return nil, on.withSize(ctx, err, m)
	}
	return ack, nil
}

// publish stores one message, and returns its sequence.
func (on *target) publish(ctx context.Context, m *nats.Msg) (uint64, error) {
	ack, err := on.publishMsg(ctx, m)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// unconfirmed is how many messages of a batch may be sent before the server confirms them.
const unconfirmed = 100

// publishBatch stores messages as one and returns the sequence of the last.
func (on *target) publishBatch(ctx context.Context, batch []*nats.Msg) (uint64, error) {
	for _, m := range batch {
		m.Header = maps.Clone(m.Header) // the client adds the numbers of the batch
	}
	flow := jetstreamext.BatchFlowControl{}
	if len(batch) > unconfirmed {
		flow = jetstreamext.BatchFlowControl{AckFirst: true, AckEvery: unconfirmed, AckTimeout: on.js.Options().DefaultTimeout}
		if end, ok := ctx.Deadline(); ok {
			flow.AckTimeout = min(flow.AckTimeout, max(time.Until(end), time.Millisecond))
		}
	}
	ack, err := jetstreamext.PublishMsgBatch(ctx, on.js, batch, flow)
	if err != nil {
		return 0, on.withSize(ctx, err, batch...)
	}
	return ack.Sequence, on.checkAck(batch[0].Subject, ack.Stream, ack.Domain)
}

// tooLargeError is why a message was refused that is too large, by the client or the server. Either is nats.ErrMaxPayload.
type tooLargeError struct{ error }

// Is reports whether target is nats.ErrMaxPayload.
func (tooLargeError) Is(target error) bool { return target == nats.ErrMaxPayload }

// Unwrap returns the error of the client or the server.
func (e tooLargeError) Unwrap() error { return e.error }

// withSize returns the error of messages that were published, with the size and the limit if one of the messages was too large. The limit is
// that of now: the stream may have been changed since it was opened.
func (on *target) withSize(ctx context.Context, err error, msgs ...*nats.Msg) error {
	var limit int
	var receiver, setting string
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		limit, receiver, setting = int(on.js.Conn().MaxPayload()), "the server", "max_payload"
	case codeOf(err) == kv.MessageExceedsMaximum, codeOf(err) == jetstreamext.JSErrCodeBatchPublishIncomplete:
		limit, receiver, setting = int(on.config.MaxMsgSize), fmt.Sprintf("stream %q", on.stream), "MaxMsgSize, of a bucket MaxValueSize"
		if s, err := on.js.Stream(ctx, on.stream); err == nil {
			limit = int(s.CachedInfo().Config.MaxMsgSize)
		}
	}
	for _, m := range msgs {
		headers := m.Size() - len(m.Subject) - len(m.Reply) - len(m.Data)
		if limit > 0 && headers+len(m.Data) > limit {
			if codeOf(err) == jetstreamext.JSErrCodeBatchPublishIncomplete { // the server does not say why
				err = &jetstream.APIError{Code: 400, ErrorCode: kv.MessageExceedsMaximum, Description: "message size exceeds maximum allowed"}
			}
			return fmt.Errorf("the message to %q is too large, with %d bytes of data and %d of headers: %s takes %d bytes (%s): write less, or raise the limit: %w", m.Subject, len(m.Data), headers, receiver, limit, setting, tooLargeError{err})
		}
	}
	return err
}

// checkAck returns an error if another stream stored the message.
func (on *target) checkAck(subject, stream, domain string) error {
	if stream != on.stream || on.domain != "" && domain != on.domain {
		return fmt.Errorf("stream %q of domain %q stored the message to %q, not %q of domain %q: connect to that domain", stream, domain, subject, on.stream, on.domain)
	}
	return nil
}
