package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/record"
	"github.com/natscampaign/election/internal/timing"
)

// The headers that the client makes of the status of a message.
const (
	headerStatus      = "Status"
	headerDescription = "Description"
)

// message is a message of the bucket's stream.
type message struct {
	header   nats.Header
	revision uint64
	written  time.Time
	value    []byte
	// ambiguous means that the writer gave it headers by which servers describe what they read: it is the stored answer of a server, or made
	// to look like one. The revision and the time are nevertheless those of the server.
	ambiguous bool
}

// lastMessage reads the last message of a key. The client's own reads take the first value of each header, which may be the writer's.
func (b *Bucket) lastMessage(ctx context.Context, key string) (message, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timing.RequestTimeout)
		defer cancel()
	}
	stream, err := b.backing(ctx)
	if err != nil {
		return message{}, err
	}
	read := b.readByLeader
	if stream.CachedInfo().Config.AllowDirect {
		read = b.readDirect
	}
	m, err := read(ctx, key)
	if err != nil && Failure(err) == FailedNoStream {
		b.stream.Store(nil) // an operator may have changed how the stream can be read
	}
	return m, err
}

// HasTTL reports whether what is stored under a key at a revision has a TTL of its own, or may have: a handle without a connection reads no headers.
func (b *Bucket) HasTTL(ctx context.Context, key string, revision uint64) (has bool, err error) {
	if b.js == nil {
		return true, nil
	}
	err = UntilRefused(ctx, b.Conn(), b.ToRead(key), func(ctx context.Context) error {
		m, err := b.lastMessage(ctx, key)
		has = err == nil && m.revision == revision && (m.ambiguous || m.header.Get(jetstream.MsgTTLHeader) != "")
		return err
	})
	return has, err
}

// removal returns how the message removed its key. One that is ambiguous removes nothing, whatever it says.
func (m message) removal() record.Removal {
	if m.ambiguous {
		return record.Kept
	}
	return RemovalOf(m.header, m.value)
}

// readDirect has any replica read. It describes the message by headers after those of the writer. A writer can make headers after which the
// client reads no more, or that it takes for a status: then the message is read in another way.
func (b *Bucket) readDirect(ctx context.Context, key string) (message, error) {
	subject := b.api() + "DIRECT.GET." + b.Stream() + "." + b.Subject(key)
	answer, err := b.Conn().RequestWithContext(ctx, subject, nil)
	if errors.Is(err, nats.ErrNoResponders) { // or the message looks like that
		answer, err = b.ask(ctx, subject)
	}
	if err != nil {
		return message{}, err
	}
	header := headerSize(answer)
	if err := statusOf(answer, header); err != nil {
		return message{}, err
	}
	if !isWhole(answer.Header, header) {
		return b.readByConsumer(ctx, key)
	}
	m := message{header: answer.Header, value: answer.Data, ambiguous: describes(answer.Header, 1)}
	if m.revision, err = strconv.ParseUint(LastHeader(m.header, jetstream.SequenceHeader), 10, 64); err != nil {
		return message{}, fmt.Errorf("the answer to a read has no valid sequence: %w", err)
	}
	if m.written, err = time.Parse(time.RFC3339Nano, LastHeader(m.header, jetstream.TimeStampHeaer)); err != nil {
		return message{}, fmt.Errorf("the answer to a read has no valid time: %w", err)
	}
	return m, nil
}

