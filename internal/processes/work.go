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
	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/timeutil"
)

const (
	HeaderToken     = "Drill-Token"
	HeaderCandidate = "Drill-Candidate"
	headerNumber    = "Drill-Number"
	HeaderRewinds   = "Drill-Rewinds" // how often the bucket had forgotten writes when the term was won; none if it never had

	appendEvery   = 20 * time.Millisecond
	appendTimeout = time.Second
)

// Appender appends numbered records to a stream while its candidate leads. The first of a term opens it, and each demands
// that the one before it is the last of the stream: once another has opened a later term, the stream refuses what a
// deposed leader still had on the way, which no lease could call back.
type Appender struct {
	*cli.Session
	Config  *CandidateConfig
	History *history.Writer
	log     *slog.Logger
	inbox   string
	answers chan answer
	term    atomic.Pointer[election.Term] // the one that is worked for
}

// answer is what became of a record.
type answer struct {
	token    string
	number   uint64
	sequence uint64 // of the stream
	err      error
}

// errRefused is that of a record which another came before, or perhaps has.
var errRefused = errors.New("the stream refuses the record")

// refusals are the codes of answers that mean so: on a stream with replicas it may be the second.
var refusals = []jetstream.ErrorCode{jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant}

// newAppender returns an appender that hears all answers, however late they come.
func newAppender(s *cli.Session, c *CandidateConfig, h *history.Writer, log *slog.Logger) (*Appender, error) {
	a := &Appender{Session: s, Config: c, History: h, log: log, inbox: nats.NewInbox(), answers: make(chan answer, 64)}
	_, err := s.Conn.Subscribe(a.inbox+".>", a.hear)
	return a, err
}

// hear takes the answer to a record, which its subject names. The refusal of one whose term is over is what fencing is
// for, and goes into the history.
func (a *Appender) hear(m *nats.Msg) {
	got := parseAnswer(m, a.inbox)
	if t := a.term.Load(); errors.Is(got.err, errRefused) && (t.Token() != got.token || !t.Valid()) {
		_ = a.History.Write(history.Event{What: history.Fenced, Token: got.token, Number: got.number})
	}
	select {
	case a.answers <- got:
	default: // nobody waits for so many
	}
}

// parseAnswer reads an answer.
func parseAnswer(m *nats.Msg, inbox string) answer {
	token, number, _ := strings.Cut(strings.TrimPrefix(m.Subject, inbox+"."), ".")
	got := answer{token: token}
	got.number, _ = strconv.ParseUint(number, 10, 64)
	var ack struct {
		Sequence uint64              `json:"seq"`
		Error    *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &ack); {
	case err != nil:
		got.err = errors.New("no stream answers")
	case ack.Error != nil && slices.Contains(refusals, ack.Error.ErrorCode):
		got.err = errRefused
	case ack.Error != nil:
		got.err = ack.Error
	}
	got.sequence = ack.Sequence
	return got
}

// Position is where a leader stands in the stream.
type Position struct {
	Last    uint64 // the sequence that the next record follows
	number  uint64 // of the next record
	Rewinds int    // before the term was won
	Fenced  bool   // whether there are records of a later term
}

// work appends records for as long as the term lasts.
func (a *Appender) work(ctx context.Context, t election.Term) error {
	a.term.Store(&t)
	var at *Position // nil while it is not known
	opened := -1     // how many rewinds there had been when the term's first record was stored; -1 before
	for timeutil.Pause(ctx, appendEvery) == nil {
		var err error
		switch {
		case at == nil:
			at, err = a.Find(ctx, t, opened)
		case at.Fenced:
			<-ctx.Done()
		default:
			if at, err = a.append(ctx, t, *at); at != nil {
				opened = at.Rewinds
			}
		}
		if err != nil {
			a.log.Debug("Record not appended", "error", err)
		}
	}
	return nil
}

// Find reads where the stream stands. The answer is that of the stream's leader; should it be an old one, the next record
// is refused and it is read again. A term that counts although there are records of a later one is two leaders, beyond
// doubt, and goes into the history. A term whose first record is not stored yet was won after all rewinds that the stream tells
// of; one whose was is over once there has been another.
func (a *Appender) Find(ctx context.Context, t election.Term, opened int) (*Position, error) {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	s, err := a.JetStream.Stream(ctx, a.Config.Stream)
	if err != nil {
		return nil, err
	}
	m, err := s.GetLastMsgForSubject(ctx, a.Config.Subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return &Position{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := ReadRecord(m.Sequence, m.Header)
	at := &Position{Last: m.Sequence, Rewinds: opened}
	if opened < 0 {
		at.Rewinds = rewindsBefore(m.Header)
	}
	own := AfterRewinds(at.Rewinds, t.Token())
	at.Fenced = r.Token > own
	if r.Token == own {
		at.number = r.Number + 1
	}
	if at.Fenced && !IsMark(r) && t.Valid() { // asked after the record was there: its leader had led by then
		if err := a.History.Write(history.Event{What: history.Overtaken, Term: t.Number, Token: r.Token}); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// append appends one record, unless the term is over, and returns where the next belongs; nil if that is not known. It
// does not wait for the answer when the term ends, so that a leader that leaves releases the key at once: should the record
// still be on its way, the stream refuses it after the first one of a successor.
func (a *Appender) append(ctx context.Context, t election.Term, at Position) (*Position, error) {
	m := nats.NewMsg(a.Config.Subject)
	number := strconv.FormatUint(at.number, 10)
	m.Reply = a.inbox + "." + t.Token() + "." + number
	m.Header.Set(HeaderToken, t.Token())
	m.Header.Set(HeaderCandidate, a.Config.Name)
	m.Header.Set(headerNumber, number)
	m.Header.Set(HeaderRewinds, strconv.Itoa(at.Rewinds))
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(at.Last, 10))
	late := time.NewTimer(appendTimeout)
	defer late.Stop()
	if !t.Valid() {
		return &at, nil
	}
	if err := a.Conn.PublishMsg(m); err != nil {
		return nil, err
	}
	for {
		select {
		case got := <-a.answers:
			if got.token != t.Token() || got.number != at.number {
				continue // to a record that was given up
			}
			if got.err != nil {
				return nil, got.err
			}
			return &Position{Last: got.sequence, number: at.number + 1, Rewinds: at.Rewinds}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-late.C:
			return nil, errors.New("no answer in time")
		}
	}
}

// ReadRecord reads what the headers of a record say.
func ReadRecord(sequence uint64, header nats.Header) history.Record {
	number, _ := strconv.ParseUint(header.Get(headerNumber), 10, 64)
	token := AfterRewinds(rewindsBefore(header), header.Get(HeaderToken))
	return history.Record{Sequence: sequence, Candidate: header.Get(HeaderCandidate), Token: token, Number: number}
}

// rewindsBefore returns how many rewinds the headers of a record tell of.
func rewindsBefore(header nats.Header) int {
	n, _ := strconv.Atoi(header.Get(HeaderRewinds))
	return n
}

// AfterRewinds returns a token that sorts after all of terms that were won before so many rewinds.
func AfterRewinds(n int, token string) string {
	if n == 0 {
		return token
	}
	return fmt.Sprintf("r%04d/%s", n, token) // the digits of a token sort before r
}

// IsMark says whether a record is that of a rewind, which no leader appended.
func IsMark(r history.Record) bool { return strings.HasSuffix(r.Token, "/") }
