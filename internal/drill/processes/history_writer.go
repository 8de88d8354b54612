package processes

import (
	"context"
	"io"
	"log/slog"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/internal/cli/events"
	"github.com/natscampaign/election/internal/drill/history"
)

// errWriter is a writer that returns its first error from every later write. The log handler and the appender also write to
// the history, but only the sampler can end the candidate; after a failed write of theirs, the sampler's next write fails too.
// It is not safe for concurrent use.
type errWriter struct {
	w   io.Writer
	err error
}

// Write writes b unless an earlier write failed.
func (w *errWriter) Write(b []byte) (n int, err error) {
	if w.err != nil {
		return 0, w.err
	}
	n, w.err = w.w.Write(b)
	return n, w.err
}

// historyHandler is a log handler that also writes the election's changes of state into the history.
type historyHandler struct {
	next    slog.Handler
	history *history.Writer
}

// Enabled reports whether the handler uses records of that level. Changes of state have the level Info.
func (h *historyHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// WithAttrs returns a handler that adds attrs to the log.
func (h *historyHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &historyHandler{next: h.next.WithAttrs(attrs), history: h.history}
}

// WithGroup returns a handler that adds a group to the log.
func (h *historyHandler) WithGroup(name string) slog.Handler {
	return &historyHandler{next: h.next.WithGroup(name), history: h.history}
}

// Handle logs a record. If the record says that the candidate acquired or lost the key, Handle first writes that into the
// history.
func (h *historyHandler) Handle(ctx context.Context, r slog.Record) error {
	if change, ok := events.StateChange(r); ok && change.Term != 0 {
		e := history.Event{Term: change.Term, Reason: change.Reason}
		switch change.State {
		case election.LeaderElectState:
			e.What = history.Elected
		case election.CandidateState:
			e.What = history.Lost
		}
		if e.What != "" {
			if err := h.history.Write(e); err != nil {
				return err
			}
		}
	}
	return h.next.Handle(ctx, r)
}
