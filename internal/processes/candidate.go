package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli"
	"github.com/natscampaign/election/internal/events"
	"github.com/natscampaign/election/internal/history"
	"github.com/natscampaign/election/internal/terminal"
)

const (
	askEvery   = 2 * time.Millisecond  // how often a candidate is asked whether it leads
	pauseAfter = 50 * time.Millisecond // from one question to the next is a pause
	BeatEvery  = time.Second
	jitter     = 5 * time.Millisecond // by which a deadline may move when it is read again
)

// CandidateConfig is what the process of a candidate is told.
type CandidateConfig struct {
	Name, Bucket, Key string
	Servers           []string // where its links begin
	Stream, Subject   string   // where it appends records while it leads
	History, Log      string
	TTL, StandDown    time.Duration
}

// standAlone is the process of a candidate. It tells its history to a file, and to whoever started it.
func standAlone(ctx context.Context, line []byte, ready func()) error {
	var config CandidateConfig
	if err := json.Unmarshal(line, &config); err != nil {
		return err
	}
	past, err := os.OpenFile(config.History, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = past.Close() }()
	text, err := os.OpenFile(config.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = text.Close() }()
	h := history.NewWriter(&sticky{w: io.MultiWriter(past, os.Stdout)})
	log := slog.New(&chronicler{next: terminal.NewLogHandler(text, terminal.Style{}, slog.LevelDebug), history: h})
	ready()
	s, err := config.connect(log)
	if err != nil {
		return err
	}
	defer s.Conn.Close()
	bucket, err := s.AwaitBucket(ctx, config.Bucket, log)
	if err != nil {
		return cli.UnlessOver(ctx, err)
	}
	return config.stand(ctx, s, bucket, h, log)
}

// connect reaches the servers over the links, or goes on trying in the background. It does not heed where servers say
// that others are, for that would lead around the links.
func (c *CandidateConfig) connect(log *slog.Logger) (*cli.Session, error) {
	nc, err := nats.Connect(strings.Join(c.Servers, ","), append(cli.LogConnection(log),
		nats.Name(c.Name), nats.UserInfo(c.Name, c.Name), nats.IgnoreDiscoveredServers(), nats.RetryOnFailedConnect(true), nats.ReconnectBufSize(-1),
		nats.MaxReconnects(-1), nats.ReconnectWait(ReconnectWait), nats.ReconnectJitter(ReconnectWait/4, ReconnectWait/4),
		nats.Timeout(time.Second), nats.PingInterval(cli.JoinPing))...)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	return &cli.Session{Conn: nc, JetStream: js, Timeout: time.Minute}, err // servers may be down for long
}

// stand takes part in the election until ctx ends, appends records while it leads, and writes down what it believes.
func (c *CandidateConfig) stand(ctx context.Context, s *cli.Session, bucket *election.Bucket, h *history.Writer, log *slog.Logger) error {
	e, err := election.NewElection(c.Name, c.Key, bucket, election.WithLogger(log),
		election.WithSplay(0), election.WithStandDown(c.StandDown))
	if err != nil {
		return err
	}
	a, err := newAppender(s, c, h, log)
	if err != nil {
		return err
	}
	if err := h.Write(history.Event{What: history.Started}); err != nil {
		return err
	}
	w := &witness{election: e, history: h}
	watching, stop := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() { watched <- w.run(watching) }()
	ran := make(chan error, 1)
	go func() { ran <- e.Run(ctx, a.work) }()
	select {
	case err = <-ran:
		stop()
		if failed := <-watched; failed != nil {
			err = errors.Join(err, unwritten(failed))
		}
	case failed := <-watched: // nobody knows what it believes from here on: the process ends, and the drill with it
		stop()
		return unwritten(failed)
	}
	if err != nil {
		return err
	}
	return h.Write(history.Event{What: history.Stopped})
}

// unwritten is the error of a candidate whose history failed.
func unwritten(err error) error {
	return fmt.Errorf("the history cannot be written, what this candidate believes is not known: %w", err)
}

// sticky is a writer that fails for good once it has failed. Not all who write to a history can end the candidate: what
// they could not write the witness hears of with its next beat.
type sticky struct {
	w   io.Writer
	err error
}

