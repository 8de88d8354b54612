package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/history"
)

const (
	headerToken     = "Drill-Token"
	headerCandidate = "Drill-Candidate"
	headerNumber    = "Drill-Number"
	headerRewinds   = "Drill-Rewinds" // how often the bucket had forgotten writes when the term was won; none if it never had

	appendEvery   = 20 * time.Millisecond
	appendTimeout = time.Second
)

// appender appends numbered records to a stream while its candidate leads. The first of a term opens it, and each demands
// that the one before it is the last of the stream: once another has opened a later term, the stream refuses what a
// deposed leader still had on the way, which no lease could call back.
type appender struct {
	*session
	config  *candidateConfig
	history *history.Writer
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
func newAppender(s *session, c *candidateConfig, h *history.Writer, log *slog.Logger) (*appender, error) {
	a := &appender{session: s, config: c, history: h, log: log, inbox: nats.NewInbox(), answers: make(chan answer, 64)}
	_, err := s.nc.Subscribe(a.inbox+".>", a.hear)
	return a, err
}

// hear takes the answer to a record, which its subject names. The refusal of one whose term is over is what fencing is
// for, and goes into the history.
func (a *appender) hear(m *nats.Msg) {
	got := parseAnswer(m, a.inbox)
	if t := a.term.Load(); errors.Is(got.err, errRefused) && (t.Token() != got.token || !t.Valid()) {
		_ = a.history.Write(history.Event{What: history.Fenced, Token: got.token, Number: got.number})
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

// position is where a leader stands in the stream.
type position struct {
	last    uint64 // the sequence that the next record follows
	number  uint64 // of the next record
	rewinds int    // before the term was won
	fenced  bool   // whether there are records of a later term
}

// work appends records for as long as the term lasts.
func (a *appender) work(ctx context.Context, t election.Term) error {
	a.term.Store(&t)
	var at *position // nil while it is not known
	opened := -1     // how many rewinds there had been when the term's first record was stored; -1 before
	for pause(ctx, appendEvery) == nil {
		var err error
		switch {
		case at == nil:
			at, err = a.find(ctx, t, opened)
		case at.fenced:
			<-ctx.Done()
		default:
			if at, err = a.append(ctx, t, *at); at != nil {
				opened = at.rewinds
			}
		}
		if err != nil {
			a.log.Debug("Record not appended", "error", err)
		}
	}
	return nil
}

// find reads where the stream stands. The answer is that of the stream's leader; should it be an old one, the next record
// is refused and it is read again. A term that counts although there are records of a later one is two leaders, beyond
// doubt, and goes into the history. A term whose first record is not stored yet was won after all rewinds that the stream tells
// of; one whose was is over once there has been another.
func (a *appender) find(ctx context.Context, t election.Term, opened int) (*position, error) {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	s, err := a.js.Stream(ctx, a.config.Stream)
	if err != nil {
		return nil, err
	}
	m, err := s.GetLastMsgForSubject(ctx, a.config.Subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return &position{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := readRecord(m.Sequence, m.Header)
	at := &position{last: m.Sequence, rewinds: opened}
	if opened < 0 {
		at.rewinds = rewindsBefore(m.Header)
	}
	own := afterRewinds(at.rewinds, t.Token())
	at.fenced = r.Token > own
	if r.Token == own {
		at.number = r.Number + 1
	}
	if at.fenced && !isMark(r) && t.Valid() { // asked after the record was there: its leader had led by then
		if err := a.history.Write(history.Event{What: history.Overtaken, Term: t.Number, Token: r.Token}); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// append appends one record, unless the term is over, and returns where the next belongs; nil if that is not known. It
// does not wait for the answer when the term ends, so that a leader that leaves releases the key at once: should the record
// still be on its way, the stream refuses it after the first one of a successor.
func (a *appender) append(ctx context.Context, t election.Term, at position) (*position, error) {
	m := nats.NewMsg(a.config.Subject)
	number := strconv.FormatUint(at.number, 10)
	m.Reply = a.inbox + "." + t.Token() + "." + number
	m.Header.Set(headerToken, t.Token())
	m.Header.Set(headerCandidate, a.config.Name)
	m.Header.Set(headerNumber, number)
	m.Header.Set(headerRewinds, strconv.Itoa(at.rewinds))
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(at.last, 10))
	late := time.NewTimer(appendTimeout)
	defer late.Stop()
	if !t.Valid() {
		return &at, nil
	}
	if err := a.nc.PublishMsg(m); err != nil {
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
			return &position{last: got.sequence, number: at.number + 1, rewinds: at.rewinds}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-late.C:
			return nil, errors.New("no answer in time")
		}
	}
}

// readRecord reads what the headers of a record say.
func readRecord(sequence uint64, header nats.Header) history.Record {
	number, _ := strconv.ParseUint(header.Get(headerNumber), 10, 64)
	token := afterRewinds(rewindsBefore(header), header.Get(headerToken))
	return history.Record{Sequence: sequence, Candidate: header.Get(headerCandidate), Token: token, Number: number}
}

// rewindsBefore returns how many rewinds the headers of a record tell of.
func rewindsBefore(header nats.Header) int {
	n, _ := strconv.Atoi(header.Get(headerRewinds))
	return n
}
