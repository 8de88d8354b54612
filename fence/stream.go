package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/natscampaign/election"
)

// Stream publishes to one stream for one term. It may be used by many goroutines at once, and needs no closing.
type Stream struct {
	epoch  *epoch
	atomic bool
}

// OpenStream begins the epoch of term t in a stream, under epochSubject, and returns a handle for writes that belong to it.
// To open it twice for a term is to have two handles for one epoch.
//
// The term must lead, or the error is [ErrFenced], as it is if a newer term has begun its epoch. The stream must store
// epochSubject, which must not be the key that elects the leader; it must be no mirror, must acknowledge what it stores, and must
// keep what nobody consumes.
// Nothing is written when an error is returned, but that a reply may have been lost: then open it again.
func OpenStream(ctx context.Context, js jetstream.JetStream, stream, epochSubject string, t election.Term, opts ...Option) (*Stream, error) {
	s, err := openStream(ctx, js, stream, epochSubject, t, opts)
	if err != nil {
		return nil, fmt.Errorf("fence: cannot open stream %q for term %d of election %q: %w", stream, t.Number, t.Key, err)
	}
	return s, nil
}

func openStream(ctx context.Context, js jetstream.JetStream, stream, epochSubject string, t election.Term, opts []Option) (*Stream, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case o.epochKey != nil:
		return nil, errors.New("WithEpochKey is for buckets; the epochs of a stream begin under the subject given")
	case !isSubject(epochSubject):
		return nil, fmt.Errorf("epoch subject %q is not one to publish to; give one without wildcards, blanks and empty parts", epochSubject)
	}
	if err := begins(js, t); err != nil {
		return nil, err
	}
	ctx, cancel := limited(ctx, js)
	defer cancel()
	info, err := infoOf(ctx, js, stream)
	if err != nil {
		return nil, err
	}
	if err := suits(info, epochSubject, t); err != nil {
		return nil, err
	}
	e, err := openEpoch(ctx, js, info, epochSubject, epochSubject, t, o)
	if err != nil {
		return nil, err
	}
	return &Stream{epoch: e, atomic: info.Config.AllowAtomicPublish}, nil
}

// begins says why a term cannot begin an epoch, before anything is asked of a server.
func begins(js jetstream.JetStream, t election.Term) error {
	switch {
	case js == nil:
		return errors.New("no JetStream given; jetstream.New makes one of a connection")
	case t.Number == 0:
		return fmt.Errorf("no term given; Election.Run hands one to the work, and Election.Term returns it: %w", election.ErrNotLeader)
	case !t.Valid():
		return over(t)
	}
	return nil
}

