package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/drill/history"
	"github.com/natscampaign/election/internal/timeutil"
)

// Headers of a record.
const (
	HeaderToken     = "Drill-Token"
	HeaderCandidate = "Drill-Candidate"
	HeaderRewinds   = "Drill-Rewinds" // the number of rewinds of the bucket before the term began; absent means 0
	headerNumber    = "Drill-Number"
)

const (
	appendInterval = 20 * time.Millisecond
	appendTimeout  = time.Second
)

// Appender appends numbered records to a stream while its candidate leads. Each record requires that the record before it is
// still the last record of the stream. So after the first record of a later term, the stream refuses the records that a deposed
// leader had already sent. No lease could prevent these records.
type Appender struct {
	*cli.Client
	Candidate string // its name
	key       string // of a session; empty for a candidate without
	History   *history.Writer
	log       *slog.Logger
	inbox     string
	acks      chan ack
	interval  time.Duration
	term      atomic.Pointer[election.Term] // the latest term of the candidate
}

// ack is the answer of the stream to a record.
type ack struct {
	token    string
	number   uint64
	sequence uint64 // in the stream
	err      error
}

// errRefused is the error of a record that does not follow the last record of the stream.
var errRefused = errors.New("the stream refuses the record")

// refusalCodes are the error codes that mean errRefused. A stream with replicas may answer with the second code.
var refusalCodes = []jetstream.ErrorCode{jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant}

// newAppender returns an appender for one of a number of keys, which together append about as much as one would. It receives acks however
// late they arrive, so that it also counts the late records of a term that is over.
func newAppender(s *cli.Client, candidate, key string, keys int, h *history.Writer, log *slog.Logger) (*Appender, error) {
	a := &Appender{Client: s, Candidate: candidate, key: key, History: h, log: log, inbox: nats.NewInbox(), acks: make(chan ack, 64)}
	a.interval = appendInterval * time.Duration(keys)
	_, err := s.Conn.Subscribe(a.inbox+".>", a.receive)
	return a, err
}

// receive handles an ack. If the stream refused a record of a term that is over, receive writes that into the history: the record
// was fenced.
func (a *Appender) receive(m *nats.Msg) {
	got := parseAck(m, a.inbox)
	if t := a.term.Load(); errors.Is(got.err, errRefused) && (t.Token() != got.token || !t.Valid()) {
		_ = a.History.Write(history.Event{What: history.Fenced, Key: a.key, Token: got.token, Number: got.number})
	}
	select {
	case a.acks <- got:
	default: // append waits for one ack at a time, so a full queue holds late acks only
	}
}

// parseAck parses an ack, whose subject has the token and the number of its record.
func parseAck(m *nats.Msg, inbox string) ack {
	token, number, _ := strings.Cut(strings.TrimPrefix(m.Subject, inbox+"."), ".")
	got := ack{token: token}
	got.number, _ = strconv.ParseUint(number, 10, 64)
	var response struct {
		Sequence uint64              `json:"seq"`
		Error    *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &response); {
	case err != nil:
		got.err = errors.New("the stream did not acknowledge the record")
	case response.Error != nil && slices.Contains(refusalCodes, response.Error.ErrorCode):
		got.err = errRefused
	case response.Error != nil:
		got.err = response.Error
	}
	got.sequence = response.Sequence
	return got
}

// Position is the place of a leader's next record in the stream.
type Position struct {
	Last    uint64 // the sequence of the record before it
	number  uint64 // within the term
	Rewinds int    // of the bucket, before the term began
	Fenced  bool   // the stream has records of a later term
}

// work appends records for as long as the term lasts.
func (a *Appender) work(ctx context.Context, t election.Term) error {
	a.term.Store(&t)
	var at *Position        // nil while it is unknown
	rewinds := -1           // before the term's first record; -1 until that record is stored
	pause := appendInterval // the first record is stored soon: from then on the stream shows that an earlier term is over
	for timeutil.Pause(ctx, pause) == nil {
		var err error
		switch {
		case at == nil:
			at, err = a.FindPosition(ctx, t, rewinds)
		case at.Fenced:
			<-ctx.Done()
		default:
			if at, err = a.append(ctx, t, *at); at != nil {
				rewinds = at.Rewinds
			}
		}
		if err != nil {
			a.log.Debug("Record not appended", "error", err)
		}
		if err != nil || at.number > 0 {
			pause = a.interval
		}
	}
	return nil
}