// ask makes a request and returns the answer as it is: the client makes errors of some.
func (b *Bucket) ask(ctx context.Context, subject string) (*nats.Msg, error) {
	inbox, answers := b.Conn().NewInbox(), make(chan *nats.Msg, 1)
	s, err := b.Conn().ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Unsubscribe() }()
	if err := b.Conn().PublishRequest(subject, inbox, nil); err != nil {
		return nil, err
	}
	select {
	case answer := <-answers:
		return answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// statusOf returns the error of a read that a server answers by a status; nil for a message, of which it says the sequence.
func statusOf(answer *nats.Msg, header int) error {
	if len(answer.Header[jetstream.SequenceHeader]) > 0 {
		return nil
	}
	rest := maps.Clone(answer.Header)
	delete(rest, headerStatus)
	delete(rest, headerDescription)
	status, description := answer.Header.Get(headerStatus), answer.Header.Get(headerDescription)
	line := strings.TrimSpace(status + " " + description)
	switch {
	case len(answer.Data) > 0 || status == "" || header != sizeOf(rest)+1+len(line):
		return nil
	case status == "404":
		return jetstream.ErrMsgNotFound
	case status == "503":
		return nats.ErrNoResponders
	}
	return fmt.Errorf("a server refuses a read: status %s", line)
}

// readByLeader has the leader of the stream read. It describes the message beside the headers of the writer.
func (b *Bucket) readByLeader(ctx context.Context, key string) (message, error) {
	request, err := json.Marshal(map[string]string{"last_by_subj": b.Subject(key)})
	if err != nil {
		return message{}, err
	}
	answer, err := b.Conn().RequestWithContext(ctx, b.api()+"STREAM.MSG.GET."+b.Stream(), request)
	if err != nil {
		return message{}, err
	}
	var read struct {
		Message *struct {
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(answer.Data, &read); {
	case err != nil:
		return message{}, fmt.Errorf("the answer to a read is invalid: %w", err)
	case read.Error != nil && read.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return message{}, jetstream.ErrMsgNotFound
	case read.Error != nil:
		return message{}, read.Error
	case read.Message == nil:
		return message{}, errors.New("the answer to a read has no message")
	}
	m := message{revision: read.Message.Sequence, written: read.Message.Time, value: read.Message.Data}
	var plain bool
	m.header, plain = PlainHeader(read.Message.Header)
	m.ambiguous = !plain
	return m, nil
}

// PlainHeader returns the header of a message as it is stored. It is not plain if the writer made it such that nobody can rely on what it says,
// as in the stored answer of a server, and nil then.
func PlainHeader(stored []byte) (header nats.Header, plain bool) {
	if len(stored) == 0 {
		return nil, true
	}
	header, err := nats.DecodeHeadersMsg(stored)
	if err != nil || !isWhole(header, len(stored)) || describes(header, 0) {
		return nil, false
	}
	return header, true
}

// readByConsumer has a consumer send the message. Its revision and its time are those of the subject for an acknowledgement, which no writer
// can touch. What its header says is not known.
func (b *Bucket) readByConsumer(ctx context.Context, key string) (m message, err error) {
	err = UntilRefused(ctx, b.Conn(), b.ToWatch(key), func(ctx context.Context) (err error) {
		m, err = b.consumeLast(ctx, key)
		return err
	})
	return m, err
}

func (b *Bucket) consumeLast(ctx context.Context, key string) (message, error) {
	stream, err := b.backing(ctx)
	if err != nil {
		return message{}, err
	}
	inbox, messages := b.Conn().NewInbox(), make(chan *nats.Msg, 1)
	s, err := b.Conn().ChanSubscribe(inbox, messages)
	if err != nil {
		return message{}, err
	}
	defer func() { _ = s.Unsubscribe() }()
	c, err := stream.CreatePushConsumer(ctx, jetstream.ConsumerConfig{
		DeliverSubject: inbox, DeliverPolicy: jetstream.DeliverLastPolicy, FilterSubject: b.Subject(key), AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: timing.RequestTimeout,
	})
	if err != nil {
		return message{}, err
	}
	if c.CachedInfo().NumPending == 0 && c.CachedInfo().Delivered.Stream == 0 {
		return message{}, jetstream.ErrMsgNotFound
	}
	select {
	case received := <-messages:
		about, err := received.Metadata()
		if err != nil {
			return message{}, err
		}
		return message{revision: about.Sequence.Stream, written: about.Timestamp, value: received.Data, ambiguous: true}, nil
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
}

// maxHeaders is how many headers a message may have that is read whole. A header can be written in two bytes less than the client writes it,
// and what a server adds is longer than all that.
const maxHeaders = 16

// IsWhole reports whether the header of a message that was received has nothing but what the client read of it.
func IsWhole(m *nats.Msg) bool {
	size := headerSize(m)
	return size == 0 || isWhole(m.Header, size)
}

// headerSize returns how much of a header was received, in bytes.
func headerSize(m *nats.Msg) int { return m.Size() - len(m.Subject) - len(m.Reply) - len(m.Data) }

// isWhole reports whether a header of the given size has nothing but what the client read of it.
func isWhole(header nats.Header, size int) bool {
	n := 0
	for _, values := range header {
		n += len(values)
	}
	return n <= maxHeaders && size == sizeOf(header)
}

// sizeOf returns the size of a header as clients and servers write it.
func sizeOf(header nats.Header) int {
	size := len("NATS/1.0\r\n\r\n")
	for name, values := range header {
		for _, value := range values {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	return size
}

// describes reports whether a header describes a message that was read more often than own times.
func describes(header nats.Header, own int) bool {
	for _, name := range []string{jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer} {
		if len(header.Values(name)) > own {
			return true
		}
	}
	return false
}

// LastHeader returns the last value of a header.
func LastHeader(header nats.Header, name string) string {
	if values := header.Values(name); len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}