func infoOf(ctx context.Context, js jetstream.JetStream, stream string) (*jetstream.StreamInfo, error) {
	var found jetstream.Stream
	err := persist(ctx, func(ctx context.Context) (err error) {
		found, err = js.Stream(ctx, stream)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found.CachedInfo(), nil
}

// openEpoch begins the epoch of t in a stream that suits.
func openEpoch(ctx context.Context, js jetstream.JetStream, info *jetstream.StreamInfo, subject, target string, t election.Term, o options) (*epoch, error) {
	counters, err := newWrites(o.registerer, t.Key, t.Name, info.Config.Name)
	if err != nil {
		return nil, err
	}
	e := &epoch{
		js: js, api: apiPrefix(js), stream: info.Config.Name, subject: subject, target: target, term: t,
		keep:   info.Config.AllowMsgTTL && info.Config.MaxAge > 0,
		writes: counters, writing: newTurn(), begins: newTurn(),
	}
	e.queue.Store(info.Config.Replicas > 1)
	return e, e.open(ctx)
}

// suits says what is wrong with a stream for epochs that begin under the given subject.
func suits(info *jetstream.StreamInfo, subject string, t election.Term) error {
	cfg := info.Config
	switch {
	case cfg.Mirror != nil:
		return fmt.Errorf("it is a mirror; open its origin, stream %q", cfg.Mirror.Name)
	case cfg.NoAck:
		return errors.New("it acknowledges nothing; turn NoAck off")
	case cfg.Sealed:
		return errors.New("it is sealed, and takes no more messages")
	case cfg.Retention == jetstream.InterestPolicy:
		return errors.New("it keeps only what consumers wait for, and would drop the epoch; use a stream with limits, or a work queue whose consumers leave the epoch out")
	case cfg.SubjectTransform != nil && matches(cmp.Or(cfg.SubjectTransform.Source, ">"), subject):
		return fmt.Errorf("it stores the epoch subject %q under another (%q to %q); give one that it does not transform", subject, cfg.SubjectTransform.Source, cfg.SubjectTransform.Destination)
	case !slices.ContainsFunc(cfg.Subjects, func(pattern string) bool { return matches(pattern, subject) }):
		return fmt.Errorf("it does not store the epoch subject %q, only %q; add it to the stream's subjects, or give one of those", subject, cfg.Subjects)
	}
	if bucket, ok := strings.CutPrefix(cfg.Name, bucketPrefix); ok && subject == subjectOf(bucket, t.Key) && info.Created.Equal(t.Bucket) {
		return fmt.Errorf("%q is the key of the election itself, under which the lease is renewed; give another subject for epochs", subject)
	}
	return nil
}

// isSubject says whether a message can be published to a subject.
func isSubject(s string) bool {
	return !strings.ContainsAny(s, "*> \t\r\n") && !slices.Contains(strings.Split(s, "."), "")
}

// matches says whether a subject without wildcards is one of a pattern.
func matches(pattern, subject string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range want {
		if token == ">" {
			return len(have) > i
		}
		if i >= len(have) || token != "*" && token != have[i] {
			return false
		}
	}
	return len(want) == len(have)
}

// apiPrefix returns what the subjects of the JetStream API begin with for js.
func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return jetstream.DefaultAPIPrefix
}

// limited gives ctx a deadline if it has none: nats.go's own for requests.
func limited(ctx context.Context, js jetstream.JetStream) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, js.Options().DefaultTimeout)
}

// Publish is [Stream.PublishMsg] for a message that is no more than its data.
func (s *Stream) Publish(ctx context.Context, subject string, data []byte) (*jetstream.PubAck, error) {
	return s.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data})
}

// PublishMsg publishes a message on the demand that no newer epoch has begun. If one has, the error is [ErrFenced], the
// message was not stored, and the handle is closed. The context limits how long the message may queue and be tried again; one
// without a deadline is given the default timeout of the JetStream given, 5 s. The message is not changed.
//
// Errors of nats.go come as they are. When the reply was lost the message may have been stored, or may be until a newer epoch
// begins. A message that makes a demand for the last sequence of a subject itself cannot make that of the epoch too: put it into
// a batch, together with one that makes none.
func (s *Stream) PublishMsg(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	if err := s.epoch.takes(m); err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	if demands(m) {
		return nil, fmt.Errorf("fence: the message to %q demands a last sequence of its subject itself (%s), and can make one such demand only; publish it in a batch with one that makes none", m.Subject, jetstream.ExpectedLastSubjSeqHeader)
	}
	own := m.Header.Get(jetstream.ExpectedLastSeqHeader) != ""
	var ack *jetstream.PubAck
	err := s.epoch.write(ctx, own, func(ctx context.Context, d *demand) (err error) {
		ack, err = s.epoch.js.PublishMsg(ctx, d.fenced(m))
		return err
	})
	if err != nil {
		return nil, err
	}
	return ack, nil
}

