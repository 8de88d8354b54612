package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election/internal/timing"
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
	switch {
	case err != nil:
		return message{}, err
	case stream.CachedInfo().Config.AllowDirect:
		return b.readDirect(ctx, key)
	}
	return b.readByLeader(ctx, key)
}

// readDirect has any replica read. It describes the message by headers after those of the writer.
func (b *Bucket) readDirect(ctx context.Context, key string) (message, error) {
	answer, err := b.Conn().RequestWithContext(ctx, b.api()+"DIRECT.GET."+b.Stream()+"."+b.Subject(key), nil)
	if err != nil {
		return message{}, err
	}
	m := message{header: answer.Header, value: answer.Data}
	if m.revision, err = strconv.ParseUint(LastHeader(m.header, jetstream.SequenceHeader), 10, 64); err != nil {
		return message{}, refusedRead(answer.Header)
	}
	if m.written, err = time.Parse(time.RFC3339Nano, LastHeader(m.header, jetstream.TimeStampHeaer)); err != nil {
		return message{}, fmt.Errorf("the answer to a read has no valid time: %w", err)
	}
	m.ambiguous = describes(m.header, 1)
	return m, nil
}

// refusedRead returns the error of a direct read that was not answered by a message.
func refusedRead(header nats.Header) error {
	switch status := header.Get("Status"); status {
	case "404":
		return jetstream.ErrMsgNotFound
	default:
		return fmt.Errorf("a server answered a read by status %q, %q", status, header.Get("Description"))
	}
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
	if len(read.Message.Header) > 0 {
		m.header, err = nats.DecodeHeadersMsg(read.Message.Header)
	}
	m.ambiguous = err != nil || describes(m.header, 0)
	return m, nil
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
