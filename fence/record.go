package fence

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/kv"
)

// record is stored under the epoch subject.
type record struct {
	Token    string    `json:"token"`
	Election string    `json:"election"` // the key
	Leader   string    `json:"leader"`   // its name
	Term     uint64    `json:"term"`     // its number, which the token has too
	Since    time.Time `json:"since"`
}

// parseRecord reads a message under an epoch subject, which any client may have written.
func parseRecord(data []byte) (*record, error) {
	rec := new(record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, err
	}
	return rec, validateToken(rec.Token)
}

// writeRecord stores the record if the last message under its subject has the given sequence, and returns its own.
func (h *handle) writeRecord(ctx context.Context, after uint64) (sequence uint64, err error) {
	m, err := h.recordOf(h.term, h.address, after)
	if err != nil {
		return 0, err
	}
	err = persist(ctx, func(ctx context.Context) (err error) {
		sequence, err = h.publish(ctx, m)
		return err
	})
	if codeOf(err) == storeFailed {
		err = fmt.Errorf("stream %q does not store the record of the epoch: if it is full, remove messages or raise MaxMsgs or MaxBytes: %w", h.stream, err)
	}
	return sequence, err
}

// recordOf returns the record of a term, which demands that the last message under its subject has the given sequence.
func (on *target) recordOf(t election.Term, address string, after uint64) (*nats.Msg, error) {
	data, err := json.Marshal(record{t.Token(), t.Key, t.Name, t.Number, t.Since})
	if err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: address, Data: data, Header: nats.Header{
		jetstream.ExpectedStreamHeader:      {on.stream},
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(after, 10)},
	}}
	if on.config.AllowMsgTTL { // the stream keeps the record whatever the age of other messages
		m.Header.Set(jetstream.MsgTTLHeader, "never")
	}
	return m, nil
}

// last returns the record under the epoch subject and its sequence. The record is nil if there is none; the sequence is then that of its
// deletion marker, or 0.
func (h *handle) last(ctx context.Context) (*record, uint64, error) {
	m, err := h.lastUnder(ctx, h.subject)
	if err != nil || m.Sequence == 0 || kv.IsRemoval(m.Header) {
		return nil, m.Sequence, err
	}
	rec, err := parseRecord(m.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("the message under %q in stream %q, at sequence %d, is no epoch: give a subject that nothing else uses: %w", h.subject, h.stream, m.Sequence, err)
	}
	return rec, m.Sequence, nil
}