// PublishBatch publishes messages in their order, and returns the sequences of those that were stored.
//
// Where the stream allows atomic batches (AllowAtomicPublish) all are stored, one after the other with nothing between, or
// none; at most 1,000. They may then make demands of their own, such as a last sequence of their subject, as long as one makes none. Elsewhere
// they are published one by one until one fails.
func (s *Stream) PublishBatch(ctx context.Context, msgs ...*nats.Msg) ([]uint64, error) {
	if !s.atomic || len(msgs) == 1 {
		return s.publishInTurn(ctx, msgs)
	}
	own := false
	for _, m := range msgs {
		if err := s.epoch.takes(m); err != nil {
			return nil, fmt.Errorf("fence: %w", err)
		}
		own = own || demands(m) || m.Header.Get(jetstream.ExpectedLastSeqHeader) != ""
	}
	if len(msgs) > 0 && !slices.ContainsFunc(msgs, func(m *nats.Msg) bool { return !demands(m) }) {
		return nil, fmt.Errorf("fence: all %d messages demand a last sequence of their subjects (%s), and none is left to make that of the epoch; add one", len(msgs), jetstream.ExpectedLastSubjSeqHeader)
	}
	var last uint64
	err := s.epoch.write(ctx, own, func(ctx context.Context, d *demand) (err error) {
		batch := make([]*nats.Msg, len(msgs))
		for i, m := range msgs {
			batch[i] = d.fenced(m)
		}
		last, err = s.epoch.publishBatch(ctx, batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	sequences := make([]uint64, len(msgs))
	for i := range sequences {
		sequences[i] = last - uint64(len(msgs)-1-i)
	}
	return sequences, nil
}

func (s *Stream) publishInTurn(ctx context.Context, msgs []*nats.Msg) (sequences []uint64, err error) {
	for i, m := range msgs {
		ack, err := s.PublishMsg(ctx, m)
		if err != nil {
			return sequences, fmt.Errorf("message %d of %d: %w", i+1, len(msgs), err)
		}
		sequences = append(sequences, ack.Sequence)
	}
	return sequences, nil
}

// Epoch returns the sequence of the record that began the epoch. Older leaders have written nothing after it: who has read the
// stream that far has seen all that they ever will have written.
func (s *Stream) Epoch() uint64 { return s.epoch.demand.Load().sequence }

// Atomic says whether batches are stored as one.
func (s *Stream) Atomic() bool { return s.atomic }

// takes says why a message cannot be published for the epoch.
func (e *epoch) takes(m *nats.Msg) error {
	switch {
	case m == nil:
		return errors.New("no message given")
	case m.Subject == e.subject:
		return fmt.Errorf("%q is the subject of the epochs, which only opening the stream writes; publish to another", m.Subject)
	}
	return nil
}

// demands says whether a message makes the one demand for a last sequence of a subject that it can.
func demands(m *nats.Msg) bool {
	return m.Header.Get(jetstream.ExpectedLastSubjSeqHeader) != ""
}

// demand is what every write demands of the server: that the record has this sequence.
type demand struct {
	sequence uint64
	header   nats.Header // that says so; it is shared, and never changed
}

func (e *epoch) demandOf(sequence uint64) *demand {
	return &demand{sequence, nats.Header{
		jetstream.ExpectedLastSubjSeqHeader:     {strconv.FormatUint(sequence, 10)},
		jetstream.ExpectedLastSubjSeqSubjHeader: {e.subject},
	}}
}

// naming returns the demand with that for the stream as well, which costs every write a little and is only needed to find out
// why one was refused: another stream has no such record.
func (d *demand) naming(stream string) *demand {
	header := maps.Clone(d.header)
	header[jetstream.ExpectedStreamHeader] = []string{stream}
	return &demand{d.sequence, header}
}

// fenced returns a copy of m that makes the demand, unless it makes one of its own. Data, and values of headers, are shared.
func (d *demand) fenced(m *nats.Msg) *nats.Msg {
	copied := &nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: d.header, Data: m.Data}
	if len(m.Header) > 0 {
		copied.Header = maps.Clone(d.header)
		if demands(m) {
			delete(copied.Header, jetstream.ExpectedLastSubjSeqSubjHeader)
		}
		maps.Copy(copied.Header, m.Header)
	}
	return copied
}

// unconfirmed is how many messages of a batch may be sent before the server has confirmed that it takes them.
const unconfirmed = 100

// publishBatch stores messages as one and returns the sequence of the last.
func (e *epoch) publishBatch(ctx context.Context, batch []*nats.Msg) (uint64, error) {
	for _, m := range batch {
		m.Header = maps.Clone(m.Header) // which the numbers of the batch are put into
	}
	flow := jetstreamext.BatchFlowControl{}
	if len(batch) > unconfirmed {
		flow = jetstreamext.BatchFlowControl{AckFirst: true, AckEvery: unconfirmed, AckTimeout: e.js.Options().DefaultTimeout}
	}
	ack, err := jetstreamext.PublishMsgBatch(ctx, e.js, batch, flow)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}
