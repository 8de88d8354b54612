package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
)

// Stream publishes to one stream for one term. Many goroutines may use it at once, and it needs no closing.
type Stream struct {
	handle *handle
}

// OpenStream begins the epoch of term t in a stream, under epochSubject, and returns a handle for writes that belong to the epoch. Handles
// of one term with the same epochSubject share the epoch.
//
// The term must lead, or the error is [ErrFenced], as it is if a newer term has begun its epoch. The stream must store epochSubject, which
// must not be the key that elects the leader; it must be no mirror, have no sources, transform no subjects, acknowledge what it stores, and
// keep what nobody consumes. Its limits must leave room for the record and a write, and keep the record for an hour, which is as long as a
// lease can last, unless it allows TTLs per message. Otherwise OpenStream writes nothing and returns an error. After any other error the
// epoch may have begun: open the stream again.
func OpenStream(ctx context.Context, js jetstream.JetStream, stream, epochSubject string, t election.Term, opts ...Option) (s *Stream, err error) {
	defer func() {
		if err != nil {
			s, err = nil, fmt.Errorf("fence: cannot open stream %q for term %d of election %q: %w", stream, t.Number, t.Key, err)
		}
	}()
	o := optionsOf(opts)
	if err := ready(js, t); err != nil {
		return nil, err
	}
	switch {
	case o.epochKey != nil:
		return nil, errors.New("WithEpochKey is for buckets: the epochs of a stream begin under the subject given")
	case !isSubject(epochSubject):
		return nil, fmt.Errorf("epoch subject %q is not one to publish to: give one without wildcards, blanks and empty parts", epochSubject)
	}
	ctx, cancel := limited(ctx, js)
	defer cancel()
	on, err := find(ctx, js, stream, epochSubject, t)
	if err != nil {
		return nil, err
	}
	if err := on.checkLimits(t, epochSubject, 1); err != nil {
		return nil, err
	}
	h, err := openEpoch(ctx, on, epochSubject, epochSubject, t, false, o)
	return &Stream{h}, err
}

// Publish is [Stream.PublishMsg] for a message of data alone.
func (s *Stream) Publish(ctx context.Context, subject string, data []byte) (*jetstream.PubAck, error) {
	return s.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data})
}

// PublishMsg publishes a message on the demand that no newer epoch has begun. If one has, the error is [ErrFenced], the message was not
// stored, and the handle is closed. The context limits how long the message may queue and be tried again; a context without a deadline gets
// the default timeout of the JetStream given, 5 s. The message is not changed.
//
// Errors of nats.go are passed on. A message over the server's or the stream's limit for its size, which counts its headers and those of
// the demand, is nats.ErrMaxPayload, and the error names both. When the reply was lost the message may have been stored, or may be until a
// newer epoch begins. A message that demands a last sequence of a subject itself cannot make the demand of the epoch too: publish it in a
// batch with a message that makes no demand.
func (s *Stream) PublishMsg(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	if err := s.handle.validate(m); err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	if demands(m) {
		return nil, fmt.Errorf("fence: the message to %q demands a last sequence of its subject itself (%s), and can make one such demand only: publish it in a batch with a message that makes none", m.Subject, jetstream.ExpectedLastSubjSeqHeader)
	}
	return s.handle.store(ctx, m)
}

// PublishBatch publishes messages in their order, and returns the sequences of the stored ones.
//
// Where the stream allows atomic batches (AllowAtomicPublish) all messages are stored, one after the other with nothing between, or none;
// at most 1,000. They may then make demands of their own, such as a last sequence of their subject, if at least one makes none. Elsewhere
// they are published one by one until one fails.
func (s *Stream) PublishBatch(ctx context.Context, msgs ...*nats.Msg) (sequences []uint64, err error) {
	if !s.Atomic() || len(msgs) < 2 {
		for i, m := range msgs {
			ack, err := s.PublishMsg(ctx, m)
			if err != nil {
				return sequences, fmt.Errorf("message %d of %d: %w", i+1, len(msgs), err)
			}
			sequences = append(sequences, ack.Sequence)
		}
		return sequences, nil
	}
	if err := s.handle.validateBatch(msgs); err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	var last uint64
	err = s.handle.write(ctx, slices.ContainsFunc(msgs, expects), s.handle.foreign(msgs...), func(ctx context.Context, d *demand) (err error) {
		batch := make([]*nats.Msg, len(msgs))
		for i, m := range msgs {
			batch[i] = d.fenced(m)
		}
		last, err = s.handle.publishBatch(ctx, batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		sequences = append(sequences, last-uint64(len(msgs)-1-i))
	}
	return sequences, nil
}

// Epoch returns the sequence of the record that began the epoch. Older leaders have written nothing after it: a reader that has read the
// stream that far has read all that they ever will have written.
func (s *Stream) Epoch() uint64 { return s.handle.sequence() }

// Atomic reports whether batches are stored as one.
func (s *Stream) Atomic() bool { return s.handle.config.AllowAtomicPublish }