// FindPosition reads the last record of the stream and returns the position of the next record of t. A server may answer with an old
// record; then the stream refuses the next record, and the appender reads again.
//
// If the term is valid although the stream has a record of a later term, there are two leaders, and FindPosition writes that into
// the history.
//
// The caller gives the number of rewinds before the first record of t, or -1 if that record is not stored yet. In the second case
// t began after all rewinds that the stream knows of. In the first case a later rewind in the stream ends t.
func (a *Appender) FindPosition(ctx context.Context, t election.Term, rewinds int) (*Position, error) {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	s, err := a.JetStream.Stream(ctx, Stream)
	if err != nil {
		return nil, err
	}
	m, err := s.GetLastMsgForSubject(ctx, SubjectOfKey(a.key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return &Position{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := ParseRecord(m.Sequence, m.Header)
	at := &Position{Last: m.Sequence, Rewinds: rewinds}
	if rewinds < 0 {
		at.Rewinds = rewindsBefore(m.Header)
	}
	own := SortableToken(at.Rewinds, t.Token())
	at.Fenced = r.Token > own
	if r.Token == own {
		at.number = r.Number + 1
	}
	if at.Fenced && !IsRewindMarker(r) && t.Valid() { // Valid is called after the read, so the later leader had begun before
		if err := a.History.Write(history.Event{What: history.Overtaken, Key: a.key, Term: t.Number, Token: r.Token}); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// append appends one record, unless the term is over, and returns the position of the next record; nil if that is unknown. When the
// term ends, append does not wait for the ack, so that a leader that shuts down releases the key at once. If the record is still on
// its way then, the stream refuses it after the first record of a successor.
func (a *Appender) append(ctx context.Context, t election.Term, at Position) (*Position, error) {
	m := nats.NewMsg(SubjectOfKey(a.key))
	number := strconv.FormatUint(at.number, 10)
	m.Reply = a.inbox + "." + t.Token() + "." + number
	m.Header.Set(HeaderToken, t.Token())
	m.Header.Set(HeaderCandidate, a.Candidate)
	m.Header.Set(headerNumber, number)
	m.Header.Set(HeaderRewinds, strconv.Itoa(at.Rewinds))
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(at.Last, 10))
	timeout := time.NewTimer(appendTimeout)
	defer timeout.Stop()
	if !t.Valid() {
		return &at, nil
	}
	if err := a.Conn.PublishMsg(m); err != nil {
		return nil, err
	}
	for {
		select {
		case got := <-a.acks:
			if got.token != t.Token() || got.number != at.number {
				continue // a late ack of an earlier record
			}
			if got.err != nil {
				return nil, got.err
			}
			return &Position{Last: got.sequence, number: at.number + 1, Rewinds: at.Rewinds}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout.C:
			return nil, fmt.Errorf("the stream did not acknowledge the record within %v", appendTimeout)
		}
	}
}

// ParseRecord parses the headers of a record. The token of the result is a [SortableToken].
func ParseRecord(sequence uint64, header nats.Header) history.Record {
	number, _ := strconv.ParseUint(header.Get(headerNumber), 10, 64)
	token := SortableToken(rewindsBefore(header), header.Get(HeaderToken))
	return history.Record{Sequence: sequence, Candidate: header.Get(HeaderCandidate), Token: token, Number: number}
}

// rewindsBefore returns the number of rewinds before the term of a record.
func rewindsBefore(header nats.Header) int {
	n, _ := strconv.Atoi(header.Get(HeaderRewinds))
	return n
}

// SortableToken returns the token in a form that also sorts after the tokens of all terms before the given number of rewinds. A
// rewind makes the bucket forget terms, so that their numbers come again.
func SortableToken(rewinds int, token string) string {
	if rewinds == 0 {
		return token
	}
	return fmt.Sprintf("r%04d/%s", rewinds, token) // the hexadecimal digits of a token sort before r
}

// IsRewindMarker reports whether the record marks a rewind. The drill appends such records; leaders do not.
func IsRewindMarker(r history.Record) bool { return strings.HasSuffix(r.Token, "/") }