// Write writes unless a write has failed before. It is not called by several at once.
func (s *sticky) Write(b []byte) (n int, err error) {
	if s.err != nil {
		return 0, s.err
	}
	n, s.err = s.w.Write(b)
	return n, s.err
}

// witness asks an election over and over whether it leads, and writes down when the answer changes.
type witness struct {
	election *election.Election
	history  *history.Writer

	samples  int
	asked    time.Duration // when it was asked last
	beat     time.Duration
	term     uint64        // which it believes in; 0 if in none
	last     time.Duration // just before the last true answer was asked for
	deadline time.Duration
}

// run asks until ctx ends.
func (w *witness) run(ctx context.Context) error {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		if err := w.ask(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return w.history.Write(history.Event{What: history.Beat, Samples: w.samples})
		case <-ticker.C:
		}
	}
}

// ask asks once. An answer holds for some moment between the time before it and the time after it, no more is known: a
// belief begins with the time after its first true answer and ends with the one before its last.
func (w *witness) ask() error {
	before := history.Now()
	leads := w.election.IsLeader()
	t, ok := w.election.Term()
	left := time.Until(t.Deadline())
	after := history.Now()
	for _, e := range w.note(before, after, leads && ok, t, left) {
		if err := w.history.Write(e); err != nil {
			return err
		}
	}
	return nil
}

// note takes note of an answer, with what is left of the lease, and returns what is to be written of it. Of an answer in the
// course of which this process was stopped nobody knows when it was given, so that it tells of no deadline.
func (w *witness) note(before, after time.Duration, leads bool, t election.Term, left time.Duration) (events []history.Event) {
	if w.asked > 0 && before-w.asked > pauseAfter {
		events = append(events, history.Event{At: before, What: history.Paused, Last: w.asked, Still: leads})
	}
	if w.term != 0 && (!leads || t.Number != w.term) {
		events = append(events, history.Event{At: after, What: history.Doubts, Term: w.term, Last: w.last})
		w.term = 0
	}
	if leads {
		deadline := after + left
		switch {
		case after-before > jitter:
		case w.term == 0:
			w.term, w.deadline = t.Number, deadline
			events = append(events, history.Event{At: after, What: history.Believes, Term: t.Number, Token: t.Token(), Deadline: deadline})
		case (deadline - w.deadline).Abs() > jitter:
			w.deadline = deadline
			events = append(events, history.Event{At: after, What: history.Renewed, Term: t.Number, Deadline: deadline})
		}
		w.last = before
	}
	w.samples++
	w.asked = before
	if before-w.beat >= BeatEvery {
		w.beat = before
		events = append(events, history.Event{At: after, What: history.Beat, Samples: w.samples})
	}
	return events
}

// chronicler is a log handler that also writes into the history what the election says of its changes of state.
type chronicler struct {
	next    slog.Handler
	history *history.Writer
}

// Enabled says whether records of that level are of use.
func (c *chronicler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || c.next.Enabled(ctx, level)
}

// WithAttrs returns a handler whose log has attrs.
func (c *chronicler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &chronicler{next: c.next.WithAttrs(attrs), history: c.history}
}

// WithGroup returns a handler whose log has a group.
func (c *chronicler) WithGroup(name string) slog.Handler {
	return &chronicler{next: c.next.WithGroup(name), history: c.history}
}

// Handle logs a record, and writes it into the history if it is a change of state that matters there.
func (c *chronicler) Handle(ctx context.Context, r slog.Record) error {
	var state election.State
	var e history.Event
	r.Attrs(func(a slog.Attr) bool {
		switch v := a.Value.Resolve(); a.Key {
		case "state":
			state, _ = v.Any().(election.State)
		case "term":
			e.Term, _ = v.Any().(uint64)
		case "reason":
			e.Reason = v.String()
		}
		return true
	})
	if r.Message == events.MessageStateChanged && e.Term != 0 {
		switch state {
		case election.LeaderElectState:
			e.What = history.Elected
		case election.CandidateState:
			e.What = history.Lost
		}
		if e.What != "" {
			if err := c.history.Write(e); err != nil {
				return err
			}
		}
	}
	return c.next.Handle(ctx, r)
}
